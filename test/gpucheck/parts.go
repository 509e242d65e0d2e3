package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes/nvml"
	"github.com/trimtab/trimtab/test/runtimetest/ctrd"
	"github.com/trimtab/trimtab/test/workload"
)

// machine says on what this runs.
func (c *check) machine(ctx context.Context) {
	say := func(format string, args ...any) {
		line := fmt.Sprintf(format, args...)
		c.report.machine = append(c.report.machine, line)
		c.report.say("%s", line)
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		say("kernel %s, %s", unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:]))
	}
	for _, name := range ctrd.Programs() {
		say("%s %s", name, ctrd.Version(c.o.dir, name))
	}
	if out, err := exec.CommandContext(ctx, filepath.Join(c.o.dir, "trimtab"), "version").Output(); err == nil {
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		say("%s", first)
	}
	c.doctor(ctx)
	if c.node == nil {
		text, err := torchSays(ctx)
		if err != nil {
			text = err.Error()
		}
		say("%s", text)
	}
}

// doctor prints what trimtab itself says of the machine; without Docker it is not content.
func (c *check) doctor(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, filepath.Join(c.o.dir, "trimtab"), "doctor").CombinedOutput()
	for line := range strings.Lines(string(out)) {
		c.report.say("    doctor: %s", strings.TrimRight(line, "\n"))
	}
}

// nvml prints what each function of NVML answered.
func (c *check) nvml(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	s, err := nvml.Look(ctx, nvml.Options{})
	if err != nil {
		return err
	}
	c.report.machine = append(c.report.machine, fmt.Sprintf("driver %s, NVML %s", s.Driver, s.NVML))
	c.report.judge(s.Absent == "" && len(s.Devices) > 0, "nvml", "devices", "driver "+s.Driver, fmt.Sprintf("%d, NVML %s%s", len(s.Devices), s.NVML, s.Absent))
	for _, d := range s.Devices {
		name := fmt.Sprintf("%s, %.0f GiB", d.Name, float64(d.MemTotal)/(1<<30))
		c.report.machine = append(c.report.machine, "device: "+name)
		gpm := "GPM tells nothing (before Hopper, or not allowed)"
		if d.SMActive != nil {
			gpm = "GPM tells the share of active SMs"
		}
		c.report.row(note, "nvml", fmt.Sprintf("device %d", d.Index), name, fmt.Sprintf("%d functions answered; %s", len(s.Answered(d.UUID)), gpm))
		text, err := json.Marshal(d)
		if err != nil {
			return err
		}
		c.report.say("         reading: %s", text)
	}
	for _, a := range s.Answers {
		c.report.say("         %-10.10s %-44s %s", a.Device, a.Call, a.Code)
	}
	c.report.judge(len(s.Silent) == 0, "nvml", "calls that hung or ended the child", "", fmt.Sprint(len(s.Silent), " ", strings.Join(s.Silent, " ")))
	return nil
}

// jobs runs each job under an observing trimtab.
func (c *check) jobs(ctx context.Context) error {
	ran := 0
	for _, t := range c.truths() {
		if c.o.short && (t.name == "checkpoint" || strings.HasPrefix(t.name, plainPrefix) && t.name != plainPrefix+"staged") {
			c.report.say("short: the job %q is left out", t.name)
			continue
		}
		if !c.wanted(t.name) {
			continue
		}
		ran++
		if err := c.oneJob(ctx, t, ran == 1); err != nil {
			c.report.row(bad, "jobs", t.name+" runs to its end", "", err.Error()) // the others still tell
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	if ran == 0 {
		return fmt.Errorf("-job %q: there is none of these", c.o.job)
	}
	return nil
}

// wanted reports whether a job is among those that were asked for.
func (c *check) wanted(name string) bool {
	return c.o.job == "" || slices.Contains(strings.Split(c.o.job, ","), name)
}

func (c *check) oneJob(ctx context.Context, t truth, first bool) (err error) {
	c.report.say("job %s: %s", t.name, t.why)
	j, err := c.stepping(ctx, t.name, t.work, 5)
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, j.stop()) }()
	d, err := c.launch(ctx, j, settings{mode: policies.ModeObserve, dir: j.dir, record: t.name})
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, d.end()) }()
	if err := firstError(d.counting(ctx), workload.Sleep(ctx, c.pick(6*time.Second, 3*time.Second))); err != nil { // and a first window
		return err
	}
	if first {
		c.symbols(d, j)
	}
	from, witness := workload.Now(), c.utilisation(ctx)
	seen, err := verdicts(ctx, d, c.pick(10*time.Second, 2*time.Second))
	if err != nil {
		return err
	}
	share, who, errWitness := witness()
	duty, n := d.tap.meanDuty(from, workload.Now())
	c.judgeVerdict(t, seen)
	c.judgeDuty(t, share, who, errWitness, duty, n)
	for _, r := range d.tap.activities() {
		c.report.say("         %s", r)
	}
	if v, ok := d.view(); ok {
		c.report.say("         %s", v.Verdict.Why)
		for _, e := range v.Verdict.Evidence {
			c.report.say("         %-32s %.4g %s", e.Name, e.Value, e.Unit)
		}
	}
	return nil
}

// startPatience is for a first import of PyTorch and CUDA's start.
const startPatience = 3 * time.Minute

// verdicts looks once a second.
func verdicts(ctx context.Context, d *daemon, d2 time.Duration) (map[string]int, error) {
	seen := map[string]int{}
	for end := time.Now().Add(d2); time.Now().Before(end); {
		if err := workload.Sleep(ctx, time.Second); err != nil {
			return seen, err
		}
		if v, ok := d.view(); ok && v.Verdict.Class != "" {
			word := string(v.Verdict.Class)
			if v.Verdict.Cause != "" {
				word += "/" + string(v.Verdict.Cause)
			}
			seen[word]++
		}
	}
	return seen, nil
}

// judgeVerdict: right is what was said most of the time.
func (c *check) judgeVerdict(t truth, seen map[string]int) {
	right, all := 0, 0
	var words []string
	for word, n := range seen {
		all += n
		words = append(words, fmt.Sprintf("%s (%d s)", word, n))
		if slices.Contains(t.want, word) {
			right += n
		}
	}
	slices.Sort(words)
	c.report.judge(2*right > all, "verdicts", t.name, "built as "+strings.Join(t.want, " or "), strings.Join(words, ", "))
}

// dutyTolerance: NVML's samples are periods of a sixth of a second to a second, of
// which a job that starts and stops the device within them sees every one as busy.
const dutyTolerance = 0.15

func (c *check) judgeDuty(t truth, share float64, who string, err error, duty float64, n int) {
	ours := fmt.Sprintf("%.2f (%d samples)", duty, n)
	switch {
	case err != nil:
		c.report.row(note, "activity", t.name, "no other witness: "+err.Error(), ours)
	case n == 0:
		c.report.row(bad, "activity", t.name, fmt.Sprintf("%.2f (%s)", share, who), "NVML gave no sample of utilisation")
	default:
		// NVML's periods say busy also for kernels with gaps between: more is no error by itself
		// where the witness is what the kernels took.
		ok := math.Abs(duty-share) <= dutyTolerance || c.node != nil && duty > share
		c.report.judge(ok, "activity", t.name, fmt.Sprintf("%.2f (%s)", share, who), ours)
	}
}
