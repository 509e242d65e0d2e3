package knee

import (
	"fmt"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

const (
	// burstBelow: a job that uses less of its quota than this, and is throttled all the
	// same, is throttled in bursts.
	burstBelow = 0.9
	// burstThrottled is the share of periods in which it must run out.
	burstThrottled = 0.05
)

// burst lets a job save up a period's quota for its bursts: what it may use in all
// stays as it is.
func (k Policy) burst(j policies.Job) []policies.Change {
	quotaUs, _, err := runtime.ParseQuota(j.Now[runtime.KnobCPUQuota])
	now, present := j.Now[runtime.KnobCPUBurst].Int()
	if own, _, err := runtime.ParseQuota(j.Original[runtime.KnobCPUQuota]); err == nil && own > 0 {
		quotaUs = min(quotaUs, int64(policies.BurstOfQuota*float64(own)))
	}
	cpus, limited := j.Now[runtime.KnobCPUQuota].CPUs()
	lost := min(0.9, lost(j.Breakdown))
	if err != nil || !limited || !present || now >= quotaUs || !j.Enrolment.Allows(runtime.KnobCPUBurst) || j.Rate.PerSecond <= 0 ||
		j.UsedCPUs >= burstBelow*cpus || j.ThrottledShare < burstThrottled || lost/(1-lost) < k.p.MinGain {
		return nil
	}
	gain := lost / (1 - lost)
	return []policies.Change{{Key: j.Key, Name: j.Name, Knob: runtime.KnobCPUBurst, From: j.Now[runtime.KnobCPUBurst], To: runtime.IntValue(quotaUs),
		Gain: gain, RateAfter: j.Rate.PerSecond * (1 + gain),
		Reason: fmt.Sprintf("it runs out of quota in %.0f %% of its periods and uses %.2f of %.2f CPUs in the mean: one period may save up for another", 100*j.ThrottledShare, j.UsedCPUs, cpus)}}
}
