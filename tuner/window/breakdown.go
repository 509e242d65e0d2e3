package window

import (
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

func (p parts) sum() float64 {
	var s float64
	for _, v := range p {
		s += v
	}
	return s
}

// loaderWork is what a rank's loaders did while they worked or wanted to.
type loaderWork struct {
	parts  parts   // busy time by part
	wallNs float64 // of all loader threads
	runNs  float64
	ownNs  float64 // busy time less runnable and throttled: what a batch costs with CPU in plenty
}

// work sums what the loaders did. Waits that the training process ends are idle
// time (an empty index queue); so are waits that a timeout ended.
func work(w *Window, r Rank) loaderWork {
	var lw loaderWork
	for i, role := range r.Roles {
		if role != RoleLoader {
			continue
		}
		t := w.Threads[i]
		lw.wallNs += float64(t.WallNs)
		lw.runNs += float64(t.Ns[probes.StateRun])
		p := busy(t)
		lw.parts.add(p, 1)
		lw.ownNs += p.sum() - p[policies.PartInputThrottled] - p[policies.PartInputContended]
	}
	return lw
}

// busy is one loader thread's working time by part.
func busy(t Thread) parts {
	ns := func(s probes.State) float64 { return float64(t.Ns[s]) }
	var p parts
	p[policies.PartInputWorkers] = ns(probes.StateRun)
	p[policies.PartInputThrottled] = ns(probes.StateThrottled)
	p[policies.PartInputContended] = ns(probes.StateQueued)
	p[policies.PartInputStorage] = ns(probes.StateBlockIO) + ns(probes.StateFile)
	p[policies.PartInputRemote] = ns(probes.StateNetFile) + ns(probes.StateInet)
	p[policies.PartInputOther] = ns(probes.StateTimer) + ns(probes.StateLock)
	return p
}

// computing is a helper thread's time, as the trainer that waits for it sees it.
func computing(t Thread) parts {
	var p parts
	p[policies.PartCompute] = float64(t.Ns[probes.StateRun])
	p[policies.PartThrottled] = float64(t.Ns[probes.StateThrottled])
	p[policies.PartContended] = float64(t.Ns[probes.StateQueued])
	p[policies.PartDevice] = float64(t.Ns[probes.StateDevice])
	return p
}

// breakdown splits the trainer's wall time by cause.
func breakdown(w *Window, r Rank, lw loaderWork) (policies.Breakdown, float64) {
	t := w.Threads[r.Trainer]
	ns := func(s probes.State) float64 { return float64(t.Ns[s]) }
	var p parts
	p[policies.PartCompute] = ns(probes.StateRun)
	p[policies.PartThrottled] = ns(probes.StateThrottled)
	p[policies.PartContended] = ns(probes.StateQueued)
	p[policies.PartDevice] = ns(probes.StateTimer) + ns(probes.StateDevice)
	p[policies.PartInputStorage] = ns(probes.StateBlockIO) + ns(probes.StateFile)
	p[policies.PartInputRemote] = ns(probes.StateNetFile)
	p[policies.PartOther] = ns(probes.StateChild) + ns(probes.StateLock) + ns(probes.StateOther)
	var outside float64
	for _, s := range []probes.State{probes.StatePipe, probes.StateUnix, probes.StateInet, probes.StateFutex, probes.StatePoll} {
		q, out := charge(w, r, lw, t, s)
		p.add(q, 1)
		outside += out
	}
	moveReclaim(&p, float64(t.ReclaimNs))
	return exact(p, t.WallNs), outside
}

// moveReclaim takes direct reclaim out of the states it happened in: on a CPU
// first, then in waits for locks and for the disk.
func moveReclaim(p *parts, ns float64) {
	for _, from := range []policies.Part{policies.PartCompute, policies.PartOther, policies.PartInputStorage} {
		moved := min(ns, p[from])
		p[from] -= moved
		p[policies.PartReclaim] += moved
		ns -= moved
	}
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

// charge splits the trainer's waits in one state by what ended them; outside is
// the time that no thread of the container ended.
func charge(w *Window, r Rank, lw loaderWork, t Thread, s probes.State) (p parts, outside float64) {
	var known float64
	for _, e := range t.Edges {
		if e.State != s {
			continue
		}
		known += float64(e.Ns)
		q, local := chargeEdge(w, r, lw, e)
		p.add(q, 1)
		if !local {
			outside += float64(e.Ns)
		}
	}
	total := float64(t.Ns[s])
	switch {
	case known <= 0:
		p[unknownWait(s)] += total
		outside += total
	case total > 0:
		// A wait still open at the edge of the window has no waker yet: like the others.
		scaled := parts{}
		scaled.add(p, total/known)
		p, outside = scaled, outside*total/known
	}
	return p, outside
}

// chargeEdge charges one edge's time to what the waker was doing.
func chargeEdge(w *Window, r Rank, lw loaderWork, e probes.Edge) (p parts, local bool) {
	total := float64(e.Ns)
	spread := func(by parts, otherwise policies.Part) {
		if sum := by.sum(); sum > 0 {
			p.add(by, total/sum)
		} else {
			p[otherwise] += total
		}
	}
	if e.Waker == 0 || e.Waker == -1 {
		if e.Waker == -1 && r.Loaders > 0 {
			spread(lw.parts, policies.PartInputOther)
			return p, true
		}
		p[unknownWait(e.State)] += total
		return p, false
	}
	i := w.find(e.Waker)
	role, inRank := r.Roles[i]
	switch {
	case i < 0: // a process outside the container
		p[unknownWait(e.State)] += total
		return p, false
	case inRank && (role == RoleLoader || role == RoleRelay):
		spread(lw.parts, policies.PartInputOther)
	case w.Threads[i].TGID == r.Root:
		spread(computing(w.Threads[i]), policies.PartOther)
	default: // another rank of this container
		p[policies.PartCommunication] += total
	}
	return p, true
}

// unknownWait is where a wait goes that no thread of the container ended.
func unknownWait(s probes.State) policies.Part {
	if s == probes.StateInet {
		return policies.PartInputRemote
	}
	return policies.PartOther
}
