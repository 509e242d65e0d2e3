package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/stats"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/view"
)

// The job that is started again and again: dear loaders and a long device wait, so
// that a step in the quota that its owner got wrong takes a second or two, and what
// trimtab needs shows in steps.
const (
	againCPUs     = 0.3
	againPatience = 100 * time.Second
	// A quota is right from nine tenths of the knee, which a running job's cost tells to some
	// per cent, to a quarter above it.
	againRight, againShort = 1.25, 0.9
)

func againArgs() []string {
	return []string{"--passes", "2", "--device-ms", "200", "--images", "8"}
}

// again is one start under the wrong quota.
type again struct {
	first, right   float64      // seconds from its first step to the first change, and to the first right one
	firstN, rightN float64      // steps done by then
	of             float64      // the first allocation, of the knee
	ended          view.Outcome // of the trial within patience
	never          bool         // right within patience: then that stands for the time
}

// measureAgain times how soon a job that is started under a wrong quota has its
// first right allocation, on a daemon that knows the job and on one that does not.
// They take turns, each a fresh container and a fresh daemon; the one that knows
// has it from its state directory alone.
func measureAgain(ctx context.Context, b *bench) (rows []Row, err error) {
	state, err := os.MkdirTemp("", "trimtab-again-*")
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, func() error { return os.RemoveAll(state) })
	knee, err := b.teach(ctx, state)
	if err != nil {
		return nil, err
	}
	b.say("  the job's knee, measured free: %.2f CPUs", knee)
	var with, without []again
	for range pick(b, 3, 1) {
		for _, known := range []bool{true, false} {
			dir := state
			if !known {
				if dir, err = os.MkdirTemp("", "trimtab-again-*"); err != nil {
					return nil, err
				}
			}
			r, err := b.startAgain(ctx, dir, knee)
			if !known {
				err = errors.Join(err, os.RemoveAll(dir))
			}
			if err != nil {
				return nil, err
			}
			b.say("  known %v: first change after %.1f s (%.0f steps), %.2f × the knee; right after %.1f s (%.0f steps), trial %s", known, r.first, r.firstN, r.of, r.right, r.rightN, r.ended)
			if known {
				with = append(with, r)
			} else {
				without = append(without, r)
			}
		}
	}
	return []Row{
		againRow("to a known job's first right allocation", with, knee),
		againRow("the same, of a job that is not known", without, knee),
	}, nil
}

func againRow(what string, all []again, knee float64) Row {
	var times, steps, of []float64
	kept, never := 0, 0
	for _, r := range all {
		if r.never {
			never++
		}
		if r.ended == view.OutcomeKept {
			kept++
		}
		times, steps, of = append(times, r.right), append(steps, r.rightN), append(of, r.of)
	}
	return Row{What: what, Value: stats.Median(times), Unit: "s", Low: slices.Min(times), High: slices.Max(times), Spread: "range",
		How: fmt.Sprintf("started %d times under %.1f CPUs, of a knee of %.2f; policy similarity; from its first step's line until the kernel's quota file shows %.2f to %.2f of the knee: median %.0f steps; the first change gave %.2f to %.2f of it; %d kept by their trial, and %d never right, within %s; reported",
			len(all), againCPUs, knee, againShort, againRight, stats.Median(steps), slices.Min(of), slices.Max(of), kept, never, againPatience)}.reported()
}

func (b *bench) similar(ctx context.Context, dir string) (*daemontest.Daemon, error) {
	return daemontest.Start(ctx, daemontest.Options{Binary: b.binary, Dir: dir, Config: hostConfig + "policy: similarity\n"})
}

// teach runs the job without a quota until a daemon knows it, and returns its knee.
func (b *bench) teach(ctx context.Context, dir string) (knee float64, err error) {
	d, err := b.similar(ctx, dir)
	if err != nil {
		return 0, err
	}
	defer joinClose(&err, d.Close)
	j, err := b.job(ctx, "before", string(policies.ModeObserve), againArgs()...)
	if err != nil {
		return 0, err
	}
	defer joinClose(&err, j.Stop)
	ctx, cancel := context.WithTimeout(ctx, againPatience)
	defer cancel()
	const enough = 10 // steps that its cost rests on
	err = waitFor(ctx, "a fingerprint", func() (bool, error) {
		all, err := d.Client().Fingerprints(ctx)
		if err != nil || len(all) == 0 {
			return false, err
		}
		latest := all[len(all)-1]
		knee = latest.Learned.Cost.Knee()
		return latest.Learned.Cost.Ticks >= enough, nil
	})
	if err != nil {
		text, _ := d.Run(context.WithoutCancel(ctx), "explain", j.Name)
		err = fmt.Errorf("%w; %d steps; %s\nthe daemon said:\n%s", err, len(j.Steps()), text, d.Log())
	}
	return knee, err
}

// startAgain starts the job under the wrong quota, below a daemon that was there before it.
func (b *bench) startAgain(ctx context.Context, dir string, knee float64) (r again, err error) {
	d, err := b.similar(ctx, dir)
	if err != nil {
		return r, err
	}
	defer joinClose(&err, d.Close)
	j, err := workload.Start(ctx, workload.Options{Name: b.name("again"), Script: "dataloader.py", Args: againArgs(),
		DockerArgs: []string{"--cpus", fmt.Sprint(againCPUs), "--label", "trimtab.mode=" + string(policies.ModeTune)}})
	if err != nil {
		return r, err
	}
	defer joinClose(&err, j.Stop)
	if err := j.WaitSteps(ctx, 1); err != nil {
		return r, err
	}
	quota, err := quotaReader(ctx, j)
	if err != nil {
		return r, err
	}
	began := j.Steps()[0].At
	since := func() (float64, float64) { return (workload.Now() - began).Seconds(), float64(len(j.Steps())) }
	ctx, cancel := context.WithTimeout(ctx, againPatience)
	defer cancel()
	err = waitFor(ctx, "a right allocation", func() (bool, error) {
		v, err := quota()
		if err != nil {
			return false, err
		}
		cpus, ok := v.CPUs()
		if ok && cpus > againCPUs && r.first == 0 {
			r.first, r.firstN = since()
			r.of = cpus / knee
		}
		if ok && cpus >= againShort*knee && cpus <= againRight*knee {
			r.right, r.rightN = since()
			return true, nil
		}
		return false, nil
	})
	if errors.Is(err, context.DeadlineExceeded) && r.first > 0 {
		r.never = true
		r.right, r.rightN = since()
	} else if err != nil {
		return r, fmt.Errorf("%w; the daemon said:\n%s", err, d.Log())
	}
	r.ended = view.OutcomeOpen // on a busy machine a trial may take its time; the row tells
	for ctx.Err() == nil && r.ended == view.OutcomeOpen {
		if c, err := d.Container(ctx, j.Name); err == nil && len(c.Trials) > 0 {
			r.ended = c.Trials[0].Outcome
		}
		_ = sleep(ctx, reactPoll) // ends with the context
	}
	return r, nil
}
