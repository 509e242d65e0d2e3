package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/stats"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/state"
)

// Goals of the agent's speed: each the larger of a time and so many steps of the
// starved job.
const (
	verdictSeconds, verdictSteps = 3.0, 5
	changeSeconds, changeSteps   = 5.0, 8
	// cutCPUs is about a third of the job's knee.
	cutCPUs       = 0.3
	reactPatience = time.Minute
	reactPoll     = 200 * time.Millisecond // asking costs the daemon CPU, and its budget makes it look less often
)

// reaction is one repetition.
type reaction struct {
	verdict, change float64 // seconds since the cut
	step            float64 // seconds per step of the starved job
	waited          waits
}

// waits is what trimtab gave as its reason to change nothing yet, in order, and since when.
type waits []string

func (w *waits) note(why string, seconds float64) {
	text := fmt.Sprintf("%q from %.1f s", why, seconds)
	if n := len(*w); n == 0 || !strings.HasPrefix((*w)[n-1], fmt.Sprintf("%q ", why)) {
		*w = append(*w, text)
	}
}

// measureReact cuts the quota of jobs that the daemon already knows, each once,
// and times what follows. Each repetition has a fresh job: what trimtab and its
// owner have written before would be another experiment.
func measureReact(ctx context.Context, b *bench) (rows []Row, err error) {
	d, err := b.daemon(ctx, "")
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, d.Close)
	var all []reaction
	for i := range pick(b, 5, 2) {
		r, err := b.react(ctx, d)
		if err != nil {
			return nil, fmt.Errorf("%w; the daemon said:\n%s", err, d.Log())
		}
		b.say("  cut %d: verdict after %.1f s, change after %.1f s, %.2f s a step; it waited: %s", i+1, r.verdict, r.change, r.step, strings.Join(r.waited, ", "))
		all = append(all, r)
	}
	return []Row{
		reactRow("from starvation to verdict", all, func(r reaction) float64 { return r.verdict }, verdictSeconds, verdictSteps),
		reactRow("from starvation to the applied change", all, func(r reaction) float64 { return r.change }, changeSeconds, changeSteps),
	}, nil
}

func reactRow(what string, all []reaction, of func(reaction) float64, seconds float64, steps int) Row {
	var times, stepTimes []float64
	for _, r := range all {
		times, stepTimes = append(times, of(r)), append(stepTimes, r.step)
	}
	goal := max(seconds, float64(steps)*stats.Median(stepTimes))
	return Row{What: what, Value: stats.Median(times), Unit: "s", Low: slices.Min(times), High: slices.Max(times), Spread: "range",
		Goal: fmt.Sprintf("median ≤ %.1f s", goal),
		How: fmt.Sprintf("docker update to %.1f CPU on a job that ran free under the running daemon, %d fresh jobs; from its return until the API, or the kernel's quota file, shows it; goal: the larger of %.0f s and %d steps of %.2f s",
			cutCPUs, len(all), seconds, steps, stats.Median(stepTimes))}.judged(stats.Median(times) <= goal)
}

func (b *bench) react(ctx context.Context, d *daemontest.Daemon) (r reaction, err error) {
	j, err := b.job(ctx, "react", string(policies.ModeTune))
	if err != nil {
		return r, err
	}
	defer joinClose(&err, j.Stop)
	ctx, cancel := context.WithTimeout(ctx, reactPatience)
	defer cancel()
	const known = 3 // windows of the free job
	if err := waitFor(ctx, "windows of a free job", func() (bool, error) {
		c, err := d.Container(ctx, j.Name)
		return err == nil && c.Windows >= known, nil
	}); err != nil {
		return r, err
	}
	quota, err := quotaReader(ctx, j)
	if err != nil {
		return r, err
	}
	if err := j.SetQuota(ctx, cutCPUs); err != nil {
		return r, err
	}
	cut := workload.Now()
	since := func() float64 { return (workload.Now() - cut).Seconds() }
	err = waitFor(ctx, "a verdict and a change", func() (bool, error) {
		stands, err := quota()
		if err == nil && r.change == 0 && stands != runtime.QuotaFromCPUs(cutCPUs, runtime.DefaultPeriodUs) {
			r.change = since()
		}
		if c, err := d.Container(ctx, j.Name); err == nil {
			if r.verdict == 0 && starved(c) {
				r.verdict = since()
			}
			r.waited.note(c.WhyNot, since())
		}
		return r.verdict > 0 && r.change > 0, err
	})
	if rate, n := j.Rate(cut, cut+time.Duration(r.change*float64(time.Second))); n > 0 {
		r.step = 1 / rate
	}
	return r, err
}

// starved reports whether the verdict asks for CPU quota: of loaders, or of a
// rank that is itself out of it.
func starved(c state.Container) bool {
	return (c.Verdict.Class == policies.ClassInput || c.Verdict.Class == policies.ClassCompute) && strings.Contains(c.Verdict.Relief, "CPU quota")
}

// quotaReader reads the quota that stands in the kernel.
func quotaReader(ctx context.Context, j *workload.Job) (func() (runtime.Value, error), error) {
	where, err := j.Cgroup(ctx)
	if err != nil {
		return nil, err
	}
	return func() (runtime.Value, error) {
		values, err := cgroup.ReadValues(where)
		return values[runtime.KnobCPUQuota], err
	}, nil
}

// waitFor polls until the condition holds, errs, or the context ends.
func waitFor(ctx context.Context, what string, holds func() (bool, error)) error {
	for {
		ok, err := holds()
		if ok || err != nil {
			return err
		}
		if err := workload.Sleep(ctx, reactPoll); err != nil {
			return errors.Join(fmt.Errorf("waiting for %s", what), err)
		}
	}
}
