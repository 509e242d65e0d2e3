package window

import (
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// Read says all that a window tells: ranks, roles, rate, breakdown, cost. A
// container's are those of its slowest rank, the one that loses most of its time.
func Read(w *Window) Reading {
	best := Reading{Window: w}
	if !w.HasKernel {
		return best
	}
	ranks := Ranks(w)
	for _, r := range ranks {
		got := readRank(w, r, len(ranks))
		if best.Ranks == 0 || got.Breakdown.Stalled() > best.Breakdown.Stalled() {
			best = got
		}
		best.Ranks = len(ranks)
	}
	return best
}

func readRank(w *Window, r Rank, ranks int) Reading {
	lw := work(w, r)
	got := Reading{Window: w, Ranks: ranks, Trainer: w.Threads[r.Trainer], Loaders: r.Loaders}
	var outside float64
	got.Breakdown, outside = breakdown(w, r, lw)
	if wall := float64(got.Breakdown.WallNs); wall > 0 {
		got.Network = outside / wall
	}
	got.Rate = rate(w, r)
	if lw.wallNs > 0 {
		got.LoaderBusy = lw.parts.sum() / lw.wallNs
	}
	if sum := lw.parts.sum(); sum > 0 {
		got.LoaderRun = lw.runNs / sum
		got.LoaderShort = (lw.parts[policies.PartInputThrottled] + lw.parts[policies.PartInputContended]) / sum
	}
	got.Cost, got.CostOK = cost(w, r, lw, got)
	return got
}

// minTicks is the least a window must hold before it counts (DESIGN.md: five steps).
const minTicks = 5

// cost is what one tick takes; see policies.Cost.
func cost(w *Window, r Rank, lw loaderWork, got Reading) (policies.Cost, bool) {
	ticks := got.Rate.PerSecond * float64(got.Breakdown.WallNs) / 1e9
	if ticks < minTicks-1 {
		return policies.Cost{}, false
	}
	perTick := func(ns float64) float64 { return ns / 1e9 / ticks }
	b, run := got.Breakdown, float64(got.Trainer.Ns[probes.StateRun])
	c := policies.Cost{Loaders: r.Loaders, Ticks: ticks, TrainerCPU: perTick(run), LoaderCPU: perTick(lw.runNs), Batch: perTick(lw.ownNs)}
	// Ranks step together: one tick of this one costs the CPU time of all, which is its "other".
	total := w.UsedCPUs() * float64(w.EndNs-w.StartNs)
	c.OtherCPU = max(0, perTick(total-run-lw.runNs))
	device := b.Ns[policies.PartDevice] + b.Ns[policies.PartCommunication] + b.Ns[policies.PartOther] + b.Ns[policies.PartReclaim]
	helpers := max(0, float64(b.Ns[policies.PartCompute])-run)
	c.Queue = perTick(float64(sub(got.Trainer.Ns[probes.StateQueued], got.Trainer.SiblingNs)))
	own := ownReads(got.Trainer) // the trainer's own reading is a wait that CPU does not shorten
	c.Device = perTick(float64(device) + helpers + own)
	return c, true
}

// The names of rate sources.
const (
	SourceDevice   = "device waits"
	SourceTimer    = "timer waits"
	SourceHandOffs = "hand-offs"
)

// candidate is one periodic event of a rank.
type candidate struct {
	source         string
	count          uint64
	fromNs, lastNs int64
}

// perSecond is the mean rate between the first and the last event, so that the
// window's edges do not round it.
func (c candidate) perSecond(w *Window) float64 {
	switch {
	case c.count == 0:
		return 0
	case c.fromNs > 0 && c.lastNs > c.fromNs:
		return float64(c.count) / (float64(c.lastNs-c.fromNs) / 1e9)
	case w.Seconds() > 0:
		return float64(c.count) / w.Seconds()
	}
	return 0
}

// rate picks the best source: a tick that the framework itself makes, then the
// trainer's device waits, its timer waits, its hand-offs with loaders. Two
// independent sources that agree confirm one tick per step.
func rate(w *Window, r Rank) policies.Rate {
	for _, t := range w.Ticks {
		if t.TGID == r.Root && t.FromNs == 0 {
			return policies.Rate{} // its ticks are just coming into view: no other source until they are
		}
	}
	cs := candidates(w, r)
	for i, c := range cs {
		per := c.perSecond(w)
		if c.count < 2 || per <= 0 {
			continue
		}
		out := policies.Rate{PerSecond: per, Source: c.source, Ticks: float64(c.count)}
		for _, d := range cs[i+1:] {
			if other := d.perSecond(w); c.count >= 2*minTicks && math.Abs(other-per) <= 0.02*per {
				out.Steps = true
			}
		}
		return out
	}
	return policies.Rate{}
}

func candidates(w *Window, r Rank) []candidate {
	t := w.Threads[r.Trainer]
	var out []candidate
	for _, tick := range w.Ticks {
		if tick.TGID == r.Root {
			out = append(out, candidate{tick.Source, tick.Count, tick.FromNs, tick.LastNs})
		}
	}
	for _, s := range []struct {
		state  probes.State
		source string
	}{{probes.StateDevice, SourceDevice}, {probes.StateTimer, SourceTimer}} {
		out = append(out, candidate{s.source, t.Count[s.state], t.FromNs[s.state], t.LastNs[s.state]})
	}
	return append(out, handOffs(w, r, t))
}

// handOffs counts what the trainer hands to queue feeders (one put for each
// batch it asks for), which sleep in between, so that none is missed; where
// there are none, waits that the other side ended, the larger direction.
func handOffs(w *Window, r Rank, trainer Thread) candidate {
	var feeders, toTrainer, toLoaders uint64
	for i, t := range w.Threads {
		role, inRank := r.Roles[i]
		for _, e := range t.Edges {
			switch {
			case t.TGID == r.Root && !inRank && e.Waker == trainer.TID && e.State == probes.StateFutex:
				feeders += e.Count
			case role == RoleLoader && e.Waker == trainer.TID:
				toLoaders += e.Count
			}
		}
	}
	for _, e := range trainer.Edges {
		if i := w.find(e.Waker); i >= 0 && (r.Roles[i] == RoleLoader || r.Roles[i] == RoleRelay) {
			toTrainer += e.Count
		}
	}
	if feeders > 0 {
		return candidate{source: SourceHandOffs, count: feeders}
	}
	return candidate{source: SourceHandOffs, count: max(toTrainer, toLoaders)}
}
