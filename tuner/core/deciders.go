package core

import (
	"fmt"

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
	out := make(map[runtime.Knob]string, len(j.c.Now))
	for k := range j.c.Now {
		out[k] = c.decider(j, k)
	}
	return out
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
		return fmt.Sprintf("its owner (%s)", orElse(e.KnobsFrom, "default"))
	case r.Min > 0 && r.Min == r.Max:
		return "its bounds, which leave one value"
	case e.Mode != policies.ModeTune:
		return "its owner (" + string(e.Mode) + ")"
	}
	return fmt.Sprintf("policy %s (%s)", c.policy.Name(), orElse(e.KnobsFrom, "default"))
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
