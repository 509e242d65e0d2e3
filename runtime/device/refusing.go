package device

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/trimtab/trimtab/runtime"
)

// A program that hides begins with two instructions without effect: a mark, and how
// long the part is that is trimtab's. So what is hidden can be undone to the very
// instruction from the program alone, whatever became of the records.
const (
	refusingMark   = 0x7472696d // "trim"
	refusingHeader = 2
)

// refusingFirst puts a refusal of rules in front of a device program: opening them is
// refused, all else, making nodes included, goes on to the program.
func refusingFirst(rules []runtime.DeviceRule, rest asm.Instructions) (asm.Instructions, error) {
	if len(rest) == 0 {
		return nil, errors.New("no program of its own to put in front of")
	}
	front := loadRequest()
	for _, r := range rules {
		if r.Kind != "c" || r.Major == runtime.AnyDevice {
			return nil, fmt.Errorf("rule %q is not for some devices of one driver: not refused", r)
		}
		opens := asm.Instructions{asm.And.Imm(asm.R0, accRead|accWrite), asm.JEq.Imm(asm.R0, 0, "")}
		front = append(front, answering(r, opens, 0)...)
	}
	header := asm.Instructions{asm.Mov.Imm(asm.R0, refusingMark), asm.Mov.Imm(asm.R0, int32(refusingHeader+len(front)))}
	return append(append(header, plain(front)...), plain(rest)...), nil
}

// splitRefusing parts a program from the refusal that trimtab put in front of it.
func splitRefusing(code asm.Instructions) (front, rest asm.Instructions) {
	if len(code) < refusingHeader {
		return nil, code
	}
	sets := func(in asm.Instruction) bool { return in.OpCode == asm.Mov.Imm(asm.R0, 0).OpCode && in.Dst == asm.R0 }
	n := code[1].Constant
	if !sets(code[0]) || !sets(code[1]) || code[0].Constant != refusingMark || n < refusingHeader || n >= int64(len(code)) {
		return nil, code
	}
	return code[:n], code[n:]
}

// ownProgram is the group's program that a refusal is put in front of. Programs are
// ANDed: one is enough. systemd's is systemd's to write.
func (v *Visibility) ownProgram(dir string) (program, error) {
	programs, err := v.programs.of(dir)
	if err != nil {
		return program{}, err
	}
	err = errors.New("its control group has no device program but systemd's: nothing can be taken from it in one step")
	for _, p := range programs {
		if !p.here || p.name == systemdProgram {
			continue
		}
		if p.err == nil {
			return p, nil
		}
		err = p.err
	}
	return program{}, err
}

// setProgram replaces the group's program by itself, with the refusal in front or without.
func (v *Visibility) setProgram(covers, to Hidden) error {
	dir := to.Container.Cgroup.Unified
	majors, err := nvidiaMajors(v.o.ProcRoot)
	if err != nil {
		return err
	}
	refuse := to.refusals(majors, "rw")
	if len(refuse) > 0 {
		p, err := v.ownProgram(dir)
		if err != nil {
			return err
		}
		_, rest := splitRefusing(p.code)
		code, err := refusingFirst(refuse, rest)
		if err != nil {
			return err
		}
		return replace(dir, p, code)
	}
	return v.unrefuse(dir, covers.Unsettled || len(covers.Minors) > 0)
}

// unrefuse takes trimtab's refusals from a group's programs, and looks that none is
// left. Where one may be, a program that cannot be read may hold it.
func (v *Visibility) unrefuse(dir string, mayBe bool) error {
	programs, err := v.programs.of(dir)
	if err != nil {
		return err
	}
	wrote := false
	for _, p := range programs {
		front, rest := splitRefusing(p.code)
		switch {
		case !p.here:
		case len(front) > 0:
			wrote, err = true, errors.Join(err, replace(dir, p, plain(rest)))
		case mayBe && p.err != nil && len(p.code) == 0 && p.name != systemdProgram:
			err = errors.Join(err, p.err)
		}
	}
	if err != nil || !wrote {
		return err
	}
	if programs, err = v.programs.of(dir); err != nil {
		return err
	}
	for _, p := range programs {
		if front, _ := splitRefusing(p.code); p.here && len(front) > 0 {
			err = errors.Join(err, fmt.Errorf("device program %d %q still refuses what was hidden", p.id, p.name))
		}
	}
	return err
}
