package uprobe

import (
	"debug/elf"
	"encoding/binary"
)

// sysUretprobe: a return probe's trampoline is a breakpoint here, no system call.
const sysUretprobe = 0

// priceProgram calls a function so often, up to 65,535 times, and exits; at is the
// function's offset in the file.
func priceProgram(calls uint32, stepped bool) (program []byte, at uint64) {
	words := []uint32{
		0x52800009 | calls&0xffff<<5, // mov w9, #calls
		0x94000006,                   // bl function
		0x71000529,                   // subs w9, w9, #1
		0x54ffffc1,                   // b.ne to the bl
		0x52800000,                   // mov w0, #0
		0xd2800bc8,                   // mov x8, #exit_group
		0xd4000001,                   // svc #0
	}
	at = uint64(priceHeader + 4*len(words))
	if stepped {
		words = append(words, 0x9100014a, 0xd65f03c0) // add x10, x10, #0; ret
	} else {
		words = append(words, 0xd503201f, 0xd65f03c0) // nop; ret
	}
	var code []byte
	for _, w := range words {
		code = binary.LittleEndian.AppendUint32(code, w)
	}
	return priceELF(elf.EM_AARCH64, code), at
}
