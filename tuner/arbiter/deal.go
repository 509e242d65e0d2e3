package arbiter

import (
	"container/heap"

	"github.com/trimtab/trimtab/policies"
)

// maxUnits bounds the work of one plan; a larger surplus is dealt in larger units.
const maxUnits = 4096

// held is what one job holds while the surplus is dealt.
type held struct {
	at         int // its claim
	c          Claim
	cpus, need float64
	// dominant is how many times the share of the node that a unit of CPU is, one costs with
	// the memory that goes with it.
	dominant float64
	bid      float64
}

// dominant is the larger of a job's shares of the node over that of the CPUs alone that it
// needs beyond what it holds. Memory is not dealt by it: that is given whole, or not at all.
func dominant(c Claim, more float64) float64 {
	if c.Beside <= more || !(more > 0) {
		return 1
	}
	return c.Beside / more
}

// deal hands out what is left after everybody's base, unit by unit: to the largest
// gain of normalised rate for the share of the node that a unit is, of CPUs or of the memory
// that goes with them, whichever is larger, or to the job that is worst off.
type deal struct {
	p     Params
	cpus  float64 // left
	unit  float64
	all   float64 // of the node, for shares
	queue []*held
}

// Len, Less, Swap, Push and Pop make deal a heap of bids.
func (d *deal) Len() int { return len(d.queue) }

// Less orders by bid; equal bids by the order of claims, so that a plan is the same
// each time.
func (d *deal) Less(i, j int) bool {
	a, b := d.queue[i], d.queue[j]
	if a.bid != b.bid {
		return a.bid > b.bid
	}
	return a.at < b.at
}

// Swap implements heap.Interface.
func (d *deal) Swap(i, j int) { d.queue[i], d.queue[j] = d.queue[j], d.queue[i] }

// Push implements heap.Interface.
func (d *deal) Push(x any) { d.queue = append(d.queue, x.(*held)) }

// Pop implements heap.Interface.
func (d *deal) Pop() any {
	h := d.queue[len(d.queue)-1]
	d.queue = d.queue[:len(d.queue)-1]
	return h
}

// run deals until nothing is left, or nobody gains.
func (d *deal) run(all []*held) {
	for _, h := range all {
		if d.bids(h) {
			d.queue = append(d.queue, h)
		}
	}
	heap.Init(d)
	for len(d.queue) > 0 {
		h := d.queue[0]
		give := min(d.unit, h.need-h.cpus, d.cpus)
		h.cpus, d.cpus = h.cpus+give, d.cpus-give
		if d.bids(h) {
			heap.Fix(d, 0)
		} else {
			heap.Pop(d)
		}
	}
}

// least is the smallest part of a unit worth dealing.
const least = 1e-6

// evenness prefers, among jobs that gain about the same, the one that is worse off:
// what is learnt of two like jobs differs by so much.
const evenness = 0.2

// bids sets what a job bids for its next unit; false if it takes no more.
func (d *deal) bids(h *held) bool {
	gain := steepest(h.c.CPU, h.cpus, h.need)
	if d.cpus <= least*d.unit || h.need-h.cpus <= least*d.unit || !(gain > 0) {
		return false
	}
	level := h.c.rate(h.cpus)
	if d.p.Objective == policies.ObjectiveMaxMin {
		h.bid = -level / h.c.importance()
	} else {
		h.bid = gain * d.all * h.c.importance() * (1 + evenness*(1-level)) / h.dominant
	}
	return true
}

// steepest is the largest mean gain of normalised rate per amount from x on, over any
// stretch up to most: a curve that is flat at first may still be worth climbing.
func steepest(c policies.Curve, x, most float64) float64 {
	from, _, _ := c.At(x)
	best := 0.0
	try := func(at float64) {
		if at > x*(1+1e-9) {
			to, _, _ := c.At(at)
			best = max(best, (to-from)/(at-x))
		}
	}
	for _, p := range c.Points {
		if p.X < most {
			try(p.X)
		}
	}
	try(most)
	if top := c.Best(); top > 0 {
		return best / top
	}
	return 0
}
