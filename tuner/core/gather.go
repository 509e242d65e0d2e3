package core

import (
	"fmt"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// gatherNs is how long what could be given waits for what others lack to be known: more
// than a window, and little beside the trial that those would have to wait for. Chosen,
// not measured.
const gatherNs = 3 * second

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
	for _, key := range c.keys() {
		if j := c.jobs[key]; !wanted[key] && c.now()-c.wantedNs < gatherNs && c.soon(j) {
			for w := range wanted {
				c.jobs[w].whyNot = fmt.Sprintf("measuring: what %s lacks is about to be known, and goes into the same plan", j.c.Name)
			}
			return false
		}
	}
	c.wantedNs = 0
	return true
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
	return e.Mode == policies.ModeTune && e.Allows(knob) && j.shortLately() && (!j.settled(c.cfg.Agree) || j.varies()) &&
		c.fixed(c.last, j) == "" && j.c.Preflight == "" && !j.c.Busy && c.now() >= j.cooledNs && len(c.trialsOf(j.key)) == 0 && !c.failedAlready(j, knob)
}
