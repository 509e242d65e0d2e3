// Package torch counts the backward passes of PyTorch processes by one entry
// uprobe on autograd's engine. What it delivers are ticks: passes, never steps.
//
// The trap: PyTorch may be built in without exporting the engine, or call it
// several times for a step; a container without ticks is no error.
package torch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/uprobe"
)

// Source names the ticks.
const Source = "torch.backward"

// Hook names the uprobe in what it spends.
const Hook = "torch.backward"

// symbolPrefix is torch::autograd::Engine::execute, whatever its arguments are
// in this version.
const symbolPrefix = "_ZN5torch8autograd6Engine7executeE"

// Probe counts backward passes. Its methods are called from one goroutine.
type Probe struct {
	objs   uprobeObjects
	client *uprobe.Client
}

var (
	_ probes.Probe   = (*Probe)(nil)
	_ probes.Spender = (*Probe)(nil)
)

// New loads the program; nothing is attached before a process needs it. The
// finder is shared with other probes and closed after them.
func New(f *uprobe.Finder) (*Probe, error) {
	spec, err := loadUprobe()
	if err != nil {
		return nil, fmt.Errorf("torch probe: %w", err)
	}
	f.Prepare(spec)
	p := &Probe{}
	if err := spec.LoadAndAssign(&p.objs, nil); err != nil {
		return nil, fmt.Errorf("torch probe: load: %w; needs Linux 5.15, CONFIG_UPROBE_EVENTS, CAP_BPF and CAP_PERFMON", err)
	}
	p.client, err = f.Add(uprobe.Spec{
		Name: "torch", Prefixes: []string{symbolPrefix}, Names: []string{symbolPrefix + "*"}, Hints: []string{"torch"},
		Hooks: []uprobe.Hook{{Name: Hook, What: "backward passes", Match: match, Entry: p.objs.OnBackward}},
		Enter: func(pid int32) error { return p.objs.Processes.Put(uint32(pid), uprobeTicks{}) },
		// Absent is what is wanted.
		Leave: func(pid int32) { _ = p.objs.Processes.Delete(uint32(pid)) },
		Hits:  p.hits,
	})
	if err != nil {
		return nil, errors.Join(err, p.objs.Close())
	}
	return p, nil
}

func match(symbol string) (uprobe.Point, bool) {
	return uprobe.Point{}, strings.HasPrefix(symbol, symbolPrefix)
}

func (p *Probe) hits(pid int32, _ int) uprobe.Hits {
	var t uprobeTicks
	if p.objs.Processes.Lookup(uint32(pid), &t) != nil {
		return uprobe.Hits{}
	}
	return uprobe.Hits{Emulated: t.Count - min(t.Stepped, t.Count), Stepped: t.Stepped}
}

// Name is "torch".
func (p *Probe) Name() string { return "torch" }

// Watch looks for PyTorch in the container's processes from the next Read on.
func (p *Probe) Watch(t probes.Target) error { return p.client.Watch(t) }

// Unwatch forgets a container's processes and takes the probe out of them.
func (p *Probe) Unwatch(key string) { p.client.Unwatch(key) }

// Read adds Ticks to the Kernel parts that are there: it comes after the kernel
// probe. It also looks at processes that are new, and returns each problem once.
func (p *Probe) Read(ctx context.Context, into map[string]*probes.Sample) error {
	err := p.client.Scan(ctx)
	for pid, key := range p.client.Processes() {
		sample := into[key]
		if sample == nil || sample.Kernel == nil {
			continue
		}
		var t uprobeTicks
		if p.objs.Processes.Lookup(uint32(pid), &t) != nil || t.Count == 0 {
			continue
		}
		sample.Kernel.Ticks = append(sample.Kernel.Ticks,
			probes.Ticks{Source: Source, TGID: pid, Count: t.Count, LastNs: int64(t.LastNs)})
	}
	for key, sample := range into {
		if sample.Kernel != nil {
			sample.Kernel.Missing = append(sample.Kernel.Missing, p.client.Missing(key)...)
			slices.SortFunc(sample.Kernel.Ticks, compareTicks)
		}
	}
	return errors.Join(err, p.client.Turn())
}

func compareTicks(a, b probes.Ticks) int {
	return cmp.Or(cmp.Compare(a.TGID, b.TGID), cmp.Compare(a.Source, b.Source))
}

// Missing names what is not counted for a container, each with why.
func (p *Probe) Missing(key string) []string { return p.client.Missing(key) }

// Spending lists what the uprobe cost each container.
func (p *Probe) Spending() []probes.Spend { return p.client.Spending() }

// Thin sets the share of time in which passes are counted. Ticks of a hook that
// takes turns are no rate: the loop thins this one last, or to 0.
func (p *Probe) Thin(key, hook string, share float64) { p.client.Thin(key, hook, share) }

// Cost returns the memory held in maps.
func (p *Probe) Cost() probes.Cost {
	cost := probes.Cost{ChildNs: p.client.ChildNs()}
	if info, err := p.objs.Processes.Info(); err == nil {
		if bytes, ok := info.Memlock(); ok {
			cost.MapBytes = bytes
		}
	}
	return cost
}

// Close takes the probe out of all processes and unloads it.
func (p *Probe) Close() error {
	p.client.Close()
	return p.objs.Close()
}
