package core

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/view"
)

// spareTimes is how much heavier a neighbour is made that would lose by a quota: as much as
// the default policy raises a weight by.
const spareTimes = 4

// spare ends a trial by which a neighbour lost CPU that it is entitled to. Where what was
// given are quotas, and that neighbour's weight may be raised, they are no failure yet: a quota
// takes nothing by itself, its container's threads only stand in the way, and the next plan
// raises the neighbour's weight with it. Once for each: what fails so, failed.
func (c *Core) spare(t *openTrial, n *job, how string, d *Decision) {
	why := fmt.Sprintf("%s lost CPU it is entitled to: %s", n.c.Name, how)
	again := !t.touches(n.key) && c.heavier(n) != ""
	for _, ch := range t.order.Changes {
		j := c.jobs[ch.Key]
		again = again && j != nil && j.spares == "" && ch.Knob == runtime.KnobCPUQuota && !ch.Take
	}
	if !again {
		c.rollback(t, view.OutcomeRolledBack, why, d)
		for _, ch := range t.order.Changes {
			if j := c.jobs[ch.Key]; j != nil && j.spares != "" { // alone it has failed before
				j.hasFailed(ch.Knob, t.dependedOn[ch.Key])
				j.alone = false
			}
		}
		return
	}
	d.Rollback = append(d.Rollback, t.order)
	c.end(t, view.OutcomeRolledBack, why, d)
	n.coolDown(c)                           // it is for that plan to raise it
	delete(n.failed, runtime.KnobCPUWeight) // what it was to gain by itself is another matter
	for _, ch := range t.order.Changes {
		j := c.jobs[ch.Key]
		j.spares, j.cooledNs, j.obs, j.pace = n.key, 0, nil, nil
	}
}

// goWith has the weight that was on trial for one container go with the quotas that its trial
// ended for: what it lacked it will not lack less beside them.
func (c *Core) goWith(p policies.Plan, ended []policies.Change) {
	if len(ended) != 1 || ended[0].Knob != runtime.KnobCPUWeight || ended[0].Take {
		return
	}
	for _, ch := range p.Changes {
		if j := c.jobs[ch.Key]; ch.Knob == runtime.KnobCPUQuota && ch.Key != ended[0].Key && j.spares == "" {
			j.spares = ended[0].Key
		}
	}
}

// spared reports whether a container is in a trial for what it lost by the same plan without.
func (c *Core) spared(t *openTrial, key string) bool {
	return slices.ContainsFunc(t.order.Changes, func(ch policies.Change) bool { return ch.Key != key && c.jobs[ch.Key].spares == key })
}

// sparing reports whether a trial is of one container's quota, and of the weight of who lost by
// it and of nobody else: it is tried by itself so.
func (c *Core) sparing(t *openTrial) bool {
	for _, ch := range t.order.Changes {
		j := c.jobs[ch.Key]
		if j != nil && t.touches(j.spares) && !slices.ContainsFunc(t.order.Changes, func(o policies.Change) bool { return o.Key != ch.Key && o.Key != j.spares }) {
			return true
		}
	}
	return false
}

// withSpared adds to quotas the weights of those that lost by them; known is false where the
// plan names somebody who is gone.
func (c *Core) withSpared(p policies.Plan) (_ policies.Plan, known bool) {
	for _, ch := range p.Changes {
		j := c.jobs[ch.Key]
		if j == nil {
			return p, false
		}
		n := c.jobs[j.spares]
		if n == nil || ch.Knob != runtime.KnobCPUQuota || ch.Take || slices.ContainsFunc(p.Changes, func(o policies.Change) bool { return o.Key == n.key }) {
			continue
		}
		if to := c.heavier(n); to != "" {
			p.Changes = append(slices.Clone(p.Changes), policies.Change{Key: n.key, Name: n.c.Name, Knob: runtime.KnobCPUWeight, From: n.c.Now[runtime.KnobCPUWeight], To: to,
				RateAfter: n.rateNow(), Reason: fmt.Sprintf("%s is given a quota beside it, and it is short of its turns on a CPU", ch.Name)})
		}
	}
	return p, true
}

// spareMost is how many times its owner's weight a spared container may have.
const spareMost = 16

// heavier is the weight by which a container would be spared; "" where it may not be raised.
func (c *Core) heavier(n *job) runtime.Value {
	now, ok := n.c.Now[runtime.KnobCPUWeight].Int()
	owners, known := n.original(runtime.KnobCPUWeight).Int()
	e := n.c.Enrolment
	if !ok || !known || e.Mode != policies.ModeTune || !e.Allows(runtime.KnobCPUWeight) || c.frozen(c.last, n) != "" || slices.Contains(n.c.Yielded, runtime.KnobCPUWeight) {
		return ""
	}
	if to := min(spareTimes*now, spareMost*owners); to > now {
		return runtime.IntValue(to)
	}
	return ""
}
