package knee

import (
	"fmt"
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// displaced says what would protect the working set of a job without a limit, whose pages
// go because others on the host want memory: what it has, and what it reads again within
// the horizon. ok is false where nothing is to be gained, or this kernel has no such knob.
func (k Policy) displaced(node policies.Node, j policies.Job) (ch policies.Change, ok bool) {
	m := j.MemoryUse
	now, present := j.Now[runtime.KnobMemoryLow].Int()
	if !present || !m.Read || m.Limit > 0 || j.Verdict.Cause != policies.CauseStorage || j.Rate.PerSecond <= 0 ||
		!m.Rereads() {
		return ch, false
	}
	to := math.Floor((m.Current+m.Missing())/mib) * mib
	to = min(to, math.Floor((node.Memory-node.ReserveMemory)/2/mib)*mib)
	lost := m.Evicted(j.Verdict, j.Breakdown)
	gain := lost / (1 - lost)
	return policies.Change{Key: j.Key, Name: j.Name, Knob: runtime.KnobMemoryLow, From: j.Now[runtime.KnobMemoryLow], To: runtime.IntValue(int64(to)),
		Gain: gain, RateAfter: j.Rate.PerSecond * (1 + gain),
		Reason: fmt.Sprintf("it has no limit, and reads %.1f MiB/s again that others on the host displaced", m.Reread/mib)}, to > float64(now) && gain >= k.p.MinGain
}

// low protects it where that is allowed, and has an effect: not below a group that
// protects nothing.
func (k Policy) low(node policies.Node, j policies.Job) []policies.Change {
	ch, ok := k.displaced(node, j)
	if !ok || !j.MemoryUse.LowReaches || !j.Enrolment.Allows(runtime.KnobMemoryLow) {
		return nil
	}
	return []policies.Change{ch}
}

// lowAdvice says what people can do where it may not be, or has none.
func (k Policy) lowAdvice(node policies.Node, j policies.Job) string {
	ch, ok := k.displaced(node, j)
	n, _ := ch.To.Int()
	switch {
	case !ok:
		return ""
	case !j.MemoryUse.LowReaches:
		return fmt.Sprintf("%s: memory.low would keep %d MiB for it, and reaches nothing here, since a control group above it protects nothing of its own (systemctl set-property SLICE MemoryLow=)",
			ch.Reason, n/mib)
	case !j.Enrolment.Allows(runtime.KnobMemoryLow):
		return fmt.Sprintf("%s: trimtab may keep %d MiB for it by memory.low where the knob memory is allowed (trimtab.knobs)", ch.Reason, n/mib)
	}
	return ""
}
