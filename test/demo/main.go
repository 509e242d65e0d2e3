// Command demo shows trimtab on a real job: a PyTorch trainer whose data loaders
// starve under a CPU quota, beside a busy neighbour. It starts everything, tells
// what happens in plain words, judges the result by what the job itself printed,
// and puts everything away. Exit status 0 only if every promise was kept.
//
// Readings in which something else uses the machine are left out, and others taken for them.
// DEMO_DISTURB=1 lets a process take a CPU for 5 s at random moments, to show that.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/host"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/stats"
	"github.com/trimtab/trimtab/test/workload"
)

// The demo job finds the declared device wait that puts its knee here, well inside a
// two-core machine beside a neighbour that wants one core, however fast the machine is:
// a step's CPU cost 72 ms on one and 120 ms on another [measured].
const (
	kneeCPUs     = "0.9"
	starvedShare = 0.35 // of the CPUs that it uses without a quota: what its owner's quota grants
)

// Readings, and how long the demo waits for what it cannot force.
const (
	readingLength = 2 * time.Second
	settleLength  = 2 * time.Second // after a change of a quota: prefetched batches run out
	freeReadings  = 3               // before trimtab, and as many after it
	ownReadings   = 2               // the same
	helpReadings  = 6
	settledWithin = 90 * time.Second
	quietWithin   = 90 * time.Second // of each measurement
)

func main() {
	d := &demo{start: time.Now(), disturbed: os.Getenv("DEMO_DISTURB") == "1"}
	flag.StringVar(&d.binary, "trimtab", "bin/trimtab", "the `FILE` to show")
	flag.StringVar(&d.config, "config", "", "`YAML` for the daemon, to see what comes of another rule: 'loans: off' breaks promises")
	flag.DurationVar(&d.settledWithin, "settled-within", settledWithin, "`TIME` that trimtab has")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := d.run(ctx)
	err = errors.Join(err, d.end())
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}

type demo struct {
	binary, config string
	settledWithin  time.Duration
	disturbed      bool
	start          time.Time
	job, neighbour *workload.Job
	useJ, useN     func() (time.Duration, error)
	daemon         *daemontest.Daemon
	told           int // of the daemon's records
	figures        figures
	stood          map[string]runtime.Values // every knob of both containers before the daemon began
}

func (d *demo) say(format string, args ...any) {
	fmt.Printf("[%5.1f s] %s\n", time.Since(d.start).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) run(ctx context.Context) error {
	if err := d.startJobs(ctx); err != nil {
		return err
	}
	if d.disturbed {
		ending, cancel := context.WithCancel(ctx)
		var wait sync.WaitGroup
		wait.Go(func() { disturb(ending) })
		defer wait.Wait()
		defer cancel()
	}
	for _, step := range []func(context.Context) error{d.measureFree, d.starve, d.startDaemon, d.help, d.stopDaemon, d.measureAgain} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return d.judge()
}

// disturb takes a CPU for 5 s at random moments until ctx ends.
func disturb(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration((5 + 20*rand.Float64()) * float64(time.Second))):
		}
		spinning, cancel := context.WithTimeout(ctx, 5*time.Second)
		_ = exec.CommandContext(spinning, "sh", "-c", "while :; do :; done").Run() // killed, as it is to be
		cancel()
	}
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
	if d.useJ, err = d.job.CPUUsage(ctx); err != nil {
		return err
	}
	if d.useN, err = d.neighbour.CPUUsage(ctx); err != nil {
		return err
	}
	return d.job.WaitSteps(ctx, 20)
}

// mark is what the kernel has counted up to an instant.
type mark struct {
	at             time.Duration // CLOCK_MONOTONIC
	host           probes.Host
	job, neighbour time.Duration
}

func (d *demo) mark() (m mark, err error) {
	if m.job, err = d.useJ(); err != nil {
		return m, err
	}
	if m.neighbour, err = d.useN(); err != nil {
		return m, err
	}
	if m.host, err = host.New("/proc").Read(); err != nil {
		return m, err
	}
	m.at = workload.Now()
	return m, nil
}

// read waits for one reading.
func (d *demo) read(ctx context.Context) (r reading, err error) {
	from, err := d.mark()
	if err != nil {
		return r, err
	}
	if r.rate, _, err = d.job.RateFor(ctx, readingLength); err != nil {
		return r, err
	}
	to, err := d.mark()
	if err != nil {
		return r, err
	}
	wall := float64(to.host.AtNs - from.host.AtNs)
	r.job, r.neighbour = float64(to.job-from.job)/wall, float64(to.neighbour-from.neighbour)/wall
	busy := float64(to.host.BusyNs + to.host.StealNs - from.host.BusyNs - from.host.StealNs)
	r.other = max(0, busy/wall-r.job-r.neighbour)
	return r, nil
}

// readings takes so many in which nothing else used the machine. One that follows after
// something else did is left out as well: what waited meanwhile is made good in it.
func (d *demo) readings(ctx context.Context, n int) (out []reading, err error) {
	deadline := time.Now().Add(quietWithin)
	for before := true; len(out) < n; {
		r, err := d.read(ctx)
		if err != nil {
			return nil, err
		}
		d.figures.readings++
		if quiet := r.quiet(); quiet && before {
			out = append(out, r)
		} else {
			d.figures.skipped++
			before = quiet
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("something else used %.2f CPUs of this machine, and did so in most of %s: try again when it is quiet", r.other, quietWithin)
		}
	}
	return out, nil
}

// settled takes readings under a quota that was set a moment ago.
func (d *demo) settled(ctx context.Context, n int) ([]reading, error) {
	if _, _, err := d.job.RateFor(ctx, settleLength); err != nil {
		return nil, err
	}
	return d.readings(ctx, n)
}

// each is one part of readings.
func each(rs []reading, of func(reading) float64) []float64 {
	out := make([]float64, len(rs))
	for i, r := range rs {
		out[i] = of(r)
	}
	return out
}

func rate(r reading) float64      { return r.rate }
func jobCPUs(r reading) float64   { return r.job }
func neighbour(r reading) float64 { return r.neighbour }

// measureFree measures the job without a quota.
func (d *demo) measureFree(ctx context.Context) error {
	if err := d.job.SetQuota(ctx, 0); err != nil {
		return err
	}
	rs, err := d.settled(ctx, freeReadings)
	if err != nil {
		return err
	}
	f := &d.figures
	f.free, f.freeCPUs = append(f.free, each(rs, rate)...), append(f.freeCPUs, each(rs, jobCPUs)...)
	d.say("without a quota it makes %.2f steps/s and uses %.2f CPUs", stats.Mean(each(rs, rate)), stats.Mean(each(rs, jobCPUs)))
	return nil
}

// starve gives the job the quota that its owner got wrong.
func (d *demo) starve(ctx context.Context) (err error) {
	d.figures.quota = math.Round(stats.Mean(d.figures.freeCPUs)*starvedShare*100) / 100
	if err := d.job.SetQuota(ctx, d.figures.quota); err != nil {
		return err
	}
	if err := d.measureOwn(ctx); err != nil {
		return err
	}
	if d.stood, err = d.knobs(ctx); err != nil {
		return err
	}
	d.figures.ownStood = string(d.stood[d.job.Name][runtime.KnobCPUQuota])
	return nil
}

// measureOwn measures the job under its owner's quota.
func (d *demo) measureOwn(ctx context.Context) error {
	rs, err := d.settled(ctx, ownReadings)
	if err != nil {
		return err
	}
	f := &d.figures
	f.starved, f.neighbourStarved = append(f.starved, each(rs, rate)...), append(f.neighbourStarved, each(rs, neighbour)...)
	d.say("its owner's quota of %.2f CPUs leaves it %.2f steps/s", f.quota, stats.Mean(each(rs, rate)))
	return nil
}

func (d *demo) startDaemon(ctx context.Context) (err error) {
	d.say("starting trimtab")
	d.daemon, err = daemontest.Start(ctx, daemontest.Options{Binary: d.binary, Config: d.config})
	return err
}

// help measures the job with its loan. A loan that moves meanwhile had not settled: what is read of it
// then is of no quota, and it is measured again once it has. The time for all of that has an end.
func (d *demo) help(ctx context.Context) error {
	for deadline := time.Now().Add(d.settledWithin); ; {
		if err := d.follow(ctx, deadline); err != nil {
			return err
		}
		stood := d.figures.granted
		if err := d.measureHelped(ctx); err != nil {
			return err
		}
		if d.figures.granted == stood || time.Now().After(deadline) {
			return d.explain(ctx)
		}
		d.say("%.2f CPUs have become %.2f meanwhile: that is measured again", stood, d.figures.granted)
	}
}

// follow passes on what trimtab does until a loan has settled, or its time is over.
func (d *demo) follow(ctx context.Context, deadline time.Time) error {
	for {
		records, err := d.daemon.History(ctx)
		if err != nil {
			return fmt.Errorf("%w; the daemon said:\n%s", err, d.daemon.Log())
		}
		for ; d.told < len(records); d.told++ {
			if r := records[d.told]; r.Name == d.job.Name {
				d.say("   trimtab: %s", r.Text)
			}
		}
		c, err := d.daemon.Container(ctx, d.job.Name)
		if err == nil && c.Loan != nil && c.Loan.Settled { // called in and lent anew later, it has to settle again
			d.figures.granted, _ = c.Now[runtime.KnobCPUQuota].CPUs()
			return nil
		}
		if time.Now().After(deadline) {
			d.say("no loan has settled within %s", d.settledWithin)
			return nil // the promises will say what that means
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// measureHelped takes the job's own word for what came of it.
func (d *demo) measureHelped(ctx context.Context) error {
	rs, err := d.readings(ctx, helpReadings)
	if err != nil {
		return err
	}
	f := &d.figures
	f.helped, f.neighbourHelped = each(rs, rate), each(rs, neighbour)
	c, err := d.daemon.Container(ctx, d.job.Name)
	if err == nil {
		f.granted, _ = c.Now[runtime.KnobCPUQuota].CPUs()
	}
	return err
}

// explain prints what people see of it.
func (d *demo) explain(ctx context.Context) error {
	text, err := d.daemon.Run(ctx, "explain", d.job.Name)
	if err != nil {
		return err
	}
	fmt.Printf("\n$ trimtab explain %s\n%s\n", d.job.Name, text)
	return nil
}

// stopDaemon ends it and holds every limit against what stood before.
func (d *demo) stopDaemon(ctx context.Context) error {
	d.say("stopping trimtab: it puts everything back")
	if err := d.daemon.Stop(); err != nil {
		return err
	}
	stands, err := d.knobs(ctx)
	if err != nil {
		return err
	}
	f := &d.figures
	f.ownBack = string(stands[d.job.Name][runtime.KnobCPUQuota])
	for name, before := range d.stood {
		for k, v := range before {
			f.limits++
			if now := stands[name][k]; now != v {
				f.changed = append(f.changed, fmt.Sprintf("%s's %s was %s and is %s", name, k, v, now))
			}
		}
	}
	return nil
}

// measureAgain measures once more what was measured before trimtab: a machine changes within
// a minute, and trimtab is judged by both.
func (d *demo) measureAgain(ctx context.Context) error {
	d.say("measuring once more without it")
	if err := d.measureOwn(ctx); err != nil {
		return err
	}
	return d.measureFree(ctx)
}

// judge prints the summary and the promises.
func (d *demo) judge() error {
	fmt.Printf("\n%s\n", summary(d.figures))
	ok := true
	for _, p := range judge(d.figures) {
		mark := "ok  "
		if !p.kept {
			mark, ok = "MISS", false
		}
		fmt.Printf("  %s %s\n", mark, p.text)
	}
	if !ok {
		return errors.New("a promise was not kept")
	}
	fmt.Printf("\nEverything kept, in %.0f s.\n", time.Since(d.start).Seconds())
	return nil
}

// knobs reads what stands in the kernel, by container.
func (d *demo) knobs(ctx context.Context) (map[string]runtime.Values, error) {
	out := map[string]runtime.Values{}
	for _, j := range []*workload.Job{d.job, d.neighbour} {
		where, err := j.Cgroup(ctx)
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
