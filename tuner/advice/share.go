package advice

import (
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// Errors of what a share rests on, as factors of the rate's ratio.
const (
	// modelError is that of a rate that a step's cost predicts where nothing was read: 0.25 on the
	// logarithmic scale at 5 % a side, as tuner/model has it.
	modelError = 1.5
	// countError is that of two means of ten readings each, with a coefficient of variation of 0.3
	// at the most, at 5 % a side: exp(1.645·0.3·√(2/10)).
	countError = 1.25
)

// How sure an advice is. For how long it has held is no part of that: SinceUnixNs tells it.
const (
	// countedSure is that of a gain that was counted: its bounds leave 5 % out at each side.
	countedSure = 0.9
	// workSure and useSure are those of witnesses that are no count of steps, by rank.
	workSure, useSure = 0.8, 0.5
	// predictedSure is the factor on a verdict's confidence, of what nothing has tried yet: nine of
	// ten predictions came true (TestAdviceCameTrue), so at 5 % at least 0.606 of all do (Clopper and
	// Pearson, Biometrika 26, 1934).
	predictedSure = 0.6
)

// saved is the share of a step's time that a rate of so many times today's saves, with its bounds.
type saved struct{ low, share, high float64 }

// savedBy makes it from a ratio of rates and the factor that it may be off by.
func savedBy(ratio, low, high float64) saved {
	of := func(ratio float64) float64 { return min(max(0, 1-1/ratio), 1) }
	return saved{of(low), of(ratio), of(high)}
}

func within(ratio, factor float64) saved { return savedBy(ratio, ratio/factor, ratio*factor) }

// savedThere is what a job saves on another model of device.
func savedThere(d state.DeviceSpeed) saved {
	if low, high, ok := d.Ratios(); ok {
		return savedBy(d.Ratio, low, high)
	}
	return within(d.Ratio, modelError)
}

// onCurve is what a curve says of going from one amount to another: the bounds are the worst and the best of both.
func onCurve(c policies.Curve, from, to float64) saved {
	a, aLow, aHigh := c.At(from)
	b, bLow, bHigh := c.At(to)
	return savedBy(b/a, bLow/aHigh, bHigh/aLow)
}

// measured is what became of a container since trimtab's first change of it, by the best witness
// there is: its trial, its counted rate, quantities that grow with work, the CPU that it uses. The
// last proves no work, so nothing is its lower bound. sure is how much the witness is worth, and
// source names it; "": nothing tells.
func measured(c state.Container) (s saved, sure float64, source Number) {
	switch w := c.Work; {
	case c.HasGain && !c.Doubt:
		s = within(1+c.Gain, countError)
		if t := kept(c); c.Loan == nil && t != nil && t.Low > 0 && t.High >= t.Low {
			s = savedBy(min(max(1+c.Gain, t.Low), t.High), t.Low, t.High)
		}
		return s, countedSure, number("rate over before", 1+c.Gain, "times", "its counted rate")
	case w != nil && w.Ratio > 0:
		return within(w.Ratio, countError), workSure, number("work over before", w.Ratio, "times", "quantities that grow with work")
	case w != nil && w.CPUs > 0:
		s = within(w.CPUs, 1)
		s.low, s.share = 0, s.high/2
		return s, useSure, number("CPU used over before", w.CPUs, "times", "its control group")
	}
	return saved{}, 0, Number{}
}

// kept is the trial that proved the quota that stands, of this container alone; nil: none did.
func kept(c state.Container) *state.Trial {
	for i, t := range c.Trials {
		if t.Outcome == state.OutcomeKept && t.Together < 2 && slices.ContainsFunc(t.Changes, func(ch policies.Change) bool {
			return ch.Knob == runtime.KnobCPUQuota && ch.To == c.Now[runtime.KnobCPUQuota]
		}) {
			return &c.Trials[i]
		}
	}
	return nil
}
