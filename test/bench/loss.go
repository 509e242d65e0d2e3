package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/stats"
	"github.com/trimtab/trimtab/test/workload"
)

// What trimtab may cost a job.
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
	pairs, period := pick(b, 6, 3), pick(b, 10*time.Second, 6*time.Second)
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
	a := &abTest{d: d, j: j, period: period, settle: lossSettle}
	losses, err := a.losses(ctx, b, pairs)
	if err != nil {
		return nil, err
	}
	loss := lossRow("loss of a CPU-bound PyTorch job's rate", losses, fmt.Sprintf("the job's own steps/s (no quota, no device wait, observed), %s", a.how(pairs)))
	return append([]Row{loss}, cost...), nil
}

func lossRow(what string, losses []float64, how string) Row {
	low, high := stats.Interval95(losses)
	row := Row{What: what, Value: stats.Mean(losses), Unit: "%", Low: low, High: high, Spread: "95 % CI", Goal: "CI includes ≤ 0.5 %", How: how}.judged(low <= maxLossPercent)
	if high-low > maxWidthPercent && low <= maxLossPercent {
		row.Result = verdictUnclear // such an interval includes nearly anything
	}
	return row
}

// abTest switches the daemon on and off beside a job.
type abTest struct {
	d      *daemontest.Daemon
	j      *workload.Job
	period time.Duration
	each   int                             // periods between two switches; 0: one
	settle time.Duration                   // after the daemon's start
	look   func(ctx context.Context) error // at the end of the periods with it; may be nil
	off    bool
	rates  []float64 // steps/s without it
}

// losses returns what the daemon cost the rate, in percent: a mean for each stretch with it
// and the one without it. Pairs between the same two switches are not independent: the
// machine's speed drifts over minutes.
func (a *abTest) losses(ctx context.Context, b *bench, pairs int) (losses []float64, err error) {
	order := rand.New(rand.NewPCG(2, 1))
	for done := 0; done < pairs; {
		with, without, err := a.pairs(ctx, order.IntN(2) == 0, min(max(1, a.each), pairs-done))
		if err != nil {
			return nil, err
		}
		var lost []float64
		for i := range with {
			lost = append(lost, 100*(1-with[i]/without[i]))
			b.say("  pair %d of %d: %.2f steps/s with, %.2f without", done+i+1, pairs, with[i], without[i])
		}
		done += len(with)
		losses = append(losses, stats.Mean(lost))
		a.rates = append(a.rates, without...)
	}
	return losses, nil
}

func (a *abTest) how(pairs int) string {
	return fmt.Sprintf("daemon running (for %s before it counts) or stopped, %d pairs of %s periods, switched after each %d, order drawn with a fixed seed; Student's interval of the losses between switches",
		a.settle, pairs, a.period, max(1, a.each))
}

// pairs measures n periods with the daemon and n without.
func (a *abTest) pairs(ctx context.Context, withFirst bool, n int) (with, without []float64, err error) {
	for _, on := range []bool{withFirst, !withFirst} {
		rates := &without
		if on {
			rates = &with
		}
		if *rates, err = a.periods(ctx, on, n); err != nil {
			return nil, nil, err
		}
	}
	return with, without, nil
}

func (a *abTest) periods(ctx context.Context, on bool, n int) (rates []float64, err error) {
	started, err := a.turn(ctx, on)
	if err != nil {
		return nil, err
	}
	settle := lossSettle
	if on && started {
		settle = a.settle
	}
	if err := workload.Sleep(ctx, settle); err != nil {
		return nil, err
	}
	for range n {
		rate, steps, err := a.j.RateFor(ctx, a.period)
		if err == nil && steps < 20 {
			err = fmt.Errorf("the job made only %d steps in %s", steps, a.period)
		}
		if err != nil {
			return nil, err
		}
		rates = append(rates, rate)
	}
	if on && a.look != nil {
		return rates, a.look(ctx)
	}
	return rates, nil
}

// turn says whether it started the daemon.
func (a *abTest) turn(ctx context.Context, on bool) (started bool, err error) {
	switch {
	case on && a.off:
		a.off = false
		return true, a.d.Restart(ctx)
	case !on && !a.off:
		a.off = true
		return false, a.d.Stop()
	}
	return false, nil
}
