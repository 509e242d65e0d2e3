// Package placement simulates the placing of jobs on GPUs of several kinds, by
// Gavel's table of rates: what knowing, guessing or ignoring how fast a job is on
// each kind does to the makespan. It is pure; equal seeds give equal figures.
package placement

import (
	"math"
	"slices"

	"github.com/trimtab/trimtab/tuner/place"
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

// belief is what a rule holds of rates: those that it expects, and the least that are likely, where it
// knows that it may be wrong; nil: it does not.
type belief struct {
	expected, least guess
}

// planned divides all that wait by a belief, so that the last is expected to end the soonest, and begins
// what is planned for a free device. What runs shows its true rate, so ends of running jobs are
// known. Planned anew at each end.
func planned(f fleet, jobs []Job, b belief) chooser {
	return func(now float64, waiting []int, readyS []float64) (int, int, bool) {
		times := f.times(jobs, waiting, b.expected)
		if b.least != nil {
			times = place.Careful(times, f.times(jobs, waiting, b.least))
		}
		ready := make([]float64, len(readyS))
		for d, at := range readyS {
			ready[d] = max(0, at-now)
		}
		for d, next := range place.Shortest(times, ready).Jobs {
			if len(next) > 0 && ready[d] == 0 {
				return waiting[next[0]], d, true
			}
		}
		return 0, 0, false
	}
}

// times is how long jobs take on each device.
func (f fleet) times(jobs []Job, which []int, rate guess) place.Times {
	out := make(place.Times, len(which))
	for i, j := range which {
		for _, kind := range f.kinds {
			out[i] = append(out[i], jobs[j].Steps/rate(jobs[j].Config, kind))
		}
	}
	return out
}

// trueTimes is how long all jobs take on each device, and that all devices are free.
func (f fleet) trueTimes(rates [][]float64, jobs []Job) (times place.Times, ready []float64) {
	all := make([]int, len(jobs))
	for j := range all {
		all[j] = j
	}
	return f.times(jobs, all, truth(rates)), make([]float64, len(f.kinds))
}

// learning is planned, with one thing more that is known while the jobs run: of a configuration on a
// kind on which one of it was begun, the rate that it shows there.
func learning(f fleet, jobs []Job, rates [][]float64, b belief) chooser {
	seen := map[[2]int]bool{}
	learned := func(g guess) guess {
		return func(config, kind int) float64 {
			if seen[[2]int{config, kind}] {
				return rates[config][kind]
			}
			return g(config, kind)
		}
	}
	choose := planned(f, jobs, belief{learned(b.expected), learned(b.least)})
	return func(now float64, waiting []int, readyS []float64) (job, device int, ok bool) {
		if job, device, ok = choose(now, waiting, readyS); ok {
			seen[[2]int{jobs[job].Config, f.kinds[device]}] = true
		}
		return job, device, ok
	}
}

// oracle knows the true rates: the shorter of the best division found with them at the start and of the
// same rule with true rates; and the bound that no division can be below.
func oracle(f fleet, rates [][]float64, jobs []Job) (makespan, bound float64) {
	times, ready := f.trueTimes(rates, jobs)
	replanned := play(f, rates, jobs, planned(f, jobs, belief{expected: truth(rates)}))
	return min(place.Shortest(times, ready).Makespan(), replanned.makespan()), place.Bound(times, ready)
}
