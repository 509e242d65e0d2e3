// Command demo shows trimtab on a real job: a PyTorch trainer whose data loaders
// starve under a CPU quota, beside a busy neighbour. It starts everything, tells
// what happens in plain words, judges the result by what the job itself printed,
// and puts everything away. Exit status 0 only if every promise was kept.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/host"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/view"
)

// The demo job finds the declared device wait that puts its knee here, well inside a
// two-core machine beside a neighbour that wants one core, however fast the machine is:
// a step's CPU cost 72 ms on one and 120 ms on another [measured].
const (
	kneeCPUs     = "0.9"
	starvedShare = 0.35 // of the knee: what the owner's quota grants
)

// Promises are what exit status 0 means (README).
const (
	minOfFree   = 0.90 // of the rate without a quota beside the same neighbour
	maxOfKnee   = 1.20 // CPUs granted over the knee that the sweep found
	maxMiss     = 0.10 // of the predicted gain
	minOfDue    = 0.97 // of what the neighbour used and is entitled to
	trialsAtMax = 90 * time.Second
	maxStolen   = 0.02 // of the CPUs' time: trimtab's default for what is above the usual
)

func main() {
	binary := flag.String("trimtab", "bin/trimtab", "the binary to show")
	quick := flag.Bool("quick", false, "sweep fewer quotas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	d := &demo{binary: *binary, quick: *quick, start: time.Now()}
	err := d.run(ctx)
	err = errors.Join(err, d.end())
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}

type demo struct {
	binary         string
	quick          bool
	start          time.Time
	job, neighbour *workload.Job
	jobUse, useN   func() (time.Duration, error)
	daemon         *daemontest.Daemon

	free, starved, after       float64 // steps/s, by the job's own lines
	neighbourFree, neighbourIn float64 // CPUs
	neighbourStarved           float64
	knee, quota                float64     // CPUs
	began                      probes.Host // of measuring
	trial                      view.Trial
	final                      view.Container
	stood                      map[string]runtime.Values // every knob of both containers before the daemon began
}

func (d *demo) say(format string, args ...any) {
	fmt.Printf("[%5.1f s] %s\n", time.Since(d.start).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{d.startJobs, d.sweep, d.starve, d.tune, d.measure, d.stopDaemon} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return d.judge(ctx)
}

func (d *demo) startJobs(ctx context.Context) (err error) {
	if err := workload.Ready(ctx); err != nil {
		return err
	}
	d.say("starting a PyTorch job with two data loader processes, and a neighbour that wants one CPU")
	d.neighbour, err = workload.Start(ctx, workload.Options{Name: fmt.Sprintf("trimtab-demo-neighbour-%d", os.Getpid()), Script: "neighbour.py", DockerArgs: []string{"--network", "none"}})
	if err != nil {
		return err
	}
	d.job, err = workload.Start(ctx, workload.Options{Name: fmt.Sprintf("trimtab-demo-%d", os.Getpid()), Script: "dataloader.py", Args: []string{"--knee", kneeCPUs},
		DockerArgs: []string{"--network", "none", "--label", "trimtab.mode=tune", "--label", "trimtab.team=demo"}})
	if err != nil {
		return err
	}
	if d.jobUse, err = d.job.CPUUsage(ctx); err != nil {
		return err
	}
	if d.useN, err = d.neighbour.CPUUsage(ctx); err != nil {
		return err
	}
	return d.job.WaitSteps(ctx, 20)
}

// sweep finds the knee of this job on this machine, beside this neighbour.
func (d *demo) sweep(ctx context.Context) error {
	d.say("measuring it without trimtab: no quota, then a sweep of quotas, to know what there is to win")
	quotas := []float64{0, 0.5, 0.65, 0.75, 0.85, 0.95, 1.05, 1.2, 0}
	if d.quick {
		quotas = []float64{0, 0.6, 0.8, 0.95, 1.1, 0}
	}
	var err error
	if d.began, err = host.New("/proc").Read(); err != nil {
		return err
	}
	before, at, err := d.neighbourMark()
	if err != nil {
		return err
	}
	var free []float64
	points, err := d.job.Sweep(ctx, workload.SweepOptions{CPUs: quotas, Settle: 1500 * time.Millisecond, Measure: 4500 * time.Millisecond, Usage: d.jobUse,
		Each: func(p workload.Point) {
			name := fmt.Sprintf("%.2f CPUs", p.CPUs)
			if p.CPUs == 0 {
				name = "no quota "
				free = append(free, p.Rate)
				d.neighbourFree, _ = d.neighbourSince(before, at)
			}
			before, at, _ = d.neighbourMark()
			d.say("   %s  %5.2f steps/s, %.2f CPUs used", name, p.Rate, p.UsedCPUs)
		}})
	if err != nil {
		return err
	}
	for _, r := range free {
		d.free += r / float64(len(free))
	}
	knee, _, ok := workload.Knee(points)
	if !ok {
		return fmt.Errorf("the sweep found no knee inside it (nearest %.2f CPUs): is this machine busy with something else?", knee)
	}
	d.knee = knee
	d.say("the knee is at %.2f CPUs; without a quota the job makes %.2f steps/s", d.knee, d.free)
	return nil
}

func (d *demo) neighbourMark() (time.Duration, time.Time, error) {
	used, err := d.useN()
	return used, time.Now(), err
}

func (d *demo) neighbourSince(used time.Duration, at time.Time) (float64, error) {
	now, err := d.useN()
	return (now - used).Seconds() / time.Since(at).Seconds(), err
}

// starve gives the job the quota that its owner got wrong.
func (d *demo) starve(ctx context.Context) (err error) {
	d.quota = math.Round(d.knee*starvedShare*100) / 100
	if err := d.job.SetQuota(ctx, d.quota); err != nil {
		return err
	}
	if _, _, err := d.job.RateFor(ctx, 2*time.Second); err != nil {
		return err
	}
	before, at, err := d.neighbourMark()
	if err != nil {
		return err
	}
	if d.starved, _, err = d.job.RateFor(ctx, 8*time.Second); err != nil {
		return err
	}
	if d.neighbourStarved, err = d.neighbourSince(before, at); err != nil {
		return err
	}
	if d.stood, err = d.knobs(ctx); err != nil {
		return err
	}
	d.say("its owner's quota of %.2f CPUs leaves it %.2f steps/s", d.quota, d.starved)
	return nil
}

// tune starts the daemon and follows it until a trial was kept.
func (d *demo) tune(ctx context.Context) (err error) {
	d.say("starting trimtab")
	d.daemon, err = daemontest.Start(ctx, daemontest.Options{Binary: d.binary})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, trialsAtMax)
	defer cancel()
	seen := 0
	for {
		records, err := d.daemon.History(ctx)
		if err != nil {
			return fmt.Errorf("%w; the daemon said:\n%s", err, d.daemon.Log())
		}
		for ; seen < len(records); seen++ {
			if r := records[seen]; r.Name == d.job.Name {
				d.say("   trimtab: %s", r.Text)
			}
		}
		c, err := d.daemon.Container(ctx, d.job.Name)
		if err == nil && len(c.Trials) > 0 && c.Trials[0].Outcome == view.OutcomeKept {
			d.trial, d.final = c.Trials[0], c
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("no change was kept within %s; the daemon said:\n%s", trialsAtMax, d.daemon.Log()), d.robbed())
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// measure takes the job's own word for what came of it.
func (d *demo) measure(ctx context.Context) (err error) {
	before, at, err := d.neighbourMark()
	if err != nil {
		return err
	}
	if d.after, _, err = d.job.RateFor(ctx, 12*time.Second); err != nil {
		return err
	}
	if d.neighbourIn, err = d.neighbourSince(before, at); err != nil {
		return err
	}
	if d.final, err = d.daemon.Container(ctx, d.job.Name); err != nil {
		return err
	}
	text, err := d.daemon.Run(ctx, "explain", d.job.Name)
	if err != nil {
		return err
	}
	fmt.Printf("\n$ trimtab explain %s\n%s\n", d.job.Name, text)
	return nil
}

// robbed tells of what makes figures worse, and a demo can do nothing about.
func (d *demo) robbed() error {
	now, err := host.New("/proc").Read()
	if err != nil {
		return err
	}
	if stolen := now.StolenSince(d.began); stolen > maxStolen {
		return fmt.Errorf("%.1f %% of this machine's CPU time was taken by its hypervisor meanwhile: try again when its host is less busy", 100*stolen)
	}
	return nil
}

func (d *demo) stopDaemon(context.Context) error {
	d.say("stopping trimtab: it puts everything back")
	return d.daemon.Stop()
}

// judge prints the summary and checks the promises.
func (d *demo) judge(ctx context.Context) error {
	granted, _ := d.final.Now[runtime.KnobCPUQuota].CPUs()
	stands, err := d.knobs(ctx)
	if err != nil {
		return err
	}
	back, kept := stands[d.job.Name][runtime.KnobCPUQuota], 0
	var changed []string
	for name, before := range d.stood {
		for k, v := range before {
			if now := stands[name][k]; now != v {
				changed = append(changed, fmt.Sprintf("%s's %s was %s and is %s", name, k, v, now))
			}
			kept++
		}
	}
	due := min(d.neighbourStarved, 1) // two equal weights on two CPUs entitle each to one
	// In steps/s where trimtab confirmed them, else as a gain over the rate before.
	predicted, measured, unit := d.trial.Predicted, d.after, "steps/s"
	if !d.final.Rate.Steps {
		predicted, measured, unit = d.trial.Predicted/d.trial.Before, d.after/d.starved, "times the rate before"
	}
	fmt.Printf("Summary, all measured in this run; steps/s as the job itself printed them\n")
	fmt.Printf("  before        %6.2f steps/s on %.2f CPUs\n", d.starved, d.quota)
	fmt.Printf("  after         %6.2f steps/s on %.2f CPUs   (%+.0f %%)\n", d.after, granted, 100*(d.after/d.starved-1))
	fmt.Printf("  without quota %6.2f steps/s\n", d.free)
	for _, ch := range d.trial.Changes {
		fmt.Printf("  change        %s %s → %s\n", ch.Knob, ch.From, ch.To)
	}
	fmt.Printf("  read back     cpu.quota %s after trimtab ended, %.2f CPUs before it began\n\n", back, d.quota)
	ok := true
	check := func(good bool, format string, args ...any) {
		mark := "ok  "
		if !good {
			mark, ok = "MISS", false
		}
		fmt.Printf("  %s %s\n", mark, fmt.Sprintf(format, args...))
	}
	check(d.after >= minOfFree*d.free, "rate is %.0f %% of that without a quota (promised: %.0f %%)", 100*d.after/d.free, 100*minOfFree)
	check(granted <= maxOfKnee*d.knee, "granted %.2f CPUs, %.2f × the knee of %.2f (promised: at most %.1f)", granted, granted/d.knee, d.knee, maxOfKnee)
	check(math.Abs(predicted/measured-1) <= maxMiss, "predicted %.2f %s, came %.2f: off by %.1f %% (promised: at most %.0f %%)", predicted, unit, measured, 100*math.Abs(predicted/measured-1), 100*maxMiss)
	check(d.neighbourIn >= minOfDue*due, "the neighbour used %.2f CPUs before and %.2f after; it is entitled to 1.00 (promised: %.0f %% of what it had of that)", d.neighbourStarved, d.neighbourIn, 100*minOfDue)
	check(len(changed) == 0 && back == runtime.QuotaFromCPUs(d.quota, runtime.DefaultPeriodUs), "every limit is back, of %d of both containers%s", kept, strings.Join(append([]string{""}, changed...), "; "))
	if !ok {
		return errors.Join(errors.New("a promise was not kept"), d.robbed())
	}
	fmt.Printf("\nEverything kept, in %.0f s.\n", time.Since(d.start).Seconds())
	return nil
}

// knobs reads what stands in the kernel, by container.
func (d *demo) knobs(ctx context.Context) (map[string]runtime.Values, error) {
	out := map[string]runtime.Values{}
	for _, j := range []*workload.Job{d.job, d.neighbour} {
		pid, err := j.PID(ctx)
		if err != nil {
			return nil, err
		}
		where, err := cgroup.Locate("/proc", cgroup.DefaultRoot, pid)
		if err != nil {
			return nil, err
		}
		if out[j.Name], err = cgroup.ReadValues(where); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// end removes everything the demo started.
func (d *demo) end() error {
	var errs []error
	if d.daemon != nil {
		errs = append(errs, d.daemon.Close())
	}
	for _, j := range []*workload.Job{d.job, d.neighbour} {
		if j != nil {
			errs = append(errs, j.Stop())
		}
	}
	return errors.Join(errs...)
}
