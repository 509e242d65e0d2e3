package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/device"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/state"
)

// quiet is longer than two ticks: what the probes counted has been read.
const quiet = 2500 * time.Millisecond

// launches compares the count of uprobes with others.
func (c *check) launches(ctx context.Context) error {
	errPlain := c.plainCounts(ctx)
	if c.node != nil {
		return errors.Join(errPlain, c.launchesVirtual(ctx))
	}
	return errors.Join(errPlain, c.launchesProfiled(ctx))
}

// counting starts a job, and once it is ready a daemon that counts every call.
func (c *check) counting(ctx context.Context, w work, ready func(*job) error) (j *job, d *daemon, end func() error, err error) {
	if j, err = c.start(ctx, "launches", w); err != nil {
		return nil, nil, nil, err
	}
	if err := ready(j); err != nil {
		return nil, nil, nil, errors.Join(err, j.stop())
	}
	if d, err = c.launch(ctx, j, settings{mode: policies.ModeObserve, everyCall: true, dir: j.dir}); err != nil {
		return nil, nil, nil, errors.Join(err, j.stop())
	}
	return j, d, func() error { return errors.Join(d.end(), j.stop()) }, nil
}

func counts(d *daemon) probes.CUDAProcess {
	if s := d.tap.sample(); s.CUDA != nil && len(s.CUDA.Processes) > 0 {
		return s.CUDA.Processes[0]
	}
	return probes.CUDAProcess{}
}

// launchesVirtual holds the job still while both counts are read.
func (c *check) launchesVirtual(ctx context.Context) (err error) {
	j, d, end, err := c.counting(ctx, trainer("--kernels", "20", "--kernel-us", "2000"),
		func(j *job) error { return j.waitSteps(ctx, 20, startPatience) })
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, end()) }()
	if err := firstError(d.counting(ctx), workload.Sleep(ctx, 4*time.Second)); err != nil {
		return err
	}
	var ours, truth [2]uint64
	for i := range ours {
		if err := j.signal(ctx, unix.SIGSTOP); err != nil {
			return err
		}
		if err := firstError(workload.Sleep(ctx, quiet), d.readsOn(ctx)); err != nil {
			return err
		}
		state, err := c.node.Show(ctx)
		if err != nil || len(state.Procs) == 0 {
			return fmt.Errorf("the virtual node shows no process: %w", firstError(err, errors.New("none")))
		}
		p := counts(d)
		ours[i], truth[i] = p.Launches, state.Procs[0].Kernels
		c.report.say("         held still: %d launches in %.1f s counted, %d done by the virtual device", p.Launches, float64(p.LaunchNs)/1e9, truth[i])
		if err := errors.Join(j.signal(ctx, unix.SIGCONT), workload.Sleep(ctx, c.pick(6*time.Second, 2*time.Second))); err != nil {
			return err
		}
	}
	c.uncounted(d)
	c.judgeCount("kernels of 2 ms", truth[1]-truth[0], ours[1]-ours[0], 1, "the virtual device's own count")
	return nil
}

// launchesProfiled: the job does the same steps with and without PyTorch's profiler,
// and is quiet before, between and after.
func (c *check) launchesProfiled(ctx context.Context) (err error) {
	j, d, end, err := c.counting(ctx, script("--job", "count", "--quiet-s", fmt.Sprint(2*quiet.Seconds())),
		func(j *job) error {
			_, err := j.note(ctx, "started", startPatience)
			return err
		})
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, end()) }()
	var at, collectives [3]uint64
	for i, begins := range []string{"quiet 0", "quiet 1", "quiet 2"} {
		if _, err := j.note(ctx, begins, startPatience); err != nil {
			return err
		}
		if err := workload.Sleep(ctx, quiet); err != nil {
			return err
		}
		p := counts(d)
		at[i] = p.Launches + p.Graphs
		if s := d.tap.sample(); s.NCCL != nil && len(s.NCCL.Processes) > 0 {
			for _, n := range s.NCCL.Processes[0].Calls {
				collectives[i] += n
			}
		}
	}
	text, err := j.note(ctx, "profiled ", time.Minute)
	if err != nil {
		return err
	}
	var calls, kernels uint64
	if _, err := fmt.Sscanf(text, "calls=%d kernels=%d", &calls, &kernels); err != nil {
		return fmt.Errorf("the job said %q of its profile: %w", text, err)
	}
	c.report.say("         the profiler saw %d kernels run on the device", kernels)
	c.uncounted(d)
	c.judgeCount("100 steps, profiled", calls, at[2]-at[1], slack(calls), "launch calls, PyTorch's profiler")
	c.judgeCount("100 steps, not profiled", calls, at[1]-at[0], slack(calls), "the profiled run's count")
	for i, what := range []string{"100 steps, not profiled", "100 steps, profiled"} {
		c.judgeCount(what+", all-reduces", 300, collectives[i+1]-collectives[i], 0, "as the job calls them")
	}
	return nil
}

// slack is 1 %: the profiler's own start and stop launch and miss a few.
func slack(n uint64) uint64 { return max(2, n/100) }

func (c *check) judgeCount(what string, truth, ours, slack uint64, who string) {
	ok := truth > 0 && ours+slack >= truth && ours <= truth+slack
	c.report.judge(ok, "launches", what, fmt.Sprintf("%d (%s)", truth, who), fmt.Sprint(ours))
}

// uncounted says what a daemon does not count, and why.
func (c *check) uncounted(d *daemon) {
	s := d.tap.sample()
	switch {
	case s.CUDA == nil:
		c.report.say("         no reading of CUDA at all")
	case len(s.CUDA.Missing) > 0 || len(s.CUDA.Processes) != 1:
		c.report.say("         %d processes are counted; missing: %s", len(s.CUDA.Processes), strings.Join(s.CUDA.Missing, "; "))
	}
}

// rate takes turns: the job alone, the job under trimtab; and with its launches probed and not.
func (c *check) rate(ctx context.Context) error {
	all := c.truths()
	whole, counted := all[:1], all[2:3]
	if c.o.short {
		whole = all[2:3]
	}
	if c.node == nil {
		counted = nil
		for _, rate := range []string{"20000", "50000"} {
			counted = append(counted, truth{name: "paced" + rate, work: script("--job", "paced", "--rate", rate)})
		}
	}
	unwanted := func(t truth) bool { return !c.wanted(t.name) }
	whole, counted = slices.DeleteFunc(slices.Clone(whole), unwanted), slices.DeleteFunc(slices.Clone(counted), unwanted)
	for _, t := range whole {
		if err := c.rateOf(ctx, t, 4); err != nil {
			return fmt.Errorf("job %s: %w", t.name, err)
		}
	}
	blocks := 30
	if c.o.short {
		blocks = 4
	}
	for _, t := range counted {
		if err := c.costOf(ctx, t, blocks); err != nil {
			return fmt.Errorf("job %s: %w", t.name, err)
		}
	}
	return nil
}

// costLimit: more than this much of the job's rate is a problem, if it is sure.
const costLimit = 0.03

func (c *check) rateOf(ctx context.Context, t truth, pairs int) (err error) {
	j, err := c.stepping(ctx, t.name, t.work, 20)
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, j.stop()) }()
	length := c.pick(3*time.Second, 1500*time.Millisecond)
	if c.o.short {
		pairs = 2
	}
	var ratios []float64
	for range pairs {
		without, err := j.rateFor(ctx, length)
		if err != nil {
			return err
		}
		with, err := c.rateUnder(ctx, j, length)
		if err != nil {
			return err
		}
		ratios = append(ratios, with/without)
		c.report.say("         %s: %.3f steps/s alone, %.3f under trimtab", t.name, without, with)
	}
	mean, low, high := interval(ratios)
	c.report.judge(high >= 1-costLimit, "rate", t.name+": with trimtab over without", fmt.Sprintf("%d pairs, in turn", pairs),
		fmt.Sprintf("%.4f (95 %%: %.4f to %.4f)", mean, low, high))
	return nil
}

func (c *check) rateUnder(ctx context.Context, j *job, length time.Duration) (rate float64, err error) {
	d, err := c.launch(ctx, j, settings{mode: policies.ModeObserve, dir: j.dir})
	if err != nil {
		return 0, err
	}
	defer func() { err = firstError(err, d.end()) }()
	if err := workload.Sleep(ctx, 3*time.Second); err != nil { // loaded and attached
		return 0, err
	}
	return j.rateFor(ctx, length)
}

// tuning lets trimtab raise a quota that starves loaders, and take it back.
func (c *check) tuning(ctx context.Context) (err error) {
	j, err := c.stepping(ctx, "starved", c.starved(), 5)
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, j.stop()) }()
	length := c.pick(8*time.Second, 3*time.Second)
	before, err := j.rateFor(ctx, length)
	if err != nil {
		return err
	}
	engine := c.site.engine
	original, err := engine.Read(ctx, j.c)
	if err != nil {
		return err
	}
	d, err := c.launch(ctx, j, settings{mode: policies.ModeTune, dir: j.dir, record: "tuning"})
	if err != nil {
		return err
	}
	errTuned := c.tuned(ctx, d, j, before, length)
	errRestore := d.restore(context.WithoutCancel(ctx))
	stands, err := engine.Read(ctx, j.c)
	if err != nil {
		return errors.Join(err, errTuned, errRestore)
	}
	was, is := original[runtime.KnobCPUQuota], stands[runtime.KnobCPUQuota]
	left, err := filepath.Glob(filepath.Join(j.dir, "originals", "*"))
	c.report.judge(errRestore == nil && was == is && len(left) == 0, "tuning", "restored at the end", string(was), fmt.Sprintf("%s, %d originals left", is, len(left)))
	return errors.Join(err, errTuned, errRestore)
}

// tuned waits for the change, and in a full run for its proof.
func (c *check) tuned(ctx context.Context, d *daemon, j *job, before float64, length time.Duration) error {
	v, err := c.await(ctx, d, c.pick(90*time.Second, 40*time.Second), func(v state.Container) bool { return len(v.Changed) > 0 })
	if err != nil {
		c.report.row(bad, "tuning", "the quota is raised", "starved by its quota", fmt.Sprintf("%v: %s; %s; %v", err, v.Verdict.Why, v.WhyNot, v.Advice))
		return ctx.Err()
	}
	c.report.row(good, "tuning", "the quota is raised", string(v.Original[runtime.KnobCPUQuota]), string(v.Now[runtime.KnobCPUQuota]))
	if err := workload.Sleep(ctx, c.pick(20*time.Second, 0)); err != nil { // until what is not used is given back
		return err
	}
	after, err := j.rateFor(ctx, length)
	if err != nil {
		return err
	}
	c.report.judge(after > 1.1*before, "tuning", "steps/s, by the job's own log", fmt.Sprintf("before %.2f", before), fmt.Sprintf("after %.2f, with %s", after, c.stands(d)))
	return nil
}

// stands is the quota that is written now.
func (c *check) stands(d *daemon) string {
	v, _ := d.view()
	return string(v.Now[runtime.KnobCPUQuota])
}

func (c *check) await(ctx context.Context, d *daemon, patience time.Duration, is func(state.Container) bool) (v state.Container, err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		var ok bool
		if v, ok = d.view(); ok && is(v) {
			return v, nil
		}
		if err := workload.Sleep(ctx, 200*time.Millisecond); err != nil {
			return v, err
		}
	}
	return v, fmt.Errorf("not within %s", patience)
}

// access shows what trimtab knows of a container's way to its device, hides it on
// purpose and shows it again, and on v1 control groups takes it away and has it put
// back.
func (c *check) access(ctx context.Context) (err error) {
	j, err := c.stepping(ctx, "access", c.truths()[0].work, 1)
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, j.stop()) }()
	pre := device.Preflight(ctx, j.c, device.Options{})
	c.report.judge(pre.Green, "access", "preflight before a write", "given by its spec", pre.String())
	has, err := device.CheckAccess(ctx, j.c)
	c.report.judge(has == device.AccessAllowed, "access", "the container reaches nvidiactl", "given by its spec", words(has, err))
	c.refused(ctx, j)
	if err := c.hideAndShow(ctx); err != nil {
		c.report.row(bad, "access", "hide a device, show it again", "", err.Error())
	}
	dir := j.c.Cgroup.V1["devices"]
	if dir == "" {
		c.report.row(note, "access", "lost access is put back", "", "not tried: on v2 the check has no way to take it away")
		return nil
	}
	return c.repair(ctx, j, dir)
}

func words(a device.Access, err error) string {
	if err != nil {
		return strings.TrimSpace(string(a) + ": " + err.Error())
	}
	return string(a)
}

// repair takes the rules of NVIDIA's devices away, as a daemon-reload does with the
// legacy hook's, and puts them back.
func (c *check) repair(ctx context.Context, j *job, dir string) error {
	v := device.NewVisibility(device.Options{})
	stands, _, err := v.Look(ctx, j.c, nil)
	if err != nil {
		return err
	}
	for _, r := range stands { // the kernel takes away what is named exactly
		if err := os.WriteFile(filepath.Join(dir, "devices.deny"), []byte(r.Kind+" "+r.Numbers()+" rwm"), 0); err != nil {
			return err
		}
	}
	gone, errGone := device.CheckAccess(ctx, j.c)
	c.report.judge(gone == device.AccessRefused, "access", "taken away, it is seen as lost", fmt.Sprintf("%d rules denied", len(stands)), words(gone, errGone))
	began := time.Now()
	how, err := v.Repair(ctx, j.c, stands)
	if err != nil {
		c.report.row(bad, "access", "lost access is put back", "", err.Error())
		return nil
	}
	again, errAgain := device.CheckAccess(ctx, j.c)
	c.report.judge(again == device.AccessAllowed, "access", "lost access is put back", fmt.Sprintf("%d rules stood", len(stands)),
		fmt.Sprintf("%s; %s, %.1f ms", words(again, errAgain), how, float64(time.Since(began).Microseconds())/1000))
	return nil
}
