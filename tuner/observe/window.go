// Package observe turns raw samples into what happened between two instants:
// deltas of each thread, grouped into ranks, with roles, a rate, a breakdown of
// the trainer's wall time and the cost of one step. Everything here is a pure
// function of plain data.
package observe

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/probes"
)

// Window is what happened in one container between two instants. Immutable.
type Window struct {
	StartNs, EndNs int64    // CLOCK_MONOTONIC
	Threads        []Thread // sorted by identity
	Ticks          []Tick   // in order of preference, then of TGID
	Block          probes.Block
	Lost           uint64 // threads and exits that found no room, in this window
	Seeding        bool   // some threads have no history before the window
	Stopped        bool   // of a slice: somebody paused the container in it, or stopped the job for most of it

	HasKernel bool
	Cgroup    Cgroup
	HasCgroup bool

	Processes []Process // what called CUDA or NCCL, sorted by TGID
	Network   Network
	Traffic   Network          // of the latest reading, which comes less often than windows
	Devices   []Device         // those that the container holds
	Facts     []probes.Process // of the latest reading, sorted by TGID
	// Unseen names what the probes leave out at present, each with why.
	Unseen []string

	StealShare float64 // of the host's CPU time, 0..1
	HostIdle   float64 // CPUs idle on the host
	HostCPUs   int
}

// Thread is one thread's deltas.
type Thread struct {
	TID, TGID, PPID int32
	StartNs         uint64
	Comm            string
	Exited, Stopped bool  // Stopped: by a signal, and it does not go on yet
	WallNs          int64 // equals the sum of Ns
	Ns              [probes.NumStates]uint64
	Count           [probes.NumStates]uint64
	FromNs, LastNs  [probes.NumStates]int64 // end of the latest interval, before and in the window
	ReclaimNs       uint64
	SiblingNs       uint64 // of Ns[StateQueued]
	AloneNs         uint64 // of Ns[StateQueued]
	// Read and written by any call; minor page faults; written to files on disks.
	IOBytes, Faults, WrittenBytes uint64
	Edges                         []probes.Edge // sorted by waker, then state
}

// Tick is a periodic event's deltas.
type Tick struct {
	Source         string
	TGID           int32
	Count          uint64
	FromNs, LastNs int64 // latest tick before and in the window; FromNs 0: none known before, Count is 0 then
	Steps          bool  // the job's own count of its steps
	EveryNs        int64 // see probes.Ticks
}

// Cgroup is what the cgroup's accounting says of the window.
type Cgroup struct {
	CPUNs          uint64
	ThrottledShare float64 // throttled periods over periods, of the most throttled level
	QuotaCPUs      float64 // smallest quota along the chain, 0: none
	MemoryBytes    uint64
	MemoryLimit    int64 // -1: none
	Anon, Shmem    uint64
	AnonGrowth     int64  // bytes in the window, anon and shmem
	RefaultFile    uint64 // pages
	MajorFaults    uint64
	RefaultAnon    uint64  // pages
	OOMKills, Hits uint64  // Hits: of the limit
	HasPSI, Unread bool    // Unread: the CPU use, at its start or its end; CPUNs is of another stretch then
	CPUSome        float64 // share of wall time with some task waiting
	MemorySome     float64
	MemoryFull     float64
	IOSome         float64
}

// identity names one life of one thread.
type identity struct {
	tid   int32
	start uint64
}

// DeltaTracker diffs consecutive samples of one container. The zero value is ready.
type DeltaTracker struct {
	last     *probes.Sample
	lastHost probes.Host
	base     map[identity]*probes.Thread
	traffic  Network
	wire     wireBase // of the latest reading of the network
}

// Next returns what happened between the sample before and this one; nil for the first.
func (d *DeltaTracker) Next(s probes.Sample, host probes.Host) *Window {
	prev, prevHost := d.last, d.lastHost
	if s.Network == nil && prev != nil {
		s.Network = prev.Network // it is read less often than the rest
	}
	d.last, d.lastHost = &s, host
	fresh := s.Network != nil && (prev == nil || prev.Network == nil || s.Network.AtNs > prev.Network.AtNs)
	before := d.wire
	if fresh {
		d.wire = wireBaseOf(host, s.NCCL)
	}
	if prev == nil {
		d.rebase(s.Kernel)
		return nil
	}
	slice := d.diff(*prev, s, prevHost, host)
	slice.Network.addHostLinks(before, d.wire)
	if slice.Network.Ns > 0 {
		d.traffic = slice.Network
	}
	slice.Traffic = d.traffic
	d.rebase(s.Kernel)
	return &slice
}

// rebase remembers each living thread's counters for the next diff.
func (d *DeltaTracker) rebase(k *probes.Kernel) {
	if d.base == nil {
		d.base = map[identity]*probes.Thread{}
	}
	clear(d.base)
	if k == nil {
		return
	}
	for i := range k.Threads {
		if t := &k.Threads[i]; !t.Exited {
			d.base[identity{t.TID, t.StartNs}] = t
		}
	}
}

// Builder joins the slices of one Differ into windows. The zero value is ready.
type Builder struct {
	open *Window
	own  bool // nobody else has the open window's threads
}

// Add takes the next slice and returns the open window, which runs from the last
// Cut to its end; nil if there is no slice. A slice without kernel part ends the
// open window: its counters no longer follow from the last ones. The next Add changes it.
func (b *Builder) Add(slice *Window) *Window {
	switch {
	case slice == nil:
		return nil
	case b.open == nil || b.open.HasKernel != slice.HasKernel:
		b.open, b.own = slice, false
	case b.own:
		*b.open = join(*b.open, *slice, true)
	default:
		joined := join(*b.open, *slice, false)
		b.open, b.own = &joined, true
	}
	return b.open
}

// Cut closes the open window: the next slice opens another.
func (b *Builder) Cut() { b.open, b.own = nil, false }

// diff makes the slice between two samples.
func (d *DeltaTracker) diff(prev, cur probes.Sample, prevHost, host probes.Host) Window {
	w := Window{StartNs: prevHost.AtNs, EndNs: host.AtNs, HostCPUs: host.CPUs, Facts: cur.Processes, Unseen: cur.Missing()}
	if total := float64(host.BusyNs+host.IdleNs+host.StealNs+host.IOWaitNs) - float64(prevHost.BusyNs+prevHost.IdleNs+prevHost.StealNs+prevHost.IOWaitNs); total > 0 {
		w.StealShare = host.StolenSince(prevHost)
		w.HostIdle = float64(sub(host.IdleNs+host.IOWaitNs, prevHost.IdleNs+prevHost.IOWaitNs)) / total * float64(host.CPUs)
	}
	if cur.Kernel != nil && prev.Kernel != nil {
		w.HasKernel = true
		w.Seeding = prev.Kernel.Seeding
		w.Lost = sub(cur.Kernel.Lost, prev.Kernel.Lost)
		w.Block = cur.Kernel.Block.Since(prev.Kernel.Block)
		w.Threads = slices.Grow(w.Threads, len(cur.Kernel.Threads))
		for _, t := range cur.Kernel.Threads {
			base, known := d.base[identity{t.TID, t.StartNs}]
			if !known {
				base = &probes.Thread{}
			}
			w.Threads = append(w.Threads, diffThread(base, t, known))
		}
		w.Ticks = diffTicks(prev.Kernel.Ticks, cur.Kernel.Ticks)
		if !onceEach(w.Threads) {
			sortThreads(w.Threads)
		}
	}
	if cur.Cgroup != nil && prev.Cgroup != nil {
		w.HasCgroup = true
		w.Cgroup = diffCgroup(*prev.Cgroup, *cur.Cgroup)
	}
	w.Processes = addMPI(addCollectives(diffCalls(prev.CUDA, cur.CUDA), prev.NCCL, cur.NCCL, w.EndNs), prev.MPI, cur.MPI, w.EndNs)
	w.Network = diffNetwork(prev.Network, cur.Network)
	w.Devices = diffDevices(cur.Container, prevHost, host)
	return w
}

func diffThread(base *probes.Thread, t probes.Thread, known bool) Thread {
	d := Thread{TID: t.TID, TGID: t.TGID, PPID: t.PPID, StartNs: t.StartNs, Comm: t.Comm, Exited: t.Exited, Stopped: t.Stopped, WallNs: t.AtNs - t.SinceNs}
	if known {
		d.WallNs = t.AtNs - base.AtNs
	}
	for s := range probes.NumStates {
		d.Ns[s] = sub(t.Ns[s], base.Ns[s])
		d.Count[s] = sub(t.Count[s], base.Count[s])
		d.FromNs[s], d.LastNs[s] = base.LastNs[s], t.LastNs[s]
	}
	d.ReclaimNs, d.SiblingNs, d.AloneNs = sub(t.ReclaimNs, base.ReclaimNs), sub(t.SiblingNs, base.SiblingNs), sub(t.AloneNs, base.AloneNs)
	d.IOBytes, d.Faults, d.WrittenBytes = sub(t.IOBytes, base.IOBytes), sub(t.Faults, base.Faults), sub(t.WrittenBytes, base.WrittenBytes)
	for _, e := range t.Edges {
		for _, old := range base.Edges {
			if old.Waker == e.Waker && old.State == e.State {
				e.Count, e.Ns = sub(e.Count, old.Count), sub(e.Ns, old.Ns)
			}
		}
		if e.Count > 0 && e.State < probes.NumStates {
			d.Edges = append(d.Edges, e)
		}
	}
	sortEdges(d.Edges)
	return d
}

func diffTicks(prev, cur []probes.Ticks) []Tick {
	var out []Tick
	for _, t := range cur {
		// Ticks before the first one seen may have been missed: counting begins there.
		d := Tick{Source: t.Source, TGID: t.TGID, LastNs: t.LastNs, Steps: t.Steps, EveryNs: t.EveryNs}
		for _, old := range prev {
			if old.TGID == t.TGID && old.Source == t.Source && old.Count <= t.Count && old.LastNs > 0 {
				d.Count, d.FromNs = t.Count-old.Count, old.LastNs
			}
		}
		out = append(out, d)
	}
	slices.SortStableFunc(out, func(a, b Tick) int { return probes.ComparePreference(a.Source, b.Source) })
	return out
}

func diffCgroup(prev, cur probes.Cgroup) Cgroup {
	g := Cgroup{
		CPUNs: sub(cur.CPUUsageNs, prev.CPUUsageNs), MemoryBytes: cur.MemoryBytes, MemoryLimit: cur.MemoryLimit,
		Anon: cur.Anon, Shmem: cur.Shmem, AnonGrowth: int64(cur.Anon+cur.Shmem) - int64(prev.Anon+prev.Shmem),
		RefaultFile: sub(cur.RefaultFile, prev.RefaultFile), MajorFaults: sub(cur.MajorFaults, prev.MajorFaults),
		RefaultAnon: sub(cur.RefaultAnon, prev.RefaultAnon),
		OOMKills:    sub(cur.OOMKills, prev.OOMKills), Hits: sub(cur.EventsMax, prev.EventsMax), HasPSI: cur.HasPSI && prev.HasPSI, Unread: cur.UseUnread() || prev.UseUnread(),
	}
	for i, t := range cur.Throttling {
		if t.QuotaUs > 0 && t.PeriodUs > 0 {
			if c := float64(t.QuotaUs) / float64(t.PeriodUs); g.QuotaCPUs == 0 || c < g.QuotaCPUs {
				g.QuotaCPUs = c
			}
		}
		if len(cur.Throttling) != len(prev.Throttling) { // a quota came or went: which is which is not known
			continue
		}
		if p := sub(t.Periods, prev.Throttling[i].Periods); p > 0 {
			g.ThrottledShare = max(g.ThrottledShare, float64(sub(t.Throttled, prev.Throttling[i].Throttled))/float64(p))
		}
	}
	if wall := float64(cur.AtNs-prev.AtNs) / 1e3; g.HasPSI && wall > 0 {
		// Of a quiet container the reading before may be older than it says: it has no share above the whole.
		share := func(cur, prev uint64) float64 { return min(1, float64(sub(cur, prev))/wall) }
		g.CPUSome = share(cur.CPU.SomeUs, prev.CPU.SomeUs)
		g.MemorySome = share(cur.Memory.SomeUs, prev.Memory.SomeUs)
		g.MemoryFull = share(cur.Memory.FullUs, prev.Memory.FullUs)
		g.IOSome = share(cur.IO.SomeUs, prev.IO.SomeUs)
	}
	return g
}

// sub is a-b, and 0 where a counter ran backwards (a restarted source).
func sub(a, b uint64) uint64 { return max(a, b) - b }

func sortThreads(ts []Thread) {
	slices.SortFunc(ts, func(a, b Thread) int { return order(&a, &b) })
}

func order(a, b *Thread) int {
	return cmp.Or(cmp.Compare(a.TID, b.TID), cmp.Compare(a.StartNs, b.StartNs))
}

func sortEdges(es []probes.Edge) {
	slices.SortFunc(es, func(a, b probes.Edge) int {
		return cmp.Or(cmp.Compare(a.Waker, b.Waker), cmp.Compare(a.State, b.State))
	})
}

// Seconds is the window's length in seconds.
func (w *Window) Seconds() float64 { return float64(w.EndNs-w.StartNs) / 1e9 }

// halted: a process was stopped by a signal, or frozen, for half of the window: each thread of it slept at a stretch, in no wait of its own.
func (w *Window) halted(tgid int32) (halted bool) {
	for _, t := range w.Threads {
		own := t.TGID == tgid && !t.Exited
		if own && (t.Count[probes.StateOther] > 1 || 2*int64(t.Ns[probes.StateOther]) < w.EndNs-w.StartNs) {
			return false
		}
		halted = halted || own
	}
	return halted
}

// UsedCPUs is the mean number of CPUs the container used: by its cgroup's
// accounting, else by its threads'.
func (w *Window) UsedCPUs() float64 {
	if w.EndNs <= w.StartNs {
		return 0
	}
	if w.HasCgroup && !w.Cgroup.Unread {
		return float64(w.Cgroup.CPUNs) / float64(w.EndNs-w.StartNs)
	}
	run := uint64(0)
	for i := range w.Threads {
		run += w.Threads[i].Ns[probes.StateRun]
	}
	return float64(run) / float64(w.EndNs-w.StartNs)
}
