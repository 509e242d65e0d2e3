package place

import (
	"cmp"
	"math"
	"slices"
)

// Times is how many seconds each job takes on each device: by job, then by device. What
// is no number above 0 (+Inf, NaN, 0) says that it cannot run there. All rows are as
// long as there are devices.
type Times [][]float64

func (t Times) at(job, device int) float64 {
	if s := t[job][device]; s > 0 {
		return s
	}
	return math.Inf(1)
}

// least is a job's time on the device that suits it best; +Inf: none does.
func (t Times) least(job int) float64 {
	out := math.Inf(1)
	for d := range t[job] {
		out = min(out, t.at(job, d))
	}
	return out
}

// Assignment divides jobs among devices, one at a time on each.
type Assignment struct {
	On   []int     // device by job; -1: no device can run it
	Jobs [][]int   // by device, in the order of their starts
	Ends []float64 // by device: seconds from now until it is free again
}

// Makespan is the seconds until the last device is free.
func (a Assignment) Makespan() float64 {
	if len(a.Ends) == 0 {
		return 0
	}
	return slices.Max(a.Ends)
}

// FirstCome gives the next job to the device that is free first; ready is in how many
// seconds each is free, 0 at the least.
func FirstCome(t Times, ready []float64) Assignment {
	return FastestFirst(t, ready, make([]float64, len(ready)))
}

// FastestFirst gives the next job to the device that is free first, the fastest of those
// by speed, in any unit, where several are.
func FastestFirst(t Times, ready, speed []float64) Assignment {
	return greedy(t, ready, asListed, func(a Assignment, _, d, than int) bool {
		return a.Ends[d] < a.Ends[than] || a.Ends[d] == a.Ends[than] && speed[d] > speed[than]
	})
}

// Shortest divides jobs so that the last ends soon. The longest go first, each to where it
// ends first (Graham 1969; LPT); then jobs are moved and swapped for as long as that
// shortens the makespan. Of several orders to begin with the best is kept. It is not proven
// to be the shortest: see Bound. On a device the longest jobs start first, so that what
// turns out otherwise can be made up for by the short ones.
func Shortest(t Times, ready []float64) Assignment {
	var best Assignment
	for i, first := range []func(j int) float64{t.least, t.regret, asListed} {
		a := listed(t, ready, first)
		for range maxMoves {
			if !a.better(t) {
				break
			}
		}
		if i == 0 || a.Makespan() < best.Makespan() {
			best = a
		}
	}
	best.Jobs = make([][]int, len(ready))
	for j, d := range best.On {
		if d >= 0 {
			best.Jobs[d] = append(best.Jobs[d], j)
		}
	}
	for d, jobs := range best.Jobs {
		slices.SortStableFunc(jobs, func(x, y int) int { return cmp.Compare(t.at(y, d), t.at(x, d)) })
	}
	return best
}

// Careful are the times to divide jobs by whose times are uncertain: the expected ones, but the longest
// that are likely on a device that is expected to take longer than the job takes for sure elsewhere.
// One long job on a device that is slower than was thought is what ends last; one on a device that is
// less fast than was thought costs little.
func Careful(expected, longest Times) Times {
	out := make(Times, len(expected))
	for j := range expected {
		out[j] = slices.Clone(expected[j])
		for d := range out[j] {
			if expected.at(j, d) > longest.least(j) {
				out[j][d] = max(expected.at(j, d), longest.at(j, d))
			}
		}
	}
	return out
}

// maxMoves bounds the search; a hundred jobs need less than a hundred moves.
const maxMoves = 10000

// regret is what a job loses on the second best device.
func (t Times) regret(job int) float64 {
	best, second := math.Inf(1), math.Inf(1)
	for d := range t[job] {
		if s := t.at(job, d); s < best {
			best, second = s, best
		} else if s > best && s < second {
			second = s
		}
	}
	if math.IsInf(second, 1) {
		return best
	}
	return second - best
}

// asListed leaves jobs in their order.
func asListed(job int) float64 { return -float64(job) }

// listed assigns jobs in order, those of which first is the most at the start, each to the
// device on which it ends first.
func listed(t Times, ready []float64, first func(j int) float64) Assignment {
	return greedy(t, ready, first, func(a Assignment, j, d, than int) bool {
		return a.Ends[d]+t.at(j, d) < a.Ends[than]+t.at(j, than)
	})
}

// greedy assigns jobs in order, those of which first is the most at the start, each to the best of the
// devices that can run it.
func greedy(t Times, ready []float64, first func(j int) float64, better func(a Assignment, j, d, than int) bool) Assignment {
	a := Assignment{On: slices.Repeat([]int{-1}, len(t)), Jobs: make([][]int, len(ready)), Ends: slices.Clone(ready)}
	order := make([]int, len(t))
	for j := range order {
		order[j] = j
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(first(y), first(x)) })
	for _, j := range order {
		best := -1
		for d := range ready {
			if !math.IsInf(t.at(j, d), 1) && (best < 0 || better(a, j, d, best)) {
				best = d
			}
		}
		if best >= 0 {
			a.On[j] = best
			a.Jobs[best] = append(a.Jobs[best], j)
			a.Ends[best] += t.at(j, best)
		}
	}
	return a
}

// better makes the best move of a job, or swap of two, off the device that is free last, by
// which the later of the two devices ends the soonest; false where none shortens it.
func (a Assignment) better(t Times) bool {
	last := 0
	for d := range a.Ends {
		if a.Ends[d] > a.Ends[last] {
			last = d
		}
	}
	best, job, to, back := a.Makespan()*(1-1e-9), -1, 0, -1
	for j, on := range a.On {
		if on != last {
			continue
		}
		left := a.Ends[last] - t.at(j, last)
		for d := range a.Ends {
			if end := max(left, a.Ends[d]+t.at(j, d)); d != last && end < best {
				best, job, to, back = end, j, d, -1
			}
		}
		for k, d := range a.On {
			if d < 0 || d == last {
				continue
			}
			if end := max(left+t.at(k, last), a.Ends[d]-t.at(k, d)+t.at(j, d)); end < best {
				best, job, to, back = end, j, d, k
			}
		}
	}
	if job < 0 {
		return false
	}
	a.Ends[last] -= t.at(job, last)
	a.Ends[to] += t.at(job, to)
	a.On[job] = to
	if back >= 0 {
		a.Ends[to] -= t.at(back, to)
		a.Ends[last] += t.at(back, last)
		a.On[back] = last
	}
	return true
}

// Bound is a makespan in seconds that no assignment can be shorter than: the longest of the
// jobs' least times, and a feasible dual of the linear program that may split jobs among
// devices. For prices λ of the devices, of sum 1, that is Σ_d λ_d·ready_d + Σ_j min_d λ_d·t_jd
// (Lenstra, Shmoys and Tardos 1990). The prices are found by raising those of the devices that
// they overload (multiplicative weights). Jobs that no device can run count for nothing.
func Bound(t Times, ready []float64) float64 {
	bound := 0.0
	if len(ready) == 0 {
		return 0
	}
	for j := range t {
		end := math.Inf(1)
		for d := range ready {
			end = min(end, ready[d]+t.at(j, d))
		}
		if !math.IsInf(end, 1) {
			bound = max(bound, end)
		}
	}
	price := slices.Repeat([]float64{1 / float64(len(ready))}, len(ready))
	for round := range boundRounds {
		value, load := priced(t, ready, price)
		bound = max(bound, value)
		most := slices.Max(load)
		if most <= 0 {
			return bound
		}
		sum := 0.0
		for d := range price {
			price[d] *= math.Exp(load[d] / most / math.Sqrt(float64(round+1)))
			sum += price[d]
		}
		for d := range price {
			price[d] /= sum
		}
	}
	return bound
}

const boundRounds = 500

// priced sends each job to where it is the cheapest: what that costs, and each device's seconds.
func priced(t Times, ready, price []float64) (value float64, load []float64) {
	load = slices.Clone(ready)
	for d, s := range ready {
		value += price[d] * s
	}
	for j := range t {
		cheapest, cost := -1, math.Inf(1)
		for d := range price {
			if c := price[d] * t.at(j, d); c < cost {
				cheapest, cost = d, c
			}
		}
		if cheapest >= 0 {
			value += cost
			load[cheapest] += t.at(j, cheapest)
		}
	}
	return value, load
}
