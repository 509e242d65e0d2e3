package core

import (
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/arbiter"
)

// dealMemory settles who gets what is free of the host's memory where several limits
// are to be raised at one time: raises change places by what the arbiter says, and are
// cut to what they are given. All other plans stay where they are. What is free is less
// the reserve and what raised limits may still take; what the host and containers that
// nobody enrolled hold is not free in the first place.
func (c *Core) dealMemory(plans []policies.Plan) []policies.Plan {
	var at []int
	var raises []arbiter.Raise
	for i, p := range plans {
		if r, ok := c.raise(p); ok {
			at, raises = append(at, i), append(raises, r)
		}
	}
	if len(raises) < 2 {
		return plans // the guard alone holds one within what is free
	}
	bytes, order := arbiter.DealMemory(c.params(), c.node.MemoryFree, raises)
	out := append([]policies.Plan(nil), plans...)
	for k, i := range order {
		out[at[k]] = c.cut(plans[at[i]], raises[i], bytes[i])
	}
	return out
}

// raise is what a plan asks of the node's memory; false if it raises no limit, or that of
// a container that is only observed.
func (c *Core) raise(p policies.Plan) (arbiter.Raise, bool) {
	i := slices.IndexFunc(p.Changes, givesMemory)
	if i < 0 || c.jobs[p.Changes[i].Key] == nil {
		return arbiter.Raise{}, false
	}
	ch := p.Changes[i]
	j := c.jobs[ch.Key]
	to, err := bytesOf(ch.To)
	if err != nil || math.IsInf(to, 1) || j.c.Enrolment.Mode != policies.ModeTune {
		return arbiter.Raise{}, false
	}
	own, current := c.ownMemory(j, ch), c.memoryUse(j).Current
	r := arbiter.Raise{Bytes: max(0, to-current), Own: max(0, min(own, to)-current), Protects: ch.Witness == policies.WitnessHarm, Growth: j.growth(), Gain: ch.Gain,
		Importance: j.c.Enrolment.Importance}
	for _, other := range p.Changes {
		from, limited := other.From.CPUs()
		if to, ok := other.To.CPUs(); ok && limited && other.Knob == runtime.KnobCPUQuota && c.node.CPUs > 0 {
			r.Beside, r.Gain = max(0, to-from)/c.node.CPUs*c.node.Memory, (1+r.Gain)*(1+other.Gain)-1
		}
	}
	return r, true
}

// shareOfMemory is the part of the node's memory that a raise lets a container use beyond
// what it uses.
func (c *Core) shareOfMemory(ch policies.Change) float64 {
	to, err := bytesOf(ch.To)
	if err != nil || math.IsInf(to, 1) || !(c.node.Memory > 0) {
		return 0
	}
	return max(0, to-c.memoryUse(c.jobs[ch.Key]).Current) / c.node.Memory
}

// ownMemory is the limit that a container may have whatever others want: what stands, or
// what its owner set.
func (c *Core) ownMemory(j *job, ch policies.Change) float64 {
	own := 0.0
	for _, v := range []runtime.Value{ch.From, j.original(runtime.KnobMemoryLimit)} {
		if n, err := bytesOf(v); err == nil {
			own = max(own, n)
		}
	}
	return own
}

// cut lowers a raise to the bytes that it is given, and its gain with it; the plan is
// without it if too little is left of it.
func (c *Core) cut(p policies.Plan, r arbiter.Raise, bytes float64) policies.Plan {
	if bytes >= r.Bytes {
		return p
	}
	i := slices.IndexFunc(p.Changes, givesMemory)
	p.Changes = slices.Clone(p.Changes)
	ch := p.Changes[i]
	j := c.jobs[ch.Key]
	from, errFrom := bytesOf(ch.From)
	asked, errAsked := bytesOf(ch.To)
	to := math.Floor((c.memoryUse(j).Current+bytes)/grainBytes) * grainBytes
	to = max(to, min(c.ownMemory(j, ch), asked))
	gain, small := 0.0, errFrom != nil || errAsked != nil || to < (1+minMemoryStep)*from
	if !small {
		gain = c.gainOf(j, ch, from, to, asked)
		small = ch.Witness == "" && gain < arbiter.Defaults().MinGain
	}
	if small {
		j.whyNot = "what is free of the host's memory goes to others first"
		p.Changes = slices.Delete(p.Changes, i, i+1)
		return p
	}
	ch.To, ch.Gain, ch.RateAfter = runtime.IntValue(int64(to)), gain, ch.RateAfter*(1+gain)/(1+ch.Gain)
	p.Changes[i] = ch
	return p
}

// gainOf is what a raise brings that is cut: its part of what was asked, as that is mostly
// more than is needed. Where it was measured how much is enough, less is worth what the
// curve is sure of: a set that is gone through round and round gains nothing of a part.
func (c *Core) gainOf(j *job, ch policies.Change, from, to, asked float64) float64 {
	gain := ch.Gain * (to - from) / (asked - from)
	now, _, _ := j.byMemory.At(from)
	if p := j.paging.Paging; ch.Witness == "" && p.Enough && to < p.Set && now > 0 {
		_, low, _ := j.byMemory.At(to)
		gain = min(gain, low/now-1)
	}
	return gain
}
