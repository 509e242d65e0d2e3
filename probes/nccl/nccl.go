// Package nccl counts NCCL's collectives and their bytes by entry uprobes, wherever
// NCCL is linked: libnccl, or inside libtorch_cuda.
//
// What it sees is what is enqueued: a collective returns at once, and how long it
// takes shows in the synchronisations that wait for it. Bytes are the caller's
// count times the size of an element. A communicator tells its size only when it is
// made, so for a job that was there before, Ranks is 0.
package nccl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/uprobe"
)

// Probe counts collectives. Its methods are called from one goroutine.
type Probe struct {
	objs   collectivesObjects
	client *uprobe.Client
}

var (
	_ probes.Probe        = (*Probe)(nil)
	_ probes.CostReporter = (*Probe)(nil)
)

// New loads the program; nothing is attached before a process needs it. The finder
// is shared with other probes and closed after them. Collectives leave marks in
// processes, the CUDA probe's map; nil: no marks.
func New(f *uprobe.Finder, processes *ebpf.Map) (*Probe, error) {
	spec, err := loadCollectives()
	if err != nil {
		return nil, fmt.Errorf("nccl probe: %w", err)
	}
	f.Prepare(spec)
	var opts ebpf.CollectionOptions
	if processes != nil {
		opts.MapReplacements = map[string]*ebpf.Map{collectivesMapProcesses: processes}
	}
	p := &Probe{}
	if err := spec.LoadAndAssign(&p.objs, &opts); err != nil {
		return nil, fmt.Errorf("nccl probe: load: %w; needs Linux 5.15, CONFIG_UPROBE_EVENTS, CAP_BPF and CAP_PERFMON", err)
	}
	p.client, err = f.Add(uprobe.Spec{
		Name: "nccl", NotAfterFork: true, Names: slices.Sorted(maps.Keys(functions)), Hints: []string{"nccl", "torch"},
		Hooks: []uprobe.Hook{{Name: Hook, What: "collectives", Match: match, Entry: p.objs.OnCollective}},
		Room:  int(p.objs.Jobs.MaxEntries()),
		Enter: func(pid int32) error { return p.objs.Jobs.Put(uint32(pid), collectivesJob{}) },
		// Absent is what is wanted.
		Leave: func(pid int32) { _ = p.objs.Jobs.Delete(uint32(pid)) },
		Hits:  p.hits,
	})
	if err != nil {
		return nil, errors.Join(err, p.objs.Close())
	}
	return p, nil
}

func (p *Probe) hits(pid int32, _ int) uprobe.Hits {
	var j collectivesJob
	if p.objs.Jobs.Lookup(uint32(pid), &j) != nil {
		return uprobe.Hits{}
	}
	return uprobe.Hits{Emulated: j.Hits[0], Stepped: j.Hits[1]}
}

// Name is "nccl".
func (p *Probe) Name() string { return "nccl" }

// Watch looks for NCCL in the container's processes from the next Read on.
func (p *Probe) Watch(t probes.Target) error { return p.client.Watch(t) }

// Unwatch forgets a container's processes and takes the probes out of them.
func (p *Probe) Unwatch(key string) { p.client.Unwatch(key) }

// Read adds an NCCL part to the samples of containers with a process that maps
// NCCL, or where something is missing. It also looks at processes that are new, and
// returns each problem once.
func (p *Probe) Read(ctx context.Context, into map[string]*probes.Sample) error {
	errs := []error{p.client.Scan(ctx), p.client.Rotate()}
	parts := map[string]*probes.NCCL{}
	for pid, key := range p.client.Processes() {
		var j collectivesJob
		if err := p.objs.Jobs.Lookup(uint32(pid), &j); err != nil {
			errs = append(errs, fmt.Errorf("nccl probe: read the counters of process %d: %w", pid, err))
			continue
		}
		if parts[key] == nil {
			parts[key] = &probes.NCCL{}
		}
		parts[key].Processes = append(parts[key].Processes, probes.NCCLProcess{
			TGID: pid, Calls: j.Calls, Bytes: j.Bytes, Ranks: int(j.Size >> 32), Rank: int(uint32(j.Size)), LastNs: int64(j.LastNs),
		})
	}
	for key := range p.client.Watched() {
		missing := p.client.Missing(key)
		if parts[key] == nil && len(missing) == 0 {
			continue
		}
		if parts[key] == nil {
			parts[key] = &probes.NCCL{}
		}
		parts[key].Missing = missing
		slices.SortFunc(parts[key].Processes, func(a, b probes.NCCLProcess) int { return int(a.TGID) - int(b.TGID) })
		if into[key] == nil {
			into[key] = &probes.Sample{Container: key}
		}
		into[key].NCCL = parts[key]
	}
	return errors.Join(errs...)
}

// Missing names what is not counted for a container, each with why.
func (p *Probe) Missing(key string) []string { return p.client.Missing(key) }

// Spending lists what the uprobes cost each container.
func (p *Probe) Spending() []probes.Spend { return p.client.Spending() }

// SetDutyCycle sets the share of time in which collectives are counted for a container.
func (p *Probe) SetDutyCycle(key, hook string, share float64) {
	p.client.SetDutyCycle(key, hook, share)
}

// Cost returns the memory held in the map.
func (p *Probe) Cost() probes.Cost { return p.client.Cost(p.objs.Jobs) }

// Close takes the probes out of all processes and unloads them.
func (p *Probe) Close() error {
	p.client.Close()
	return p.objs.Close()
}
