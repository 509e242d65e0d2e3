// Package cuda counts what processes ask of CUDA, by uprobes on its runtime and
// its driver: launches, graphs, copies by direction, and the time inside calls
// that block and asynchronous copies to the device, by thread.
//
// What it sees is what is enqueued, not what the device does. A launch passes the
// runtime and then the driver, or the driver alone; both are probed and kept apart
// by level, and each counts once: driver calls from outside the runtime, plus the
// larger of the runtime's calls and the driver calls inside them. Whether the real
// runtime passes the driver's exported entries does therefore not matter. Where it
// does, launches are soon probed in the driver alone, which halves what they cost.
//
// The trap: a library that the process linked statically and stripped shows no
// symbols; then nothing is counted at that level.
package cuda

import (
	"context"
	"errors"

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/uprobe"
)

// Probe counts CUDA calls. Its methods are called from one goroutine.
type Probe struct {
	*uprobe.Client
	objs      objects
	processes map[int32]*process
	epochs    uint64
	walks     uint64 // over the table of threads
	lost      uint64
}

// objects are of bpf/cuda.bpf.c.
type objects struct {
	Processes    *ebpf.Map     `ebpf:"processes"`
	ThreadLimits *ebpf.Map     `ebpf:"thread_limits"`
	Threads      *ebpf.Map     `ebpf:"threads"`
	OnCall       *ebpf.Program `ebpf:"on_call"`
	OnReturn     *ebpf.Program `ebpf:"on_return"`
}

// New loads the programs; nothing is attached before a process needs it. The
// finder is shared with other probes and closed after them.
func New(f *uprobe.Finder) (*Probe, error) {
	p := &Probe{processes: map[int32]*process{}}
	if err := f.Load("cuda", _CallsBytes, &p.objs, nil); err != nil {
		return nil, err
	}
	hook := func(i int, name, what string) uprobe.Hook {
		return uprobe.Hook{Name: name, What: what, Functions: functionsOf(i), Entry: p.objs.OnCall, Return: p.objs.OnReturn}
	}
	p.Client = f.Add(uprobe.Spec{
		Name: "cuda", NotAfterFork: true, Hints: []string{"cuda", "torch"},
		Hooks: []uprobe.Hook{
			hookLaunch:       hook(hookLaunch, HookLaunch, "launches"),
			hookCopy:         hook(hookCopy, HookCopy, "copies"),
			hookSync:         hook(hookSync, HookSync, "synchronisations and graphs"),
			hookDriverLaunch: hook(hookDriverLaunch, HookLaunch, "launches"),
		},
		Marks: []string{virtualSymbol},
		Room:  int(p.objs.Processes.MaxEntries()), Enter: p.enter, Leave: p.leave, Hits: p.hits,
		Objects: &p.objs,
	})
	return p, nil
}

// Counters is the map of processes, for probes that add marks to them.
func (p *Probe) Counters() *ebpf.Map { return p.objs.Processes }

// Read adds a CUDA part to the samples of containers with a process that maps
// CUDA, or where something is missing. It also looks at processes that are new,
// and returns each problem once.
func (p *Probe) Read(ctx context.Context, into map[string]*probes.Sample) error {
	errs := []error{p.Scan(ctx), p.refresh()}
	for pid, proc := range p.processes {
		if !proc.driverAlone && seesAll(proc.raw.Kernels) {
			proc.driverAlone = true
			p.Drop(pid, hookLaunch)
		}
		_, runtime := p.Attached(pid, hookLaunch)
		_, driver := p.Attached(pid, hookDriverLaunch)
		proc.count(p.CountedFor(pid, hookLaunch), p.CountedFor(pid, hookDriverLaunch), runtime || driver)
	}
	errs = append(errs, p.Rotate())
	short := map[*probes.CUDA]bool{}
	uprobe.Gather(p.Client, into, func(pid int32, part *probes.CUDA) bool {
		part.Processes = append(part.Processes, p.processes[pid].reading(pid))
		short[part] = short[part] || p.processes[pid].short
		part.Virtual = part.Virtual || p.Has(pid, virtualSymbol)
		return true
	}, func(s *probes.Sample, part *probes.CUDA, missing []string) {
		thinned := !p.Whole(s.Container, hookSync) || !p.Whole(s.Container, hookCopy) || !p.Returns()
		for i := range part.Processes {
			part.Processes[i].Thinned = thinned
		}
		if short[part] {
			missing = append(missing, missingThreads)
		}
		part.Missing, s.CUDA = missing, part
	})
	return errors.Join(errs...)
}

// Cost returns the memory held in maps, and calls that found no room.
func (p *Probe) Cost() probes.Cost {
	cost := p.Client.Cost()
	cost.Lost = p.lost
	return cost
}
