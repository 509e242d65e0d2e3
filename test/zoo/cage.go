package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/stats"
	"github.com/trimtab/trimtab/test/workload"
)

// cage is one program at work.
type cage struct {
	p      program
	o      options
	tally  *tally
	job    *workload.Job
	daemon *daemontest.Daemon
	state  func() (workload.CPUState, error)
	limit  func() (int64, error)
	taken  float64 // the most that others took in a measured stretch, of the host's CPU time
	void   int     // runs that were made again for it
	loud   int     // runs that count though others took too much each time
}

func (c *cage) rate(ctx context.Context, settle, measure float64) (float64, error) {
	if _, _, err := c.job.RateFor(ctx, seconds(settle)); err != nil {
		return 0, err
	}
	others, err := c.others()
	if err != nil {
		return 0, err
	}
	rate, _, err := c.job.RateFor(ctx, seconds(measure))
	if err == nil && rate <= 0 {
		err = fmt.Errorf("it printed no two steps in %.0f s", measure)
	}
	taken, errTaken := others()
	c.taken = max(c.taken, taken)
	return rate, errors.Join(err, errTaken)
}

// others begins to look at what the program and trimtab have not used; see workload.Others.
func (c *cage) others() (taken func() (float64, error), err error) {
	return workload.Others(func() (time.Duration, error) {
		own, errOwn := c.state()
		daemon, errDaemon := workload.ProcessCPU(c.daemon.PID())
		return own.Used + daemon, errors.Join(errOwn, errDaemon)
	})
}

// undisturbed makes a run again while others took too much of it.
func (c *cage) undisturbed(ctx context.Context, run func() error) error {
	for void := 0; ; void++ {
		c.taken = 0
		if err := run(); err != nil || c.taken <= workload.MaxTaken || ctx.Err() != nil {
			return err
		}
		if void == workload.MaxVoid {
			c.loud++
			return nil
		}
		c.void++
		c.say("made again: others took %.1f %% of the host's CPU time", 100*c.taken)
	}
}

func (c *cage) say(format string, args ...any) {
	if c.o.verbose {
		fmt.Fprintf(os.Stderr, c.p.name+": "+format+"\n", args...)
	}
}

// endDaemon ends it, where it was started, and records what it has seen if that is asked for.
func (c *cage) endDaemon(ctx context.Context) (err error) {
	if c.daemon == nil {
		return nil
	}
	if c.o.record != "" {
		err = c.daemon.Record(ctx, filepath.Join(c.o.record, c.p.name+".trimtab"))
	}
	return errors.Join(err, c.daemon.Close())
}

// watch lets the daemon look on, without a quota and with one.
func (c *cage) watch(ctx context.Context) error {
	for _, quota := range []float64{0, c.p.quota} {
		if err := c.job.SetQuota(ctx, quota); err != nil {
			return err
		}
		rate, _, err := c.job.RateFor(ctx, c.o.watch)
		if err != nil {
			return err
		}
		shown, err := c.daemon.Container(ctx, c.job.Name)
		if err != nil {
			return err
		}
		fmt.Printf("%-12s quota %.1f: %.2f steps/s; %s, %s\n", c.p.name, quota, rate, shown.Verdict.Class, shown.Verdict.Cause)
	}
	return nil
}

// run is one run of a program that its quota starves.
type run struct {
	share, before, granted float64
	hungry, fed            phase
	truth, became          float64 // its rate over the time that the shown one is of; its speed over that before
}

// starved measures a program that its quota starves.
func (c *cage) starved(ctx context.Context) (missed int, err error) {
	var shares, before, granted []float64
	var class, rate, became string // of the last
	flips := 0
	for i := range c.o.runs {
		var r run
		if err := c.undisturbed(ctx, func() (err error) { r, err = c.starvedOnce(ctx); return err }); err != nil {
			return missed, fmt.Errorf("run %d: %w", i+1, err)
		}
		c.say("run %d: before %.2f, reached %.3f, granted after %.1f s; others took %.1f %%", i+1, r.before, r.share, r.granted, 100*c.taken)
		shares, before, granted = append(shares, r.share), append(before, r.before), append(granted, r.granted)
		class, rate, became = c.tally.class(c.p, r.hungry.state.Verdict), c.tally.rate(r.fed.state, r.truth), c.tally.became(r.fed.state, r.became)
		flips = r.hungry.flips + r.fed.flips
		c.tally.flips += flips
		if r.share < c.o.reached {
			missed++
		}
	}
	c.tally.reached = append(c.tally.reached, stats.Median(shares))
	fmt.Printf("%-12s %-50s before %.2f  reached %.3f (least %.3f)  granted after %.1f s (longest %.1f)  %d of %d runs hold, %d made again, %d disturbed all the same; of the last: %s; rate %s; became %s; %d flips\n", c.p.name, c.p.why,
		stats.Median(before), stats.Median(shares), slices.Min(shares), stats.Median(granted), slices.Max(granted), len(shares)-missed, len(shares), c.void, c.loud, class, rate, became, flips)
	return missed, nil
}

// free measures the program without a quota, while trimtab only looks on.
func (c *cage) free(ctx context.Context) (float64, error) {
	if _, err := c.daemon.Run(ctx, "disable", c.job.Name); err != nil {
		return 0, err
	}
	if err := c.job.SetQuota(ctx, 0); err != nil {
		return 0, err
	}
	return c.rate(ctx, settleS, freeS)
}

func (c *cage) starvedOnce(ctx context.Context) (r run, err error) {
	first, err := c.free(ctx)
	if err != nil {
		return r, err
	}
	_, n, err := c.phase(ctx, 0)
	if err != nil {
		return r, err
	}
	if err := c.job.SetQuota(ctx, c.p.quota); err != nil {
		return r, err
	}
	starved, err := c.rate(ctx, settleS, startS)
	if err != nil {
		return r, err
	}
	hungry, n, err := c.phase(ctx, n)
	if err != nil {
		return r, err
	}
	if _, err := c.daemon.Run(ctx, "enable", c.job.Name); err != nil {
		return r, err
	}
	if r.granted, err = c.granted(ctx, seconds(helpS)); err != nil {
		return r, err
	}
	helped, err := c.rate(ctx, 0, afterS)
	if err != nil {
		return r, err
	}
	fed, _, err := c.phase(ctx, n)
	if err != nil {
		return r, err
	}
	last, err := c.free(ctx)
	if err != nil {
		return r, err
	}
	c.say("steps/s: free %.2f, starved %.2f, helped %.2f, free again %.2f", first, starved, helped, last)
	free := (first + last) / 2
	r.share, r.before, r.hungry, r.fed = helped/free, starved/free, hungry, fed
	r.truth, r.became = c.truth(fed.state.Rate, helped), helped/starved
	return r, nil
}

// truth is the program's own rate over the time that the shown one is the mean of; of all of the
// stretch where it printed no two steps in it: its speed drifts with the machine's.
func (c *cage) truth(shown policies.Rate, all float64) float64 {
	if own, n := c.job.Rate(time.Duration(shown.FromNs), time.Duration(shown.ToNs)); n >= 2 && own > 0 {
		return own
	}
	return all
}

// granted waits for d and returns the seconds until the quota was raised; d's, if it was not.
func (c *cage) granted(ctx context.Context, d time.Duration) (after float64, err error) {
	began := workload.Now()
	after = d.Seconds()
	for workload.Now() < began+d {
		s, err := c.state()
		if err != nil {
			return after, err
		}
		if s.Quota > 1.02*c.p.quota {
			after = min(after, (s.At - began).Seconds())
		}
		select {
		case <-ctx.Done():
			return after, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return after, nil
}

// helpless measures a program that nothing helps: with trimtab it is to be no slower, and
// nothing is to stand but loans.
func (c *cage) helpless(ctx context.Context) (missed int, err error) {
	if err := c.job.SetQuota(ctx, c.p.quota); err != nil {
		return 0, err
	}
	var with []float64
	kept := ""
	for i := range c.o.runs {
		var share float64
		var why string
		if err := c.undisturbed(ctx, func() (err error) { share, why, err = c.helplessOnce(ctx); return err }); err != nil {
			return missed, fmt.Errorf("run %d: %w", i+1, err)
		}
		c.say("run %d: %.3f; others took %.1f %%", i+1, share, 100*c.taken)
		with = append(with, share)
		kept = cmp.Or(why, kept)
	}
	mean := stats.Mean(with)
	low, high := stats.Interval95(with)
	hold := "holds"
	switch {
	case kept != "" || high < goalSlower:
		missed, hold = 1, "MISS"
	case mean < goalSlower:
		missed, hold = 1, "MISS: not told, its runs differ by more"
	}
	fmt.Printf("%-12s %-50s with trimtab %.3f (95 %%: %.3f … %.3f, %d runs)  %s%s\n", c.p.name, c.p.why, mean, low, high, len(with), hold, kept)
	return missed, nil
}

// helplessOnce returns its speed with trimtab over that without, and what was kept of what was tried.
func (c *cage) helplessOnce(ctx context.Context) (share float64, kept string, err error) {
	plain := func() (float64, error) {
		if _, err := c.daemon.Run(ctx, "disable", c.job.Name); err != nil {
			return 0, err
		}
		return c.rate(ctx, settleS, plainS)
	}
	first, err := plain()
	if err != nil {
		return 0, "", err
	}
	if _, err := c.daemon.Run(ctx, "enable", c.job.Name); err != nil {
		return 0, "", err
	}
	rate, err := c.rate(ctx, 15, plainS)
	if err != nil {
		return 0, "", err
	}
	v, err := c.daemon.Container(ctx, c.job.Name)
	if err != nil {
		return 0, "", err
	}
	for _, t := range v.Trials {
		if t.Outcome == "kept" {
			kept = " KEPT: " + t.Why
		}
	}
	last, err := plain()
	c.say("steps/s %.2f without, %.2f with trimtab, %.2f without; loan %+v", first, rate, last, v.Loan)
	return 2 * rate / (first + last), kept, err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
