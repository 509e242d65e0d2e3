package main

import (
	"context"
	"fmt"
	"time"

	"github.com/trimtab/trimtab/test/workload"
)

// stretch is what each job did between two instants, by its own step lines and its
// control group.
type stretch struct {
	From, To time.Duration // CLOCK_MONOTONIC
	Rates    []float64     // steps/s
	CPUs     []float64
	Steal    float64 // share of the machine's CPU time that was stolen
}

// watch lets the jobs run for d and returns what they did meanwhile.
func (b *bed) watch(ctx context.Context, d time.Duration) (s stretch, err error) {
	before := make([]time.Duration, len(b.jobs))
	for i := range b.jobs {
		if before[i], err = b.use[i](); err != nil {
			return s, err
		}
	}
	machine, err := b.host.Read()
	if err != nil {
		return s, err
	}
	s.From = workload.Now()
	if err := b.sleep(ctx, d); err != nil {
		return s, err
	}
	s.To = workload.Now()
	then, err := b.host.Read()
	if err != nil {
		return s, err
	}
	if took := float64(then.AtNs-machine.AtNs) * cpus(); took > 0 {
		s.Steal = float64(then.StealNs-machine.StealNs) / took
	}
	for i, j := range b.jobs {
		after, err := b.use[i]()
		if err != nil {
			return s, err
		}
		rate, _ := j.Rate(s.From, s.To)
		s.Rates = append(s.Rates, rate)
		s.CPUs = append(s.CPUs, (after-before[i]).Seconds()/(s.To-s.From).Seconds())
	}
	return s, nil
}

// joined is two stretches, one after the other, as one.
func (b *bed) joined(begin time.Duration, first, end stretch) stretch {
	one := stretch{From: begin, To: end.To}
	x, y := (first.To - first.From).Seconds(), (end.To - end.From).Seconds()
	one.Steal = (first.Steal*x + end.Steal*y) / (x + y)
	for i, j := range b.jobs {
		rate, _ := j.Rate(begin, end.To)
		one.Rates = append(one.Rates, rate)
		one.CPUs = append(one.CPUs, (first.CPUs[i]*x+end.CPUs[i]*y)/(x+y))
	}
	return one
}

// sleep waits, and fails if a job ends.
func (b *bed) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
	}
	for _, j := range b.jobs {
		select {
		case <-j.Done():
			return fmt.Errorf("container %q ended while it was measured", j.Name)
		default:
		}
	}
	return nil
}

// rolling is each job's rate over the rollWindow before each of the instants, which are
// rollStep apart.
const (
	rollWindow = 2 * time.Second
	rollStep   = 500 * time.Millisecond
)

func (b *bed) rolling(from, to time.Duration) (out [][]float64) {
	for end := from + rollWindow; end <= to; end += rollStep {
		rates := make([]float64, len(b.jobs))
		for i, j := range b.jobs {
			rates[i], _ = j.Rate(end-rollWindow, end)
		}
		out = append(out, rates)
	}
	return out
}

// reached is the seconds after which a rolling figure is first at a target; negative: never.
func reached(rolling [][]float64, figure func(rates []float64) float64, target float64) float64 {
	for i, rates := range rolling {
		if figure(rates) >= target {
			return (rollWindow + time.Duration(i)*rollStep).Seconds()
		}
	}
	return -1
}

// normal divides rates by those that the jobs reach alone, without limits.
func normal(rates, alone []float64) []float64 {
	out := make([]float64, len(rates))
	for i := range rates {
		if alone[i] > 0 {
			out[i] = rates[i] / alone[i]
		}
	}
	return out
}

// sumMin of the enrolled jobs' normalised rates.
func sumMin(m mix, normalised []float64) (sum, least float64) {
	least = -1
	for i, j := range m.jobs {
		if j.stranger {
			continue
		}
		sum += normalised[i]
		if least < 0 || normalised[i] < least {
			least = normalised[i]
		}
	}
	return sum, max(least, 0)
}

// entitled is, for each job, what it had of its due: for one with a quota its rate over
// the rate at its equal share, of which quota and weight assure it; for a stranger, who
// has a weight alone, its CPU use over the lesser of its weighted share and what it used
// while the others had theirs.
func entitled(m mix, rates, cpus []float64, static stretch) []float64 {
	out := make([]float64, len(rates))
	for i, j := range m.jobs {
		have, due := rates[i], static.Rates[i]
		if j.stranger {
			have, due = cpus[i], min(static.CPUs[i], share(m))
		}
		out[i] = 1
		if due > 0 {
			out[i] = have / due
		}
	}
	return out
}

// average is the mean over phases, job by job.
func average(of [][]float64) []float64 {
	out := make([]float64, len(of[0]))
	for _, xs := range of {
		for i, x := range xs {
			out[i] += x / float64(len(of))
		}
	}
	return out
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
