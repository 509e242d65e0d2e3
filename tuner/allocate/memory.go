package allocate

import (
	"cmp"
	"slices"
)

// Raise is a memory limit that is to be raised.
type Raise struct {
	Bytes float64 // beyond what stands
	// Protects: the container grows into its limit. Else it reads again what that evicted.
	Protects   bool
	Gain       float64 // predicted, of its rate
	Importance int
}

// Memory divides what is free of the node's memory among raises, bytes for each. What protects
// goes first. The rest is not divided in units as CPUs are, since a cache that holds a part of
// what is read round and round keeps nothing of it: the largest gain for its bytes has all first.
func Memory(free float64, raises []Raise) []float64 {
	order := make([]int, len(raises))
	for i := range raises {
		order[i] = i
	}
	worth := func(r Raise) float64 { return (1 + r.Gain) * float64(cmp.Or(r.Importance, 5)) / max(r.Bytes, 1) }
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := raises[a], raises[b]
		if x.Protects != y.Protects {
			if x.Protects {
				return -1
			}
			return 1
		}
		return cmp.Compare(worth(y), worth(x))
	})
	out := make([]float64, len(raises))
	left := max(free, 0)
	for _, i := range order {
		out[i] = min(raises[i].Bytes, left)
		left -= out[i]
	}
	return out
}
