package arbiter

import (
	"cmp"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
)

// Raise is a memory limit that a policy wants raised.
type Raise struct {
	Bytes float64 // beyond what it uses, to the limit that is asked for
	Own   float64 // likewise, to the limit that stands or that its owner set: it may have that anyway
	// Beside is the CPUs that it is to be given in the same plan, as the bytes that are as large
	// a share of the node; Gain is then that of both.
	Beside float64
	// Protects: it grows into its limit, by Growth bytes a second. Else it reads again what
	// its limit evicted, and Gain is the predicted gain of its rate.
	Protects   bool
	Growth     float64
	Gain       float64
	Importance int
}

// worth orders raises that do not protect: the largest is served first.
func (r Raise) worth(o policies.Objective) float64 {
	level := 1 / (1 + max(r.Gain, 0)) // what it reaches now of what it would
	importance := Claim{Importance: r.Importance}.importance()
	switch {
	case !(r.Bytes > r.Own):
		return math.Inf(1)
	case o == policies.ObjectiveMaxMin:
		return -level / importance
	}
	return (1 - level) * importance / max(r.Bytes-r.Own, r.Beside) // by its dominant share
}

// DealMemory deals what is free of the node's memory among the raises asked for at one
// time: bytes for each beyond what it uses, and the order in which they are to be made.
// What protects goes first, and where it is short those jobs meet their limits after
// equal times, longer by importance. What is left is not dealt in units as CPUs are: a cache that holds
// a part of what is read round and round keeps nothing of it. So it goes to one job after
// the other, the largest gain for its bytes first, or whoever is worst off.
func DealMemory(p Params, free float64, raises []Raise) (bytes []float64, order []int) {
	n := len(raises)
	bytes, order = make([]float64, n), make([]int, n)
	low, high, weight := make([]float64, n), make([]float64, n), make([]float64, n)
	for i, r := range raises {
		order[i], weight[i] = i, 1
		if r.Protects {
			low[i], high[i], weight[i] = min(r.Own, r.Bytes), r.Bytes, max(r.Growth, 1)*Claim{Importance: r.Importance}.importance()
		}
	}
	left := max(free, 0)
	protect, _ := fill(left, low, high, weight)
	for _, b := range protect {
		left -= b
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := raises[a], raises[b]
		if x.Protects != y.Protects {
			if x.Protects {
				return -1
			}
			return 1
		}
		if x.Protects {
			return 0
		}
		return cmp.Compare(y.worth(p.Objective), x.worth(p.Objective))
	})
	for _, i := range order {
		if bytes[i] = protect[i]; !raises[i].Protects {
			bytes[i] = min(raises[i].Bytes, max(left, 0))
			left -= bytes[i]
		}
	}
	return bytes, order
}
