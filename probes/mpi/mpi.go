// Package mpi counts the time that processes are inside MPI calls that wait for other ranks, by
// uprobes on the entry and the return of collectives, blocking sends and receives, and waits, in
// any MPI library whose C functions a process maps: Open MPI, MPICH and their kin.
//
// MPI libraries wait by spinning, so the kernel calls such a wait work. The trap: a call that
// returns at once costs two hits all the same; above the budget the hooks take turns, and
// CountedNs says for how long they counted. A program that loops on MPI_Test waits unseen, and so
// does a thread while another is inside a call.
package mpi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/procfs"
	"github.com/trimtab/trimtab/probes/uprobe"
)

// Hook names the uprobes in what they spend.
const Hook = "mpi.wait"

// functions are those that wait (MPI 3.1, chapters 3, 5 and 11), by the names of the profiling
// interface, which every MPI has (chapter 14). A program's MPI_Send is another name of PMPI_Send, or
// a tool's that calls it; a linker stores that name as the end of this one, where a search for
// names passes it by.
//
//trimtab:table read only
var functions = []string{
	"PMPI_Allgather", "PMPI_Allgatherv", "PMPI_Allreduce", "PMPI_Alltoall", "PMPI_Alltoallv", "PMPI_Alltoallw", "PMPI_Barrier", "PMPI_Bcast",
	"PMPI_Exscan", "PMPI_Gather", "PMPI_Gatherv", "PMPI_Mprobe", "PMPI_Mrecv", "PMPI_Neighbor_allgather", "PMPI_Neighbor_allgatherv",
	"PMPI_Neighbor_alltoall", "PMPI_Neighbor_alltoallv", "PMPI_Neighbor_alltoallw", "PMPI_Probe", "PMPI_Recv", "PMPI_Reduce",
	"PMPI_Reduce_scatter", "PMPI_Reduce_scatter_block", "PMPI_Rsend", "PMPI_Scan", "PMPI_Scatter", "PMPI_Scatterv", "PMPI_Send", "PMPI_Sendrecv",
	"PMPI_Sendrecv_replace", "PMPI_Ssend", "PMPI_Wait", "PMPI_Waitall", "PMPI_Waitany", "PMPI_Waitsome", "PMPI_Win_complete", "PMPI_Win_fence",
	"PMPI_Win_flush", "PMPI_Win_lock", "PMPI_Win_unlock", "PMPI_Win_wait",
}

// Probe counts the time. Its methods are called from one goroutine.
type Probe struct {
	*uprobe.Client
	objs objects
	told map[int32]*told
}

// objects are of bpf/mpi.bpf.c.
type objects struct {
	Processes *ebpf.Map     `ebpf:"processes"`
	OnWait    *ebpf.Program `ebpf:"on_wait"`
	OnReturn  *ebpf.Program `ebpf:"on_return"`
}

// told is what was told of one process.
type told struct {
	ns    uint64 // in all
	given uint64 // of calls that were told while they were open, and whose return was not seen
	turn  uint16
}

// maxOpen is for how long a call counts whose return does not come, as in bpf/mpi.bpf.c.
const maxOpen = uint64(time.Minute)

// New loads the programs; nothing is attached before a process needs it. The finder is shared
// with other probes and closed after them.
func New(f *uprobe.Finder) (*Probe, error) {
	p := &Probe{told: map[int32]*told{}}
	if err := f.Load("mpi", _WaitsBytes, &p.objs, nil); err != nil {
		return nil, err
	}
	points := map[string]uprobe.Point{}
	for _, name := range functions {
		points[name] = uprobe.Point{Returns: true}
	}
	p.Client = f.Add(uprobe.Spec{
		Name: "mpi", NotAfterFork: true, Hints: []string{"libmpi", "mpich"},
		Hooks: []uprobe.Hook{{Name: Hook, What: "waits in MPI", Functions: points, Entry: p.objs.OnWait, Return: p.objs.OnReturn}},
		Room:  int(p.objs.Processes.MaxEntries()),
		Enter: func(pid int32) error { return p.objs.Processes.Put(uint32(pid), waitsProcess{}) },
		Leave: func(pid int32) {
			delete(p.told, pid)
			_ = p.objs.Processes.Delete(uint32(pid)) // absent is what is wanted
		},
		Hits: p.hits, Objects: &p.objs,
	})
	return p, nil
}

func (p *Probe) hits(pid int32, _ int) uprobe.Hits {
	var c waitsProcess
	if p.objs.Processes.Lookup(uint32(pid), &c) != nil {
		return uprobe.Hits{}
	}
	return uprobe.Hits{Emulated: c.Hits[0], Stepped: c.Hits[1], Returns: c.Returns}
}

// Read adds an MPI part to the samples of containers with a process that maps MPI, or where
// something is missing. It also looks at processes that are new, and returns each problem once.
func (p *Probe) Read(ctx context.Context, into map[string]*probes.Sample) error {
	errs := []error{p.Scan(ctx)}
	read := map[int32]probes.MPIProcess{}
	for pid := range p.Processes() { // before hooks are switched: what is open then would be lost
		one, err := p.read(pid)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		read[pid] = one
	}
	errs = append(errs, p.Rotate())
	uprobe.Gather(p.Client, into, func(pid int32, part *probes.MPI) bool {
		one, ok := read[pid]
		if ok {
			part.Processes = append(part.Processes, one)
		}
		return ok
	}, func(s *probes.Sample, part *probes.MPI, missing []string) { part.Missing, s.MPI = missing, part })
	return errors.Join(errs...)
}

// read reads one process's counters. The call that is open counts up to now, while its return
// will be seen.
func (p *Probe) read(pid int32) (probes.MPIProcess, error) {
	out := probes.MPIProcess{TGID: pid, CountedNs: uint64(p.CountedFor(pid, 0))}
	var c waitsProcess
	if err := p.objs.Processes.Lookup(uint32(pid), &c); err != nil {
		return out, fmt.Errorf("mpi probe: read the counters of process %d: %w", pid, err)
	}
	t := p.told[pid]
	if t == nil {
		t = &told{}
		p.told[pid] = t
	}
	turn, on := p.Attached(pid, 0)
	if !on || turn != t.turn {
		t.given += t.ns - min(t.ns, c.Ns+t.given)
		t.turn = turn
	}
	wait := c.Ns + t.given
	if on && c.OpenNs != 0 && uint32(c.OpenOf) == uint32(turn) {
		now := uint64(procfs.MonotonicNs())
		wait += min(now-min(now, c.OpenNs), maxOpen)
	}
	t.ns = max(t.ns, wait) // it only grows
	out.Calls, out.WaitNs, out.LastNs, out.Caller = c.Calls, t.ns, int64(c.LastNs), int32(c.LastOf>>32)
	return out, nil
}
