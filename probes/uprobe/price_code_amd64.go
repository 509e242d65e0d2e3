package uprobe

import (
	"debug/elf"
	"encoding/binary"
)

// sysUretprobe is the system call that the trampoline of a return probe makes.
const sysUretprobe = 335

// priceProgram calls a function so often and exits; at is the function's offset
// in the file.
func priceProgram(calls uint32, stepped bool) (program []byte, at uint64) {
	code := []byte{0xb9, 0, 0, 0, 0} // mov $calls, %ecx
	binary.LittleEndian.PutUint32(code[1:], calls)
	code = append(code,
		0xe8, 13, 0, 0, 0, // call function
		0xff, 0xc9, // dec %ecx
		0x75, 0xf7, // jnz to the call
		0x31, 0xff, // xor %edi, %edi
		0xb8, 231, 0, 0, 0, // mov $exit_group, %eax
		0x0f, 0x05, // syscall
	)
	at = uint64(priceHeader + len(code))
	if stepped {
		// sub $8, %rsp; add $8, %rsp; ret
		code = append(code, 0x48, 0x83, 0xec, 8, 0x48, 0x83, 0xc4, 8, 0xc3)
	} else {
		code = append(code, 0x55, 0x5d, 0xc3) // push %rbp; pop %rbp; ret
	}
	return priceELF(elf.EM_X86_64, code), at
}
