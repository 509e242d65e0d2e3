// Package ticks counts what training frameworks do once a step, pass or round, by entry
// uprobes on functions that their libraries export: the table is [probes.CountedEvents].
//
// The trap: a library may be built in without exporting them, or be called several times for a
// step; a container without ticks is no error.
package ticks

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/uprobe"
)

// Probe counts them. Its methods are called from one goroutine. Ticks of a hook that takes turns are
// no rate: the agent thins these last, or to 0.
type Probe struct {
	*uprobe.Client
	objs objects
	rows []row
	seen map[int32][]tally // of processes, by row, as of the latest Read
}

// objects are of bpf/ticks.bpf.c.
type objects struct {
	Processes *ebpf.Map     `ebpf:"processes"`
	OnEntry   *ebpf.Program `ebpf:"on_entry"`
}

// tally is what was counted of one row in one process. Two versions of a framework may be mapped in
// one process: between two readings the library with most entries counts, and never their sum.
type tally struct {
	hits   uprobe.Hits
	of     [len(entryTicks{}.Count)]uint64 // entries, by library
	count  uint64
	lastNs int64
}

// row is one kind of tick: groups of places in the map's value.
type row struct {
	source string
	groups [][]uint32
}

// New loads the program; nothing is attached before a process needs it. The
// finder is shared with other probes and closed after them.
func New(f *uprobe.Finder) (*Probe, error) {
	p := &Probe{seen: map[int32][]tally{}}
	if err := f.Load("ticks", _EntryBytes, &p.objs, nil); err != nil {
		return nil, err
	}
	wanted := p.table(probes.CountedEvents())
	wanted.Room = int(p.objs.Processes.MaxEntries())
	wanted.Enter = p.enter
	wanted.Leave = p.leave
	wanted.Hits = func(pid int32, hook int) uprobe.Hits { return p.seen[pid][hook].hits }
	wanted.Objects = &p.objs
	p.Client = f.Add(wanted)
	return p, nil
}

// table makes the rows, with a hook for each: what one costs does not switch off another.
func (p *Probe) table(events []probes.Counted) uprobe.Spec {
	// Autograd refuses to run in a copy forked after it ran, and OpenMP's threads are not in one.
	spec := uprobe.Spec{Name: "ticks", NotAfterFork: true}
	at := uint32(0)
	for _, e := range events {
		r, functions := row{source: e.Source}, map[string]uprobe.Point{}
		for _, names := range e.Functions {
			var group []uint32
			for _, name := range names {
				functions[name] = uprobe.Point{Code: at}
				group = append(group, at)
				at++
			}
			r.groups = append(r.groups, group)
		}
		if !slices.Contains(spec.Hints, e.Library) {
			spec.Hints = append(spec.Hints, e.Library)
		}
		p.rows = append(p.rows, r)
		spec.Hooks = append(spec.Hooks, uprobe.Hook{Name: e.Source, What: e.What, Functions: functions, Entry: p.objs.OnEntry})
	}
	return spec
}

// add takes in what the places of a row hold now.
func (s *tally) add(r row, t *entryTicks) {
	s.hits = uprobe.Hits{}
	most := uint64(0)
	for library := range t.Count {
		n, lastNs := uint64(0), int64(0)
		for _, group := range r.groups {
			entered := uint64(0)
			for _, at := range group {
				count := t.Count[library][at]
				entered, lastNs = max(entered, count), max(lastNs, int64(t.LastNs[at]))
				if t.Stepped>>at&1 == 1 {
					s.hits.Stepped += count
				} else {
					s.hits.Emulated += count
				}
			}
			n += entered
		}
		if fresh := n - s.of[library]; fresh > most {
			most, s.lastNs = fresh, lastNs
		}
		s.of[library] = n
	}
	s.count += most
}

func (p *Probe) enter(pid int32) error {
	if err := p.objs.Processes.Put(uint32(pid), entryTicks{}); err != nil {
		return err
	}
	p.seen[pid] = make([]tally, len(p.rows))
	return nil
}

func (p *Probe) leave(pid int32) {
	delete(p.seen, pid)
	_ = p.objs.Processes.Delete(uint32(pid)) // absent is what is wanted
}

// Read adds Ticks to the Kernel parts that are there: it comes after the kernel
// probe. It also looks at processes that are new, and returns each problem once.
func (p *Probe) Read(ctx context.Context, into map[string]*probes.Sample) error {
	err := p.Scan(ctx)
	for pid, key := range p.Processes() {
		var t entryTicks
		if p.objs.Processes.Lookup(uint32(pid), &t) != nil {
			continue
		}
		sample := into[key]
		for i, r := range p.rows {
			s := &p.seen[pid][i]
			if s.add(r, &t); s.count > 0 && sample != nil && sample.Kernel != nil {
				sample.Kernel.Ticks = append(sample.Kernel.Ticks, probes.Ticks{Source: r.source, TGID: pid, Count: s.count, LastNs: s.lastNs})
			}
		}
	}
	for key, sample := range into {
		if sample.Kernel != nil {
			sample.Kernel.Missing = append(sample.Kernel.Missing, p.Missing(key)...)
			slices.SortFunc(sample.Kernel.Ticks, compareTicks)
		}
		for i := range sample.Processes {
			f := &sample.Processes[i]
			f.Libraries, f.OpenMP = p.Libraries(f.TGID), p.OpenMP(f.TGID)
		}
	}
	return errors.Join(err, p.Rotate())
}

func compareTicks(a, b probes.Ticks) int {
	return cmp.Or(cmp.Compare(a.TGID, b.TGID), cmp.Compare(a.Source, b.Source))
}
