package core

import (
	"slices"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/trial"
	"github.com/trimtab/trimtab/tuner/window"
)

// measure reads the samples: rates from tick to tick, windows when they are full.
func (c *Core) measure(in Input, d *Decision) {
	for _, s := range in.Samples {
		j := c.jobs[s.Container]
		if j == nil {
			continue
		}
		j.launched(s)
		slice := j.differ.Next(s, in.Host)
		if slice == nil {
			continue
		}
		j.usage = keep(append(j.usage, usage{endNs: slice.EndNs, cpus: slice.UsedCPUs(), waiting: slice.Cgroup.CPUSome, psi: slice.Cgroup.HasPSI}))
		j.noteMemory(slice)
		j.noteDisks(slice)
		if !j.c.Watched {
			continue
		}
		c.observe(s.Container, j, j.rate.Add(slice))
		c.lookEarly(j, slice)
		long := j.long.Add(slice)
		if long.StealShare > c.thresholds().Steal {
			j.long.Cut() // a robbed stretch is no evidence
		}
		w := j.window.Add(slice)
		if w.EndNs-w.StartNs < c.cfg.MinWindowNs {
			continue
		}
		r := window.Read(w, j.perStep)
		if r.Rate.Ticks < c.cfg.Thresholds.MinTicks && w.EndNs-w.StartNs < c.longest(r) {
			continue
		}
		j.window.Cut()
		j.noteNeed(r)
		r = withLongCost(r, long, j.perStep)
		if long.EndNs-long.StartNs > longNs {
			j.long.Cut()
		}
		c.close(j, r, d)
	}
}

// longest is how long a window may wait for its steps: where there are hardly
// any, a third of it tells as much.
func (c *Core) longest(r window.Reading) int64 {
	if r.Rate.Ticks < 2 {
		return c.cfg.MaxWindowNs / 3
	}
	return c.cfg.MaxWindowNs
}

// longNs bounds the stretch that a cost is read from.
const longNs = 30 * second

// withLongCost takes the cost from the whole stretch at the present resources:
// within a few seconds loaders may make more batches than the trainer takes, as
// prefetched ones fill or drain, and a step would seem dearer or cheaper than it is.
func withLongCost(r window.Reading, long *window.Window, known window.PerStep) window.Reading {
	if long == nil || long.EndNs-long.StartNs <= r.Window.EndNs-r.Window.StartNs {
		return r
	}
	if l := window.Read(long, known); l.CostOK && l.Rate.Source == r.Rate.Source {
		r.Cost, r.CostOK = l.Cost, true
	}
	return r
}

// resourcesChanged forgets what was measured at other resources.
func (j *job) resourcesChanged(nowNs int64) {
	j.changedNs, j.obs, j.pace, j.held, j.needs, j.works = nowNs, nil, nil, nil, nil, nil
	j.window.Cut()
	j.rate.Cut()
	j.long.Cut()
	j.like.early.Cut()
}

// pauseSteps is how many times longer than its usual step a stretch without two
// ticks must be to count as a checkpoint, an evaluation or an epoch's end, which
// are no evidence either way (DESIGN.md, Trials).
const pauseSteps = 8

// observe takes one observation of the rate, as soon as it holds two ticks.
func (c *Core) observe(key string, j *job, w *window.Window) {
	r := window.Read(w, j.perStep)
	length := w.EndNs - w.StartNs
	if r.Rate.Ticks < 2 {
		usual := j.rateNow()
		pause := usual > 0 && length > 3*second && float64(length)/1e9*usual > pauseSteps
		if pause {
			j.long.Cut()
		}
		j.paused = j.paused || pause
		if length > c.cfg.MaxWindowNs {
			j.rate.Cut()
		}
		return
	}
	if want := j.settledSource(); want != "" && r.Rate.Source != want && length <= c.cfg.MaxWindowNs {
		return // the source that windows found may be a slower one: its second tick is still to come
	}
	if j.source == "" && length <= firstTicksNs && slices.ContainsFunc(w.Ticks, func(t window.Tick) bool { return t.TGID == r.Root && t.Source != r.Rate.Source && t.Count < 2 }) {
		return // the framework ticks, slowly: a lesser source that is faster would begin the series
	}
	j.rate.Cut()
	paused, before := j.paused, j.held
	j.paused, j.held = false, nil
	if !w.HasKernel {
		return
	}
	obs := trial.Obs{StartNs: w.StartNs, EndNs: w.EndNs, Rate: r.Rate.PerSecond, FromNs: r.Rate.FromNs, ToNs: r.Rate.ToNs}
	if c.robbed(key, w) {
		if r.Rate.Source == j.source && !paused {
			j.pace = keep(append(j.pace, obs))
		}
		return
	}
	j.noteNeed(r)
	if paused {
		// Two in a row are no pause but a slower pace, and both count.
		if before == nil || r.Rate.Source != j.source || j.source == "" {
			j.held = &obs
			return
		}
		j.obs, j.pace = append(j.obs, *before), append(j.pace, *before)
	}
	if r.Rate.Source != j.source {
		if len(j.obs) > 0 && r.Rate.Source != j.settledSource() {
			return // one odd slice does not end a series; the windows decide on the source
		}
		if j.source != "" || !j.like.ticking {
			j.like.early.Cut()
		}
		if j.source == "" {
			j.like.firstNs = w.EndNs
		}
		if j.source == "" && r.Rate.PerSecond*float64(length)/1e9 > 2*r.Rate.Ticks+2 {
			j.long.Cut() // most of the stretch lay before its first steps, and is no part of their cost
		}
		j.source, j.obs, j.pace, j.confirmed, j.denied = r.Rate.Source, nil, nil, false, 0
	}
	j.obs, j.pace = keep(append(j.obs, obs)), keep(append(j.pace, obs))
}

// firstTicksNs is how long a series waits at its begin for two ticks of the framework.
const firstTicksNs = 10 * second

// settledSource is the source of the rate by the latest window; before the first, by
// the early stretch, and before that, the one that the series began with.
func (j *job) settledSource() string {
	switch {
	case j.windows > 0:
		return j.reading.Rate.Source
	case j.like.reading.Window != nil:
		return j.like.reading.Rate.Source
	}
	return j.source
}

// measureOutside takes what the host's processes outside of all containers used.
func (c *Core) measureOutside(h probes.Host) {
	prev := c.prevHost
	c.prevHost = h
	if prev.AtNs == 0 || h.AtNs <= prev.AtNs {
		return
	}
	cpus := float64(h.BusyNs-min(h.BusyNs, prev.BusyNs)) / float64(h.AtNs-prev.AtNs)
	for _, key := range c.keys() { // sorted: sums of floats depend on their order
		j := c.jobs[key]
		if n := len(j.usage); n > 0 && j.usage[n-1].endNs == h.AtNs {
			cpus -= j.usage[n-1].cpus
		}
	}
	c.outside = keep(append(c.outside, usage{endNs: h.AtNs, cpus: max(0, cpus)}))
}

// keep drops the oldest. What holds an older slice of them sees no change: append
// copies them to new room now and then.
func keep[T any](s []T) []T { return s[max(0, len(s)-keepObs):] }

// UsedCPUs is what each container used of late, by key.
func (c *Core) UsedCPUs() map[string]float64 {
	out := make(map[string]float64, len(c.jobs))
	for key, j := range c.jobs {
		out[key] = j.used()
	}
	return out
}
