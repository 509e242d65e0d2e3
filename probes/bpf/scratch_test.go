package bpf_test

import (
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// What a program calls to stay alone on its CPU.
const (
	hold  = "bpf_preempt_disable"
	letGo = "bpf_preempt_enable"
)

// TestScratchIsHeld: what all programs of a CPU share is used by none of a tracepoint while it may be
// preempted, which it may from Linux 7.0 on: another would write over it.
func TestScratchIsHeld(t *testing.T) {
	objects, err := filepath.Glob("../*/*_bpfel.o")
	if err != nil || len(objects) < 7 {
		t.Fatal(objects, err)
	}
	held := 0
	for _, object := range objects {
		spec, err := ebpf.LoadCollectionSpec(object)
		if err != nil {
			t.Fatal(err)
		}
		shared := map[string]bool{}
		for name, m := range spec.Maps {
			shared[name] = m.Type == ebpf.PerCPUArray || m.Type == ebpf.PerCPUHash || m.Type == ebpf.LRUCPUHash
		}
		for name, program := range spec.Programs {
			if program.AttachType == ebpf.AttachTraceIter {
				continue // one reading at a time, with a record of its own
			}
			uses, bare := usesOf(program.Instructions, shared)
			for _, i := range bare {
				t.Errorf("%s: %s uses %s at instruction %d, where it may be preempted",
					filepath.Base(object), name, program.Instructions[i].Reference(), i)
			}
			held += uses
		}
	}
	if held < 8 { // at a fork, at an exit, twice at a move; of two architectures
		t.Errorf("scratch is used %d times: the programs were not understood", held)
	}
}

// at is a place in a program: the next instruction, how often the CPU is held there, and which
// registers have the address of a function of the kernel, as a bit each.
type at struct {
	next, held int
	functions  uint16
}

// usesOf walks all ways through a program and tells how many of its instructions take a shared map,
// and which do without holding the CPU. The kernel is one that has the functions.
func usesOf(program asm.Instructions, shared map[string]bool) (uses int, bare []int) {
	symbols, offsets := map[string]int{}, map[asm.RawInstructionOffset]int{}
	for it := program.Iterate(); it.Next(); {
		offsets[it.Offset] = it.Index
		if name := it.Ins.Symbol(); name != "" {
			symbols[name] = it.Index
		}
	}
	raw := make([]asm.RawInstructionOffset, len(program))
	for offset, i := range offsets {
		raw[i] = offset
	}
	seen, counted := map[at]bool{}, map[int]bool{}
	for todo := []at{{}}; len(todo) > 0; {
		here := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[here] || here.next >= len(program) {
			continue
		}
		seen[here] = true
		ins := program[here.next]
		if ins.IsLoadFromMap() && shared[ins.Reference()] {
			counted[here.next] = true
			if here.held == 0 {
				bare = append(bare, here.next)
			}
		}
		target, jumps := symbols[ins.Reference()]
		if !jumps {
			target = offsets[raw[here.next]+1+asm.RawInstructionOffset(ins.Offset)]
		}
		todo = append(todo, step(here, ins, target)...)
	}
	return len(counted), bare
}

// step is where an instruction may lead. target is where it jumps, if it does.
func step(here at, ins asm.Instruction, target int) []at {
	op, after := ins.OpCode, here
	after.next++
	dst, src := uint16(1)<<ins.Dst, uint16(1)<<ins.Src
	switch {
	case ins.IsKfuncCall() || ins.IsBuiltinCall():
		after.functions &^= 0x3f // a call leaves nothing in the first six
		switch ins.Reference() {
		case hold:
			after.held++
		case letGo:
			after.held--
		}
	case op.JumpOp() == asm.Exit:
		return nil
	case op.JumpOp() == asm.Ja:
		after.next = target
	case op.Class().IsJump():
		taken := after
		taken.next = target
		if here.functions&dst != 0 && op.Source() == asm.ImmSource && ins.Constant == 0 {
			switch op.JumpOp() { // the function is there
			case asm.JEq:
				return []at{after}
			case asm.JNE:
				return []at{taken}
			}
		}
		return []at{after, taken}
	case op.IsDWordLoad() && (ins.Reference() == hold || ins.Reference() == letGo):
		after.functions |= dst
	case op.Class().IsALU() && op.ALUOp() == asm.Mov && op.Source() == asm.RegSource && here.functions&src != 0:
		after.functions |= dst
	case op.Class().IsALU() || op.Class().IsLoad():
		after.functions &^= dst
	}
	return []at{after}
}
