package core

import (
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/arbiter"
)

// shrunk is a raise of a quota as far as the guard lets it go beside the changes that were
// chosen before it: what nobody else has a right to would stay idle if all that was asked
// for had to be allowed at once. ok is false where what is left of it is not worth a trial.
func (c *Core) shrunk(ch policies.Change, kept []policies.Change, why func([]policies.Change) string) (_ policies.Change, ok bool) {
	from, _ := ch.From.CPUs()
	asked, limited := ch.To.CPUs()
	_, period, err := runtime.ParseQuota(ch.From)
	if ch.Knob != runtime.KnobCPUQuota || ch.Take || !limited || err != nil {
		return ch, false
	}
	may, not := from, asked
	for not-may > 0.005 {
		middle := (may + not) / 2
		try := ch
		try.To = runtime.QuotaFromCPUs(middle, period)
		if why(append(slices.Clip(kept), try)) == "" {
			may = middle
		} else {
			not = middle
		}
	}
	may = math.Floor(100*may+1e-9) / 100
	j := c.jobs[ch.Key]
	rate := j.rateNow()
	all, _, _ := j.curve.At(asked)
	part, _, _ := j.curve.At(may)
	if may < from*(1+minStep) || !(all > 0) || !(rate > 0) {
		return ch, false
	}
	ch.To = runtime.QuotaFromCPUs(may, period)
	ch.RateAfter = max(rate, ch.RateAfter*part/all)
	ch.Gain = min(ch.Gain, ch.RateAfter/rate-1)
	return ch, ch.Gain >= arbiter.Defaults().MinGain
}
