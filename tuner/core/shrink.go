package core

import (
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/arbiter"
)

// shrunk is a raise of a quota or a weight as far as the guard lets it go beside the changes
// that were chosen before it: what nobody else has a right to would stay idle if all that was
// asked for had to be allowed at once. ok is false where what is left of it is not worth a trial.
func (c *Core) shrunk(ch policies.Change, kept []policies.Change, claims []arbiter.Claim, why func([]policies.Change) string) (_ policies.Change, ok bool) {
	var steps scale
	switch {
	case ch.Take:
		return ch, false
	case ch.Knob == runtime.KnobCPUQuota:
		steps, ok = quotaScale(ch)
	case ch.Knob == runtime.KnobCPUWeight:
		steps, ok = c.weightScale(ch, kept, claims)
	}
	if !ok {
		return ch, false
	}
	try := func(amount float64) policies.Change {
		less := ch
		less.To = steps.value(amount)
		return less
	}
	may, not := steps.from, steps.asked
	for not-may > steps.grain/2 {
		if middle := (may + not) / 2; why(append(slices.Clip(kept), try(middle))) == "" {
			may = middle
		} else {
			not = middle
		}
	}
	may = steps.grain * math.Floor(steps.keep*may/steps.grain+1e-9)
	j := c.jobs[ch.Key]
	rate := j.rateNow()
	all, _, _ := j.curve.At(steps.cpus(steps.asked))
	part, _, _ := j.curve.At(steps.cpus(may))
	if may < steps.from*(1+minStep) || !(all > 0) || !(rate > 0) {
		return ch, false
	}
	ch.To = steps.value(may)
	ch.RateAfter = max(rate, ch.RateAfter*part/all)
	ch.Gain = min(ch.Gain, ch.RateAfter/rate-1)
	return ch, ch.Gain >= arbiter.Defaults().MinGain
}

// scale is what a raise is made in: from what stands to what was asked, in steps of a grain,
// each an amount of the knob that is worth so many CPUs.
type scale struct {
	from, asked, grain float64
	keep               float64 // the part of what may be that is asked for
	value              func(amount float64) runtime.Value
	cpus               func(amount float64) float64
}

func quotaScale(ch policies.Change) (s scale, ok bool) {
	from, _ := ch.From.CPUs()
	asked, limited := ch.To.CPUs()
	_, period, err := runtime.ParseQuota(ch.From)
	return scale{from, asked, 0.01, 1,
		func(cpus float64) runtime.Value { return runtime.QuotaFromCPUs(cpus, period) },
		func(cpus float64) float64 { return cpus }}, limited && err == nil
}

// weightKept: a quota ends where it says, a weight is worth what others leave unused, which
// is known to a few per cent, and the neighbours' margin is one for all plans: at 0.97 some
// hundredths of a CPU that the host took more of made the arbiter give all of it back
// [measured, test/e2e TestFloorRaisesTheWeight].
const weightKept = 0.94

// weightScale: a weight is worth what it is a share of, beside what the others make of theirs,
// and brings no more than what its job is entitled to, by which it was predicted.
func (c *Core) weightScale(ch policies.Change, kept []policies.Change, claims []arbiter.Claim) (s scale, ok bool) {
	from, okFrom := ch.From.Int()
	asked, okAsked := ch.To.Int()
	i, found := claimOf(claims, ch.Key)
	value := func(weight float64) runtime.Value { return runtime.IntValue(int64(weight)) }
	return scale{float64(from), float64(asked), 1, weightKept, value, func(weight float64) float64 {
		try := ch
		try.To = value(weight)
		return min(c.sharesAfter(claims, append(slices.Clip(kept), try))[i], c.jobs[ch.Key].entitled)
	}}, okFrom && okAsked && found
}
