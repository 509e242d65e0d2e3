package core

import (
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// promised is what raised limits may still take of the host's memory: it reads as
// available until it is used, and must not be given twice. What an owner allows
// is not trimtab's promise.
func (c *Core) promised() float64 {
	sum := 0.0
	for _, key := range c.keys() {
		j := c.jobs[key]
		original, err := bytesOf(j.original(runtime.KnobMemoryLimit))
		limit := c.limitSoon(j)
		if err != nil || math.IsInf(original, 1) || math.IsInf(limit, 1) {
			continue
		}
		sum += max(0, limit-max(original, c.memoryUse(j).Current))
	}
	return sum
}

// limitSoon is the limit that stands, or the higher one that is on its way.
func (c *Core) limitSoon(j *job) float64 {
	limit, err := bytesOf(j.c.Now[runtime.KnobMemoryLimit])
	if err != nil {
		return 0
	}
	for _, t := range c.trials {
		for _, ch := range t.order.Changes {
			if to, err := bytesOf(ch.To); t.appliedNs == 0 && ch.Key == j.key && givesMemory(ch) && err == nil {
				limit = max(limit, to)
			}
		}
	}
	return limit
}

func givesMemory(ch policies.Change) bool { return ch.Knob == runtime.KnobMemoryLimit && !ch.Take }

// promise takes a plan's raises off what is left for those decided on after it.
func (c *Core) promise(p policies.Plan) {
	for _, ch := range p.Changes {
		from, errFrom := bytesOf(ch.From)
		to, errTo := bytesOf(ch.To)
		if givesMemory(ch) && errFrom == nil && errTo == nil && !math.IsInf(to, 1) {
			c.node.MemoryFree -= max(0, to-from)
		}
	}
}
