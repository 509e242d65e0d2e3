package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/trimtab/trimtab/test/stats"
	"github.com/trimtab/trimtab/test/workload"
)

// measureSteps compares the rate of a PyTorch job of about 1,000 steps/s with and without a
// daemon that counts them at the framework's functions, and with the job's own count.
func measureSteps(ctx context.Context, b *bench) (rows []Row, err error) {
	pairs := pick(b, 6*launchEach, 3*launchEach)
	j, err := b.begin(ctx, workload.Options{Name: b.name("steps"), Script: "tight.py", Args: []string{"--every", "100"}}, "observe")
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, j.Stop)
	d, err := b.daemon(ctx, "")
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, d.Close)
	a := &abTest{d: d, j: j, period: launchPeriod, each: launchEach, settle: thinSettle}
	var costs, off []float64
	a.look = func(ctx context.Context) error {
		c, err := d.Container(ctx, j.Name)
		if err != nil {
			return err
		}
		costs = append(costs, 100*c.ProbeShare)
		if c.Rate.ToNs <= c.Rate.FromNs {
			return fmt.Errorf("it counts no steps of %s: %s", j.Name, c.RateWhy)
		}
		own, n := j.Rate(time.Duration(c.Rate.FromNs), time.Duration(c.Rate.ToNs))
		if n == 0 {
			return fmt.Errorf("%s printed no step in the time of the rate shown", j.Name)
		}
		off = append(off, 100*(c.Rate.PerSecond/own-1))
		return nil
	}
	if err := workload.Sleep(ctx, thinSettle); err != nil { // the daemon has just been started
		return nil, err
	}
	losses, err := a.losses(ctx, b, pairs)
	if err != nil {
		return nil, err
	}
	job := fmt.Sprintf("PyTorch, one core, %.0f steps/s without the daemon, each one backward pass", stats.Mean(a.rates))
	cost := rangeRow("  its computed cost, 1,000 steps/s", costs, "%", "the daemon's own word before each stop, of one CPU; "+job)
	cost.Goal = "≤ 0.5 %"
	return []Row{
		lossRow("loss of a job with 1,000 steps/s", losses, job+"; "+a.how(pairs)),
		cost.judged(slices.Max(costs) <= maxLossPercent),
		rangeRow("  rate shown over the job's own, 1,000 steps/s", off, "%", "before each stop, over the time that the rate is the mean of; "+job).reported(),
	}, nil
}
