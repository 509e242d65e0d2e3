package uprobe

import (
	"debug/elf"
	"encoding/binary"
)

const (
	priceBase   = 0x400000
	priceHeader = 64 + 56 // ELF header, one program header
)

// priceELF wraps machine code into the smallest static program.
func priceELF(machine elf.Machine, code []byte) []byte {
	le := binary.LittleEndian
	b := make([]byte, priceHeader, priceHeader+len(code))
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], uint16(elf.ET_EXEC))
	le.PutUint16(b[18:], uint16(machine))
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[24:], priceBase+priceHeader) // entry
	le.PutUint64(b[32:], 64)                    // program headers
	le.PutUint16(b[52:], 64)
	le.PutUint16(b[54:], 56)
	le.PutUint16(b[56:], 1)
	le.PutUint16(b[58:], 64) // size of a section header, of which there are none
	p := b[64:]
	le.PutUint32(p, uint32(elf.PT_LOAD))
	le.PutUint32(p[4:], uint32(elf.PF_R|elf.PF_X))
	le.PutUint64(p[16:], priceBase)
	le.PutUint64(p[24:], priceBase)
	le.PutUint64(p[32:], uint64(priceHeader+len(code)))
	le.PutUint64(p[40:], uint64(priceHeader+len(code)))
	le.PutUint64(p[48:], 0x1000)
	return append(b, code...)
}
