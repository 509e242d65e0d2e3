package main

import (
	"context"
	"slices"
	"time"

	"github.com/trimtab/trimtab/test/workload"
)

// trace is what the control groups of all jobs said, sampled while something lives.
type trace struct {
	states [][]workload.CPUState // by job
	err    error
}

const (
	traceStep = 100 * time.Millisecond
	// grantWindow is the second in which a quota must have stopped a job in a part of its
	// periods before it counts as throttled.
	grantWindow = time.Second
	grantShare  = 0.05
	// rightWindow is the time over which a job must have what is its own.
	rightWindow = 5 * time.Second
)

// trace samples until its stop is called.
func (b *bed) trace(ctx context.Context) (stop func() *trace, err error) {
	var read []func() (workload.CPUState, error)
	for _, j := range b.jobs {
		r, err := j.CPUStates(ctx)
		if err != nil {
			return nil, err
		}
		read = append(read, r)
	}
	t := &trace{states: make([][]workload.CPUState, len(b.jobs))}
	ending, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(traceStep)
		defer tick.Stop()
		for {
			select {
			case <-ending:
				return
			case <-tick.C:
			}
			for i := range read {
				s, err := read[i]()
				if err != nil {
					t.err = err
					return
				}
				t.states[i] = append(t.states[i], s)
			}
		}
	}()
	return func() *trace {
		close(ending)
		<-done
		return t
	}, nil
}

// grants are, for each job that its owner's quota stops, the seconds from the first such second
// to the first raise; without one, to the end. Only from an instant on.
func (t *trace) grants(from time.Duration) (seconds []float64) {
	for _, all := range t.states {
		if len(all) == 0 || all[0].Quota <= 0 {
			continue
		}
		onset := time.Duration(-1)
		for i, s := range all {
			if s.Quota > all[0].Quota*1.02 {
				if onset >= 0 {
					seconds = append(seconds, (s.At - onset).Seconds())
				}
				onset = -2
				break
			}
			if onset >= 0 || s.At < from+grantWindow {
				continue
			}
			k, _ := slices.BinarySearchFunc(all[:i], s.At-grantWindow, func(x workload.CPUState, at time.Duration) int { return int(x.At - at) })
			if periods := s.Periods - all[k].Periods; periods > 0 && float64(s.Throttled-all[k].Throttled) >= grantShare*float64(periods) {
				onset = all[k].At
			}
		}
		if onset >= 0 {
			seconds = append(seconds, (all[len(all)-1].At - onset).Seconds())
		}
	}
	return seconds
}

// least is the least that a job used in any rightWindow, over its due, CPUs; and whose.
func (t *trace) least(due []float64) (least float64, job int) {
	least = 2
	for i, all := range t.states {
		if due[i] <= 0 {
			continue
		}
		from := 0
		for to := range all {
			for all[to].At-all[from].At > rightWindow {
				from++
			}
			if all[to].At-all[from].At < rightWindow-2*traceStep {
				continue
			}
			used := (all[to].Used - all[from].Used).Seconds() / (all[to].At - all[from].At).Seconds()
			if used/due[i] < least {
				least, job = used/due[i], i
			}
		}
	}
	return least, job
}
