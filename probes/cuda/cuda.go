// Package cuda counts what processes ask of CUDA, by uprobes on its runtime and
// its driver: launches, graphs, copies by direction, and the time inside calls
// that block, by thread.
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
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/uprobe"
)

// Probe counts CUDA calls. Its methods are called from one goroutine.
type Probe struct {
	objs      callsObjects
	client    *uprobe.Client
	processes map[int32]*process
	epochs    uint64
	walks     uint64 // over the table of threads
	lost      uint64
}

var (
	_ probes.Probe        = (*Probe)(nil)
	_ probes.CostReporter = (*Probe)(nil)
)

// New loads the programs; nothing is attached before a process needs it. The
// finder is shared with other probes and closed after them.
func New(f *uprobe.Finder) (*Probe, error) {
	spec, err := loadCalls()
	if err != nil {
		return nil, fmt.Errorf("cuda probe: %w", err)
	}
	f.Prepare(spec)
	p := &Probe{processes: map[int32]*process{}}
	if err := spec.LoadAndAssign(&p.objs, nil); err != nil {
		return nil, fmt.Errorf("cuda probe: load: %w; needs Linux 5.15 with BTF, CONFIG_UPROBE_EVENTS, CAP_BPF and CAP_PERFMON", err)
	}
	hook := func(i int, name, what string) uprobe.Hook {
		return uprobe.Hook{Name: name, What: what, Match: matcher(i), Entry: p.objs.OnCall, Return: p.objs.OnReturn}
	}
	p.client, err = f.Add(uprobe.Spec{
		Name: "cuda", NotAfterFork: true, Names: names(), Hints: []string{"cuda", "torch"},
		Hooks: []uprobe.Hook{
			hookLaunch:       hook(hookLaunch, HookLaunch, "launches"),
			hookCopy:         hook(hookCopy, HookCopy, "copies"),
			hookSync:         hook(hookSync, HookSync, "synchronisations and graphs"),
			hookDriverLaunch: hook(hookDriverLaunch, HookLaunch, "launches"),
		},
		Marks: []string{virtualSymbol},
		Room:  int(p.objs.Processes.MaxEntries()), Enter: p.enter, Leave: p.leave, Hits: p.hits,
	})
	if err != nil {
		return nil, errors.Join(err, p.objs.Close())
	}
	return p, nil
}

// Processes is the map of counters, for probes that add marks to them.
func (p *Probe) Processes() *ebpf.Map { return p.objs.Processes }

// Name is "cuda".
func (p *Probe) Name() string { return "cuda" }

// Watch looks for CUDA in the container's processes from the next Read on.
func (p *Probe) Watch(t probes.Target) error { return p.client.Watch(t) }

// Unwatch forgets a container's processes and takes the probes out of them.
func (p *Probe) Unwatch(key string) { p.client.Unwatch(key) }

// Read adds a CUDA part to the samples of containers with a process that maps
// CUDA, or where something is missing. It also looks at processes that are new,
// and returns each problem once.
func (p *Probe) Read(ctx context.Context, into map[string]*probes.Sample) error {
	errs := []error{p.client.Scan(ctx)}
	errs = append(errs, p.refresh())
	for pid, proc := range p.processes {
		if !proc.driverAlone && seesAll(proc.raw.Kernels) {
			proc.driverAlone = true
			p.client.Drop(pid, hookLaunch)
		}
		_, runtime := p.client.Attached(pid, hookLaunch)
		_, driver := p.client.Attached(pid, hookDriverLaunch)
		proc.count(p.client.CountedFor(pid, hookLaunch), p.client.CountedFor(pid, hookDriverLaunch), runtime || driver)
	}
	errs = append(errs, p.client.Rotate())
	parts := map[string]*probes.CUDA{}
	for pid, key := range p.client.Processes() {
		proc := p.processes[pid]
		if proc == nil {
			continue
		}
		if parts[key] == nil {
			parts[key] = &probes.CUDA{}
		}
		out := proc.reading(pid)
		out.Thinned = !p.client.Whole(key, hookSync) || !p.client.Whole(key, hookCopy) || !p.client.Returns()
		parts[key].Processes = append(parts[key].Processes, out)
		parts[key].Virtual = parts[key].Virtual || p.client.Has(pid, virtualSymbol)
	}
	for key := range p.client.Watched() {
		missing := p.client.Missing(key)
		if parts[key] == nil && len(missing) == 0 {
			continue
		}
		if parts[key] == nil {
			parts[key] = &probes.CUDA{}
		}
		part := parts[key]
		part.Missing = missing
		slices.SortFunc(part.Processes, func(a, b probes.CUDAProcess) int { return int(a.TGID) - int(b.TGID) })
		if into[key] == nil {
			into[key] = &probes.Sample{Container: key}
		}
		into[key].CUDA = part
	}
	return errors.Join(errs...)
}

// Missing names what is not counted for a container, each with why.
func (p *Probe) Missing(key string) []string { return p.client.Missing(key) }

// Spending lists what the hooks cost each container.
func (p *Probe) Spending() []probes.Spend { return p.client.Spending() }

// SetDutyCycle sets the share of time in which a hook is attached for a container.
// LaunchNs counts only that time.
func (p *Probe) SetDutyCycle(key, hook string, share float64) {
	p.client.SetDutyCycle(key, hook, share)
}

// Cost returns the memory held in maps, and calls that found no room.
func (p *Probe) Cost() probes.Cost {
	cost := p.client.Cost(p.objs.Processes, p.objs.Threads)
	cost.Lost = p.lost
	return cost
}

// Close takes the probes out of all processes and unloads them.
func (p *Probe) Close() error {
	p.client.Close()
	return p.objs.Close()
}
