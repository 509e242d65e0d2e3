// Package e2e runs the real daemon against real Docker and a real PyTorch job,
// and checks what docs/design.md promises: found, fixed, proved, and always put back.
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/built"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/state"
)

// starvedCPUs is the quota that the owner of the job got wrong: about a third of
// its knee.
const starvedCPUs = 0.3

// patience bounds every wait; it is no measure of speed.
const patience = 4 * time.Minute

// robbed is the share of the machine's CPU time above which no window of trimtab's is
// evidence, however usual it is: nothing can be waited for there.
const maxStolen = 0.12

// binary builds trimtab once for all tests.
var binary = func() func(t *testing.T) string {
	var path string
	return func(t *testing.T) string {
		t.Helper()
		if path != "" {
			return path
		}
		if os.Geteuid() != 0 {
			t.Skip("needs root: the daemon loads BPF programs")
		}
		dir, err := os.MkdirTemp("", "trimtab-e2e-*")
		if err != nil {
			t.Fatal(err)
		}
		if path, err = built.Trimtab(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		return path
	}
}()

// job starts a training job without a quota, then starves it.
func job(t *testing.T, labels ...string) *workload.Job {
	t.Helper()
	if err := workload.Ready(t.Context()); err != nil {
		t.Skip(err)
	}
	args := []string{"--network", "none"}
	for _, l := range labels {
		args = append(args, "--label", l)
	}
	name := fmt.Sprintf("trimtab-e2e-%d-%s", os.Getpid(), strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")))
	j := started(t, workload.Options{Name: name, Script: "dataloader.py", DockerArgs: args})
	if err := j.SetQuota(t.Context(), starvedCPUs); err != nil {
		t.Fatal(err)
	}
	return j
}

func daemon(t *testing.T, o daemontest.Options) *daemontest.Daemon {
	t.Helper()
	o.Binary = binary(t)
	o.Config += "limits: {coolDown: 5s}\n"
	d, err := daemontest.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(d.Log())
		}
	})
	return d
}

// until waits for a container's state to be as wanted.
func until(t *testing.T, d *daemontest.Daemon, name, what string, good func(state.Container) bool) state.Container {
	t.Helper()
	return untilAsLong(t, d, name, what, func() float64 { return 0 }, good)
}

// untilAsLong is until, and its patience begins anew whenever grows has.
func untilAsLong(t *testing.T, d *daemontest.Daemon, name, what string, grows func() float64, good func(state.Container) bool) state.Container {
	t.Helper()
	deadline, before, reached := time.Now().Add(patience), cpuTimes(t), 0.0
	for {
		if n := grows(); n > reached {
			deadline, reached = time.Now().Add(patience), n
		}
		c, err := d.Container(t.Context(), name)
		if err == nil && good(c) {
			return c
		}
		if time.Now().After(deadline) {
			if stolen := cpuTimes(t).StolenSince(before); stolen > maxStolen {
				t.Skipf("needs a machine whose CPU time is its own: %.1f %% of it was stolen while waiting until %s", 100*stolen, what)
			}
			t.Log(d.Log())
			t.Fatalf("%s: not within %s (%v); verdict %+v after %d windows; %+v", what, patience, err, c.Verdict, c.Windows, c) // last, where a cut output still has it
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// begun runs a job, and ends it with the test.
func begun(t *testing.T, o workload.Options) *workload.Job {
	t.Helper()
	j, err := workload.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Stop(); err != nil {
			t.Error(err)
		}
	})
	return j
}

// started is one that has made its fifth step.
func started(t *testing.T, o workload.Options) *workload.Job {
	t.Helper()
	j := begun(t, o)
	if err := j.WaitSteps(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	return j
}

// settled: it has a loan, and what is enough of it is known. Beside other work that may be a trial first,
// and one that is open goes back when trimtab stops.
func settled(c state.Container) bool { return c.Loan != nil && c.Loan.Settled && c.Trial == nil }

func changed(c state.Container) bool { return len(c.Changed) > 0 }

// stands reads the quota from the kernel, in CPUs.
func stands(t *testing.T, j *workload.Job) float64 {
	t.Helper()
	cpus, _ := values(t, j)[runtime.KnobCPUQuota].CPUs()
	return cpus
}

func wantQuota(t *testing.T, j *workload.Job, want float64, when string) {
	t.Helper()
	if got := stands(t, j); got < want-1e-9 || got > want+1e-9 {
		t.Errorf("%s: quota %.3f CPUs, want %.3f", when, got, want)
	}
}

// TestStarvedIsLentToAndRestored: what nobody uses is lent, settles to a number below what was
// lent at first, is shown as a loan, and its owner's quota stands again in the end. What was recorded of that
// replays to the same decisions.
func TestStarvedIsLentToAndRestored(t *testing.T) {
	j := job(t, "trimtab.mode=tune", "trimtab.team=vision")
	before, _, err := j.RateFor(t.Context(), 4*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	d := daemon(t, daemontest.Options{})
	c := untilSettled(t, d, j.Name)
	if c.Verdict.Class == "" || c.Enrolment.Team != "vision" || c.Enrolment.EnrolledBy != "label" {
		t.Errorf("%+v", c)
	}
	if got := stands(t, j); got <= starvedCPUs {
		t.Errorf("quota %.2f, want more than %.2f", got, starvedCPUs)
	}
	after, _, err := j.RateFor(t.Context(), 6*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if after < 1.3*before {
		t.Errorf("the job printed %.2f steps/s before and %.2f after", before, after)
	}
	text, err := d.Run(t.Context(), "explain", j.Name)
	if err != nil || !strings.Contains(text, "lent ") {
		t.Errorf("explain: %v\n%s", err, text)
	}
	if text, err := d.Run(t.Context(), "history", "--changed", "--output", "json"); err != nil || !strings.Contains(text, j.Name) {
		t.Errorf("history: %v\n%s", err, text)
	}
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	wantQuota(t, j, starvedCPUs, "after a stop")
	if left, err := os.ReadDir(filepath.Join(d.Dir, "state", "originals")); err != nil || len(left) != 0 {
		t.Errorf("originals left after a restore: %v %v", left, err)
	}
	replays(t, d)
}

// replays: what the flight recorder kept of a daemon that has ended replays to the same decisions.
func replays(t *testing.T, d *daemontest.Daemon) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "flight")
	if text, err := d.Run(t.Context(), "record", "--flight", "--state-dir", filepath.Join(d.Dir, "state"), file); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, err := d.Run(t.Context(), "replay", file)
	if err != nil || !strings.Contains(text, " 0 differ") || strings.Contains(text, "; 0 compared") {
		t.Errorf("replay: %v\n%s", err, text)
	}
}

func TestObserveNeverWrites(t *testing.T) {
	j := job(t, "trimtab.mode=observe")
	d := daemon(t, daemontest.Options{})
	c := until(t, d, j.Name, "a would-have", func(c state.Container) bool {
		return len(c.Trials) > 0 && c.Trials[0].Outcome == state.OutcomeWould
	})
	if c.Trials[0].Changes[0].Gain <= 0 {
		t.Errorf("would have gained nothing: %+v", c.Trials[0])
	}
	wantQuota(t, j, starvedCPUs, "in observe mode")
}

func TestEnableByHandAndDisable(t *testing.T) {
	j := job(t)
	d := daemon(t, daemontest.Options{})
	until(t, d, j.Name, "seen", func(c state.Container) bool { return c.WhyNot != "" })
	if text, err := d.Run(t.Context(), "enable", j.Name, "--for", "1h"); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	c := until(t, d, j.Name, "a change", changed)
	if c.Enrolment.EnrolledBy != "enable" {
		t.Errorf("enrolled by %q", c.Enrolment.EnrolledBy)
	}
	if text, err := d.Run(t.Context(), "disable", j.Name); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	until(t, d, j.Name, "restored after disable", func(c state.Container) bool { return !changed(c) && c.Enrolment.Mode == policies.ModeObserve })
	wantQuota(t, j, starvedCPUs, "after disable")
}

func TestConfigRuleEnrolsAndClamps(t *testing.T) {
	j := job(t, "trimtab.cpu.max=16")
	d := daemon(t, daemontest.Options{Config: "match: [{name: 'trimtab-e2e-*', mode: tune, team: rules, allow: {cpu: {max: 0.6}}}]\n"})
	c := until(t, d, j.Name, "a change", changed)
	if got := stands(t, j); got > 0.6+1e-9 {
		t.Errorf("quota %.2f, the host's rule allows 0.6", got)
	}
	if len(c.Enrolment.Problems) == 0 {
		t.Error("the clamped label is not shown")
	}
}

func TestOffIsAbsolute(t *testing.T) {
	j := job(t, "trimtab.mode=off")
	d := daemon(t, daemontest.Options{Config: "match: [{name: '*', mode: tune}]\n"})
	c := until(t, d, j.Name, "seen", func(c state.Container) bool { return c.WhyNot != "" })
	if c.Watched || c.Enrolment.Mode != policies.ModeOff {
		t.Errorf("%+v", c.Enrolment)
	}
	if _, err := d.Run(t.Context(), "enable", j.Name); err == nil {
		t.Error("a container that says off can be enabled")
	}
}

func TestKillAndStartRestores(t *testing.T) {
	j := job(t, "trimtab.mode=tune")
	d := daemon(t, daemontest.Options{})
	until(t, d, j.Name, "a change", changed)
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := stands(t, j); got <= starvedCPUs {
		t.Fatalf("quota %.2f: the kill came too early to test anything", got)
	}
	if err := os.WriteFile(filepath.Join(d.Dir, "trimtab.yaml"), []byte(fmt.Sprintf("mode: observe\nstateDir: %s/state\napi: {socket: %s}\nmetrics: {listen: \"\"}\n", d.Dir, d.Socket)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, d, j.Name, "seen again", func(c state.Container) bool { return c.Name != "" && !changed(c) })
	wantQuota(t, j, starvedCPUs, "after kill -9 and a start")
}

func TestKillAndRestoreOffline(t *testing.T) {
	j := job(t, "trimtab.mode=tune")
	d := daemon(t, daemontest.Options{})
	until(t, d, j.Name, "a change", changed)
	state := filepath.Join(d.Dir, "state")
	if text, err := d.Run(t.Context(), "restore", "--offline", "--state-dir", state); err == nil {
		t.Errorf("an offline restore beside a running daemon: %s", text)
	}
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	text, err := d.Run(t.Context(), "restore", "--offline", "--state-dir", state)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	wantQuota(t, j, starvedCPUs, "after kill -9 and restore --offline")
}

func TestHandOver(t *testing.T) {
	j := job(t, "trimtab.mode=tune")
	d := daemon(t, daemontest.Options{Args: []string{"--handover"}})
	var granted float64
	for range 3 { // a busy machine may have the loan sized anew between the look and the stop
		untilSettled(t, d, j.Name)
		granted = stands(t, j)
		if err := d.Stop(); err != nil {
			t.Fatal(err)
		}
		if stands(t, j) == granted && granted > starvedCPUs {
			break
		}
		t.Logf("%.3f CPUs before the stop, %.3f after it", granted, stands(t, j))
		if err := d.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !d.Ended() {
		t.Fatalf("three times another quota stood after a handover than before; at last %.3f CPUs\n%s", granted, d.Log())
	}
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	// At first sight: what it lends may be due back soon.
	c := until(t, d, j.Name, "taken over", func(c state.Container) bool { return len(c.Original) > 0 })
	if original, _ := c.Original[runtime.KnobCPUQuota].CPUs(); original != starvedCPUs || !changed(c) {
		t.Errorf("the next daemon forgot the original: %v, changed %v", c.Original, c.Changed)
	}
	until(t, d, j.Name, "measured by the next daemon", func(c state.Container) bool { return c.Rate.PerSecond > 0 })
	if _, err := d.Run(t.Context(), "restore", j.Name); err != nil {
		t.Fatal(err)
	}
	wantQuota(t, j, starvedCPUs, "restored by the next daemon")
}

func TestForeignWriteYields(t *testing.T) {
	j := job(t, "trimtab.mode=tune")
	d := daemon(t, daemontest.Options{})
	untilSettled(t, d, j.Name)
	if err := j.SetQuota(t.Context(), 0.77); err != nil {
		t.Fatal(err)
	}
	until(t, d, j.Name, "yielded", func(c state.Container) bool {
		return len(c.Yielded) > 0 && c.Yielded[0] == runtime.KnobCPUQuota
	})
	time.Sleep(3 * time.Second)
	wantQuota(t, j, 0.77, "after somebody's docker update")
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	wantQuota(t, j, 0.77, "after the stop")
}

func TestRestoreHoldsUntilResume(t *testing.T) {
	j := job(t, "trimtab.mode=tune")
	d := daemon(t, daemontest.Options{})
	until(t, d, j.Name, "a change", changed)
	if text, err := d.Run(t.Context(), "restore", j.Name); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	wantQuota(t, j, starvedCPUs, "after restore")
	until(t, d, j.Name, "held", func(c state.Container) bool { return c.Held && c.WhyNot == "held since restore" })
	if text, err := d.Run(t.Context(), "resume", j.Name); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	until(t, d, j.Name, "a change after resume", changed)
	if text, err := d.Run(t.Context(), "pause"); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	granted := stands(t, j)
	until(t, d, j.Name, "paused", func(c state.Container) bool { return c.WhyNot == "paused" })
	if got := stands(t, j); got != granted {
		t.Errorf("pause changed the quota: %.2f, then %.2f", granted, got)
	}
}

func TestSecondDaemonRefuses(t *testing.T) {
	d := daemon(t, daemontest.Options{})
	for name, config := range map[string]string{
		"same state":  fmt.Sprintf("stateDir: %s/state\napi: {socket: %s/other}\nmetrics: {listen: \"\"}\n", d.Dir, d.Dir),
		"same socket": fmt.Sprintf("stateDir: %s/state2\napi: {socket: %s}\nmetrics: {listen: \"\"}\n", d.Dir, d.Socket),
	} {
		file := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		out, err := exec.CommandContext(ctx, binary(t), "daemon", "--config", file, "--conf-dir", t.TempDir()).CombinedOutput()
		cancel()
		if err == nil || ctx.Err() == context.DeadlineExceeded {
			t.Errorf("%s: a second daemon runs: %v\n%s", name, err, out)
		}
	}
}

// TestReloadsWhileItStops: none of them ends it before it is done.
func TestReloadsWhileItStops(t *testing.T) {
	d := daemon(t, daemontest.Options{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !d.Ended() {
			_ = d.Signal(syscall.SIGHUP) // it may have ended
			time.Sleep(time.Millisecond)
		}
	}()
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	<-done
	if !strings.Contains(d.Log(), "every original is back") {
		t.Errorf("it ended before that:\n%s", d.Log())
	}
}

func TestReloadKeepsTheOldConfigIfTheNewIsBad(t *testing.T) {
	d := daemon(t, daemontest.Options{})
	if err := os.WriteFile(filepath.Join(d.Dir, "trimtab.yaml"), []byte("mode: everything\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for {
		s, err := d.Client().Status(t.Context())
		if err == nil && s.Daemon.ConfigError != "" {
			if s.Daemon.Mode != policies.ModeTune {
				t.Errorf("mode %s after a bad reload", s.Daemon.Mode)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the bad config is not shown: %+v %v", s.Daemon, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func TestContainerThatDiesInATrial(t *testing.T) {
	j := job(t, "trimtab.mode=tune")
	d := daemon(t, daemontest.Options{Config: "loans: proven\n"})
	until(t, d, j.Name, "a trial", func(c state.Container) bool { return c.Trial != nil })
	if err := j.Stop(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for {
		left, err := os.ReadDir(filepath.Join(d.Dir, "state", "originals"))
		if err == nil && len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("originals of a dead container stay: %v %v", left, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
