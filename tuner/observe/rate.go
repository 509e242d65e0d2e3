package observe

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/observe/period"
)

// The names of rate sources; a probe's ticks bear their own.
const (
	SourceGraphs      = "graph launches"
	SourceSyncs       = "device synchronisations"
	SourceCollectives = "collectives"
	SourceLaunches    = "kernel launches"
	SourceDevice      = "device waits"
	SourceTimer       = "timer waits"
	SourcePeers       = "exchanges with peers"
	SourceHandOffs    = "hand-offs"
)

// PerStep holds ticks per step by source, as confirmed earlier. The caller keeps
// it, so that a rate has one unit for as long as it is compared.
type PerStep map[string]int

// candidate is one periodic event of a rank.
type candidate struct {
	source         string
	count          float64
	fromNs, lastNs int64
	steps          bool // each is one: the job's own count, or what a framework calls a step
	perStep        int  // by the pattern of this window; 0: not told
}

// perSecond is the mean rate between the first and the last event, so that the
// window's edges do not round it.
func (c candidate) perSecond(w *Window) float64 {
	from, to := c.span(w)
	if c.count == 0 || to <= from {
		return 0
	}
	return c.count / (float64(to-from) / 1e9)
}

// span is the time in which the events were counted: the window, where they do not say it.
func (c candidate) span(w *Window) (fromNs, toNs int64) {
	if c.fromNs > 0 && c.lastNs > c.fromNs && !c.resumed(w) {
		return c.fromNs, c.lastNs
	}
	return w.StartNs, w.EndNs
}

// resumed reports whether the ticks paused long before the window, as those of a
// hook do that was detached meanwhile: the latest one before says nothing then.
func (c candidate) resumed(w *Window) bool {
	before, within := w.StartNs-c.fromNs, c.lastNs-w.StartNs
	return c.fromNs > 0 && c.count >= 2 && within > 0 && w.Seconds() > 0 && float64(before) > 3*float64(within)/c.count+float64(second)
}

// rate picks the best source: the job's own count, a tick that the framework
// makes, what it calls of CUDA and NCCL, then the trainer's device waits, its
// timer waits, its hand-offs with loaders. It also returns what the pattern of
// calls says of ticks per step, for the caller to confirm.
func rate(w *Window, r Rank, known PerStep) (out policies.Rate, of rateOf) {
	own := func(t Tick) bool { return t.TGID == r.Root && !t.Steps }
	if i := slices.IndexFunc(w.Ticks, own); i >= 0 && w.Ticks[i].FromNs == 0 {
		return policies.Rate{}, rateOf{} // its ticks are just coming into view: no lesser source until they are
	}
	claims := func(t Tick) bool { return t.Steps && (t.TGID == r.Root || w.ofNoRank(t.TGID)) }
	counts := func(t Tick) bool { return claims(t) && t.Count > 0 }
	silent := func(t Tick) bool { return claims(t) && t.Count == 0 && w.EndNs-t.LastNs < max(reportNs, 2*t.EveryNs) }
	if slices.ContainsFunc(w.Ticks, silent) && !slices.ContainsFunc(w.Ticks, counts) {
		return policies.Rate{}, rateOf{} // the job counts itself, and reports seldom
	}
	cs := candidates(w, r)
	for i, c := range cs {
		per := c.perSecond(w)
		if c.count < 2 || per <= 0 {
			continue
		}
		of = rateOf{tick: c.source, perStep: c.perStep}
		of.agreement, of.perStep = agrees(w, cs, i)
		out = policies.Rate{PerSecond: per, Source: c.source, Ticks: c.count, Steps: of.agreement > 0}
		if k := known[c.source]; k > 1 {
			out = policies.Rate{PerSecond: per / float64(k), Source: fmt.Sprintf("%s ÷ %d", c.source, k), Ticks: c.count / float64(k), Steps: true}
		}
		out.FromNs, out.ToNs = c.span(w)
		return out, of
	}
	return policies.Rate{}, rateOf{}
}

// rateOf says what a rate is made of.
type rateOf struct {
	tick      string // its source, undivided
	perStep   int    // see Reading.PerStep
	agreement int    // see Reading.Agreement
}

// reportNs is how long a job's own count may be silent before other sources serve, if it is not so at times.
const reportNs = int64(20e9)

// agrees says whether another source confirms a candidate's one tick per step: two
// independent sources that agree do, and a pattern of one tick, of which another
// source is a whole multiple. The job's own count needs none. Where the source that
// agrees is one of several in a step, so is this one.
func agrees(w *Window, cs []candidate, at int) (agreement, perStep int) {
	const near = 0.02 // of a whole number, as a share of it
	c := cs[at]
	switch {
	case c.steps:
		return 1, 0
	case c.count < 2*minTicks:
		return 0, c.perStep
	}
	compared := 0
	for _, d := range cs[at+1:] {
		if ratio := c.perSecond(w) / d.perSecond(w); d.steps && d.count >= minTicks && math.Abs(ratio-math.Round(ratio)) <= near*ratio {
			if n := int(math.Round(ratio)); n > 1 { // passes of which it says how many make a step
				return -1, n
			}
			return 1, c.perStep
		}
		ratio := d.perSecond(w) / c.perSecond(w)
		if derived(c.source, d.source) || d.count < minTicks || near*(ratio+1) > 0.5 { // beyond, any number is near a whole one
			continue
		}
		compared = -1
		if c.perStep <= 1 && math.Abs(ratio-1) <= near {
			if d.perStep > 1 {
				return -1, d.perStep
			}
			return 1, c.perStep
		}
		if whole := math.Round(ratio); c.perStep == 1 && whole >= 1 && math.Abs(ratio-whole) <= near*whole {
			return 1, 1
		}
	}
	return compared, c.perStep
}

// derived: a wait for the device and the timer or device state it sleeps in are
// one event, seen twice.
func derived(a, b string) bool {
	if lib, _, known := strings.Cut(a, "."); known && strings.HasPrefix(b, lib+".") {
		return true // of one framework
	}
	return a == SourceSyncs && (b == SourceDevice || b == SourceTimer)
}

func candidates(w *Window, r Rank) []candidate {
	t := w.Threads[r.Trainer]
	var out []candidate
	for _, tick := range w.Ticks {
		if tick.Steps && (tick.TGID == r.Root || w.ofNoRank(tick.TGID)) {
			out = append(out, candidate{source: tick.Source, count: float64(tick.Count), fromNs: tick.FromNs, lastNs: tick.LastNs, steps: true})
		}
	}
	for _, tick := range w.Ticks {
		if _, step := probes.Preference(tick.Source); tick.TGID == r.Root && !tick.Steps {
			out = append(out, candidate{source: tick.Source, count: float64(tick.Count), fromNs: tick.FromNs, lastNs: tick.LastNs, steps: step})
		}
	}
	out = append(out, called(w, r, t)...)
	for _, s := range []struct {
		state  probes.State
		source string
	}{{probes.StateDevice, SourceDevice}, {probes.StateTimer, SourceTimer}} {
		out = append(out, candidate{source: s.source, count: float64(t.Count[s.state]), fromNs: t.FromNs[s.state], lastNs: t.LastNs[s.state]})
	}
	return append(out, exchanges(w, r, t), handOffs(w, r, t))
}

// exchanges counts the collectives that the trainer hands to its communicators,
// as waits that one side ends for the other, the larger direction.
func exchanges(w *Window, r Rank, trainer Thread) candidate {
	var asked, answered uint64
	for i, t := range w.Threads {
		if r.Roles[i] != RoleCommunicator {
			continue
		}
		for _, e := range t.Edges {
			if e.Waker == trainer.TID {
				asked += e.Count
			}
		}
		for _, e := range trainer.Edges {
			if e.Waker == t.TID {
				answered += e.Count
			}
		}
	}
	return candidate{source: SourcePeers, count: float64(max(asked, answered))}
}

// ofNoRank: a count that comes from the container's log belongs to no process of
// its own, and so to whichever rank is read.
func (w *Window) ofNoRank(tgid int32) bool {
	for _, p := range w.Processes {
		if p.TGID == tgid && (p.MPITimed == 0 || p.Launches+p.Graphs+p.Calls > 0) {
			return false
		}
	}
	return !slices.ContainsFunc(w.Ticks, func(t Tick) bool { return t.TGID == tgid && !t.Steps })
}

// called lists what the rank's process called of CUDA and NCCL, as candidates.
func called(w *Window, r Rank, trainer Thread) []candidate {
	p := w.Calls(r.Root)
	if p == nil {
		return nil
	}
	pattern := period.Pattern{}
	if w.counted(p) {
		pattern = period.Find(p.Marks)
	}
	b := p.CallsOf(trainer.TID)
	out := []candidate{
		{source: SourceGraphs, count: float64(p.Graphs), perStep: pattern.PerKind[probes.MarkGraph]},
		{source: SourceSyncs, count: float64(b.Syncs), fromNs: b.FromNs, lastNs: b.LastNs, perStep: pattern.PerKind[probes.MarkSync]},
		{source: SourceCollectives, count: float64(p.Calls), perStep: pattern.PerKind[probes.MarkCollective]},
		{source: SourceLaunches, count: w.Launched(p), perStep: int(pattern.Launches)},
	}
	for i, kind := range []probes.MarkKind{probes.MarkGraph, probes.NumMarkKinds, probes.MarkCollective} {
		out[i].betweenMarks(p.Marks, kind)
	}
	return out
}

// betweenMarks takes the first and the last mark of a kind as the stretch that
// holds all of them but the first; where marks were lost the window's length serves.
func (c *candidate) betweenMarks(marks []probes.Mark, kind probes.MarkKind) {
	var fromNs, lastNs int64
	seen := 0.0
	for _, m := range marks {
		if m.Kind == kind {
			fromNs, lastNs = cmp.Or(fromNs, m.AtNs), m.AtNs
			seen++
		}
	}
	if seen >= 3 && seen >= c.count {
		c.fromNs, c.lastNs, c.count = fromNs, lastNs, seen-1
	}
}

// counted reports whether launches were counted all along: the budget may thin the probe.
func (w *Window) counted(p *Process) bool {
	return float64(p.LaunchNs) >= 0.95*float64(w.EndNs-w.StartNs)
}

// minCounted is the least share of a window in which launches must have been
// counted to speak for the rest of it.
const minCounted = 0.02

// Launched is the process's kernel launches, scaled to the whole window.
func (w *Window) Launched(p *Process) float64 {
	if float64(p.LaunchNs) < minCounted*float64(w.EndNs-w.StartNs) {
		return 0
	}
	return float64(p.Launches) * max(1, float64(w.EndNs-w.StartNs)/float64(p.LaunchNs))
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
		return candidate{source: SourceHandOffs, count: float64(feeders)}
	}
	return candidate{source: SourceHandOffs, count: float64(max(toTrainer, toLoaders))}
}
