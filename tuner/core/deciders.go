package core

import (
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// deciders says of each knob of a container whose it is. One decides at a time:
// somebody else who wrote it, else a label or rule that fixes or withholds it, else
// the policy where it may, else what its owner set stands.
func (c *Core) deciders(j *job) map[runtime.Knob]string {
	if !j.c.Watched || len(j.c.Now) == 0 {
		return nil
	}
	if !j.decided.still(j) {
		out := make(map[runtime.Knob]string, len(j.c.Now))
		for k := range j.c.Now {
			out[k] = c.decider(j, k)
		}
		j.decided = decided{mode: j.c.Enrolment.Mode, from: j.c.Enrolment.KnobsFrom, knobs: j.c.Enrolment.Knobs,
			cpu: j.c.Enrolment.CPU, memory: j.c.Enrolment.Memory, yielded: j.c.Yielded, who: out}
	}
	return j.decided.who
}

// decided is what deciders said last, and all that it followed from. It is asked each
// tick, and the answer hardly ever changes; who is published, so it is not written to.
type decided struct {
	mode        policies.Mode
	from        string
	knobs       []string
	cpu, memory policies.Range
	yielded     []runtime.Knob
	who         map[runtime.Knob]string
}

func (d *decided) still(j *job) bool {
	e := &j.c.Enrolment
	if d.who == nil || d.mode != e.Mode || d.from != e.KnobsFrom || d.cpu != e.CPU || d.memory != e.Memory || len(d.who) != len(j.c.Now) ||
		!slices.Equal(d.knobs, e.Knobs) || !slices.Equal(d.yielded, j.c.Yielded) {
		return false
	}
	for k := range j.c.Now {
		if _, ok := d.who[k]; !ok {
			return false
		}
	}
	return true
}

func (c *Core) decider(j *job, k runtime.Knob) string {
	e := j.c.Enrolment
	for _, yielded := range j.c.Yielded {
		if yielded == k {
			return "somebody else, who set it"
		}
	}
	switch r := rangeOf(e, k); {
	case !e.Allows(k):
		return "its owner (" + orElse(e.KnobsFrom, "default") + ")"
	case r.Min > 0 && r.Min == r.Max:
		return "its bounds, which leave one value"
	case e.Mode != policies.ModeTune:
		return "its owner (" + string(e.Mode) + ")"
	}
	return "policy " + c.policy.Name() + " (" + orElse(e.KnobsFrom, "default") + ")"
}

// rangeOf is the bounds of a knob, as labels and rules give them.
func rangeOf(e policies.Enrolment, k runtime.Knob) policies.Range {
	switch k {
	case runtime.KnobCPUQuota:
		return e.CPU
	case runtime.KnobMemoryLimit:
		return e.Memory
	}
	return policies.Range{}
}
