package guard

import (
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// grainBytes rounds limits: a multiple of every page size in use.
const grainBytes = 1 << 20

// memory holds a change of memory.limit within the owner's and the host's bounds, and above
// what is held. Where the owner set no limit there is none to move, and none goes below the
// owner's, unless the container is best-effort. v1's joint limit of memory and swap goes with it.
func memory(k *policies.Constants, node policies.Node, c *Container, ch policies.Change) ([]policies.Change, Rejection) {
	m := c.Memory
	own, errOwn := Bytes(original(c, ch.Knob))
	now, errNow := Bytes(ch.From)
	to, errTo := Bytes(ch.To)
	switch {
	case !m.Read:
		return nil, Rejection{Gate: GateMeasuring, Text: "its memory is not read"}
	case errOwn != nil || errNow != nil || errTo != nil || math.IsInf(own, 1) || math.IsInf(to, 1):
		return nil, Rejection{Gate: GateBounds, Text: "no memory limit to move: its owner set none"}
	}
	ceiling := max(node.Ceiling(c.Enrolment, m), own) // what its owner set is its own, whatever the host has left
	floor := math.Ceil(max(m.Floor(k), c.Enrolment.Memory.Min)/grainBytes) * grainBytes
	if !c.Enrolment.BestEffort {
		floor = max(floor, own)
	}
	if ch.Take {
		to = max(to, floor)
	} else {
		to = min(to, math.Floor(ceiling/grainBytes)*grainBytes)
	}
	switch {
	case (to < now) != ch.Take || to == now:
		return nil, Rejection{Gate: GateBounds, Value: now, Threshold: ceiling, Text: fmt.Sprintf("at its memory ceiling of %.0f MiB", ceiling/(1<<20))}
	case math.Abs(to-now) < k.MinStep/2*now:
		return nil, Rejection{Gate: GateStep, Value: to, Threshold: now, Text: "nothing to gain"}
	}
	ch.To = runtime.IntValue(int64(to))
	swap, why := withSwap(c, ch)
	if why != "" {
		return nil, Rejection{Gate: GateBounds, Text: why}
	}
	return append([]policies.Change{ch}, swap...), Rejection{}
}

// withSwap is the change of v1's joint limit of memory and swap that goes with one of
// memory.limit: it keeps its distance, and the two are written together.
func withSwap(c *Container, ch policies.Change) (_ []policies.Change, why string) {
	swap, present := c.Now[runtime.KnobMemorySwap]
	if !c.V1Memory || !present {
		return nil, ""
	}
	joint, err := Bytes(swap)
	limit, errLimit := Bytes(ch.From)
	to, errTo := Bytes(ch.To)
	own, errOwn := Bytes(original(c, runtime.KnobMemorySwap))
	switch {
	case err != nil || errLimit != nil || errTo != nil || errOwn != nil:
		return nil, "memory.swap cannot be read"
	case math.IsInf(joint, 1) || math.IsInf(limit, 1):
		return nil, "" // nothing that the limit could meet
	}
	next := joint + to - limit
	if !c.Enrolment.BestEffort {
		next = max(next, own)
	}
	value := runtime.IntValue(int64(max(next, to)))
	switch {
	case value == swap:
		return nil, ""
	case slices.Contains(c.Yielded, runtime.KnobMemorySwap):
		return nil, "memory.swap counts memory too, and was set by somebody else"
	}
	return []policies.Change{{Key: ch.Key, Name: ch.Name, Knob: runtime.KnobMemorySwap, From: swap, To: value, Take: ch.Take, Criterion: ch.Criterion,
		Reason: "it counts memory and swap together, and keeps its distance to memory.limit"}}, ""
}

// Bytes reads an amount of memory; no limit is infinite.
func Bytes(v runtime.Value) (float64, error) {
	if v == runtime.ValueMax {
		return math.Inf(1), nil
	}
	n, ok := v.Int()
	if !ok || n < 0 {
		return 0, fmt.Errorf("memory %q cannot be read", v)
	}
	return float64(n), nil
}
