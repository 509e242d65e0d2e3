package main

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/trimtab/trimtab/test/workload"
)

// trace is what the control groups of all jobs said, sampled while something lives.
type trace struct {
	states [][]workload.CPUState // by job
	idle   []time.Duration       // the CPU time that nobody used so far, at each sample
	err    error
}

const (
	traceStep = 100 * time.Millisecond
	// grantWindow is the second in which a quota must have stopped a job in a part of its
	// periods before it counts as throttled.
	grantWindow = time.Second
	grantShare  = 0.05
	// grantIdle is the share of the machine that must be idle in that second for a loan to be due:
	// what trimtab keeps by default, and half of that.
	grantIdle = 0.15
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
			machine, err := b.host.Read()
			if err != nil {
				t.err = err
				return
			}
			t.idle = append(t.idle, time.Duration(machine.IdleNs+machine.IOWaitNs))
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

// grants are, for each job that its owner's quota stops while CPU is idle, the seconds from the
// first such second to the first raise; without one, to the end. Only from an instant on. Where
// nothing is idle, more is a trial's matter, which takes the readings that it needs.
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
			if stopped(all[k], s) && k < i && (t.idle[i]-t.idle[k]).Seconds() >= grantIdle*cpus()*(s.At-all[k].At).Seconds() {
				onset = all[k].At
			}
		}
		if onset >= 0 {
			seconds = append(seconds, (all[len(all)-1].At - onset).Seconds())
		}
	}
	return seconds
}

// stopped: the quota stopped the job in a part of its periods between.
func stopped(a, b workload.CPUState) bool {
	periods := b.Periods - a.Periods
	return periods > 0 && float64(b.Throttled-a.Throttled) >= grantShare*float64(periods)
}

// own is what is a job's own, as at equal shares: CPUs, and steps per second where it counts them.
type own struct {
	cpus, rate float64
	rateIn     func(from, to time.Duration) float64
}

// least is the least that a job had of its own in any rightWindow, and whose. It had its own where
// it used the CPU or did the steps: one that sleeps most of its time needs less CPU for as many
// steps on a quieter machine, and lost nothing.
func (t *trace) least(of []own) (least float64, job int) {
	least = math.Inf(1)
	for i, all := range t.states {
		if of[i].cpus <= 0 {
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
			had := (all[to].Used - all[from].Used).Seconds() / (all[to].At - all[from].At).Seconds() / of[i].cpus
			if had < least && of[i].rate > 0 {
				had = max(had, of[i].rateIn(all[from].At, all[to].At)/of[i].rate)
			}
			if had < least {
				least, job = had, i
			}
		}
	}
	return least, job
}
