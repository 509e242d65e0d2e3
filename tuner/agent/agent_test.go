package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/state"
)

func TestLendsSettlesAndRestoresAtShutdown(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		d := n.start(nil)
		d.until("train", "a settled loan", isSettled)
		if cpus, _ := n.quota(c).CPUs(); cpus < 0.98*simKnee || cpus > 1.2*simKnee {
			t.Errorf("granted %.2f CPUs for a knee of %.2f", cpus, simKnee)
		}
		d.stop(false)
		n.wantQuota(c, starvedQuota, "after shutdown")
		n.wantNoOriginals("after shutdown")
		for _, kind := range []state.RecordKind{state.RecordVerdict, state.RecordLoan, state.RecordRestore} {
			if !n.history.has(kind) {
				t.Errorf("history has no record of a %s: %+v", kind, n.history.records)
			}
		}
	})
}

// TestQuotaAboveBoundsWhatIsGranted: no more than the control group above the container
// has, from when that is read, and it is said.
func TestQuotaAboveBoundsWhatIsGranted(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		above := enrolment.AncestorLimit{CPUs: 0.8 * simKnee, Group: "/sys/fs/cgroup/team"}
		d := n.start(func(o *Options) {
			o.Above = func(runtime.Container) enrolment.AncestorLimit { return above }
		})
		said := d.until("train", "a change", isChanged).Enrolment
		if cpus, _ := n.quota(c).CPUs(); cpus > above.CPUs || cpus < 0.95*above.CPUs {
			t.Errorf("granted %.2f CPUs below a group with %.2f", cpus, above.CPUs)
		}
		if !slices.ContainsFunc(said.Problems, func(p string) bool { return strings.Contains(p, above.Group) }) {
			t.Errorf("said: %q", said.Problems)
		}
		d.stop(false)
		n.wantQuota(c, starvedQuota, "after shutdown")
	})
}

// leave makes what a daemon that was killed leaves: a change that stands.
func (n *node) leave(c runtime.Container) {
	n.t.Helper()
	ch := policies.Change{Key: c.Key(), Name: c.Name, Knob: runtime.KnobCPUQuota, From: starvedQuota, To: "60000 100000"}
	r := n.actuator().Apply(n.t.Context(), actuator.Order{Items: []actuator.Item{{Container: c, Changes: []policies.Change{ch},
		Enrolment: policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"cpu"}}}}})
	if !r.Applied {
		n.t.Fatalf("%+v", r)
	}
}

func TestRecoveryComesBeforeDecisions(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		n.leave(c)
		d := n.start(nil)
		d.until("train", "a change of its own", isChanged)
		writes := n.engine.Applied()
		if len(writes) < 3 || writes[1].Set[runtime.KnobCPUQuota] != starvedQuota {
			t.Errorf("writes %+v, want the original right after the earlier daemon's", writes)
		}
		d.stop(false)
		n.wantQuota(c, starvedQuota, "after shutdown")
		n.wantNoOriginals("after shutdown")
	})
}

func TestHandoverLeavesWhatStood(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		n.leave(c)
		d := n.start(func(o *Options) { o.Handover = true; n.holds.paused = true })
		got := d.until("train", "taken over", isChanged)
		if got.Original[runtime.KnobCPUQuota] != starvedQuota {
			t.Errorf("the original became %q", got.Original[runtime.KnobCPUQuota])
		}
		time.Sleep(30 * time.Second)
		n.wantQuota(c, "60000 100000", "after a handover")
		d.stop(false)
		n.wantQuota(c, starvedQuota, "after shutdown")
	})
}

func TestForeignWriteYields(t *testing.T) {
	for name, write := range map[string]func(*node, runtime.Container, runtime.Values){
		"through the engine": func(n *node, c runtime.Container, v runtime.Values) { n.engine.ForeignWrite(c.ID.Container, v) },
		"behind its back":    func(n *node, c runtime.Container, v runtime.Values) { n.engine.SilentWrite(c.ID.Container, v) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				c := n.job("train")
				d := n.start(nil)
				d.until("train", "a settled loan", isSettled)
				const theirs = runtime.Value("77000 100000")
				write(n, c, runtime.Values{runtime.KnobCPUQuota: theirs})
				d.until("train", "yielded", func(c state.Container) bool { return slices.Contains(c.Yielded, runtime.KnobCPUQuota) })
				time.Sleep(2 * time.Minute)
				n.wantQuota(c, theirs, "long after a foreign write")
				if !n.history.has(state.RecordYield) {
					t.Error("history has no record of it")
				}
				d.stop(false)
				n.wantQuota(c, theirs, "after shutdown")
				n.wantNoOriginals("after shutdown")
			})
		})
	}
}

// TestReloadWithdraws: what a new configuration no longer allows goes back, and comes again when
// it is allowed again.
func TestReloadWithdraws(t *testing.T) {
	for name, withdraw := range map[string]func(*enrolment.Rules){
		"the mode": func(r *enrolment.Rules) { r.Mode = policies.ModeObserve },
		"the knob": func(r *enrolment.Rules) { r.Knobs = []string{"memory"} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				c := n.job("train")
				var settings Settings
				d := n.start(func(o *Options) { settings = o.Settings })
				d.until("train", "a change", isChanged)
				without := settings
				withdraw(&without.Rules)
				if err := d.Reload(t.Context(), without); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				n.wantQuota(c, starvedQuota, "after the reload")
				if err := d.Reload(t.Context(), settings); err != nil {
					t.Fatal(err)
				}
				d.until("train", "a change once it is allowed again", isChanged)
				d.stop(false)
			})
		})
	}
}

func TestRestoreHoldsUntilResume(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		d := n.start(nil)
		d.until("train", "a change", isChanged)
		if out, err := d.Restore(t.Context(), "train"); err != nil || len(out) != 1 || !out[0].OK {
			t.Fatalf("restore: %+v %v", out, err)
		}
		n.wantQuota(c, starvedQuota, "after restore")
		writes := len(n.engine.Applied())
		time.Sleep(2 * time.Minute)
		d.until("train", "held", func(c state.Container) bool { return c.Held && c.Trial == nil })
		if got := len(n.engine.Applied()); got != writes {
			t.Errorf("%d writes while held", got-writes)
		}
		if out, err := d.Resume(t.Context(), "train"); err != nil || len(out) != 1 {
			t.Fatalf("resume: %+v %v", out, err)
		}
		d.until("train", "a change after resume", isChanged)
		d.stop(false)
		n.wantQuota(c, starvedQuota, "after shutdown")
		n.wantTold("held until", "no longer held")
	})
}

// What stood at its owner's value when it was restored is no line of the history.
func TestWhatWasNotChangedIsNoRecord(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		d := n.start(nil)
		d.until("train", "a change", isChanged)
		back := func(before runtime.Value) actuator.KnobResult {
			return actuator.KnobResult{Knob: runtime.KnobCPUWeight, Before: before, Target: "77", Actual: "77", Outcome: actuator.Restored}
		}
		if err := d.do(t.Context(), func() {
			d.undone([]actuator.RestoreResult{{Key: c.Key(), Name: "train", Outcome: actuator.Restored, Knobs: []actuator.KnobResult{back("77"), back("78")}}},
				state.RecordRestore, "by hand", control.Order{})
		}); err != nil {
			t.Fatal(err)
		}
		d.stop(false)
		if was, back := n.history.count("cpu.weight 77→77"), n.history.count("cpu.weight 78→77"); was > 0 || back != 1 {
			t.Errorf("%d records of what was not changed, %d of what was", was, back)
		}
	})
}

// A disk that refuses the hold keeps no original from going back.
func TestRestoreWithoutADisk(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		d := n.start(nil)
		d.until("train", "a change", isChanged)
		n.holds.refused = errors.New("no space left on device")
		if out, err := d.Restore(t.Context(), "train"); err != nil || len(out) != 1 || !out[0].OK {
			t.Fatalf("restore: %+v %v", out, err)
		}
		n.wantQuota(c, starvedQuota, "after restore")
		d.until("train", "held", func(c state.Container) bool { return c.Held })
		d.stop(false)
		n.wantTold("no space left on device")
	})
}

// Labels may be long, and hold tokens: what is decided from, and so recorded, has none.
func TestLabelsAreNotRecorded(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.job("train")
		var kept labelKeeper
		d := n.start(func(o *Options) { o.Recorder = &kept })
		d.until("train", "a change", isChanged)
		d.stop(false)
		if kept.containers == 0 || kept.labels != 0 {
			t.Errorf("%d containers recorded with %d labels", kept.containers, kept.labels)
		}
	})
}

type labelKeeper struct{ containers, labels int }

func (k *labelKeeper) Write(_ string, v any) error {
	if in, ok := v.(control.Input); ok {
		for _, c := range in.Containers {
			k.containers, k.labels = k.containers+1, k.labels+len(c.Labels)
		}
	}
	return nil
}

// TestLossesOfTheRecorderAreShown: what the flight recorder had no room for, and why and since when
// it cannot write, stands with the probes, and makes no verdict less sure.
func TestLossesOfTheRecorderAreShown(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.job("train")
		var r fillingRecorder
		d := n.start(func(o *Options) { o.Recorder = &r })
		d.until("train", "a change", isChanged)
		shown := func(name string) state.Part {
			t.Helper()
			s := d.Snapshot().Daemon
			i := slices.IndexFunc(s.Probes, func(p state.Part) bool { return p.Name == name })
			if i < 0 || s.ProbeLost != 0 {
				t.Fatalf("no part tells of the %s, or %d events are lost: %+v", name, s.ProbeLost, s.Probes)
			}
			return s.Probes[i]
		}
		if p := shown("history"); !p.OK || p.LostEvents != 0 {
			t.Errorf("%+v", p)
		}
		if p := shown("flight recorder"); !p.OK || p.LostEvents != 0 {
			t.Errorf("%+v", p)
		}
		filled := time.Now().UnixNano()
		r.full.Store(true)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if p := shown("flight recorder"); p.OK || p.LostEvents != 7 || p.Lost != syscall.ENOSPC.Error() || p.Since < filled || p.Since > filled+2e9 {
			t.Errorf("full since %d: %+v", filled, p)
		}
		d.stop(false)
	})
}

// fillingRecorder writes to a disk that is full from some time on.
type fillingRecorder struct{ full atomic.Bool }

func (*fillingRecorder) Write(string, any) error { return nil }

func (r *fillingRecorder) Dropped() uint64 {
	if r.full.Load() {
		return 7
	}
	return 0
}

func (r *fillingRecorder) Err() error {
	if r.full.Load() {
		return syscall.ENOSPC
	}
	return nil
}

func TestLoanIsProvedWhereTheHostWantsIt(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		d := n.start(proven)
		got := d.until("train", "a kept trial", isKept)
		if v := got.Trials[0]; v.Low <= 0 || v.Ratio < 2 || v.Ratio > 4 {
			t.Errorf("%.2f times the rate (from %.2f to %.2f); the simulated job gains 2.9 times", v.Ratio, v.Low, v.High)
		}
		if cpus, _ := n.quota(c).CPUs(); cpus < 0.98*simKnee {
			t.Errorf("granted %.2f CPUs for a knee of %.2f", cpus, simKnee)
		}
		d.stop(false) // which ends the writer of records
		if !n.history.has(state.RecordTrial) || !n.history.has(state.RecordChange) {
			t.Errorf("history: %+v", n.history.records)
		}
		n.wantQuota(c, starvedQuota, "after shutdown")
	})
}

func TestHandoverRollsBackWhatIsNotProved(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		d := n.start(proven)
		d.until("train", "a change in trial", func(c state.Container) bool { return isChanged(c) && c.Trial != nil })
		d.stop(true)
		n.wantQuota(c, starvedQuota, "a trial that was cut short by a handover")

		d = n.start(nil)
		d.until("train", "a settled loan", isSettled)
		granted := n.quota(c)
		d.stop(true)
		n.wantQuota(c, granted, "what was lent, after a handover")
		d = n.start(func(o *Options) { o.Handover = true })
		d.until("train", "taken over", isChanged)
		d.stop(false)
		n.wantQuota(c, starvedQuota, "after the last one's shutdown")
		n.wantNoOriginals("after the last one's shutdown")
	})
}

func TestFailingHistoryStopsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.history.err = errors.New("no space left")
		c := n.job("train")
		d := n.start(nil)
		d.until("train", "a settled loan", isSettled)
		d.end()
		if err := d.Shutdown(t.Context(), false); err != nil {
			t.Errorf("lost records make a shutdown that restored look failed: %v", err)
		}
		n.wantQuota(c, starvedQuota, "after shutdown")
		if n.history.calls < 3 {
			t.Errorf("history was asked %d times", n.history.calls)
		}
		if told := strings.Count(n.log.String(), "no space left"); told != 1 {
			t.Errorf("told %d times, want once:\n%s", told, n.log)
		}
	})
}

// TestFullWorkQueue: while the worker is stuck and its queue full, the agent goes
// on reading and showing; once free, it tunes and restores as ever.
func TestFullWorkQueue(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		d := n.start(nil)
		d.until("train", "seen", func(c state.Container) bool { return c.Watched })
		release := make(chan struct{})
		if err := d.do(t.Context(), func() {
			for d.enqueue(func(context.Context) { <-release }) {
			}
		}); err != nil {
			t.Fatal(err)
		}
		before := d.Snapshot().UnixNs
		time.Sleep(time.Minute)
		if after := d.Snapshot().UnixNs; time.Duration(after-before) < 50*time.Second {
			t.Errorf("the loop stood still: %s of a minute", time.Duration(after-before))
		}
		n.wantQuota(c, starvedQuota, "while the queue is full")
		close(release)
		d.until("train", "a settled loan once it is free", isSettled)
		d.stop(false)
		n.wantQuota(c, starvedQuota, "after shutdown")
		n.wantNoOriginals("after shutdown")
	})
}

func TestContainerThatEndsInATrial(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		d := n.start(proven)
		d.until("train", "a trial", func(c state.Container) bool { return isChanged(c) && c.Trial != nil })
		n.engine.Remove(c.ID.Container)
		time.Sleep(5 * time.Second)
		if s := d.Snapshot(); len(s.Containers) != 0 {
			t.Errorf("still there: %+v", s.Containers)
		}
		n.wantNoOriginals("after its container ended")
		d.stop(false)
		if len(n.sim.jobs) != 0 {
			t.Errorf("still watched: %v", n.sim.jobs)
		}
	})
}

func TestPauseAndDisabledStopEveryWrite(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		var disabled atomic.Bool
		disabled.Store(true)
		d := n.start(func(o *Options) { o.Disabled = disabled.Load })
		time.Sleep(time.Minute)
		d.until("train", "the reason", func(c state.Container) bool { return strings.Contains(c.WhyNot, "disabled") })
		if err := d.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		disabled.Store(false)
		d.until("train", "the other reason", func(c state.Container) bool { return c.WhyNot == "paused" })
		time.Sleep(time.Minute)
		if writes := n.engine.Applied(); len(writes) != 0 {
			t.Errorf("writes %+v", writes)
		}
		if _, err := d.Resume(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		d.until("train", "a change at last", isChanged)
		d.stop(false)
		n.wantQuota(c, starvedQuota, "after shutdown")
		n.wantTold("paused by hand", "no longer paused")
	})
}

func TestFailingProbeIsToldAndReadsOn(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.job("train")
		d := n.start(nil)
		d.until("train", "seen", func(c state.Container) bool { return c.Watched })
		set := func(err error) {
			if err := d.do(t.Context(), func() { n.sim.readErr = err }); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		set(errors.New("a map is gone"))
		if p := d.Snapshot().Daemon.Probes[1]; p.OK || !strings.Contains(p.Lost, "a map is gone") {
			t.Errorf("a failing probe is shown as %+v", p)
		}
		set(nil)
		if p := d.Snapshot().Daemon.Probes[1]; !p.OK {
			t.Errorf("a fixed probe is shown as %+v", p)
		}
		d.stop(false)
	})
}

// TestEnabledForATime: it ends that long after by the time since boot, which goes on while the host sleeps.
func TestEnabledForATime(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		key := n.engine.Add(runtime.Container{Name: "train"}, runtimetest.DefaultValues()).Key()
		stored := &memManuals{}
		manuals, err := enrolment.OpenManuals(stored)
		if err != nil {
			t.Fatal(err)
		}
		d := n.start(func(o *Options) { o.Manuals = manuals })
		d.until("train", "listed", func(state.Container) bool { return true })
		before := now().BootNs
		if _, err := d.Enable(t.Context(), state.EnableRequest{Name: "train", ForNs: int64(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		d.end()
		if len(stored.all) != 1 || stored.all[0].Key != key || stored.all[0].UntilBootNs < before+int64(time.Hour) || stored.all[0].UntilBootNs > now().BootNs+int64(time.Hour) {
			t.Errorf("stored %+v, %d ns after boot", stored.all, before)
		}
	})
}
