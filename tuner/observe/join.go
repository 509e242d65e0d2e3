package observe

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/probes"
)

// join makes one window of two in a row. own: a's threads may be written to.
func join(a, b Window, own bool) Window {
	w := b
	w.StartNs = a.StartNs
	w.HasKernel = a.HasKernel && b.HasKernel
	w.HasCgroup = a.HasCgroup && b.HasCgroup
	w.Seeding = a.Seeding || b.Seeding
	w.Lost = a.Lost + b.Lost
	w.Block = a.Block.Plus(b.Block)
	w.Threads = joinThreads(a.Threads, b.Threads, own)
	w.Ticks = joinTicks(a.Ticks, b.Ticks)
	w.Cgroup = joinCgroup(a, b)
	w.Processes = joinProcesses(a.Processes, b.Processes)
	w.Network = joinNetwork(a.Network, b.Network)
	if w.Unseen = a.Unseen; !slices.Equal(a.Unseen, b.Unseen) { // each has its own once, in order
		w.Unseen = slices.Compact(slices.Sorted(slices.Values(slices.Concat(a.Unseen, b.Unseen))))
	}
	w.Devices = merge(slices.Clone(a.Devices), b.Devices, func(a, b Device) bool { return a.UUID == b.UUID }, func(to *Device, b Device) { *to = joinDevice(*to, b) })
	if len(b.Facts) == 0 { // no process of it lives any more
		w.Facts = a.Facts
	}
	aw, bw := weights(a, b)
	w.StealShare = a.StealShare*aw + b.StealShare*bw
	w.HostIdle = a.HostIdle*aw + b.HostIdle*bw
	return w
}

// weights are the two windows' shares of their common length.
func weights(a, b Window) (float64, float64) {
	la, lb := float64(a.EndNs-a.StartNs), float64(b.EndNs-b.StartNs)
	if la+lb <= 0 {
		return 0.5, 0.5
	}
	return la / (la + lb), lb / (la + lb)
}

// joinThreads merges two sorted lists. Nearly all windows have the same few threads
// as the one before, and a busy host joins thousands of windows a second: then it is
// done in place, where as may be written to. Only where a thread stands twice, or ended
// ones may have to be folded, it is done by a map.
func joinThreads(as, bs []Thread, own bool) []Thread {
	if len(as)+len(bs) > maxEnded || !onceEach(as) || !onceEach(bs) {
		return joinThreadsByName(as, bs)
	}
	if own && sameThreads(as, bs) {
		for i := range bs {
			t := bs[i]
			follow(&t, &as[i])
			as[i] = t
		}
		return as
	}
	out := make([]Thread, 0, max(len(as), len(bs)))
	for len(as) > 0 && len(bs) > 0 {
		switch d := order(&as[0], &bs[0]); {
		case d < 0:
			out, as = append(out, as[0]), as[1:]
		case d > 0:
			out, bs = append(out, bs[0]), bs[1:]
		default:
			out = append(out, bs[0])
			follow(&out[len(out)-1], &as[0])
			as, bs = as[1:], bs[1:]
		}
	}
	return append(append(out, as...), bs...)
}

func sameThreads(as, bs []Thread) bool {
	same := len(as) == len(bs)
	for i := 0; same && i < len(as); i++ {
		same = order(&as[i], &bs[i]) == 0
	}
	return same
}

// onceEach: the threads are sorted, and none stands twice.
func onceEach(ts []Thread) bool {
	for i := 1; i < len(ts); i++ {
		if order(&ts[i-1], &ts[i]) >= 0 {
			return false
		}
	}
	return true
}

// follow adds to a thread what it did in the window before.
func follow(t, old *Thread) {
	t.FromNs = old.FromNs
	t.sum(old)
	t.Edges = joinEdges(old.Edges, t.Edges)
}

// sum adds another's time and counts.
func (t *Thread) sum(o *Thread) {
	t.WallNs += o.WallNs
	for s := range probes.NumStates {
		t.Ns[s] += o.Ns[s]
		t.Count[s] += o.Count[s]
	}
	t.ReclaimNs += o.ReclaimNs
	t.SiblingNs += o.SiblingNs
	t.AloneNs += o.AloneNs
	t.IOBytes += o.IOBytes
	t.Faults += o.Faults
	t.WrittenBytes += o.WrittenBytes
}

func joinThreadsByName(as, bs []Thread) []Thread {
	at := make(map[identity]int, len(as))
	out := make([]Thread, len(as), len(as)+len(bs))
	copy(out, as)
	for i, t := range as {
		at[identity{t.TID, t.StartNs}] = i
	}
	for _, t := range bs {
		i, ok := at[identity{t.TID, t.StartNs}]
		if !ok {
			out = append(out, t)
			continue
		}
		follow(&t, &out[i])
		out[i] = t
	}
	if len(out) > maxEnded {
		out = foldEnded(out)
	}
	sortThreads(out)
	return out
}

// maxEnded is how many threads a window holds one by one; beyond it, those that
// ended are folded, so that a container that churns threads costs bounded memory.
const maxEnded = 512

// foldEnded joins threads that ended with others of their lineage: threads of one
// process, and processes of one parent, that bore the same name. Their time stays
// theirs, and so does their role; who was who does not.
func foldEnded(all []Thread) []Thread {
	type lineage struct {
		parent, process int32
		comm            string
	}
	at := map[lineage]int{}
	out := all[:0:0]
	for _, t := range all {
		if !t.Exited {
			out = append(out, t)
			continue
		}
		key := lineage{t.PPID, t.TGID, t.Comm}
		if t.TID == t.TGID {
			key.process = 0
		}
		i, seen := at[key]
		if !seen {
			at[key] = len(out)
			out = append(out, t)
			continue
		}
		into := &out[i]
		into.sum(&t)
		if len(into.Edges) < maxFoldedEdges {
			into.Edges = joinEdges(into.Edges, t.Edges)
		}
	}
	return out
}

// maxFoldedEdges bounds the wakers of folded threads; the kernel tells 16 of each apart.
const maxFoldedEdges = 64

func joinEdges(as, bs []probes.Edge) []probes.Edge {
	switch { // both are sorted and stay as they are
	case len(bs) == 0:
		return as
	case len(as) == 0:
		return bs
	}
	out := merge(slices.Clone(as), bs, func(a, b probes.Edge) bool { return a.Waker == b.Waker && a.State == b.State }, func(to *probes.Edge, e probes.Edge) {
		to.Count += e.Count
		to.Ns += e.Ns
	})
	sortEdges(out)
	return out
}

// merge adds to the items those of others: to one that is the same, or as one more.
func merge[T any](items, others []T, same func(a, b T) bool, add func(to *T, from T)) []T {
	for _, x := range others {
		if i := slices.IndexFunc(items, func(o T) bool { return same(o, x) }); i >= 0 {
			add(&items[i], x)
		} else {
			items = append(items, x)
		}
	}
	return items
}

func joinTicks(as, bs []Tick) []Tick {
	out := append([]Tick(nil), bs...)
	for i := range out {
		for _, a := range as {
			if a.TGID == out[i].TGID && a.Source == out[i].Source {
				out[i].Count += a.Count
				out[i].FromNs = cmp.Or(a.FromNs, out[i].FromNs)
			}
		}
	}
	return out
}

func joinCgroup(a, b Window) Cgroup {
	g := b.Cgroup
	aw, bw := weights(a, b)
	g.CPUNs += a.Cgroup.CPUNs
	g.ThrottledShare = a.Cgroup.ThrottledShare*aw + b.Cgroup.ThrottledShare*bw
	g.AnonGrowth, g.MajorFaults = g.AnonGrowth+a.Cgroup.AnonGrowth, g.MajorFaults+a.Cgroup.MajorFaults
	g.RefaultFile, g.RefaultAnon = g.RefaultFile+a.Cgroup.RefaultFile, g.RefaultAnon+a.Cgroup.RefaultAnon
	g.OOMKills, g.Hits = g.OOMKills+a.Cgroup.OOMKills, g.Hits+a.Cgroup.Hits
	g.HasPSI, g.Unread = a.Cgroup.HasPSI && b.Cgroup.HasPSI, a.Cgroup.Unread || b.Cgroup.Unread
	g.CPUSome = a.Cgroup.CPUSome*aw + b.Cgroup.CPUSome*bw
	g.MemorySome = a.Cgroup.MemorySome*aw + b.Cgroup.MemorySome*bw
	g.MemoryFull = a.Cgroup.MemoryFull*aw + b.Cgroup.MemoryFull*bw
	g.IOSome = a.Cgroup.IOSome*aw + b.Cgroup.IOSome*bw
	return g
}
