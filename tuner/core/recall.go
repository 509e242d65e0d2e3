package core

import (
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/trial"
	"github.com/trimtab/trimtab/tuner/view"
)

// What counts as steady use: the mean of five ticks within a tenth of that of the five
// before. Single ticks say less: a step more or less in a second is as much.
const (
	steadyTicks = 5
	steadyUse   = 0.10
)

// steady reports whether rate and CPU use stand still, so that a step's worth can
// be told from the job's own course.
func (j *job) steady() bool {
	n := len(j.usage)
	if n < 2*steadyTicks || !trial.Steady(last(j.obs, 2*steadyTicks)) {
		return false
	}
	now, before := j.used(), 0.0
	for _, u := range j.usage[n-2*steadyTicks : n-steadyTicks] {
		before += u.cpus / steadyTicks
	}
	return math.Abs(now-before) <= max(steadyUse*before, activeCPUs)
}

// tried is what became of earlier plans of this container, latest first.
func (j *job) tried() []policies.Tried {
	var out []policies.Tried
	for _, t := range j.trials {
		kept := t.Outcome == view.OutcomeKept
		if !kept && t.Outcome != view.OutcomeRolledBack && t.Outcome != view.OutcomeInconclusive {
			continue
		}
		for _, ch := range t.Changes {
			if ch.Key == j.key {
				out = append(out, policies.Tried{Policy: t.Policy, Knob: ch.Knob, From: ch.From, To: ch.To, Take: ch.Take, Kept: kept, Ratio: t.Ratio})
			}
		}
	}
	return out
}
