package control

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// whose says of each knob of a container who decides on it. One decides at a time:
// somebody else who wrote it, else a label or rule that fixes or withholds it, else
// the policy where it may, else what its owner set stands.
func whose(s *containerState) map[runtime.Knob]string {
	if !s.c.Watched || len(s.c.Now) == 0 {
		return nil
	}
	out := make(map[runtime.Knob]string, len(s.c.Now))
	for k := range s.c.Now {
		out[k] = decider(s, k)
	}
	return out
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
