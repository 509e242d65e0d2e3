package policies

import (
	"cmp"
	"slices"
)

// The kernel's dealing of CPUs, as a fluid: by weight, each up to what it would use under its
// quota. The trap: a job's share is not its weight's part of the whole. Who needs less leaves
// the rest to all others; see Fill.

// Claim is one container as CPUs are dealt.
type Claim struct {
	Weight float64 // that its share is dealt by
	Quota  float64 // CPUs; 0: none
	Proven float64 // a quota, CPUs, that a trial proves, or has proved, to be worth what others miss; 0: none
	Floor  float64 // CPUs that its owner asked for at least; 0: none
	Demand float64 // CPUs that it would use
	Active bool    // it uses CPU, so that it competes
	GPUs   float64 // really used; enrolled jobs with more have a right to more of what these have together
	Tuned  bool    // enrolled to be changed
}

// Fill deals a capacity among claims by weight, each between its low and its high: what the
// kernel does with those that want high. lows that exceed the capacity are cut in
// proportion. level is the CPUs for a unit of weight that those get who are bounded by nothing
// else; 0 where nobody is.
func Fill(capacity float64, low, high, weight []float64) (out []float64, level float64) {
	out = make([]float64, len(low))
	var lows, highs, top float64
	for i := range low {
		h := max(high[i], low[i])
		lows += low[i]
		highs += h
		top = max(top, h/weight[i])
	}
	switch {
	case !(capacity > 0):
		return out, 0
	case lows > capacity:
		for i := range low {
			out[i] = low[i] * capacity / lows
		}
		return out, 0
	case highs <= capacity:
		for i := range low {
			out[i] = max(high[i], low[i])
		}
		return out, 0
	}
	from, to := 0.0, top
	for range 60 { // halving: enough for every bit that matters
		middle, sum := (from+to)/2, 0.0
		for i := range low {
			sum += min(max(middle*weight[i], low[i]), max(high[i], low[i]))
		}
		if sum > capacity {
			to = middle
		} else {
			from = middle
		}
	}
	for i := range low {
		out[i] = min(max(from*weight[i], low[i]), max(high[i], low[i]))
	}
	return out, from
}

// Shares returns the CPUs that each claim gets as the kernel deals them.
func Shares(cpus float64, claims []Claim) []float64 {
	n := len(claims)
	low, high, weight := make([]float64, n), make([]float64, n), make([]float64, n)
	for i, c := range claims {
		high[i], weight[i] = min(c.Demand, max(cpus, 0)), max(c.Weight, 1e-9)
		if c.Quota > 0 {
			high[i] = min(high[i], c.Quota)
		}
	}
	out, _ := Fill(cpus, low, high, weight)
	return out
}

// Rights returns the CPUs that each claim has a right to: what it would get if all active ones
// wanted all they may, by the owners' weights and quotas, and its floor at least. What a proven
// quota takes comes from those who have no quota, and only of what others' quotas leave them
// beyond their share by weight.
// Among tuned jobs those with more GPUs in use have a right to more of what tuned jobs have
// together; nobody else loses by it.
//
// The rights never sum above the machine: where the floors do, each is cut in proportion. level
// is as Fill's.
func Rights(cpus float64, claims []Claim) (rights []float64, level float64) {
	n := len(claims)
	rights = make([]float64, n)
	if !(cpus > 0) {
		return rights, 0
	}
	weight, sum := worth(claims)
	low, high, proven := make([]float64, n), make([]float64, n), make([]float64, n)
	for i, c := range claims {
		if c.Active {
			low[i], high[i] = min(c.Floor, cpus), cpus
			if c.Quota > 0 {
				high[i] = max(min(c.Quota, cpus), low[i])
			}
		}
		proven[i] = max(high[i], c.Proven)
	}
	dealt, level := Fill(cpus, low, high, weight)
	left := dealt
	if !slices.Equal(proven, high) {
		left, _ = Fill(cpus, low, proven, weight)
	}
	for i, c := range claims {
		switch rights[i] = cpus; { // who sleeps: as if it were alone with what it may use
		case c.Active && c.Quota > 0:
			rights[i] = dealt[i]
		case c.Active:
			rights[i] = min(dealt[i], max(left[i], cpus*weight[i]/sum))
		case c.Quota > 0:
			rights[i] = max(min(cpus, c.Quota), min(c.Floor, cpus))
		}
	}
	return rights, level
}

// worth is each claim's weight as rights are dealt by it, and the sum over the active ones.
func worth(claims []Claim) (weight []float64, sum float64) {
	var plain, byGPUs float64
	for _, c := range claims {
		if c.Active {
			sum += max(c.Weight, 1)
		}
		if c.Active && c.Tuned {
			plain, byGPUs = plain+max(c.Weight, 1), byGPUs+max(c.Weight, 1)*max(1, c.GPUs)
		}
	}
	for _, c := range claims {
		w := max(c.Weight, 1)
		if c.Active && c.Tuned {
			w *= max(1, c.GPUs) * plain / byGPUs
		}
		weight = append(weight, w)
	}
	return weight, sum
}

// enough is the share of the best rate at which a job counts as served: beyond it a learned
// curve's own noise would set the need.
const enough = 0.985

// Demand is the CPUs that a job would use if it were alone, whatever its quota: by its curve,
// else what it uses in the time in which it does not wait.
func (j *Job) Demand(cpus float64) float64 {
	if j.Curve.Known() {
		if x, ok := j.Curve.Reach(enough * j.Curve.Best()); ok {
			return min(x, cpus)
		}
	}
	if waiting := max(j.CPU.Waiting, j.CPU.Lost); waiting < 0.95 {
		return min(j.CPU.Used/(1-waiting), cpus)
	}
	return cpus
}

// Reach returns the CPUs that each claim could come to as weights stand, if it alone
// wanted all it can get: what others leave idle, and its weighted part of what they take
// beyond theirs. It is Shares for one claim after the other without a limit, in n log n.
func Reach(cpus float64, claims []Claim) []float64 {
	n := len(claims)
	out := make([]float64, n)
	if !(cpus > 0) {
		return out
	}
	demand, weight, order, at := make([]float64, n), make([]float64, n), make([]int, n), make([]int, n)
	for i, c := range claims {
		demand[i], weight[i], order[i] = min(c.Demand, cpus), max(c.Weight, 1e-9), i
		if c.Quota > 0 {
			demand[i] = min(demand[i], c.Quota)
		}
	}
	level := func(i int) float64 { return demand[i] / weight[i] } // at which it is served
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(level(a), level(b)) })
	served, open := make([]float64, n+1), make([]float64, n+1) // demands of the first k, weights of the rest
	for k, i := range order {
		at[i], served[k+1] = k, served[k]+demand[i]
	}
	for k := n - 1; k >= 0; k-- {
		open[k] = open[k+1] + weight[order[k]]
	}
	for i := range claims {
		// takes is what all take at a level at which the first k are served, claim i never.
		takes := func(l float64, k int) float64 {
			sum := served[k] + l*open[k]
			if at[i] < k {
				sum += l*weight[i] - demand[i]
			}
			return sum
		}
		k, _ := slices.BinarySearchFunc(order, cpus, func(other int, cpus float64) int {
			return cmp.Compare(takes(level(other), at[other]+1), cpus)
		})
		rest, w := cpus-served[k], open[k]
		if at[i] < k {
			rest, w = rest+demand[i], w+weight[i]
		}
		if w > 0 {
			out[i] = min(cpus, max(0, rest/w*weight[i]))
		}
	}
	return out
}
