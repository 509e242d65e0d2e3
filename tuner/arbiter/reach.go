package arbiter

import (
	"cmp"
	"slices"
)

// Reach returns the CPUs that each claim could come to as weights stand, if it alone
// wanted all it can get: what others leave idle, and its weighted part of what they take
// beyond theirs. It is Shares for one claim after the other without a limit, in n log n.
func Reach(cpus float64, claims []Claim) []float64 {
	n := len(claims)
	out := make([]float64, n)
	if !(cpus > 0) {
		return out
	}
	demand, order, at := make([]float64, n), make([]int, n), make([]int, n)
	level := func(i int) float64 { return demand[i] / claims[i].weight() } // at which it is served
	for i, c := range claims {
		demand[i], order[i] = c.demand(c.Quota, cpus), i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(level(a), level(b)) })
	served, open := make([]float64, n+1), make([]float64, n+1) // demands of the first k, weights of the rest
	for k, i := range order {
		at[i], served[k+1] = k, served[k]+demand[i]
	}
	for k := n - 1; k >= 0; k-- {
		open[k] = open[k+1] + claims[order[k]].weight()
	}
	for i, c := range claims {
		// takes is what all take at a level at which the first k are served, claim i never.
		takes := func(l float64, k int) float64 {
			sum := served[k] + l*open[k]
			if at[i] < k {
				sum += l*c.weight() - demand[i]
			}
			return sum
		}
		k, _ := slices.BinarySearchFunc(order, cpus, func(other int, cpus float64) int {
			l := level(other)
			return cmp.Compare(takes(l, at[other]+1), cpus)
		})
		rest, weight := cpus-served[k], open[k]
		if at[i] < k {
			rest, weight = rest+demand[i], weight+c.weight()
		}
		if weight > 0 {
			out[i] = min(cpus, max(0, rest/weight*c.weight()))
		}
	}
	return out
}
