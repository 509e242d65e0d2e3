package device

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf/asm"

	"github.com/trimtab/trimtab/runtime"
)

// allowing puts rules in front of a device program: what they allow is allowed, all
// else goes on to the program, so no rule of it is lost, whatever it says. Its jumps
// are relative and it is moved as a whole. This is how NVIDIA's hook adds GPUs too.
func allowing(rules []runtime.DeviceRule, rest asm.Instructions) (asm.Instructions, error) {
	out := loadRequest()
	for _, r := range rules {
		access := accessBits(r.Access)
		if access == 0 || !slices.Contains([]string{"a", "b", "c"}, r.Kind) {
			return nil, fmt.Errorf("rule %q allows nothing, or is for an unknown kind of device", r)
		}
		asked := asm.Instructions{asm.And.Imm(asm.R0, ^access), asm.JNE.Imm(asm.R0, 0, "")} // for nothing that the rule does not give
		out = append(out, answering(r, asked, 1)...)
	}
	if len(rest) == 0 {
		rest = asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()} // the program that knows no rule
	}
	return append(out, plain(rest)...), nil
}

// loadRequest puts a request into registers: its kind into R2, access R3, major R4, minor R5. R1,
// the request itself, stays as it is for whatever follows.
func loadRequest() asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // access<<16 | kind
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.And.Imm(asm.R2, 0xffff),
		asm.RSh.Imm(asm.R3, 16),
		asm.LoadMem(asm.R4, asm.R1, 4, asm.Word),
		asm.LoadMem(asm.R5, asm.R1, 8, asm.Word),
	}
}

// answering ends the program with an answer where a request is for what a rule names and the access
// that it asks for, in R0, passes the test; else it goes on behind these instructions.
func answering(r runtime.DeviceRule, test asm.Instructions, answer int32) asm.Instructions {
	var out asm.Instructions
	if kind, one := map[string]int32{"c": devChar, "b": devBlock}[r.Kind]; one {
		out = append(out, asm.JNE.Imm(asm.R2, kind, ""))
	}
	out = append(append(out, asm.Mov.Reg(asm.R0, asm.R3)), test...)
	if r.Major != runtime.AnyDevice {
		out = append(out, asm.JNE.Imm(asm.R4, int32(r.Major), ""))
	}
	if r.Minor != runtime.AnyDevice {
		out = append(out, asm.JNE.Imm(asm.R5, int32(r.Minor), ""))
	}
	for i := range out {
		if out[i].OpCode.Class().IsJump() {
			out[i].Offset = int16(len(out) + 1 - i)
		}
	}
	return append(out, asm.Mov.Imm(asm.R0, answer), asm.Return())
}

func accessBits(access string) (bits int32) {
	for letter, bit := range map[string]int32{"m": accMknod, "r": accRead, "w": accWrite} {
		if strings.Contains(access, letter) {
			bits |= bit
		}
	}
	return bits
}

// plain drops names and debug information, which belong to the program they came from.
func plain(p asm.Instructions) asm.Instructions {
	out := make(asm.Instructions, len(p))
	for i, in := range p {
		out[i] = asm.Instruction{OpCode: in.OpCode, Dst: in.Dst, Src: in.Src, Offset: in.Offset, Constant: in.Constant}
	}
	return out
}
