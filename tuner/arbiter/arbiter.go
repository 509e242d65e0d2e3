// Package arbiter makes one plan of a node's CPUs from what each job would make of
// them, and deals what is free of its memory. It is pure and keeps nothing between ticks: hysteresis comes
// from what stands.
//
// Everybody is first given what it needs of its entitlement; who needs less is a
// donor. What is left goes, unit after unit, to whoever makes the most of it. Weights
// are the means: quotas may sum above the machine, since under contention weights
// decide. The weights of the jobs that compete for the surplus are dealt anew among
// these jobs alone, and their sum stays what the owners made it, so no other
// container on the node is worth less than before.
//
// The trap: a job's share under contention is not its weight's part of the whole.
// Who needs less leaves the rest to all others; see fill.
package arbiter

import (
	"github.com/trimtab/trimtab/policies"
)

// Params tune the arbiter.
type Params struct {
	Objective policies.Objective
	// Unit is the least amount of CPUs that is dealt.
	Unit float64
	// MinGain is the least gain of the objective, over all jobs that want the surplus, worth moving weights.
	MinGain float64
	// MinMove is the least relative change of a weight worth a write.
	MinMove float64
	// Keep is how much of its entitlement a job is left with at least while it could use
	// more: a little above 1, so that a trial can prove it.
	Keep float64
	// WeightMax bounds a weight over, and under, its owner's.
	WeightMax float64
	// MaxChanges in one plan; 0: no such limit. Where more compete, those are dealt first that
	// would be moved most.
	MaxChanges int
}

// Defaults returns the parameters to start from.
func Defaults() Params {
	return Params{Objective: policies.ObjectiveSum, Unit: 0.05, MinGain: 0.05, MinMove: 0.1, Keep: 1.05, WeightMax: 16}
}

// Claim is one container as the arbiter sees it.
type Claim struct {
	Key, Name string
	// Movable: its weight may be dealt anew, and its curve is known. All others are taken
	// as they are.
	Movable bool
	// Returnable: its weight may go back to its owner's at this moment.
	Returnable bool
	CPU        policies.Curve
	Importance int // 1..10; 0 is 5

	Floor, Ceiling  float64 // CPUs its owner asked for at least and at most; 0: none
	OwnQuota, Quota float64 // CPUs: the owner's, and what stands; 0: none
	Want            float64 // the quota that its policy asks for; 0: what stands
	// Beside is the memory that it is to be given in the same plan, as the CPUs that are as
	// large a share of the node: what it costs the node is the larger of the two.
	Beside           float64
	OwnWeight        float64 // the owner's
	Weight           float64 // what stands
	Used             float64 // CPUs of late
	Waiting          float64 // share of time in which it would use more than it gets
	Enrolled, Active bool
	GPUs             float64 // really used
}

// Grant is what the plan holds for one claim.
type Grant struct {
	Key      string
	Entitled float64 // CPUs
	Need     float64 // CPUs beyond which more buy it nothing, within its quota and ceiling
	Now      float64 // CPUs it gets as weights and quotas stand
	CPUs     float64 // CPUs it will get
	Weight   float64 // to be set; what stands where nothing is to be moved
	Competes bool    // it needs more than it is entitled to
	Rate     float64 // over the best it could reach, 0..1; 0 where that is not known
	RateNow  float64

	wants         bool // it needs more than it is entitled to, whether or not it can be moved
	idle, unknown bool // for Why
	used          float64
	short         string
}

// Plan is what Decide answers: a grant for each claim, in their order.
type Plan struct {
	Grants []Grant
	// Move says that the grants' weights are worth setting; Release that weights must go
	// back to the owners', since somebody no longer gets what it has a right to.
	Move, Release bool
	Gain          float64 // of the objective by moving weights
	Short         bool    // floors or needs within entitlements exceed what there is
	Why           string  // why not, or what is short
}

// weight is what stands, bounded so that quotients stay finite.
func (c Claim) weight() float64 { return max(c.Weight, 1) }

func (c Claim) ownWeight() float64 { return max(c.OwnWeight, 1) }

func (c Claim) importance() float64 { return Importance(c.Importance) }

// Importance is what 1..10 weighs, 1 for 5, which 0 stands for.
func Importance(of int) float64 {
	if of <= 0 {
		return 1
	}
	return float64(min(of, 10)) / 5
}

// want is the quota after the plan.
func (c Claim) want() float64 {
	if c.Want > 0 {
		return c.Want
	}
	return c.Quota
}

// enough is the share of the best rate at which a job counts as served: beyond it a
// learnt curve's own noise would set the need.
const enough = 0.985

// allWaiting is the share of time waiting from which on what is used tells nothing of
// what would be.
const allWaiting = 0.95

// demand is the CPUs that a claim would use if it were alone, under a quota. Where no
// curve tells, what it uses is what it would use in the time that it does not wait.
func (c Claim) demand(quota, cpus float64) float64 {
	most := cpus
	if quota > 0 {
		most = min(most, quota)
	}
	if c.CPU.Known() {
		if x, ok := c.CPU.Reach(enough * c.CPU.Best()); ok {
			return min(x, most)
		}
	}
	if c.Waiting >= allWaiting {
		return most
	}
	return min(c.Used/(1-max(c.Waiting, 0)), most)
}

// need is the demand within what the owner allows.
func (c Claim) need(cpus float64) float64 {
	need := c.demand(c.want(), cpus)
	if c.Ceiling > 0 {
		need = min(need, max(c.Ceiling, c.OwnQuota))
	}
	return need
}

// rate is the normalised rate on so many CPUs; 0 if nothing is known.
func (c Claim) rate(cpus float64) float64 {
	best := c.CPU.Best()
	if !(best > 0) {
		return 0
	}
	r, _, _ := c.CPU.At(cpus)
	return r / best
}
