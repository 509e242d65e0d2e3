package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/workload"
)

const (
	fidelitySettle  = 4 * time.Second // prefetched batches hide a change for a while
	maxErrorPercent = 3
	// fidelityReadings make a stretch: in one alone, of some 30 steps, the step at either end is 3 %.
	fidelityReadings = 4
	fidelityEvents   = 10 // the least that a reading holds
)

// stretch is one quota's rate by both.
type stretch struct {
	cpus, shown, printed float64
}

// measureFidelity compares relative changes of the rate that trimtab infers with
// those of the job's printed steps, over the very same time.
func measureFidelity(ctx context.Context, b *bench) (rows []Row, err error) {
	d, err := b.daemon(ctx, "")
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, d.Close)
	for _, job := range []struct {
		name string
		args []string
	}{{"default", nil}, {"threaded", []string{"--threaded"}}, {"workers 0", []string{"--workers", "0"}}} {
		row, err := b.fidelity(ctx, d, job.name, job.args)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", job.name, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (b *bench) fidelity(ctx context.Context, d *daemontest.Daemon, name string, args []string) (row Row, err error) {
	j, err := b.job(ctx, "rate", string(policies.ModeObserve), args...)
	if err != nil {
		return row, err
	}
	defer joinClose(&err, j.Stop)
	var all []stretch
	source := ""
	for _, cpus := range pick(b, []float64{0, 0.8, 0.6, 0.4}, []float64{0, 0.5}) {
		if err := j.SetQuota(ctx, cpus); err != nil {
			return row, err
		}
		if err := workload.Sleep(ctx, fidelitySettle); err != nil {
			return row, err
		}
		s, from, err := compareRates(ctx, d, j, fidelityReadings)
		if err != nil {
			return row, fmt.Errorf("at %.1f CPUs: %w", cpus, err)
		}
		if source != "" && from != source {
			return row, fmt.Errorf("at %.1f CPUs the rate's source became %q, from %q: the rates cannot be compared", cpus, from, source)
		}
		s.cpus, source = cpus, from
		b.say("  %s at %.1f CPUs: %.3f shown (%s), %.3f printed", name, cpus, s.shown, from, s.printed)
		all = append(all, s)
	}
	low, high := relativeErrors(all)
	worst := max(-low, high)
	return Row{What: "relative rate, trimtab's against the job's, " + name, Value: worst, Unit: "%", Low: low, High: high, Spread: "errors", Goal: "≤ 3 %",
		How: fmt.Sprintf("largest error of the ratio to the first stretch at %d quotas (none, then down), API rate (%s) against printed steps over the same time", len(all), source)}.judged(worst <= maxErrorPercent), nil
}

// relativeErrors returns the extreme errors of the ratios to the first stretch, in percent.
func relativeErrors(all []stretch) (low, high float64) {
	for _, s := range all[1:] {
		e := 100 * (s.shown/all[0].shown/(s.printed/all[0].printed) - 1)
		low, high = min(low, e), max(high, e)
	}
	return low, high
}

// compareRates takes so many readings that share no step, and the job's own rate over the
// very times that they are said to be means of.
func compareRates(ctx context.Context, d *daemontest.Daemon, j *workload.Job, readings int) (s stretch, source string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var taken []policies.Rate
	for from := int64(workload.Now()); len(taken) < readings; {
		c, err := d.Container(ctx, j.Name)
		if err != nil {
			return s, "", err
		}
		if r := c.Rate; r.PerSecond > 0 && r.FromNs >= from && r.Ticks >= fidelityEvents {
			if source != "" && r.Source != source {
				return s, "", fmt.Errorf("the rate is %.2f/s by %q, before by %q", r.PerSecond, r.Source, source)
			}
			taken, from, source = append(taken, r), r.ToNs, r.Source
		}
		if err := workload.Sleep(ctx, reactPoll); err != nil {
			return s, "", fmt.Errorf("%d of %d readings: %w", len(taken), readings, err)
		}
	}
	var seconds float64
	for _, r := range taken {
		printed, n := j.Rate(time.Duration(r.FromNs), time.Duration(r.ToNs))
		if n < 5 || math.IsNaN(printed) {
			return s, "", errors.New("the job printed too few steps")
		}
		span := float64(r.ToNs-r.FromNs) / 1e9
		s.shown, s.printed, seconds = s.shown+r.PerSecond*span, s.printed+printed*span, seconds+span
	}
	s.shown, s.printed = s.shown/seconds, s.printed/seconds
	return s, source, nil
}
