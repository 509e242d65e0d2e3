package core

import (
	"fmt"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/trial"
)

// clearGain is a predicted gain beside which the noise of a starved job's rate
// does not matter: throttling itself makes it uneven, and the judge's bounds
// allow for that. Turns do matter: a few readings of them are a mean of nothing, and
// no reading after a change makes up for that.
const clearGain = 0.25

// ready says why a change must wait for more readings of its container; "" if there
// are enough to judge it by.
func (c *Core) ready(subject *job, ch policies.Change) string {
	before := last(subject.obs, keepObs)
	need := c.cfg.Before
	if ch.Take && ch.Knob != runtime.KnobGPU {
		need = max(need, takeParams(ch.Knob).MinBefore)
	}
	switch {
	case subject.source != c.rateSource(subject):
		return "measuring: the source of its rate has changed"
	case len(before) < need:
		return fmt.Sprintf("measuring: %d of %d rate readings", len(before), need)
	case departs(subject.works):
		return "measuring: its latest work is unlike any before"
	case !canCompare(subject, ch, need):
		return "its rate is not steady"
	}
	return ""
}

// turnObs is of how many of the latest readings it is asked whether whole turns of them are
// alike: of few, where the earlier ones were of other work.
//
//trimtab:table lengths that are tried
var turnObs = []int{40, 24, 12}

// canCompare reports whether a container's rate can be compared with what a change makes of
// it: by its readings, or of one that is busy by turns over whole ones.
func canCompare(j *job, ch policies.Change, need int) bool {
	switch all := last(j.obs, keepObs); {
	case j.turns():
		ns, _ := turn(j, ch)
		return ns > 0
	case trial.Steady(all), trial.Steady(last(all, 10)), trial.Steady(last(all, max(3, need))):
		return true
	}
	return ch.Gain >= clearGain
}

// turn is over how long a container's rate is compared in the trial of a change, and what it
// was so; 0: from reading to reading. Where its turns are alike over no length, and many were
// seen, the longest must do for what promises much.
func turn(j *job, ch policies.Change) (ns int64, before []trial.Obs) {
	if ch.Take || ch.Witness != "" || !j.turns() {
		return 0, nil
	}
	for _, n := range turnObs {
		if ns, ok := trial.Turn(last(j.obs, n)); ok {
			return ns, trial.Joined(last(j.obs, n), ns)
		}
	}
	if ch.Gain < clearGain || len(j.obs) < turnObs[0] {
		return 0, nil
	}
	return trial.LongestTurnNs, trial.Joined(last(j.obs, turnObs[0]), trial.LongestTurnNs)
}
