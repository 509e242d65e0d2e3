package observe

import (
	"cmp"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/observe/period"
)

// Process is what one process called of CUDA, NCCL and MPI in a window.
type Process struct {
	TGID      int32
	Launches  uint64  // kernels
	LaunchNs  uint64  // time in which they were counted
	Ever      float64 // kernels a second in all the time in which they were counted; 0: in none
	Graphs    uint64
	Copies    uint64 // from the host to the device
	CopyBytes uint64
	OutBytes  uint64                      // from the device to the host
	Threads   []CallThread                // sorted by TID
	Marks     []probes.Mark               // oldest first, the latest period.MaxMarks
	Calls     uint64                      // collectives
	Bytes     uint64                      // of collectives, in the caller's buffers
	Ranks     int                         // of its largest communicator; 0: not told
	Exchanged bool                        // it called collectives before, and they are not counted now: over budget, or in a graph
	MPINs     uint64                      // in MPI calls that wait, while they were timed
	MPITimed  uint64                      // ns for which they were
	MPICaller int32                       // the thread that called the latest
	PerKind   [probes.NumMarkKinds]uint64 // marks in the window, those without room included where counted
}

// CallThread is what one thread called in a window.
type CallThread struct {
	TID            int32
	Launched       uint64 // kernels and graphs since it was first seen: the budget may leave out a window's
	Syncs          uint64
	SyncNs         uint64
	SyncRunNs      uint64 // of SyncNs, on a CPU: spinning
	CopyNs         uint64 // blocking copies
	CopyRunNs      uint64
	FromNs, LastNs int64 // end of the latest call, before and in the window

	Staged, StagedNs, StagedKiB uint64 // asynchronous copies of more than 64 KiB to the device
}

// spin is what its blocking calls took on a CPU, ns.
func (t CallThread) spin() uint64 { return t.SyncRunNs + t.CopyRunNs }

// maxProcesses bounds those that a window remembers after they ended.
const maxProcesses = 256

// diffCalls makes the processes' deltas; a process seen for the first time has none yet.
func diffCalls(prev, cur *probes.CUDA) []Process {
	if prev == nil || cur == nil {
		return nil
	}
	var out []Process
	for _, p := range cur.Processes {
		i := slices.IndexFunc(prev.Processes, func(o probes.CUDAProcess) bool { return o.TGID == p.TGID })
		if i < 0 {
			continue
		}
		old := prev.Processes[i]
		d := Process{
			TGID: p.TGID, Launches: sub(p.Launches, old.Launches), LaunchNs: sub(p.LaunchNs, old.LaunchNs), Graphs: sub(p.Graphs, old.Graphs),
			Ever:      1e9 * float64(p.Launches) / max(1, float64(p.LaunchNs)),
			Copies:    sub(p.Copies[probes.CopyHostToDevice], old.Copies[probes.CopyHostToDevice]),
			CopyBytes: sub(p.CopyBytes[probes.CopyHostToDevice], old.CopyBytes[probes.CopyHostToDevice]),
			OutBytes:  sub(p.CopyBytes[probes.CopyDeviceToHost], old.CopyBytes[probes.CopyDeviceToHost]),
			Threads:   diffCallThreads(old.Threads, p.Threads), Marks: newerMarks(p.Marks, old.Marks),
		}
		for _, m := range d.Marks {
			if m.Kind < probes.NumMarkKinds {
				d.PerKind[m.Kind]++
			}
		}
		out = append(out, d)
	}
	return out
}

// newerMarks drops what the reading before held already.
func newerMarks(cur, prev []probes.Mark) []probes.Mark {
	if len(prev) == 0 {
		return cur
	}
	last := prev[len(prev)-1].AtNs
	for len(cur) > 0 && cur[0].AtNs <= last {
		cur = cur[1:]
	}
	return cur
}

func diffCallThreads(prev, cur []probes.CUDAThread) []CallThread {
	was := make(map[int32]probes.CUDAThread, len(prev))
	for _, t := range prev {
		was[t.TID] = t
	}
	var out []CallThread
	for _, t := range cur {
		old := was[t.TID]
		out = append(out, CallThread{
			TID: t.TID, Launched: t.Launches, Syncs: sub(t.Syncs, old.Syncs), SyncNs: sub(t.SyncNs, old.SyncNs), SyncRunNs: sub(t.SyncRunNs, old.SyncRunNs),
			CopyNs: sub(t.CopyNs, old.CopyNs), CopyRunNs: sub(t.CopyRunNs, old.CopyRunNs), FromNs: old.LastNs, LastNs: t.LastNs,
			Staged: sub(t.Staged, old.Staged), StagedNs: sub(t.StagedNs, old.StagedNs), StagedKiB: sub(t.StagedKiB, old.StagedKiB),
		})
	}
	return out
}

// addCollectives enters NCCL's deltas into the processes, making those that CUDA's
// probe does not know: gloo-like programs may call NCCL alone.
func addCollectives(ps []Process, prev, cur *probes.NCCL, endNs int64) []Process {
	if prev == nil || cur == nil {
		return ps
	}
	var called []Process
	for _, p := range cur.Processes {
		i := slices.IndexFunc(prev.Processes, func(o probes.NCCLProcess) bool { return o.TGID == p.TGID })
		if i < 0 {
			continue
		}
		d := Process{TGID: p.TGID, Ranks: p.Ranks}
		for k := range probes.NumCollectives {
			d.Calls += sub(p.Calls[k], prev.Processes[i].Calls[k])
			d.Bytes += sub(p.Bytes[k], prev.Processes[i].Bytes[k])
		}
		graphs := slices.ContainsFunc(ps, func(o Process) bool { return o.TGID == p.TGID && o.Graphs > 0 })
		d.Exchanged = d.Calls == 0 && p.LastNs > 0 && (graphs || uncounted(cur) && endNs-p.LastNs < exchangedNs)
		called = append(called, d)
	}
	return joinProcesses(ps, called)
}

// addMPI enters MPI's deltas likewise.
func addMPI(ps []Process, prev, cur *probes.MPI, endNs int64) []Process {
	if prev == nil || cur == nil {
		return ps
	}
	var called []Process
	for _, p := range cur.Processes {
		if i := slices.IndexFunc(prev.Processes, func(o probes.MPIProcess) bool { return o.TGID == p.TGID }); i >= 0 {
			d := Process{TGID: p.TGID, MPINs: sub(p.WaitNs, prev.Processes[i].WaitNs), MPITimed: sub(p.CountedNs, prev.Processes[i].CountedNs), MPICaller: p.Caller}
			if d.MPITimed == 0 && p.CountedNs > 0 && endNs-p.LastNs < exchangedNs { // another's turn: what was timed until now tells, where nothing else does
				d.MPINs, d.MPITimed = uint64(1000*float64(p.WaitNs)/float64(p.CountedNs)), 1000
			}
			called = append(called, d)
		}
	}
	return joinProcesses(ps, called)
}

// inMPI is the share of the time, 0..1, that a thread was inside MPI calls that wait.
func (p *Process) inMPI(tid int32) float64 {
	if p == nil || p.MPITimed == 0 || p.MPICaller != tid {
		return 0
	}
	return min(1, float64(p.MPINs)/float64(p.MPITimed))
}

// exchangedNs is for how long a call counts: above the budget one is seen in a moment of each minute.
const exchangedNs = 5 * 60 * second

// uncounted: collectives are not counted at all now, rather than in turns.
func uncounted(n *probes.NCCL) bool {
	return slices.ContainsFunc(n.Missing, func(what string) bool { return strings.HasSuffix(what, ": "+probes.OverBudget) })
}

// joinProcesses sums the deltas of two windows that follow each other.
func joinProcesses(as, bs []Process) []Process {
	out := slices.Clone(bs)
	for _, a := range as {
		i := slices.IndexFunc(out, func(b Process) bool { return b.TGID == a.TGID })
		if i < 0 {
			if len(out) < maxProcesses {
				out = append(out, a)
			}
			continue
		}
		p := &out[i]
		p.Launches += a.Launches
		p.LaunchNs += a.LaunchNs
		p.Graphs += a.Graphs
		p.Copies += a.Copies
		p.CopyBytes += a.CopyBytes
		p.OutBytes += a.OutBytes
		p.Calls += a.Calls
		p.Bytes += a.Bytes
		p.MPINs += a.MPINs
		p.MPITimed += a.MPITimed
		p.MPICaller, p.Ever = cmp.Or(p.MPICaller, a.MPICaller), cmp.Or(p.Ever, a.Ever)
		p.Ranks = max(p.Ranks, a.Ranks)
		p.Exchanged = (p.Exchanged || a.Exchanged) && p.Calls == 0
		for k := range p.PerKind {
			p.PerKind[k] += a.PerKind[k]
		}
		marks := append(slices.Clone(a.Marks), p.Marks...)
		p.Marks = marks[max(0, len(marks)-period.MaxMarks):]
		p.Threads = joinCallThreads(a.Threads, p.Threads)
	}
	slices.SortFunc(out, func(a, b Process) int { return cmp.Compare(a.TGID, b.TGID) })
	return out
}

func joinCallThreads(as, bs []CallThread) []CallThread {
	out := merge(slices.Clone(bs), as, func(a, b CallThread) bool { return a.TID == b.TID }, func(t *CallThread, a CallThread) {
		t.Syncs += a.Syncs
		t.SyncNs += a.SyncNs
		t.SyncRunNs += a.SyncRunNs
		t.CopyNs += a.CopyNs
		t.CopyRunNs += a.CopyRunNs
		t.Staged, t.StagedNs, t.StagedKiB = t.Staged+a.Staged, t.StagedNs+a.StagedNs, t.StagedKiB+a.StagedKiB
		t.FromNs, t.Launched = a.FromNs, max(t.Launched, a.Launched)
	})
	slices.SortFunc(out, func(a, b CallThread) int { return cmp.Compare(a.TID, b.TID) })
	return out
}

// Calls finds what a process called; nil: nothing seen of it.
func (w *Window) Calls(tgid int32) *Process {
	if i := slices.IndexFunc(w.Processes, func(p Process) bool { return p.TGID == tgid }); i >= 0 {
		return &w.Processes[i]
	}
	return nil
}

// launcher reports whether a thread launches a good part of what the busiest of its process does: it computes.
func (p *Process) launcher(tid int32) bool {
	own, most := p.CallsOf(tid).Launched, uint64(0)
	if own == 0 {
		return false
	}
	for _, t := range p.Threads {
		most = max(most, t.Launched)
	}
	return float64(own) >= callerShare*float64(most)
}

// CallsOf finds a thread's calls.
func (p *Process) CallsOf(tid int32) CallThread {
	if p != nil {
		if i := slices.IndexFunc(p.Threads, func(t CallThread) bool { return t.TID == tid }); i >= 0 {
			return p.Threads[i]
		}
	}
	return CallThread{TID: tid}
}
