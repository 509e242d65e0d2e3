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

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/uprobe"
)

// Probe counts collectives. Its methods are called from one goroutine.
type Probe struct {
	*uprobe.Client
	objs objects
}

// objects are of bpf/nccl.bpf.c, but for the map of processes, which is the CUDA probe's.
type objects struct {
	Jobs         *ebpf.Map     `ebpf:"jobs"`
	OnCollective *ebpf.Program `ebpf:"on_collective"`
}

// New loads the program; nothing is attached before a process needs it. The finder
// is shared with other probes and closed after them. Collectives leave marks in
// processes, the CUDA probe's map; nil: no marks.
func New(f *uprobe.Finder, processes *ebpf.Map) (*Probe, error) {
	var opts ebpf.CollectionOptions
	if processes != nil {
		opts.MapReplacements = map[string]*ebpf.Map{"processes": processes}
	}
	p := &Probe{}
	if err := f.Load("nccl", _CollectivesBytes, &p.objs, &opts); err != nil {
		return nil, err
	}
	p.Client = f.Add(uprobe.Spec{
		Name: "nccl", NotAfterFork: true, Hints: []string{"nccl", "torch"},
		Hooks: []uprobe.Hook{{Name: Hook, What: "collectives", Functions: functions, Entry: p.objs.OnCollective}},
		Room:  int(p.objs.Jobs.MaxEntries()),
		Enter: func(pid int32) error { return p.objs.Jobs.Put(uint32(pid), collectivesJob{}) },
		// Absent is what is wanted.
		Leave: func(pid int32) { _ = p.objs.Jobs.Delete(uint32(pid)) },
		Hits:  p.hits, Objects: &p.objs,
	})
	return p, nil
}

func (p *Probe) hits(pid int32, _ int) uprobe.Hits {
	var j collectivesJob
	if p.objs.Jobs.Lookup(uint32(pid), &j) != nil {
		return uprobe.Hits{}
	}
	return uprobe.Hits{Emulated: j.Hits[0], Stepped: j.Hits[1]}
}

// Read adds an NCCL part to the samples of containers with a process that maps
// NCCL, or where something is missing. It also looks at processes that are new, and
// returns each problem once.
func (p *Probe) Read(ctx context.Context, into map[string]*probes.Sample) error {
	errs := []error{p.Scan(ctx), p.Rotate()}
	uprobe.Gather(p.Client, into, func(pid int32, part *probes.NCCL) bool {
		var j collectivesJob
		if err := p.objs.Jobs.Lookup(uint32(pid), &j); err != nil {
			errs = append(errs, fmt.Errorf("nccl probe: read the counters of process %d: %w", pid, err))
			return false
		}
		part.Processes = append(part.Processes, probes.NCCLProcess{
			TGID: pid, Calls: j.Calls, Bytes: j.Bytes, Ranks: int(j.Size >> 32), Rank: int(uint32(j.Size)), LastNs: int64(j.LastNs),
		})
		return true
	}, func(s *probes.Sample, part *probes.NCCL, missing []string) { part.Missing, s.NCCL = missing, part })
	return errors.Join(errs...)
}

// Hook names the uprobes in what they spend.
const Hook = "nccl.call"

// Parts of a cookie's code: CODE_* and KIND_* of bpf/nccl.bpf.c.
const (
	early    uint32 = 1 << 8
	initByID uint32 = 0x80
	initFlat uint32 = 0x81
	initAll  uint32 = 0x82
)

// functions lists what is probed. Not ncclBcast, which calls ncclBroadcast, nor the
// pnccl names, which are the same functions.
//
//trimtab:table NCCL's calls and how to read them
var functions = map[string]uprobe.Point{
	"ncclAllReduce":     {Code: uint32(probes.AllReduce)},
	"ncclReduceScatter": {Code: uint32(probes.ReduceScatter)},
	"ncclAllGather":     {Code: uint32(probes.AllGather)},
	"ncclBroadcast":     {Code: uint32(probes.Broadcast)},
	"ncclReduce":        {Code: uint32(probes.Reduce)},
	"ncclAlltoAll":      {Code: uint32(probes.AllToAll)},
	"ncclAllToAll":      {Code: uint32(probes.AllToAll)},
	"ncclGather":        {Code: uint32(probes.Reduce)}, // from NCCL 2.28 on; many to one, as a reduction is
	"ncclScatter":       {Code: uint32(probes.Broadcast)},
	"ncclSend":          {Code: uint32(probes.Send) | early},
	"ncclRecv":          {Code: uint32(probes.Recv) | early},

	"ncclCommInitRank":         {Code: initByID},
	"ncclCommInitRankConfig":   {Code: initByID},
	"ncclCommInitRankScalable": {Code: initFlat},
	"ncclCommInitAll":          {Code: initAll},
}
