package control

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/guard"
	"github.com/trimtab/trimtab/tuner/state"
)

// results takes in what the actuator answered.
func (c *Controller) results(in Input, d *Decision) {
	for _, r := range in.Results {
		switch r.Kind {
		case ResultApply:
			c.applied(r, d)
		case ResultRollback:
			c.reverted(r, d)
			c.visibilityReturned(r)
		case ResultEnded:
			if s := c.containers[r.Key]; s != nil {
				c.abandon(s, r.Text, d)
				s.before, s.loan, s.memory = baseline{}, loan{}, memoryLoan{}
				s.resourcesChanged(c.now())
				s.coolNs = c.now() + int64(c.k().CoolSeconds*1e9)
			}
		}
	}
}

func (c *Controller) applied(r Result, d *Decision) {
	if o, ok := c.pending[r.Plan]; ok {
		delete(c.pending, r.Plan)
		c.expect(o.Order, -1)
		c.loanAnswered(o, r)
		return
	}
	if o, ok := c.answered(r.Plan); ok { // no change stands without a judge
		if r.OK {
			d.Rollback = append(d.Rollback, o)
		}
		return
	}
	t := c.trials[r.Plan]
	if t == nil {
		return
	}
	t.answers--
	if !r.OK {
		c.totals.plan(t.order.Policy, "failed")
		t.Abandon("not applied: " + r.Text)
		if s := c.containers[r.Key]; s != nil && r.Refused {
			for _, ch := range t.order.Changes {
				if ch.Key == r.Key {
					s.failures.Add(ch.Knob, ch.Take, t.on[r.Key])
				}
			}
		}
		c.end(t, d)
		return
	}
	c.totals.plan(t.order.Policy, "applied")
	t.Switched(c.k(), c.now())
	c.written(t.order)
}

// answered takes in the answer to an order whose trial ended meanwhile, if it was one.
func (c *Controller) answered(plan string) (o Order, ok bool) {
	if o, ok = c.unanswered[plan]; ok {
		delete(c.unanswered, plan)
		c.expect(o, -1)
	}
	return o, ok
}

// written notes that an order's containers have other resources now.
func (c *Controller) written(o Order) {
	for _, ch := range o.Changes {
		c.changeTimes = append(c.changeTimes, c.now())
		if s := c.containers[ch.Key]; s != nil {
			s.resourcesChanged(c.now())
		}
	}
}

// loanAnswered notes a loan that stands, or one that could not be written.
func (c *Controller) loanAnswered(o pendingOrder, r Result) {
	if r.OK {
		c.totals.plan(o.Policy, "applied")
		for _, ch := range o.Changes {
			if s := c.containers[ch.Key]; s != nil && ch.Knob != runtime.KnobCPUWeight { // a weight alone changes no pace of its own
				s.resourcesChanged(c.now())
			}
		}
		c.lentWritten(o)
		return
	}
	c.totals.plan(o.Policy, "failed")
	s := c.containers[o.Changes[0].Key]
	if s == nil {
		return
	}
	if !s.changed() {
		s.before = baseline{}
	}
	// The engine or a law says no: later each time.
	if m := &s.memory; o.Changes[0].Knob == runtime.KnobMemoryLimit {
		m.refused.again(c.k(), c.now(), m.atNs)
	} else {
		c.recalled(s, r.Text)
	}
	s.refused = guard.Rejection{Container: s.key, Gate: guard.GateFixed, Text: "not written: " + r.Text}
}

// reverted goes on with a trial whose change was taken back to be measured without it.
func (c *Controller) reverted(r Result, d *Decision) {
	t := c.trials[r.Plan]
	if t == nil {
		c.answered(r.Plan)
		return
	}
	t.answers--
	if !r.OK {
		t.Abandon("could not be taken back to be measured without: " + r.Text)
		c.end(t, d)
		return
	}
	t.Switched(c.k(), c.now())
	c.written(t.order)
}

// revert orders undone what stood, with a record; of the plan of the trial that left it standing all is told anew.
func (c *Controller) revert(o Order, of string, d *Decision) {
	d.Rollback = append(d.Rollback, o)
	c.totals.trial(o.Policy, state.OutcomeWithdrawn)
	for _, x := range c.all {
		if i := slices.IndexFunc(x.trials, func(t state.Trial) bool { return t.Plan == of }); i >= 0 {
			x.trials[i].Outcome, x.trials[i].Why = state.OutcomeWithdrawn, o.Why
		}
	}
	s, ch := c.containers[o.Changes[0].Key], o.Changes[0]
	s.coolNs = c.now() + int64(c.k().CoolSeconds*1e9)
	d.Records = append(d.Records, c.record(state.RecordTrial, s, func(rec *state.Record) {
		rec.Plan, rec.Policy, rec.Knob, rec.From, rec.To, rec.Outcome = o.Plan, o.Policy, ch.Knob, ch.From, ch.To, state.OutcomeWithdrawn
		rec.Text = fmt.Sprintf("%s reverted: %s", changesText(o.Changes), o.Why)
	}))
}
