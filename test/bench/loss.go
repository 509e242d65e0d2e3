package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/workload"
)

// What trimtab may cost a job (DESIGN.md).
const maxLossPercent = 0.5

// maxWidthPercent is the widest interval, in points, that says something.
const maxWidthPercent = 5

// lossSettle follows each start and stop of the daemon: its first listing, the
// seeding of threads, and what stopping costs are no steady state.
const lossSettle = 2 * time.Second

// measureLoss compares a job's own rate with and without a daemon that watches it,
// in pairs of neighbouring periods, so that slow drifts of the machine cancel.
// The job has no device wait: with one, the loss would hide in it.
func measureLoss(ctx context.Context, b *bench) (rows []Row, err error) {
	pairs, period := pick(b, 8, 3), pick(b, 10*time.Second, 6*time.Second)
	j, err := b.job(ctx, "loss", "observe", "--device-ms", "0")
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, j.Stop)
	d, err := b.daemon(ctx, "")
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, d.Close)
	cost, err := measureProgramCost(ctx, d.PID(), j, pick(b, 5, 2))
	if err != nil {
		return nil, err
	}
	a := &abTest{d: d, j: j, period: period}
	order := rand.New(rand.NewPCG(2, 1))
	var losses []float64
	for i := range pairs {
		with, without, err := a.pair(ctx, order.IntN(2) == 0)
		if err != nil {
			return nil, err
		}
		losses = append(losses, 100*(1-with/without))
		b.say("  pair %d of %d: %.2f steps/s with, %.2f without", i+1, pairs, with, without)
	}
	low, high := interval95(losses)
	loss := Row{What: "loss of a CPU-bound PyTorch job's rate", Value: mean(losses), Unit: "%", Low: low, High: high, Spread: "95 % CI",
		Goal: "CI includes ≤ 0.5 %",
		How: fmt.Sprintf("the job's own steps/s (no quota, no device wait, observed), daemon running or stopped, %d pairs of %s periods, order drawn with a fixed seed; Student's interval of the pairs' losses",
			pairs, period)}.judged(low <= maxLossPercent)
	if high-low > maxWidthPercent {
		loss.Result = verdictUnclear // such an interval includes nearly anything
	}
	return append([]Row{loss}, cost...), nil
}

// abTest switches the daemon on and off beside a job.
type abTest struct {
	d      *daemontest.Daemon
	j      *workload.Job
	period time.Duration
	off    bool
}

func (a *abTest) pair(ctx context.Context, withFirst bool) (with, without float64, err error) {
	for _, on := range []bool{withFirst, !withFirst} {
		rate := &without
		if on {
			rate = &with
		}
		if *rate, err = a.rate(ctx, on); err != nil {
			return 0, 0, err
		}
	}
	return with, without, nil
}

func (a *abTest) rate(ctx context.Context, on bool) (float64, error) {
	if err := a.turn(ctx, on); err != nil {
		return 0, err
	}
	if err := sleep(ctx, lossSettle); err != nil {
		return 0, err
	}
	rate, n, err := a.j.RateFor(ctx, a.period)
	if err == nil && n < 20 {
		err = fmt.Errorf("the job made only %d steps in %s", n, a.period)
	}
	return rate, err
}

func (a *abTest) turn(ctx context.Context, on bool) error {
	switch {
	case on && a.off:
		a.off = false
		return a.d.Restart(ctx)
	case !on && !a.off:
		a.off = true
		return a.d.Stop()
	}
	return nil
}
