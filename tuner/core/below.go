package core

import (
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// Whatever bounds a container's memory below its owner's value is watched as long as
// it stands, and goes back to the owner's when it bites. It is found by what stands, not
// by the order that set it: an order's own watch ends when a later one moves the knob on,
// and with the daemon that gave it.

// bounds are the knobs that what a container holds can run into.
func bounds(k runtime.Knob) bool {
	return k == runtime.KnobMemoryLimit || k == runtime.KnobMemoryHigh || k == runtime.KnobMemorySwap
}

// below is the take that a container's standing values amount to; without changes if
// there is none to watch.
func (c *Core) below(j *job) Order {
	var o Order
	key := j.key
	if len(j.c.Original) == 0 || j.c.Held || j.c.Busy || j.c.Owed != "" || c.watchedAlready(key) {
		return o
	}
	for _, k := range runtime.Knobs() {
		original, changed := j.c.Original[k]
		stands := j.c.Now[k]
		if !bounds(k) || !changed || slices.Contains(j.c.Yielded, k) || !lower(stands, original) {
			continue
		}
		o.Changes = append(o.Changes, policies.Change{Key: key, Name: j.c.Name, Knob: k, From: original, To: stands, Take: true, Witness: policies.WitnessHarm})
	}
	return o
}

// TookMemory reports whether memory that was taken stands, on trial or kept: it must be
// looked at each tick, whatever that costs.
func (c *Core) TookMemory() bool {
	for _, key := range c.keys() {
		if c.watchedAlready(key) || len(c.below(c.jobs[key]).Changes) > 0 {
			return true
		}
	}
	return false
}

// watchedAlready: a trial that took memory of it is open, or the watch of one that was kept stands.
func (c *Core) watchedAlready(key string) bool {
	took := func(o Order) bool {
		return slices.ContainsFunc(o.Changes, func(ch policies.Change) bool { return ch.Key == key && tookMemory(ch) })
	}
	for _, t := range c.trials {
		if took(t.order) {
			return true
		}
	}
	for _, s := range c.standing {
		if took(s.order) {
			return true
		}
	}
	return false
}

// ownersBack makes the way back of an order that bites end no lower than the owner's:
// what stood before it may be a take as well.
func (c *Core) ownersBack(o Order) Order {
	o.Changes = slices.Clone(o.Changes)
	for i, ch := range o.Changes {
		if j := c.jobs[ch.Key]; j != nil && bounds(ch.Knob) && lower(ch.From, j.original(ch.Knob)) {
			o.Changes[i].From = j.original(ch.Knob)
		}
	}
	return o
}

// lower reports whether an amount is below another; what cannot be read is not.
func lower(a, b runtime.Value) bool {
	x, errX := bytesOf(a)
	y, errY := bytesOf(b)
	return errX == nil && errY == nil && x < y
}

// ceiling is the most memory that a container may be given: what its owner set is its
// own, whatever the host has left.
func (c *Core) ceiling(j *job) float64 {
	ceiling := c.node.Ceiling(j.c.Enrolment, c.memoryUse(j))
	if original, err := bytesOf(j.original(runtime.KnobMemoryLimit)); err == nil {
		ceiling = max(ceiling, original)
	}
	return ceiling
}
