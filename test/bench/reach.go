package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/stats"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/state"
)

// Goals of what trimtab gains, and the demo's job, whose knee lies inside a two-core
// machine beside a neighbour that wants one core.
const (
	minReachPercent = 95
	maxOfKnee       = 1.2
	reachKnee       = "0.9"
	reachStarved    = 0.35 // of the knee
	reachPatience   = 2 * time.Minute
)

// measureReach sweeps static quotas, starves the job, lets trimtab tune it, and
// compares.
func measureReach(ctx context.Context, b *bench) (rows []Row, err error) {
	neighbour, err := workload.Start(ctx, workload.Options{Name: b.name("neighbour"), Script: "neighbour.py"})
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, neighbour.Stop)
	j, err := b.job(ctx, "reach", string(policies.ModeTune), "--knee", reachKnee)
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, j.Stop)
	quotas := pick(b, []float64{0, 0.5, 0.65, 0.75, 0.85, 0.95, 1.05, 1.2, 0}, []float64{0, 0.6, 0.8, 0.95, 1.1, 0})
	points, err := j.Sweep(ctx, workload.SweepOptions{CPUs: quotas, Settle: 1500 * time.Millisecond, Measure: 4500 * time.Millisecond,
		Each: func(p workload.Point) { b.say("  %.2f CPUs: %.2f steps/s", p.CPUs, p.Rate) }})
	if err != nil {
		return nil, err
	}
	knee, best, ok := workload.Knee(points)
	if !ok {
		return nil, fmt.Errorf("the sweep found no knee inside it (nearest %.2f CPUs): is this machine busy with something else?", knee)
	}
	granted, rates, err := b.tuned(ctx, j, math.Round(knee*reachStarved*100)/100)
	if err != nil {
		return nil, err
	}
	share := func(rate float64) float64 { return 100 * rate / best }
	how := fmt.Sprintf("quotas swept on the same job beside a busy neighbour: best %.2f steps/s, knee %.2f CPUs; then started at %.2f × the knee and tuned by a fresh daemon until a change was kept", best, knee, reachStarved)
	return []Row{
		Row{What: "rate reached, of the best static quota's", Value: share(stats.Mean(rates)), Unit: "%", Low: share(slices.Min(rates)), High: share(slices.Max(rates)), Spread: "range",
			Goal: "≥ 95 %", How: how + fmt.Sprintf("; the job's own steps/s, %d stretches of %s", len(rates), reachStretch)}.judged(share(stats.Mean(rates)) >= minReachPercent),
		Row{What: "CPU granted, of the knee", Value: granted / knee, Unit: "×", Goal: "≤ 1.2 ×",
			How: how + fmt.Sprintf("; granted %.2f CPUs", granted)}.judged(granted <= maxOfKnee*knee),
	}, nil
}

const reachStretch = 4 * time.Second

// tuned starves the job, waits until trimtab has kept a change, and returns the
// CPUs granted and the job's rates.
func (b *bench) tuned(ctx context.Context, j *workload.Job, quota float64) (granted float64, rates []float64, err error) {
	if err := j.SetQuota(ctx, quota); err != nil {
		return 0, nil, err
	}
	d, err := b.daemon(ctx, "")
	if err != nil {
		return 0, nil, err
	}
	defer joinClose(&err, d.Close)
	var c state.Container
	patient, cancel := context.WithTimeout(ctx, reachPatience)
	defer cancel()
	if err := waitFor(patient, "a kept change", func() (bool, error) {
		var err error
		c, err = d.Container(patient, j.Name)
		return err == nil && len(c.Trials) > 0 && c.Trials[0].Outcome == state.OutcomeKept, nil
	}); err != nil {
		return 0, nil, fmt.Errorf("%w; the daemon said:\n%s", err, d.Log())
	}
	for range pick(b, 4, 2) {
		rate, _, err := j.RateFor(ctx, reachStretch)
		if err != nil {
			return 0, nil, err
		}
		rates = append(rates, rate)
	}
	if c, err = d.Container(ctx, j.Name); err != nil {
		return 0, nil, err
	}
	granted, ok := c.Now[runtime.KnobCPUQuota].CPUs()
	if !ok {
		return 0, nil, fmt.Errorf("after a kept change the quota is %q", c.Now[runtime.KnobCPUQuota])
	}
	return granted, rates, nil
}
