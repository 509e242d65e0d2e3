package control

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// deciders is what was said last of whose each knob is, and all that it followed from. It is
// asked each tick, and the answer hardly ever changes; who is published, so it is not written to.
type deciders struct {
	mode        policies.Mode
	from        string
	knobs       []string
	cpu, memory policies.Range
	yielded     []runtime.Knob
	who         map[runtime.Knob]string
}

// whose says of each knob of a container who decides on it. One decides at a time:
// somebody else who wrote it, else a label or rule that fixes or withholds it, else
// the policy where it may, else what its owner set stands.
func (c *Controller) whose(s *containerState) map[runtime.Knob]string {
	if !s.c.Watched || len(s.c.Now) == 0 {
		return nil
	}
	if !s.deciders.still(s) {
		out := make(map[runtime.Knob]string, len(s.c.Now))
		for k := range s.c.Now {
			out[k] = decider(s, k)
		}
		e := &s.c.Enrolment
		s.deciders = deciders{mode: e.Mode, from: e.KnobsFrom, knobs: e.Knobs, cpu: e.CPU, memory: e.Memory, yielded: s.c.Yielded, who: out}
	}
	return s.deciders.who
}

func (d *deciders) still(s *containerState) bool {
	e := &s.c.Enrolment
	if d.who == nil || d.mode != e.Mode || d.from != e.KnobsFrom || d.cpu != e.CPU || d.memory != e.Memory || len(d.who) != len(s.c.Now) ||
		!slices.Equal(d.knobs, e.Knobs) || !slices.Equal(d.yielded, s.c.Yielded) {
		return false
	}
	for k := range s.c.Now {
		if _, ok := d.who[k]; !ok {
			return false
		}
	}
	return true
}

func decider(s *containerState, k runtime.Knob) string {
	e := s.c.Enrolment
	one := func(r policies.Range) bool { return r.Min > 0 && r.Min == r.Max }
	switch {
	case slices.Contains(s.c.Yielded, k):
		return "somebody else, who set it"
	case !e.Allows(k):
		return "its owner (" + cmp.Or(e.KnobsFrom, "default") + ")"
	case k == runtime.KnobCPUQuota && one(e.CPU), k == runtime.KnobMemoryLimit && one(e.Memory):
		return "its bounds, which leave one value"
	case e.Mode != policies.ModeTune:
		return "its owner (" + string(e.Mode) + ")"
	}
	return "trimtab (" + cmp.Or(e.KnobsFrom, "default") + ")"
}
