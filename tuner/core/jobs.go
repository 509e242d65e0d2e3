package core

import (
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/window"
)

// patternSeen counts windows in a row whose calls showed the same ticks per step.
type patternSeen struct {
	source  string
	perStep int
	windows int
}

// confirmPattern is how many windows must agree before ticks become steps.
const confirmPattern = 3

// learnPattern adopts ticks per step once windows agree on it. Never in a trial:
// a rate is compared in one unit.
func (c *Core) learnPattern(j *job, r window.Reading) {
	source := r.Tick
	if k := j.perStep[source]; r.PerStep == 0 || k == r.PerStep {
		j.pattern = patternSeen{}
		return
	}
	if seen := &j.pattern; seen.source == source && seen.perStep == r.PerStep {
		seen.windows++
	} else {
		*seen = patternSeen{source: source, perStep: r.PerStep, windows: 1}
	}
	if j.pattern.windows < confirmPattern || r.PerStep < 2 || len(c.trialsOf(j.key)) > 0 {
		return
	}
	known := maps.Clone(j.perStep)
	if known == nil {
		known = window.PerStep{}
	}
	known[source] = r.PerStep
	j.perStep, j.pattern = known, patternSeen{}
	j.window.Cut()
	j.rate.Cut()
}

// confirm keeps whether ticks are steps: one window in which another source agrees
// says so, as many as confirmPattern in a row in which none does take it back.
func (j *job) confirm(r window.Reading) {
	if r.Rate.Source != j.source {
		return
	}
	switch {
	case r.Rate.Steps:
		j.confirmed, j.denied = true, 0
	case r.Agreement < 0:
		j.denied++
	}
	if j.denied >= confirmPattern {
		j.confirmed = false
	}
}

// launched notes when a container last used a device.
func (j *job) launched(s probes.Sample) {
	if s.CUDA == nil {
		return
	}
	for _, p := range s.CUDA.Processes {
		j.launchedNs = max(j.launchedNs, p.LastNs)
	}
}

// neighbourhood adds to a reading what only the node knows: who else works on its
// devices, and which container of the same job keeps it waiting.
func (c *Core) neighbourhood(j *job, r *window.Reading) {
	j.noteGPUs(r.Window)
	for _, d := range r.Window.Devices {
		for _, key := range d.Holders {
			other := c.jobs[key]
			if other != nil && other.launchedNs >= r.Window.StartNs && !slices.Contains(r.SharedWith, other.c.Name) {
				r.SharedWith = append(r.SharedWith, other.c.Name)
			}
		}
	}
	slices.Sort(r.SharedWith)
	slow := c.slowPeer(j, *r)
	if slow == nil {
		return
	}
	if r.Exchanges {
		r.Expose(slow.reading.Own() - r.Own())
	}
	r.Slow = slow.c.Name
	if v := slow.verdict; v.Class != "" && v.Class != policies.ClassUnknown {
		r.Slow = fmt.Sprintf("%s, which is bound by %s", slow.c.Name, className(v))
	}
}

func className(v policies.Verdict) string {
	if v.Cause == "" {
		return string(v.Class)
	}
	return string(v.Class) + " (" + string(v.Cause) + ")"
}

// freshNs is how old a peer's window may be to be compared with.
const freshNs = 15 * second

// steps reports whether the container's latest window shows a rank that steps.
func (j *job) steps(nowNs int64) bool {
	w := j.reading.Window
	return w != nil && nowNs-w.EndNs <= freshNs && j.reading.Ranks > 0 && j.reading.Rate.Ticks >= 2
}

// slowPeer is the container of the same job that works the longest for itself in
// a step, if it is ahead of this one by what counts as communication.
func (c *Core) slowPeer(j *job, r window.Reading) *job {
	if j.c.Enrolment.Job == "" {
		return nil
	}
	var slow *job
	most := r.Own() + c.cfg.Thresholds.Communication
	for _, o := range c.jobs { // the largest, then the first by key: the order of a map does not matter
		if o == j || o.c.Enrolment.Job != j.c.Enrolment.Job || !o.steps(c.now()) || r.Exchanges && !o.reading.Exchanges {
			continue
		}
		if own := o.reading.Own(); own > most || own == most && (slow == nil || o.key < slow.key) {
			slow, most = o, own
		}
	}
	return slow
}
