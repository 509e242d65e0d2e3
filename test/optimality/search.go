package main

import (
	"cmp"
	"fmt"
	goruntime "runtime"
	"slices"

	"github.com/trimtab/trimtab/runtime"
)

// candidate is a static allocation and what it came to.
type candidate struct {
	name       string
	alloc      alloc
	sum        float64   // of normalised rates, mean of its evaluations
	normalised []float64 // of the latest one
	cpus       []float64
	fair       bool // nobody was left below its entitlement
	looks      int
}

// How the best static allocation is looked for: evaluations are short, so the best of
// them are measured again before one is chosen, and the winner is measured once more,
// on fresh runs beside the policies. A job that an evaluation finds below unfair of its
// entitlement rules the allocation out; the bound leaves room for a short look's noise.
const (
	finalists = 2    // that are measured again
	believed  = 1.01 // the least improvement that moves the base
	unfair    = 0.93
	heavier   = 8 // times a weight
	capped    = 0.85
)

// search looks for the best static allocation, with budget looks before the finals: the starts, then one change of one job
// after the other from the best so far, what matters most first.
func search(m mix, budget int, starts []candidate, eval func(*candidate) error) (best candidate, looked int, err error) {
	var seen []candidate
	for _, c := range starts {
		if err := eval(&c); err != nil {
			return best, looked, err
		}
		looked++
		seen = append(seen, c)
	}
	base := bestOf(seen)
	for tried := map[string]bool{}; looked < budget; {
		next, ok := nextMove(m, base, tried)
		if !ok {
			break
		}
		tried[next.name] = true
		if err := eval(&next); err != nil {
			return best, looked, err
		}
		looked++
		seen = append(seen, next)
		if next.fair && next.sum > base.sum*believed {
			base = next
		}
	}
	slices.SortStableFunc(seen, better)
	seen = seen[:min(finalists, len(seen))]
	for i := range seen {
		if err := eval(&seen[i]); err != nil {
			return best, looked, err
		}
		looked++
	}
	return bestOf(seen), looked, nil
}

// better orders fair allocations before unfair ones, then by their sums.
func better(a, b candidate) int {
	if a.fair != b.fair {
		if a.fair {
			return -1
		}
		return 1
	}
	return cmp.Compare(b.sum, a.sum)
}

func bestOf(all []candidate) candidate {
	return slices.MinFunc(all, better)
}

// nextMove is the first move from a base that was not tried yet: more weight for the
// job furthest from its speed alone, then for the next; a cap on the one that uses most,
// so that others wait less; less weight for it.
func nextMove(m mix, base candidate, tried map[string]bool) (candidate, bool) {
	var order []int
	for i, j := range m.jobs {
		if !j.stranger {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(base.normalised[a], base.normalised[b]) })
	greedy := slices.MaxFunc(order, func(a, b int) int { return cmp.Compare(base.cpus[a], base.cpus[b]) })
	moves := []candidate{
		change(base, m, order[0], runtime.KnobCPUWeight, times(base.alloc[order[0]], heavier)),
		change(base, m, greedy, runtime.KnobCPUQuota, runtime.QuotaFromCPUs(max(0.05, capped*base.cpus[greedy]), runtime.DefaultPeriodUs)),
		change(base, m, greedy, runtime.KnobCPUWeight, times(base.alloc[greedy], 1.0/heavier)),
	}
	for _, i := range order[1:] {
		moves = append(moves, change(base, m, i, runtime.KnobCPUWeight, times(base.alloc[i], heavier)))
	}
	for _, c := range moves {
		if !tried[c.name] {
			return c, true
		}
	}
	return candidate{}, false
}

func times(v runtime.Values, factor float64) runtime.Value {
	w, _ := v[runtime.KnobCPUWeight].Int()
	return runtime.IntValue(max(2, int64(float64(w)*factor)))
}

func change(base candidate, m mix, i int, k runtime.Knob, v runtime.Value) candidate {
	a := make(alloc, len(base.alloc))
	for n := range a {
		a[n] = base.alloc[n].Clone()
	}
	a[i][k] = v
	return candidate{name: fmt.Sprintf("%s, %s %s %s", base.name, m.jobs[i].name, k, v), alloc: a}
}

// starts are the allocations that the search begins from: the owner's equal shares, no
// quotas and equal weights, and the same with memory enough where some job has too little.
// With what jobs used alone, one more: the model's best where CPUs are short, which is
// more weight to who needs less, since it is whole with little.
func starts(m mix, owner alloc, needs []float64) []candidate {
	free, wide := make(alloc, len(owner)), make(alloc, len(owner))
	hasWide := false
	for i, j := range m.jobs {
		free[i] = only(owner[i])
		if !j.stranger {
			free[i][runtime.KnobCPUQuota] = runtime.Quota(-1, runtime.DefaultPeriodUs)
		}
		wide[i] = free[i].Clone()
		if j.wideMiB > 0 {
			hasWide = true
			bytes := runtime.IntValue(int64(j.wideMiB) << 20)
			wide[i][runtime.KnobMemoryLimit], wide[i][runtime.KnobMemorySwap] = bytes, bytes
		}
	}
	static := make(alloc, len(owner))
	for i := range owner {
		static[i] = only(owner[i])
	}
	out := []candidate{{name: "equal shares", alloc: static}, {name: "no quotas", alloc: free}}
	if hasWide {
		out = append(out, candidate{name: "no quotas, memory enough", alloc: wide})
	}
	if needs == nil {
		return out
	}
	last := out[len(out)-1]
	small := candidate{name: last.name + ", small needs first", alloc: make(alloc, len(owner))}
	for i, j := range m.jobs {
		if small.alloc[i] = last.alloc[i].Clone(); !j.stranger {
			small.alloc[i][runtime.KnobCPUWeight] = times(last.alloc[i], min(heavier, 1/max(needs[i], 0.01)))
		}
	}
	return append(out, small)
}

// only keeps the knobs that an allocation is about.
func only(v runtime.Values) runtime.Values {
	out := runtime.Values{}
	for _, k := range []runtime.Knob{runtime.KnobCPUQuota, runtime.KnobCPUWeight, runtime.KnobMemoryLimit, runtime.KnobMemorySwap} {
		if x, ok := v[k]; ok {
			out[k] = x
		}
	}
	return out
}

// cpus is the machine's.
func cpus() float64 { return float64(goruntime.NumCPU()) }
