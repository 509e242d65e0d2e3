package device

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trimtab/trimtab/runtime"
)

// Whatever program stands at a container, running it ends, with an error or the answer that the kernel's
// description of instructions gives. Rules in front of it are answered as they say, all else as it does,
// and it comes out of a refusal as it went in.
func FuzzEvaluate(f *testing.F) {
	wide := asm.Instructions{asm.LoadImm(asm.R0, 1<<33, asm.DWord), asm.Sub.Imm32(asm.R0, 1), asm.JLT.Imm32(asm.R0, -1, ""), asm.RSh.Imm(asm.R0, 40), asm.Return()}
	looping := asm.Instructions{asm.Mov.Imm(asm.R0, 3), asm.LSh.Imm32(asm.R0, 33), asm.Sub.Imm(asm.R0, 1), asm.Instruction{OpCode: asm.JSet.Op(asm.ImmSource), Dst: asm.R0, Offset: -2, Constant: 7}, asm.Return()}
	for _, p := range []asm.Instructions{nil, numbered(f, runcLike(rulesFrom(f, "c *:* m", "c 195:0 rw", "b 8:* r")...)), wide, looping} {
		for _, rules := range [][]runtime.DeviceRule{nil, rulesFrom(f, "c 195:* rwm", "a *:3 r")} {
			code, err := allowing(rules, p)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(marshalled(f, code), uint8(devChar), uint8(accRead|accWrite), uint32(195), uint32(0))
			f.Add(marshalled(f, append(p[:len(p):len(p)], asm.Return())), uint8(devBlock), uint8(accMknod), uint32(8), uint32(1<<31))
		}
	}
	for _, p := range small() {
		f.Add(marshalled(f, p), uint8(devChar), uint8(accRead), uint32(195), uint32(0))
	}
	rules := rulesFrom(f, "c 195:0 rw", "c 195:255 r", "c 509:* rwm")
	f.Fuzz(func(t *testing.T, b []byte, kind, access uint8, major, minor uint32) {
		p, err := unmarshalled(b)
		if err != nil {
			return
		}
		r := request{kind: uint32(kind), access: uint32(access), major: major, minor: minor}
		slots, err := slotsOf(p)
		if err != nil {
			return
		}
		got, err := decide(slots, r)
		if err != nil && (got || !errors.Is(err, errProgram)) {
			t.Fatalf("%v: %v, %v", p, got, err)
		}
		if err == nil {
			if want, plain := plainly(b, r); !plain || got != want {
				t.Fatalf("%v: %v on %+v, want %v (%v)", p, got, r, want, plain)
			}
		}
		checkFront(t, rules, p, r)
	})
}

// small are programs of one instruction each that computes or compares, at the edges of its operands; the
// answer is one bit of what comes out.
func small() (all []asm.Instructions) {
	set := func(a, b int32) asm.Instructions {
		return asm.Instructions{asm.Mov.Imm(asm.R0, a), asm.Mov.Imm32(asm.R2, b)}
	}
	for _, op := range []asm.JumpOp{asm.JEq, asm.JNE, asm.JGT, asm.JGE, asm.JLT, asm.JLE, asm.JSet} {
		for _, pair := range [][2]int32{{1, 1}, {1, 2}, {2, 1}, {-1, 1}, {-1, -1}} {
			for _, in := range []asm.Instruction{op.Reg(asm.R0, asm.R2, ""), op.Reg32(asm.R0, asm.R2, ""), op.Imm(asm.R0, pair[1], "")} {
				in.Offset = 2
				all = append(all, append(set(pair[0], pair[1]), in, asm.Mov.Imm(asm.R0, 0), asm.Return(), asm.Mov.Imm(asm.R0, 1), asm.Return()))
			}
		}
	}
	for _, op := range []asm.ALUOp{asm.Add, asm.Sub, asm.Or, asm.And, asm.Xor, asm.LSh, asm.RSh, asm.Mov} {
		for _, in := range []asm.Instruction{op.Reg(asm.R0, asm.R2), op.Reg32(asm.R0, asm.R2), op.Imm(asm.R0, -31)} {
			for _, bit := range []int32{1, 31, 32, 34} {
				all = append(all, append(set(-3, 33), in, asm.RSh.Imm(asm.R0, bit), asm.And.Imm(asm.R0, 1), asm.Return()))
			}
		}
	}
	return all
}

// checkFront puts rules in front of a program. The kernel's verifier lets none read a register that it did
// not set, so this one begins by setting them.
func checkFront(t *testing.T, rules []runtime.DeviceRule, p asm.Instructions, r request) {
	t.Helper()
	var own asm.Instructions
	for _, register := range []asm.Register{asm.R0, asm.R2, asm.R3, asm.R4, asm.R5} {
		own = append(own, asm.Mov.Imm(register, 0))
	}
	own = append(own, p...)
	alone, errAlone := run(t, own, r)
	allows, errAllows := allowing(rules, own)
	refuses, errRefuses := refusingFirst(rules, own)
	if err := errors.Join(errAllows, errRefuses); err != nil {
		t.Fatal(err)
	}
	if front, rest := splitRefusing(refuses); len(front) == 0 || !bytes.Equal(marshalled(t, rest), marshalled(t, plain(own))) {
		t.Fatalf("%v comes out of a refusal as %v", own, rest)
	}
	opens := request{kind: r.kind, major: r.major, minor: r.minor} // a refusal is of opening, whatever the rule's access
	named := allowedBy(rules, opens) && r.access&(accRead|accWrite) != 0
	for _, tc := range []struct {
		code             asm.Instructions
		settled, settles bool
	}{{allows, allowedBy(rules, r), true}, {refuses, named, false}} {
		got, err := run(t, tc.code, r)
		switch {
		case tc.settled && (err != nil || got != tc.settles):
			t.Fatalf("%+v, which rules in front settle: %v, %v", r, got, err)
		case !tc.settled && errAlone == nil && err == nil && got != alone:
			t.Fatalf("%+v: %v alone, %v behind rules", r, alone, got)
		}
	}
}

func run(t *testing.T, p asm.Instructions, r request) (bool, error) {
	t.Helper()
	slots, err := slotsOf(p)
	if err != nil {
		t.Fatal(err)
	}
	return decide(slots, r)
}

func marshalled(t interface{ Fatal(...any) }, p asm.Instructions) []byte {
	var b bytes.Buffer
	if err := p.Marshal(&b, binary.LittleEndian); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func unmarshalled(b []byte) (p asm.Instructions, err error) {
	for r := bytes.NewReader(b); r.Len() > 0; {
		var in asm.Instruction
		if err := in.Unmarshal(r, binary.LittleEndian, "fuzz"); err != nil {
			return nil, err
		}
		p = append(p, in)
	}
	return p, nil
}

// plainly runs a program from its bytes, by the numbers of the kernel's instruction-set.rst. ok is false
// where it does anything beside what device programs do.
func plainly(b []byte, r request) (allowed, ok bool) {
	given := slices.Concat(binary.LittleEndian.AppendUint32(nil, r.access<<16|r.kind), binary.LittleEndian.AppendUint32(nil, r.major), binary.LittleEndian.AppendUint32(nil, r.minor))
	var reg [16]uint64
	reg[1] = contextBase
	for pc, steps := 0, 0; pc >= 0 && pc < len(b)/8 && steps < 2*maxSteps; pc, steps = pc+1, steps+1 {
		in := b[8*pc:]
		op, dst, src := in[0], &reg[in[1]&15], reg[in[1]>>4]
		offset, constant := int(int16(binary.LittleEndian.Uint16(in[2:]))), uint64(int64(int32(binary.LittleEndian.Uint32(in[4:]))))
		class, operation, size := op&7, op>>4, [256]int{0x61: 4, 0x69: 2, 0x71: 1}[op]
		x, y := *dst, constant
		if op&8 != 0 {
			y = src
		}
		bits := uint64(64)
		if class == 4 || class == 6 {
			x, y, bits = uint64(uint32(x)), uint64(uint32(y)), 32
		}
		switch {
		case op == 0x95 || op == 0x9d: // exit
			return reg[0] != 0, true
		case op == 0x18: // a constant of 64 bits, in two places
			*dst = constant&(1<<32-1) | uint64(binary.LittleEndian.Uint32(in[12:]))<<32
			pc++
		case size > 0: // a load
			if src != contextBase || offset < 0 || offset+size > len(given) {
				return false, false
			}
			var word [8]byte
			copy(word[:], given[offset:offset+size])
			*dst = binary.LittleEndian.Uint64(word[:])
		case class == 4 || class == 7:
			if !slices.Contains([]byte{0, 1, 4, 5, 6, 7, 10, 11}, operation) {
				return false, false
			}
			*dst = [16]uint64{0: x + y, 1: x - y, 4: x | y, 5: x & y, 6: x << (y % bits), 7: x >> (y % bits), 10: x ^ y, 11: y}[operation]
			if bits == 32 {
				*dst = uint64(uint32(*dst))
			}
		case class == 5 || class == 6:
			if !slices.Contains([]byte{0, 1, 2, 3, 4, 5, 10, 11}, operation) || class == 6 && operation == 0 {
				return false, false
			}
			if [16]bool{0: true, 1: x == y, 2: x > y, 3: x >= y, 4: x&y != 0, 5: x != y, 10: x < y, 11: x <= y}[operation] {
				pc += offset
			}
		default:
			return false, false
		}
	}
	return false, false
}
