// Package placement simulates the placing of jobs on GPUs of several kinds, by
// Gavel's table of rates: what knowing, guessing or ignoring how fast a job is on
// each kind does to the makespan. It is pure; equal seeds give equal figures.
package placement

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Job is a configuration of the table with so much to do.
type Job struct {
	Config int     // index into the table
	Steps  float64 // to do
}

// fleet is so many GPUs of each kind; device d is of kind kinds[d].
type fleet struct{ kinds []int }

// newFleet interleaves the kinds, so that the order of devices favours none.
func newFleet(each, kinds int) fleet {
	var f fleet
	for range each {
		for k := range kinds {
			f.kinds = append(f.kinds, k)
		}
	}
	return f
}

// guess is what a rule believes: steps/s of a configuration by kind.
type guess func(config, kind int) float64

// truth is the table itself.
func truth(rates [][]float64) guess {
	return func(config, kind int) float64 { return rates[config][kind] }
}

// run is one placement as it happened: when each device ends, and who ran where.
type run struct {
	ends []float64
	on   []int // device by job
}

func (r run) makespan() float64 { return slices.Max(r.ends) }

// chooser picks, for an instant at which devices are free, the next job and its
// device among those that wait; ok is false to wait for another device to become free.
// readyS is when each device is free: now, or the end of what runs on it.
type chooser func(now float64, waiting []int, readyS []float64) (job, device int, ok bool)

// play places jobs, all there from the beginning, until all have run.
func play(f fleet, rates [][]float64, jobs []Job, choose chooser) run {
	r := run{ends: make([]float64, len(f.kinds)), on: make([]int, len(jobs))}
	waiting := make([]int, len(jobs))
	for i := range waiting {
		waiting[i] = i
	}
	now := 0.0
	for len(waiting) > 0 {
		if job, device, ok := choose(now, waiting, r.ends); ok && r.ends[device] <= now {
			r.on[job] = device
			r.ends[device] = now + jobs[job].Steps/rates[jobs[job].Config][f.kinds[device]]
			waiting = slices.DeleteFunc(waiting, func(w int) bool { return w == job })
			continue
		}
		next := math.Inf(1)
		for _, end := range r.ends {
			if end > now {
				next = min(next, end)
			}
		}
		if math.IsInf(next, 1) {
			return r // a rule that places nothing though all is free: its makespan is short of jobs, and the tests see it
		}
		now = next
		for d := range r.ends {
			r.ends[d] = max(r.ends[d], now) // free since; it cannot begin in the past
		}
	}
	return r
}

// firstCome gives the next job to the next free device, whatever its kind.
func firstCome(now float64, waiting []int, readyS []float64) (int, int, bool) {
	for d, at := range readyS {
		if at <= now {
			return waiting[0], d, true
		}
	}
	return 0, 0, false
}

// random gives the next job to one of the free devices.
func random(draw *rand.Rand) chooser {
	return func(now float64, waiting []int, readyS []float64) (int, int, bool) {
		var free []int
		for d, at := range readyS {
			if at <= now {
				free = append(free, d)
			}
		}
		if len(free) == 0 {
			return 0, 0, false
		}
		return waiting[0], free[draw.IntN(len(free))], true
	}
}

// fastestFirst gives the next job to the free device of the kind that is nominally
// the fastest.
func fastestFirst(f fleet, nominal []float64) chooser {
	return func(now float64, waiting []int, readyS []float64) (int, int, bool) {
		best := -1
		for d, at := range readyS {
			if at <= now && (best < 0 || nominal[f.kinds[d]] > nominal[f.kinds[best]]) {
				best = d
			}
		}
		return waiting[0], best, best >= 0
	}
}

// earliest plans all that wait, in order, each where it is believed to finish first,
// and begins what is planned for a free device. What runs shows its true rate, so
// ends of running jobs are known. Planned anew at each end.
func earliest(f fleet, jobs []Job, believed guess) chooser {
	return func(now float64, waiting []int, readyS []float64) (int, int, bool) {
		ready := slices.Clone(readyS)
		for _, j := range waiting {
			best, bestEnd := -1, math.Inf(1)
			for d, at := range ready {
				if end := max(at, now) + jobs[j].Steps/believed(jobs[j].Config, f.kinds[d]); end < bestEnd {
					best, bestEnd = d, end
				}
			}
			if best < 0 {
				return 0, 0, false
			}
			if ready[best] <= now {
				return j, best, true
			}
			ready[best] = bestEnd
		}
		return 0, 0, false
	}
}

// oracle knows the true rates: earliest with them, then bettered by moving jobs and
// swapping pairs between devices for as long as the makespan falls. A bound that
// is near the best, not proven to be it.
func oracle(f fleet, rates [][]float64, jobs []Job) float64 {
	r := play(f, rates, jobs, earliest(f, jobs, truth(rates)))
	load := make([]float64, len(f.kinds))
	cost := func(j, d int) float64 { return jobs[j].Steps / rates[jobs[j].Config][f.kinds[d]] }
	for j, d := range r.on {
		load[d] += cost(j, d)
	}
	for better(r.on, load, cost) {
	}
	return slices.Max(load)
}

// better makes the first move or swap off the last device that leaves both devices
// below the makespan.
func better(on []int, load []float64, cost func(j, d int) float64) bool {
	last := 0
	for d := range load {
		if load[d] > load[last] {
			last = d
		}
	}
	limit := load[last] * (1 - 1e-9)
	for j, d := range on {
		if d != last {
			continue
		}
		for to := range load {
			if to != last && load[to]+cost(j, to) < limit {
				load[last], load[to], on[j] = load[last]-cost(j, last), load[to]+cost(j, to), to
				return true
			}
		}
		for k, to := range on {
			if to == last {
				continue
			}
			a, b := load[last]-cost(j, last)+cost(k, last), load[to]-cost(k, to)+cost(j, to)
			if a < limit && b < limit {
				load[last], load[to], on[j], on[k] = a, b, to, last
				return true
			}
		}
	}
	return false
}
