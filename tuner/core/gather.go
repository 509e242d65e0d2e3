package core

import (
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/arbiter"
	"github.com/trimtab/trimtab/tuner/trial"
)

// gatherNs is how long what could be given waits for what others lack to be known: more
// than a window, and little beside the trial that those would have to wait for. Chosen,
// not measured. A trial that compares whole turns takes three of them, and is waited for
// longer by as much.
const (
	gatherNs      = 3 * second
	turnsGatherNs = 8 * second
)

// gathered reports whether wants may become a plan now. Where containers share CPUs one
// trial is open at a time: who was told a window later that it is short would wait for the
// whole of the first one's.
func (c *Core) gathered(wants []policies.Plan) bool {
	wanted := map[string]bool{}
	for _, p := range wants {
		for _, ch := range p.Changes {
			wanted[ch.Key] = true
		}
	}
	if len(wanted) == 0 {
		c.wantedNs = 0
		return true
	}
	if c.wantedNs == 0 {
		c.wantedNs = c.now()
	}
	patience := gatherNs
	for key := range wanted {
		if c.jobs[key].turns() {
			patience = turnsGatherNs
		}
	}
	for _, key := range c.keys() {
		if j := c.jobs[key]; !wanted[key] && c.now()-c.wantedNs < patience && c.soon(j) {
			for w := range wanted {
				c.jobs[w].whyNot = fmt.Sprintf("measuring: what %s lacks is about to be known, and goes into the same plan", j.c.Name)
			}
			return false
		}
	}
	c.wantedNs = 0
	return true
}

// waitsForTrial is why a plan waits while its containers share CPUs with those of a trial.
const waitsForTrial = "another trial is open on its CPUs"

// aboveTimes is how many times what an open trial promises a plan must promise for the trial
// to end for it. Chosen, not measured.
const aboveTimes = 3

// giveWay ends the trials in a plan's way, if all of them are undecided and it promises a clear
// gain and far more than they do: a small gain takes longest to be shown, and who is starved
// would wait for all of it. They are no failures, and may be tried again; a weight is so beside the
// plan's quotas.
func (c *Core) giveWay(p policies.Plan, d *Decision) bool {
	gain := promises(p.Changes)
	if gain < clearGain || c.room(p) != "" {
		return false
	}
	ends := map[string]bool{}
	for _, ch := range p.Changes {
		j := c.jobs[ch.Key]
		if c.ready(j, beside(p, ch)) != "" {
			return false
		}
		for plan, t := range c.trials {
			if !c.share(t, j) {
				continue
			}
			if t.appliedNs == 0 || t.phase != phaseWith || t.earned || t.witness() != "" || gain < aboveTimes*promises(t.order.Changes) {
				return false
			}
			ends[plan] = true
		}
	}
	var ended []policies.Change
	for plan := range ends {
		ended = append(ended, c.trials[plan].order.Changes...)
	}
	if c.guard(c.claimsWithout(ended))(p.Changes) != "" {
		return false // it is possible beside what they changed alone
	}
	for _, plan := range slices.Sorted(maps.Keys(ends)) {
		c.abandon(c.trials[plan], fmt.Sprintf("%s is to gain %.0f %% by a plan that waits for it, and it %.0f %%", c.jobs[p.Changes[0].Key].c.Name,
			100*gain, 100*promises(c.trials[plan].order.Changes)), d)
	}
	c.goWith(p, ended)
	return len(ends) > 0
}

// claimsWithout are the claims as they are once changes have gone back.
func (c *Core) claimsWithout(changes []policies.Change) []arbiter.Claim {
	claims := c.claims()
	for _, ch := range changes {
		put(claims, ch, ch.From)
	}
	return claims
}

// promises is the largest gain that changes promise.
func promises(changes []policies.Change) (most float64) {
	for _, ch := range changes {
		most = max(most, ch.Gain)
	}
	return most
}

// soon reports whether a container is short of what trimtab may give, and a window or two
// are missing to act on it.
func (c *Core) soon(j *job) bool {
	knob := runtime.KnobCPUQuota
	if j.short.Cause == policies.CauseCache || j.short.Cause == policies.CauseReclaim {
		knob = runtime.KnobMemoryLimit
	} else if j.short.Relief != policies.ReliefQuota {
		return false
	}
	e := j.c.Enrolment
	return e.Mode == policies.ModeTune && e.Allows(knob) && j.shortLately() && (!j.settled(c.cfg.Agree) || j.varies() || j.turnsUnknown() || len(j.obs) < c.cfg.Before) &&
		c.fixed(c.last, j) == "" && j.c.Preflight == "" && !j.c.Busy && c.now() >= j.cooledNs && len(c.trialsOf(j.key)) == 0 && !c.failedAlready(j, knob)
}

// turnsUnknown: it is busy by turns, and too few of them were seen to compare whole ones.
func (j *job) turnsUnknown() bool {
	if len(j.obs) >= turnReadings || !j.turns() {
		return false
	}
	_, ok := trial.Turn(j.obs)
	return !ok
}

// turnReadings hold three turns of four seconds, at one reading a second, and one in part.
const turnReadings = 16
