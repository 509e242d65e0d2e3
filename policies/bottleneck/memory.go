package bottleneck

import (
	"fmt"
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// freeShare is what of the host's free memory one step may take.
const freeShare = 0.5

const mib = 1 << 20

// memory grows the limit of a job that the limit slows down by one step, and gives
// the last step back where it brought too little. What protects a job that grows into
// its limit is the default policy's; this loop only knows speed.
func (b Policy) memory(node policies.Node, j policies.Job) (policies.Change, bool) {
	m := j.MemoryUse
	if !m.Read || m.Limit <= 0 || !j.Enrolment.Allows(runtime.KnobMemoryLimit) {
		return policies.Change{}, false
	}
	now, ok := j.Now[runtime.KnobMemoryLimit].Int()
	if !ok {
		return policies.Change{}, false
	}
	ch := policies.Change{Key: j.Key, Name: j.Name, Knob: runtime.KnobMemoryLimit, From: j.Now[runtime.KnobMemoryLimit], RateAfter: j.Rate.PerSecond}
	if t, ok := latest(j, runtime.KnobMemoryLimit); ok && t.Kept && !t.Take && number(t.To) == float64(now) && b.marginal(t) < b.p.Marginal {
		back, _ := t.From.Int()
		original, _ := j.Original[runtime.KnobMemoryLimit].Int()
		if ch.To, ch.Take, ch.Witness = t.From, true, policies.WitnessHarm; !j.Settled || back < original || float64(back) < m.Floor() {
			return policies.Change{}, false
		}
		ch.Reason = fmt.Sprintf("the step to %d MiB brought %+.0f %%, too little for its size", now/mib, 100*(t.Ratio-1))
		return ch, true
	}
	cause := j.Verdict.Cause
	if cause != policies.CauseCache && cause != policies.CauseReclaim || j.Verdict.Severity < b.p.Lost || !b.pays(j, runtime.KnobMemoryLimit, float64(now)) {
		return policies.Change{}, false
	}
	to := min(m.Limit*b.p.Step, m.Limit+max(0, node.MemoryFree)*freeShare, node.Ceiling(j.Enrolment, m))
	if to = math.Floor(to/mib) * mib; to <= float64(now) {
		return policies.Change{}, false
	}
	ch.To, ch.Gain = runtime.IntValue(int64(to)), gain(j.Verdict.Severity, math.Inf(1))
	ch.RateAfter *= 1 + ch.Gain
	ch.Reason = fmt.Sprintf("its memory limit costs it %.0f %% of its time; one step from %d MiB", 100*j.Verdict.Severity, now/mib)
	return ch, true
}
