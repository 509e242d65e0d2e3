package core

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// boundIOWeight: weights share, they do not bound; the owner's is the least, but
// for a best-effort container.
func (c *Core) boundIOWeight(j *job, ch policies.Change) (policies.Change, string) {
	original, ok := j.original(ch.Knob).Int()
	to, okTo := ch.To.Int()
	switch {
	case !ok || !okTo:
		return ch, "no I/O weight to move"
	case to < original && !j.c.Enrolment.BestEffort:
		return ch, "below its owner's weight"
	case to < 1 || float64(to) > c.node.MaxIOWeight:
		return ch, fmt.Sprintf("the kernel knows I/O weights up to %.0f", c.node.MaxIOWeight)
	}
	return ch, ""
}

// boundBurst: no more than the quota that stands, which the kernel refuses, or half the owner's.
func (c *Core) boundBurst(j *job, ch policies.Change) (policies.Change, string) {
	quotaUs, _, err := runtime.ParseQuota(j.c.Now[runtime.KnobCPUQuota])
	original, ok := j.original(ch.Knob).Int()
	to, okTo := ch.To.Int()
	switch {
	case err != nil || quotaUs < 0:
		return ch, "no CPU quota to save up from: its owner set none"
	case !ok || !okTo || to < original:
		return ch, "below its owner's burst"
	}
	if own, _, err := runtime.ParseQuota(j.original(runtime.KnobCPUQuota)); err == nil && own > 0 {
		quotaUs = min(quotaUs, int64(policies.BurstOfQuota*float64(own)))
	}
	now, _ := ch.From.Int()
	if to = min(to, max(quotaUs, original)); to <= now {
		return ch, "nothing to gain"
	}
	ch.To = runtime.IntValue(to)
	return ch, ""
}

// withBurst adds to each quota that goes below the burst that stands the burst's own way
// down: the kernel refuses a burst above its quota. It comes right behind the quota, since
// of a container's changes the last decides how it is judged.
func (c *Core) withBurst(changes []policies.Change) (_ []policies.Change, why string) {
	var out []policies.Change
	for _, ch := range changes {
		out = append(out, ch)
		j := c.jobs[ch.Key]
		burst, ok := j.c.Now[runtime.KnobCPUBurst].Int()
		quotaUs, _, err := runtime.ParseQuota(ch.To)
		if ch.Knob != runtime.KnobCPUQuota || !ok || err != nil || quotaUs < 0 || burst <= quotaUs {
			continue
		}
		if slices.ContainsFunc(changes, func(o policies.Change) bool { return o.Key == ch.Key && o.Knob == runtime.KnobCPUBurst }) {
			continue
		}
		if slices.Contains(j.c.Yielded, runtime.KnobCPUBurst) {
			return nil, "its burst is above that quota, and was set by somebody else"
		}
		if original, ok := j.original(runtime.KnobCPUBurst).Int(); !ok || original > quotaUs {
			return nil, "its owner's burst is above that quota"
		}
		down := ch
		down.Knob, down.From, down.To = runtime.KnobCPUBurst, j.c.Now[runtime.KnobCPUBurst], runtime.IntValue(quotaUs)
		down.Reason = "no burst may be above its quota"
		out = append(out, down)
	}
	return out, ""
}

// boundCpuset: within the owner's set, no fewer CPUs than the owner's floor and
// quota, and never over threads that pin themselves where the kernel would undo that.
func (c *Core) boundCpuset(j *job, ch policies.Change) (policies.Change, string) {
	if j.c.Pinned != "" {
		return ch, j.c.Pinned
	}
	to, err := runtime.ParseCPUList(string(ch.To))
	if err != nil || len(to) == 0 {
		return ch, "an empty CPU set"
	}
	owner, err := runtime.ParseCPUList(string(j.original(ch.Knob)))
	if err != nil {
		return ch, err.Error()
	}
	if len(owner) > 0 && len(intersect(to, owner)) < len(to) {
		return ch, "outside of its owner's CPU set"
	}
	least := j.floor()
	if quota, limited := j.c.Now[runtime.KnobCPUQuota].CPUs(); limited {
		least = max(least, quota)
	}
	if float64(len(to)) < least {
		return ch, fmt.Sprintf("%d CPUs are fewer than the %.2f it is to have", len(to), least)
	}
	return ch, ""
}

// intersect is the numbers in both of two sorted lists.
func intersect(a, b []int) []int {
	var out []int
	for i, k := 0, 0; i < len(a) && k < len(b); {
		switch {
		case a[i] < b[k]:
			i++
		case a[i] > b[k]:
			k++
		default:
			out = append(out, a[i])
			i, k = i+1, k+1
		}
	}
	return out
}
