package uprobe

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// ProbeCost is what a hit costs the thread that makes it, in ns, the program aside
// from a map lookup not included.
type ProbeCost struct {
	Emulated float64 // entry, instruction emulated
	Stepped  float64 // entry, instruction single-stepped
	Return   float64 // what probing the return adds
}

// of is the cost of a mix of hits, in ns.
func (c ProbeCost) of(h Hits) float64 {
	return c.Emulated*float64(h.Emulated) + c.Stepped*float64(h.Stepped) + c.Return*float64(h.Returns)
}

// usualCost: bpftime's benchmark on two server CPUs, 1.9–3.2 µs and 3.0–4.0 µs with the return.
func usualCost() ProbeCost { return ProbeCost{Emulated: 2500, Stepped: 2500, Return: 1000} }

// price measures the cost of a hit, once, in the background: some 0.2 s of CPU.
type price struct {
	cost   atomic.Pointer[ProbeCost]
	cancel context.CancelFunc
	done   chan struct{}
}

func startPricing(a attacher) *price {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	p := &price{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer cancel()
		if cost, err := measureCost(ctx, a); err == nil { // else the usual one stands
			p.cost.Store(&cost)
		}
	}()
	return p
}

// ProbeCost returns the cost of a hit as measured on this machine, or the usual one
// until that is known or where it cannot be measured.
func (f *Finder) ProbeCost() ProbeCost {
	if c := f.price.cost.Load(); c != nil {
		return *c
	}
	return usualCost()
}

const (
	priceCalls = 4000 // calls of the probed function in one run
	priceRuns  = 3    // the fastest counts: others were disturbed
)

// measureCost runs a child of a few instructions with and without probes. A child,
// because a return probe changes return addresses on the stack, which Go's runtime
// reads.
func measureCost(ctx context.Context, a attacher) (ProbeCost, error) {
	prog, hits, err := hitProgram(a)
	if err != nil {
		return ProbeCost{}, fmt.Errorf("measure the cost of a hit: %w", err)
	}
	defer hits.Close()
	defer prog.Close()
	var cost ProbeCost
	for _, stepped := range []bool{false, true} {
		code, at := priceProgram(priceCalls, stepped)
		entry, both, err := priceOf(ctx, a, prog, code, at)
		if err != nil {
			return ProbeCost{}, fmt.Errorf("measure the cost of a hit: %w", err)
		}
		if stepped {
			cost.Stepped = entry
		} else {
			cost.Emulated, cost.Return = entry, max(both-entry, 0)
		}
	}
	return cost, nil
}

// hitProgram does what the probes' programs do: it asks whose the hit is, and when, and counts it, at key 0.
func hitProgram(a attacher) (prog *ebpf.Program, hits *ebpf.Map, err error) {
	hits, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 8, Contents: []ebpf.MapKV{{Key: uint32(0), Value: uint64(0)}}, MaxEntries: 1})
	if err != nil {
		return nil, nil, err
	}
	spec := &ebpf.ProgramSpec{Type: ebpf.Kprobe, License: "Dual BSD/GPL", Instructions: asm.Instructions{
		asm.FnGetCurrentPidTgid.Call(),
		asm.FnKtimeGetNs.Call(),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, hits.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}}
	a.prepare(&ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{"hit": spec}})
	if prog, err = ebpf.NewProgram(spec); err != nil {
		return nil, nil, errors.Join(err, hits.Close())
	}
	return prog, hits, nil
}

// priceOf returns what a call costs more with an entry probe, and with a return
// probe besides.
func priceOf(ctx context.Context, a attacher, prog *ebpf.Program, code []byte, at uint64) (entry, both float64, err error) {
	file, err := sealedFile(code)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	bare, err := fastest(ctx, file)
	if err != nil {
		return 0, 0, err
	}
	on, err := a.attach(int(file.Fd()), 0, prog, []point{{offset: at}}, false)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, closeAll(on)) }()
	withEntry, err := fastest(ctx, file)
	if err != nil {
		return 0, 0, err
	}
	returns, err := a.attach(int(file.Fd()), 0, prog, []point{{offset: at}}, true)
	if err != nil {
		return 0, 0, err
	}
	on = append(on, returns...)
	withBoth, err := fastest(ctx, file)
	if err != nil {
		return 0, 0, err
	}
	each := func(d time.Duration) float64 { return max(float64(d-bare), 0) / priceCalls }
	return each(withEntry), each(withBoth), nil
}

// fastest runs the file and returns the CPU time of its best run.
func fastest(ctx context.Context, file *os.File) (time.Duration, error) {
	best := time.Duration(0)
	for range priceRuns {
		cmd := exec.CommandContext(ctx, "/proc/self/fd/3")
		cmd.ExtraFiles = []*os.File{file}
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("run the child: %w", err)
		}
		if d := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(); best == 0 || d < best {
			best = d
		}
	}
	return best, nil
}

// sealedFile puts a program into memory, open for reading alone: what is open for
// writing cannot be executed.
func sealedFile(code []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("trimtab-price", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, code); err != nil {
		return nil, fmt.Errorf("write a program: %w", err)
	}
	return os.Open(selfPath(fd))
}

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
