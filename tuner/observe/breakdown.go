package observe

import (
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// parts is time by part, ns.
type parts [policies.NumParts]float64

func (p *parts) add(q parts, scale float64) {
	for i := range p {
		p[i] += q[i] * scale
	}
}

// spread adds so much in the proportions of others; to one part where they are nothing.
func (p *parts) spread(by parts, total float64, otherwise policies.Part) {
	if sum := by.sum(); sum > 0 {
		p.add(by, total/sum)
	} else {
		p[otherwise] += total
	}
}

func (p parts) sum() float64 {
	var s float64
	for _, v := range p {
		s += v
	}
	return s
}

// move takes up to ns out of some parts, in their order, into another.
func (p *parts) move(ns float64, to policies.Part, from ...policies.Part) {
	for _, f := range from {
		moved := max(0, min(ns, p[f]))
		p[f] -= moved
		p[to] += moved
		ns -= moved
	}
}

// loaderWork is what a rank's loaders did while they worked or wanted to.
type loaderWork struct {
	parts  parts   // busy time by part
	wallNs float64 // of all loader threads
	runNs  float64
	ownNs  float64 // busy time less runnable and throttled: what a batch costs with CPU in plenty
}

// asleepOnFiles is the time a thread slept for the disk or in a call on a regular file, ns.
func asleepOnFiles(t Thread) float64 {
	return float64(t.Ns[probes.StateBlockIO] + t.Ns[probes.StateFile])
}

// work sums what the loaders did. Waits that the training process ends are idle
// time (an empty index queue); so are waits that a timeout ended.
func work(w *Window, r Rank) loaderWork {
	var lw loaderWork
	for i, t := range w.Threads {
		if r.Roles[i] != RoleLoader {
			continue
		}
		lw.wallNs += float64(t.WallNs)
		lw.runNs += float64(t.Ns[probes.StateRun])
		p := busy(w, t)
		lw.parts.add(p, 1)
		lw.ownNs += p.sum() - p[policies.PartInputThrottled] - p[policies.PartInputContended]
	}
	return lw
}

// busy is one loader thread's working time by part.
func busy(w *Window, t Thread) parts {
	ns := func(s probes.State) float64 { return float64(t.Ns[s]) }
	var p parts
	p[policies.PartInputWorkers] = ns(probes.StateRun)
	p[policies.PartInputThrottled] = ns(probes.StateThrottled)
	p[policies.PartInputContended] = behindOthers(t)
	p[policies.PartInputStorage] = asleepOnFiles(t)
	p[policies.PartInputRemote] = ns(probes.StateNetFile) + ns(probes.StateInet)
	if w.Exchange().receives() { // a loader that polls many sockets, as asynchronous readers do
		p[policies.PartInputRemote] += endedOutside(w, t, probes.StatePoll)
	}
	p[policies.PartInputOther] = ns(probes.StateTimer) + ns(probes.StateLock) + float64(t.AloneNs)
	return p
}

// behindOthers is the time in which a thread could have run and something else did.
func behindOthers(t Thread) float64 { return float64(sub(t.Ns[probes.StateQueued], t.AloneNs)) }

// stacked is the part of it in which a thread of its own container did, as far as nobody
// else was in the way of those either: a trainer that stands behind its own loaders is
// short of nothing that a weight could give. Kernels put a thread that is woken where its
// waker ran, on an idle machine too; on one that others use, who keeps whom is not known,
// and what of the host the container leaves is idle or the others' tells how likely it is.
func (w *Window) stacked(t Thread) float64 {
	return min(float64(t.SiblingNs), behindOthers(t)) * w.undisturbed()
}

// undisturbed is the idle share, 0..1, of the CPU time that a container leaves of its host.
func (w *Window) undisturbed() float64 {
	others := max(0, float64(w.HostCPUs)*(1-w.StealShare)-w.HostIdle-w.UsedCPUs())
	if w.HostCPUs == 0 || w.HostIdle+others <= 0 {
		return 0
	}
	return min(1, w.HostIdle/(w.HostIdle+others))
}

// endedOutside is a thread's waits in one state that no thread of the container ended.
func endedOutside(w *Window, t Thread, s probes.State) float64 {
	var ns float64
	for _, e := range t.Edges {
		if e.State == s && (e.Waker == 0 || e.Waker > 0 && w.find(e.Waker) < 0) {
			ns += float64(e.Ns)
		}
	}
	return ns
}

// breakdown splits the trainer's wall time by cause.
func breakdown(w *Window, r Rank, lw loaderWork) (policies.Breakdown, float64) {
	t := w.Threads[r.Trainer]
	ns := func(s probes.State) float64 { return float64(t.Ns[s]) }
	var p parts
	blocking := w.Calls(r.Root).CallsOf(t.TID)
	p[policies.PartCompute] = ns(probes.StateRun) + w.stacked(t)
	p[policies.PartThrottled] = ns(probes.StateThrottled)
	p[policies.PartContended] = behindOthers(t) - w.stacked(t)
	p[policies.PartDevice] = ns(probes.StateTimer) + ns(probes.StateDevice)
	reads := w.readShare()
	p[policies.PartInputStorage] = asleepOnFiles(t) * reads
	p[policies.PartInputRemote] = ns(probes.StateNetFile)
	p[policies.PartOther] = ns(probes.StateChild) + ns(probes.StateLock) + ns(probes.StateOther) + asleepOnFiles(t)*(1-reads) + float64(t.AloneNs)
	var outside float64
	c := waitAttributor{w, r, lw, 0}
	for _, e := range t.Edges {
		if e.Waker == -1 {
			c.unnamed += float64(e.Ns)
		}
	}
	for _, s := range []probes.State{probes.StatePipe, probes.StateUnix, probes.StateInet, probes.StateFutex, probes.StatePoll} {
		q, out := c.waits(t, s)
		p.add(q, 1)
		outside += out
	}
	deviceWaits(&p, blocking, ns(probes.StateTimer)+ns(probes.StateDevice))
	// MPI waits by spinning. Which of its time a thread was inside is not told, but that it slept for no disk.
	inside := []policies.Part{policies.PartCompute, policies.PartDevice, policies.PartInputRemote, policies.PartInputOther, policies.PartOther}
	around := p[policies.PartThrottled] + p[policies.PartContended]
	for _, part := range inside {
		around += p[part]
	}
	for _, part := range inside {
		p.move(p[part]*min(1, w.Calls(r.Root).inMPI(t.TID)*float64(t.WallNs)/max(1, around)), policies.PartCommunication, part)
	}
	// Direct reclaim happens on a CPU first, then in waits for locks and for the disk.
	p.move(float64(t.ReclaimNs), policies.PartReclaim, policies.PartCompute, policies.PartOther, policies.PartInputStorage)
	return exact(p, t.WallNs), outside
}

// readShare is the share of the container's disk time that went to reading: what
// the trainer itself waits for a checkpoint to be written is no input.
func (w *Window) readShare() float64 {
	if total := w.Block.ReadNs + w.Block.WriteNs; total > 0 {
		return float64(w.Block.ReadNs) / float64(total)
	}
	return 1
}

// deviceWaits gives the trainer's blocking CUDA calls to the device: what it span
// in them out of its CPU time, what it slept in them out of waits that nothing of
// the container ended, less what its sleeping states said already.
func deviceWaits(p *parts, b CallThread, known float64) {
	spin := float64(b.spin())
	p.move(spin, policies.PartDevice, policies.PartCompute)
	asleep := float64(b.SyncNs+b.CopyNs) - spin - known
	p.move(asleep, policies.PartDevice, policies.PartOther, policies.PartInputRemote, policies.PartCommunication, policies.PartInputOther)
}

// exact rounds the parts so that they sum to the wall time; what no part holds is Other.
func exact(p parts, wallNs int64) policies.Breakdown {
	b := policies.Breakdown{WallNs: wallNs}
	left := wallNs
	for i := range policies.NumParts {
		if i == policies.PartOther {
			continue
		}
		b.Ns[i] = min(max(0, int64(p[i])), left)
		left -= b.Ns[i]
	}
	b.Ns[policies.PartOther] = left
	return b
}

// waitAttributor follows waits to what their wakers were doing.
type waitAttributor struct {
	w  *Window
	r  Rank
	lw loaderWork
	// unnamed is the waits, ns, of wakers beyond the table's room that no state was charged yet.
	unnamed float64
}

// waits splits the trainer's waits in one state by what ended them; outside is
// the time that no thread of the container ended.
func (c *waitAttributor) waits(t Thread, s probes.State) (p parts, outside float64) {
	var known float64
	for _, e := range t.Edges {
		if e.State != s || e.Waker == -1 {
			continue
		}
		known += float64(e.Ns)
		q, local := c.edge(e)
		p.add(q, 1)
		if !local {
			outside += float64(e.Ns)
		}
	}
	total := float64(t.Ns[s])
	unnamed := min(c.unnamed, max(0, total-known))
	if s == probes.StateInet { // interrupts end these
		unnamed = 0
	}
	c.unnamed, total = c.unnamed-unnamed, total-unnamed
	switch {
	case known <= 0:
		p[c.outside(s)] += total
		outside += total
	case total > 0:
		// A wait still open at the edge of the window has no waker yet: like the others.
		scaled := parts{}
		scaled.add(p, total/known)
		p, outside = scaled, outside*total/known
	}
	if unnamed > 0 {
		p.spread(c.others(), unnamed, policies.PartOther)
	}
	return p, outside
}

// others is what those of its rank do that find no room in the trainer's table of wakers: it is full
// of such as ended where threads come and go. Each is in the sum, so none of their waits is followed.
func (c waitAttributor) others() (p parts) {
	if c.r.Loaders > 0 {
		return c.lw.parts
	}
	chain := slices.Repeat([]int32{c.w.Threads[c.r.Trainer].TID}, maxChain)
	for i, t := range c.w.Threads {
		if t.TGID == c.r.Root && i != c.r.Trainer {
			p.add(c.doing(i, chain), 1)
		}
	}
	return p
}

// edge charges one edge's time to what the waker was doing.
func (c waitAttributor) edge(e probes.Edge) (p parts, local bool) {
	total := float64(e.Ns)
	i := c.w.find(e.Waker)
	role, inRank := c.r.Roles[i]
	switch {
	case i < 0: // an interrupt, or a process outside the container
		p[c.outside(e.State)] += total
		return p, false
	case inRank && (role == RoleLoader || role == RoleRelay):
		p.spread(c.lw.parts, total, policies.PartInputOther)
	case c.w.Threads[i].TGID == c.r.Root || role == RoleHelper:
		p.spread(c.doing(i, []int32{c.w.Threads[c.r.Trainer].TID}), total, policies.PartOther)
	case c.r.peer(c.w.Threads[i].TGID):
		p[policies.PartCommunication] += total
	default: // a process beside it that serves it
		p[policies.PartInputOther] += total
	}
	return p, true
}

// maxChain bounds how far a wait is followed: the trainer waits for a runner of
// collectives, it for the thread that polls the sockets [gloo].
const maxChain = 3

// doing is what a thread of the training process did while the trainer waited for
// it: its work, and its own waits charged to their wakers. What it waited for a
// thread upstream was idleness, and so is a wait that a timeout ended.
func (c waitAttributor) doing(i int, upstream []int32) parts {
	t := c.w.Threads[i]
	var p parts
	p[policies.PartCompute] = float64(t.Ns[probes.StateRun]) + c.w.stacked(t)
	p[policies.PartThrottled] = float64(t.Ns[probes.StateThrottled])
	p[policies.PartContended] = behindOthers(t) - c.w.stacked(t)
	p[policies.PartDevice] = float64(t.Ns[probes.StateDevice])
	b := c.w.Calls(c.r.Root).CallsOf(t.TID)
	p.move(float64(b.spin()), policies.PartDevice, policies.PartCompute)
	p.move(c.w.Calls(c.r.Root).inMPI(t.TID)*float64(t.WallNs), policies.PartCommunication, policies.PartCompute)
	upstream = append(slices.Clone(upstream), t.TID)
	for _, e := range t.Edges {
		total := float64(e.Ns)
		j := c.w.find(e.Waker)
		switch {
		case slices.Contains(upstream, e.Waker) || e.State == probes.StateChild || e.State == probes.StateTimer:
		case e.Waker == 0 || e.Waker > 0 && j < 0:
			if part := c.outside(e.State); part != policies.PartOther {
				p[part] += total
			}
		case j >= 0 && c.w.Threads[j].TGID == c.r.Root && len(upstream) < maxChain:
			if q := c.doing(j, upstream); q.sum() > 0 {
				p.add(q, total/q.sum())
			}
		case j >= 0 && c.r.peer(c.w.Threads[j].TGID):
			p[policies.PartCommunication] += total
		}
	}
	return p
}

// outside is where a wait of the trainer goes that no thread of the container
// ended: on sockets, peers that are sent as much as they send are other ranks.
func (c waitAttributor) outside(s probes.State) policies.Part {
	n := c.w.Exchange()
	switch {
	case s == probes.StateInet && n.Exchanges():
		return policies.PartCommunication
	case s == probes.StateInet:
		return policies.PartInputRemote
	case s == probes.StatePoll && n.Exchanges():
		return policies.PartCommunication
	case s == probes.StatePoll && n.receives():
		return policies.PartInputRemote
	}
	return policies.PartOther
}
