package knee

import (
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

const (
	// donorStep is the share of its memory that a best-effort container gives at a time.
	donorStep = 0.10
	// donorLeast is what must be there to take above its floor.
	donorLeast = 64 << 20
)

// donate takes a step of memory from a best-effort container where the host has
// too little left for what others are short of: where the kernel has it by
// memory.high, which reclaims and never kills, and only behind that by the limit.
// One donor at a time, the one with the most that can be reclaimed.
func (k Policy) donate(node policies.Node, jobs []policies.Job) []policies.Change {
	missing := 0.0
	for _, j := range jobs {
		missing += wants(node, j)
	}
	if missing < donorLeast {
		return nil
	}
	donors := slices.Clone(jobs)
	donors = slices.DeleteFunc(donors, func(j policies.Job) bool {
		return !j.Enrolment.BestEffort || !j.Enrolment.Allows(runtime.KnobMemoryLimit) || !j.MemoryUse.Read || !calm(j.MemoryUse) || reclaimable(j) < donorLeast
	})
	if len(donors) == 0 {
		return nil
	}
	most := slices.MaxFunc(donors, func(a, b policies.Job) int { return int((reclaimable(a) - reclaimable(b)) / mib) })
	return k.give(most, missing)
}

// wants is the memory that a job is short of and the host does not have.
func wants(node policies.Node, j policies.Job) float64 {
	m := j.MemoryUse
	if j.Enrolment.BestEffort || !movable(j) {
		return 0
	}
	want := 0.0
	switch j.Verdict.Cause {
	case policies.CauseCache, policies.CauseReclaim:
		want = m.Reread * horizonSeconds
	case policies.CauseRisk:
		want = m.Growth * aheadDecisions * node.DecisionSeconds
	}
	if max := j.Enrolment.Memory.Max; max > 0 {
		want = min(want, max-m.Limit)
	}
	return max(0, want-max(0, node.MemoryFree)*freeShare)
}

func reclaimable(j policies.Job) float64 { return j.MemoryUse.Current - j.MemoryUse.Floor() }

// give is one step down of a donor.
func (k Policy) give(j policies.Job, missing float64) []policies.Change {
	m := j.MemoryUse
	step := min(missing, donorStep*m.Current, reclaimable(j))
	to := math.Ceil((m.Current-step)/mib) * mib
	ch := policies.Change{Key: j.Key, Name: j.Name, Knob: runtime.KnobMemoryLimit, From: j.Now[runtime.KnobMemoryLimit], Take: true,
		Witness: policies.WitnessHarm, RateAfter: j.Rate.PerSecond, To: runtime.IntValue(int64(to)),
		Reason: fmt.Sprintf("it is best-effort, and others are short of %.0f MiB; of its %.0f MiB %.0f can be reclaimed", missing/mib, m.Current/mib, reclaimable(j)/mib)}
	high, gentle := j.Now[runtime.KnobMemoryHigh]
	if !gentle {
		return []policies.Change{ch}
	}
	n, limited := high.Int()
	if limited && m.Current <= float64(n) && j.Original[runtime.KnobMemoryHigh] == runtime.ValueMax {
		// It lives under memory.high: now the limit takes its place.
		ch.To = high
		lift := ch
		lift.Knob, lift.From, lift.To, lift.Take = runtime.KnobMemoryHigh, high, runtime.ValueMax, false
		lift.Reason = "its limit stands in its place"
		return []policies.Change{ch, lift}
	}
	if limited {
		return nil // still being reclaimed, or its owner's own
	}
	ch.Knob, ch.From = runtime.KnobMemoryHigh, high
	return []policies.Change{ch}
}
