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
	size := uint64(priceHeader + len(code))
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Entry: priceBase + priceHeader,
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64,
	}
	segment := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: priceBase, Paddr: priceBase,
		Filesz: size, Memsz: size, Align: 0x1000,
	}
	b, _ := binary.Append(nil, binary.LittleEndian, header) // of a fixed size, as the other: neither can fail
	b, _ = binary.Append(b, binary.LittleEndian, segment)
	return append(b, code...)
}
