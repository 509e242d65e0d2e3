package device

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf/asm"
)

// The kernel has no test run for device programs, and a process of ours that enters
// a container's control group to try an open counts there, freezes with it and may
// be killed with it. So programs are read from the kernel and run here: those of
// runc, crun, systemd and NVIDIA's hook are loads of the request, comparisons and
// an answer. One that does anything else is an error, never a guess.

// request is what the kernel asks a device program: struct bpf_cgroup_dev_ctx.
type request struct {
	kind         uint32 // devChar, devBlock
	access       uint32 // accMknod | accRead | accWrite
	major, minor uint32
}

// From include/uapi/linux/bpf.h.
const (
	devBlock, devChar                  = 1, 2
	accMknod, accRead, accWrite        = 1, 2, 4
	contextBytes                       = 12
	maxSteps                           = 1 << 16
	registers                          = 11
	contextBase                 uint64 = 1 << 40 // what R1 holds here; no program computes with it
)

// openRequest is open(O_RDWR) of a character device.
func openRequest(major, minor int) request {
	return request{kind: devChar, access: accRead | accWrite, major: uint32(major), minor: uint32(minor)}
}

// slot is one 8-byte instruction, as jumps count them.
type slot struct {
	op       asm.OpCode
	dst, src asm.Register
	offset   int16
	constant int64
}

// errProgram: the program does what device programs do not.
var errProgram = errors.New("not a plain device program")

// slotsOf flattens a program; a 64-bit constant takes two slots.
func slotsOf(p asm.Instructions) ([]slot, error) {
	var out []slot
	for i, in := range p {
		if in.OpCode.IsDWordLoad() && in.Src != 0 || in.IsFunctionCall() || in.OpCode.JumpOp() == asm.Call {
			return nil, fmt.Errorf("%w: instruction %d is %v", errProgram, i, in)
		}
		out = append(out, slot{in.OpCode, in.Dst, in.Src, in.Offset, in.Constant})
		if in.OpCode.IsDWordLoad() {
			out = append(out, slot{})
		}
	}
	return out, nil
}

// decide runs a program on a request as the kernel does.
func decide(program []slot, r request) (allowed bool, err error) {
	m := machine{}
	binary.NativeEndian.PutUint32(m.context[0:], r.access<<16|r.kind)
	binary.NativeEndian.PutUint32(m.context[4:], r.major)
	binary.NativeEndian.PutUint32(m.context[8:], r.minor)
	m.reg[asm.R1] = contextBase
	pc := 0
	for range maxSteps {
		if pc < 0 || pc >= len(program) {
			return false, fmt.Errorf("%w: a jump leads outside", errProgram)
		}
		in := program[pc]
		if in.dst >= registers || in.src >= registers {
			return false, fmt.Errorf("%w: register %d, %d", errProgram, in.dst, in.src)
		}
		if in.op.Class().IsJump() && in.op.JumpOp() == asm.Exit {
			return m.reg[asm.R0] != 0, nil
		}
		next, err := m.step(in)
		if err != nil {
			return false, fmt.Errorf("instruction %d: %w", pc, err)
		}
		pc += next
	}
	return false, fmt.Errorf("%w: it does not end", errProgram)
}

type machine struct {
	reg     [registers]uint64
	context [contextBytes]byte
}

// step carries out one instruction and returns how far to go on.
func (m *machine) step(in slot) (int, error) {
	switch class := in.op.Class(); {
	case in.op.IsDWordLoad():
		m.reg[in.dst] = uint64(in.constant)
		return 2, nil
	case class == asm.LdXClass && in.op.Mode() == asm.MemMode:
		return 1, m.load(in)
	case class.IsALU():
		return 1, m.compute(in, class == asm.ALUClass)
	case class.IsJump():
		taken, err := m.compare(in, class == asm.Jump32Class)
		if taken {
			return 1 + int(in.offset), err
		}
		return 1, err
	}
	return 0, fmt.Errorf("%w: %v", errProgram, in.op)
}

// load reads the request.
func (m *machine) load(in slot) error {
	at, size := int(in.offset), in.op.Size().Sizeof()
	if m.reg[in.src] != contextBase || at < 0 || size < 1 || at+size > contextBytes {
		return fmt.Errorf("%w: a load from elsewhere than the request", errProgram)
	}
	switch data := m.context[at:]; size {
	case 1:
		m.reg[in.dst] = uint64(data[0])
	case 2:
		m.reg[in.dst] = uint64(binary.NativeEndian.Uint16(data))
	case 4:
		m.reg[in.dst] = uint64(binary.NativeEndian.Uint32(data))
	default:
		return fmt.Errorf("%w: a load of %d bytes", errProgram, size)
	}
	return nil
}

// operand is the second one: a register, or a constant that is sign-extended.
func (m *machine) operand(in slot) uint64 {
	if in.op.Source() == asm.RegSource {
		return m.reg[in.src]
	}
	return uint64(in.constant)
}

func (m *machine) compute(in slot, narrow bool) error {
	a, b := m.reg[in.dst], m.operand(in)
	bits := uint64(63)
	if narrow {
		a, b, bits = a&0xffffffff, b&0xffffffff, 31
	}
	switch in.op.ALUOp() {
	case asm.Mov:
		if in.offset != 0 {
			return fmt.Errorf("%w: a sign-extending move", errProgram)
		}
		a = b
	case asm.And:
		a &= b
	case asm.Or:
		a |= b
	case asm.Xor:
		a ^= b
	case asm.Add:
		a += b
	case asm.Sub:
		a -= b
	case asm.LSh:
		a <<= b & bits
	case asm.RSh:
		a >>= b & bits
	default:
		return fmt.Errorf("%w: %v", errProgram, in.op)
	}
	if narrow {
		a &= 0xffffffff
	}
	m.reg[in.dst] = a
	return nil
}

func (m *machine) compare(in slot, narrow bool) (bool, error) {
	a, b := m.reg[in.dst], m.operand(in)
	if narrow {
		a, b = a&0xffffffff, b&0xffffffff
	}
	switch in.op.JumpOp() {
	case asm.Ja:
		if narrow { // its distance would be in the constant
			return false, fmt.Errorf("%w: a long jump", errProgram)
		}
		return true, nil
	case asm.JEq:
		return a == b, nil
	case asm.JNE:
		return a != b, nil
	case asm.JGT:
		return a > b, nil
	case asm.JGE:
		return a >= b, nil
	case asm.JLT:
		return a < b, nil
	case asm.JLE:
		return a <= b, nil
	case asm.JSet:
		return a&b != 0, nil
	}
	return false, fmt.Errorf("%w: %v", errProgram, in.op)
}
