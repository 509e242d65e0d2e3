package core

import (
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

const (
	// grainBytes rounds limits: a multiple of every page size in use.
	grainBytes = 1 << 20
	// minMemoryStep is the least relative change of a limit worth a write.
	minMemoryStep = 0.02
)

// boundKnob holds a change of any knob but CPU quota and weight within its bounds.
func (c *Core) boundKnob(j *job, ch policies.Change) (policies.Change, string) {
	bound := map[runtime.Knob]func(*job, policies.Change) (policies.Change, string){
		runtime.KnobMemoryLimit: c.boundMemory, runtime.KnobMemoryHigh: c.boundMemory, runtime.KnobMemoryLow: c.boundLow,
		runtime.KnobIOWeight: c.boundIOWeight, runtime.KnobCPUBurst: c.boundBurst, runtime.KnobCpuset: c.boundCpuset,
	}
	ch, why := bound[ch.Knob](j, ch)
	if why == "" && (j.failedMove(c, ch) || ch.Knob.Family() != "memory" && c.failedAlready(j, ch.Knob)) {
		why = "a like change failed; waiting until something it depended on changes"
	}
	return ch, why
}

// boundMemory holds a change of memory.limit or memory.high within the owner's and
// the host's bounds, and above what is held. Never-impose: where the owner set no
// limit there is none to move, and none goes below the owner's, unless the
// container is best-effort.
func (c *Core) boundMemory(j *job, ch policies.Change) (policies.Change, string) {
	e, use := j.c.Enrolment, c.memoryUse(j)
	if !use.Read {
		return ch, "its memory is not read"
	}
	original, err := bytesOf(j.original(ch.Knob))
	if err != nil {
		return ch, err.Error()
	}
	now, errNow := bytesOf(ch.From)
	to, errTo := bytesOf(ch.To)
	switch {
	case errNow != nil || errTo != nil:
		return ch, "not an amount of memory"
	case math.IsInf(original, 1) && !e.BestEffort && !math.IsInf(to, 1):
		return ch, "no memory limit to move: its owner set none"
	case math.IsInf(to, 1):
		if !math.IsInf(original, 1) {
			return ch, "its owner set a limit"
		}
		return ch, ""
	}
	ceiling := max(c.node.Ceiling(e, use), original) // infinite where its owner set none: any limit takes from it
	floor := max(use.Floor(), e.Memory.Min)
	if !e.BestEffort {
		floor = max(floor, original)
	}
	if to > now && to > ceiling {
		to = math.Floor(ceiling/grainBytes) * grainBytes
	}
	if to < now {
		to = max(to, math.Ceil(floor/grainBytes)*grainBytes)
	}
	switch {
	case (to < now) != ch.Take || to == now:
		if !ch.Take {
			return ch, fmt.Sprintf("at its memory ceiling of %.0f MiB", ceiling/(1<<20))
		}
		return ch, "its bounds leave no room"
	case math.Abs(to-now) < minMemoryStep*now:
		return ch, "nothing to gain"
	}
	ch.To = runtime.IntValue(int64(to))
	return ch, ""
}

// bytesOf reads an amount; no limit is infinite.
func bytesOf(v runtime.Value) (float64, error) {
	if v == runtime.ValueMax {
		return math.Inf(1), nil
	}
	n, ok := v.Int()
	if !ok || n < 0 {
		return 0, fmt.Errorf("memory %q cannot be read", v)
	}
	return float64(n), nil
}

// boundLow holds memory.low within what the node can promise: protection beyond
// half of its memory, all containers together, would turn against them all.
func (c *Core) boundLow(j *job, ch policies.Change) (policies.Change, string) {
	use := c.memoryUse(j)
	original, err := bytesOf(j.original(ch.Knob))
	to, errTo := bytesOf(ch.To)
	switch {
	case err != nil || errTo != nil || math.IsInf(to, 1):
		return ch, "not an amount of memory"
	case !use.LowReaches:
		return ch, "the groups above it leave memory.low without effect"
	}
	promised := 0.0
	for _, key := range c.keys() {
		if o := c.jobs[key]; o != j {
			if low, err := bytesOf(o.c.Now[runtime.KnobMemoryLow]); err == nil && !math.IsInf(low, 1) {
				promised += low
			}
		}
	}
	ceiling := (c.node.Memory-c.node.ReserveMemory)/2 - promised
	if m := j.c.Enrolment.Memory.Max; m > 0 {
		ceiling = min(ceiling, m)
	}
	to = max(original, math.Floor(min(to, ceiling)/grainBytes)*grainBytes)
	if now, err := bytesOf(ch.From); err != nil || to == now || (to < now) != ch.Take {
		return ch, "its bounds leave no room"
	}
	ch.To = runtime.IntValue(int64(to))
	return ch, ""
}

// withSwap adds, where v1's memory.swap counts memory and swap together, its change
// to each change of memory.limit: it keeps its distance, and the two are written
// together, swap first on the way up and limit first on the way down.
func (c *Core) withSwap(changes []policies.Change) (_ []policies.Change, why string) {
	out := slices.Clone(changes)
	for _, ch := range changes {
		j := c.jobs[ch.Key]
		if _, v1 := j.c.Cgroup.V1["memory"]; ch.Knob != runtime.KnobMemoryLimit || !v1 {
			continue
		}
		swap, present := j.c.Now[runtime.KnobMemorySwap]
		if !present || slices.ContainsFunc(changes, func(o policies.Change) bool { return o.Key == ch.Key && o.Knob == runtime.KnobMemorySwap }) {
			continue
		}
		to, why := jointSwap(j, ch, swap)
		if why != "" {
			return nil, why
		}
		if to == swap {
			continue
		}
		if slices.Contains(j.c.Yielded, runtime.KnobMemorySwap) {
			return nil, "memory.swap counts memory too, and was set by somebody else"
		}
		out = append(out, policies.Change{Key: ch.Key, Name: ch.Name, Knob: runtime.KnobMemorySwap, From: swap, To: to, Take: ch.Take,
			Reason: "it counts memory and swap together, and keeps its distance to memory.limit", Witness: ch.Witness})
	}
	return out, ""
}

// jointSwap is what memory.swap must read beside a new memory.limit.
func jointSwap(j *job, ch policies.Change, swap runtime.Value) (runtime.Value, string) {
	joint, err := bytesOf(swap)
	limit, errLimit := bytesOf(ch.From)
	to, errTo := bytesOf(ch.To)
	if err != nil || errLimit != nil || errTo != nil {
		return "", "memory.swap cannot be read"
	}
	original, err := bytesOf(j.original(runtime.KnobMemorySwap))
	if err != nil {
		return "", err.Error()
	}
	if math.IsInf(joint, 1) || math.IsInf(to, 1) || math.IsInf(limit, 1) {
		return swap, "" // nothing that the limit could meet
	}
	next := joint + to - limit
	if !j.c.Enrolment.BestEffort {
		next = max(next, original)
	}
	return runtime.IntValue(int64(max(next, to))), ""
}

// wouldInterfere says what keeps even an urgent change waiting: one of the same knob
// that is on trial. Other trials go on beside it.
func (c *Core) wouldInterfere(j *job) string {
	for _, t := range c.trialsOf(j.key) {
		if slices.ContainsFunc(t.order.Changes, func(ch policies.Change) bool { return ch.Key == j.key && ch.Knob == runtime.KnobMemoryLimit }) {
			return "in trial"
		}
	}
	return ""
}

// waitHarm says why a plan that is not judged by its rate must wait; "" if it may start.
func (c *Core) waitHarm(subject *job, p policies.Plan) string {
	if p.Changes[0].Take {
		for _, t := range c.trials {
			if c.share(t, subject) {
				return waitsForTrial
			}
		}
	}
	return c.room(p)
}

// sameAmount reports whether two amounts of memory say the same to people.
func sameAmount(a, b runtime.Value) bool {
	x, errX := bytesOf(a)
	y, errY := bytesOf(b)
	return errX == nil && errY == nil && (x == y || math.Abs(x-y) <= 0.25*max(x, y))
}

// throttledShare of periods, in the latest stretch.
func (j *job) throttledShare(nowNs int64) float64 {
	return meansOf(j.memoryBetween(nowNs-memorySpanNs, nowNs)).throttled
}
