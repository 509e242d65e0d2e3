package device

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf/asm"

	"github.com/trimtab/trimtab/runtime"
)

// allowing puts rules in front of a device program: what they allow is allowed, all
// else goes on to the program, so no rule of it is lost, whatever it says. Its jumps
// are relative and it is moved as a whole. This is how NVIDIA's hook adds GPUs too.
func allowing(rules []runtime.DeviceRule, rest asm.Instructions) (asm.Instructions, error) {
	out := loadRequest()
	for i, r := range rules {
		block, err := allowRuleBlock(r, fmt.Sprintf("after-%d", i))
		if err != nil {
			return nil, err
		}
		if i > 0 {
			block[0] = block[0].WithSymbol(fmt.Sprintf("after-%d", i-1))
		}
		out = append(out, block...)
	}
	if len(rest) == 0 {
		rest = refusingAll()
	}
	rest = plain(rest)
	if len(rules) > 0 {
		rest[0] = rest[0].WithSymbol(fmt.Sprintf("after-%d", len(rules)-1))
	}
	return append(out, rest...), nil
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

// refusingAll is the program that knows no rule.
func refusingAll() asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
}

// allowRuleBlock answers yes where one rule fits, else goes on at next.
func allowRuleBlock(r runtime.DeviceRule, next string) (asm.Instructions, error) {
	access := accessBits(r.Access)
	if access == 0 {
		return nil, fmt.Errorf("rule %q allows nothing", r)
	}
	var out asm.Instructions
	switch r.Kind {
	case "c":
		out = append(out, asm.JNE.Imm(asm.R2, devChar, next))
	case "b":
		out = append(out, asm.JNE.Imm(asm.R2, devBlock, next))
	case "a":
	default:
		return nil, fmt.Errorf("rule %q: unknown kind of device", r)
	}
	out = append(out, // asked for nothing that the rule does not give
		asm.Mov.Reg(asm.R0, asm.R3),
		asm.And.Imm(asm.R0, ^access),
		asm.JNE.Imm(asm.R0, 0, next))
	if r.Major != runtime.AnyDevice {
		out = append(out, asm.JNE.Imm(asm.R4, int32(r.Major), next))
	}
	if r.Minor != runtime.AnyDevice {
		out = append(out, asm.JNE.Imm(asm.R5, int32(r.Minor), next))
	}
	return append(out, asm.Mov.Imm(asm.R0, 1), asm.Return()), nil
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
