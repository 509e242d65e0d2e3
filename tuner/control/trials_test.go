package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// sized adds a job whose knee and rate are given: most of a step is device, and as many loaders
// work as it takes.
func (n *node) sized(name string, knee, rate, quota float64) *simJob {
	j := n.addJob(name, quota, tune())
	step := 1 / rate
	j.trainerCPU, j.device = 0.3*step, 0.7*step
	j.loaderCPU = max(0.01*step, knee*step-j.trainerCPU)
	for j.loaderCPU/float64(j.loaders) > 0.9*step {
		last := j.threads[len(j.threads)-1]
		last.TID, last.TGID = last.TID+1, last.TGID+1
		last.StartNs++
		j.threads = append(j.threads, last)
		j.loaders++
	}
	return j
}

// floored is a job that its owner promised 1.2 of two CPUs, beside four neighbours of the same weight.
func floored() (*node, *simJob, []*simJob) {
	n := newNode(2)
	j := n.sized("train", 1.2, 10, 0)
	j.c.Enrolment.CPU.Min = 1.2
	var others []*simJob
	for i := range 4 {
		others = append(others, n.addSpinner(fmt.Sprint("other", i), 1))
	}
	return n, j, others
}

// changesOf is how often a knob of a job was written, reverts included.
func changesOf(d Decision, j *simJob, k runtime.Knob) (n int) {
	for _, o := range slices.Concat(d.Apply, d.Rollback) {
		for _, ch := range o.Changes {
			if ch.Key == j.c.Key() && ch.Knob == k {
				n++
			}
		}
	}
	return n
}

func TestWeightIsTriedAndKept(t *testing.T) {
	n, j, _ := floored()
	c := started()
	records := run(c, n, 90, nil)
	if got := outcomes(records); len(got) == 0 || got[0] != state.OutcomeKept {
		t.Fatalf("trials %v: %+v; %s", got, records, shownAs(t, c, j).WhyNot)
	}
	if j.weight() <= 1024 || j.lastCPUsUsed < 0.9 {
		t.Errorf("weight %.0f, %.2f CPUs", j.weight(), j.lastCPUsUsed)
	}
	v := shownAs(t, c, j)
	first := v.Trials[len(v.Trials)-1]
	if first.Low <= 1 || first.Ratio < 1.5 || !strings.Contains(first.Why, "%") || first.Policy != "knee" {
		t.Errorf("%+v", first)
	}
	if v.Tuning != string(StateSettled) {
		t.Errorf("state %s", v.Tuning)
	}
}

// TestSlowStepsAreTried: a job that takes seconds for a step is proved like any other, by as many
// readings.
func TestSlowStepsAreTried(t *testing.T) {
	for _, seconds := range []float64{0.5, 2, 4} {
		n := newNode(4)
		e := tune()
		e.Loans = policies.LoansProven
		j := n.addJob("slow", 0.4, e)
		j.trainerCPU, j.loaderCPU, j.device = 0.1*seconds, 0.3*seconds, 0.1*seconds
		c := started()
		got := outcomes(run(c, n, 600, nil))
		if j.quota() < 1 || !slices.Contains(got, state.OutcomeKept) {
			t.Errorf("steps of %.1f s: %.2f CPUs, trials %v: %s", seconds, j.quota(), got, shownAs(t, c, j).WhyNot)
		}
	}
}

// TestWhatDoesNotHelpIsRevertedAndRemembered: on a kernel that ignores weights nothing is kept,
// and what failed is not tried again and again.
func TestWhatDoesNotHelpIsRevertedAndRemembered(t *testing.T) {
	n, j, _ := floored()
	n.weighted = false
	c := started()
	writes := 0
	records := run(c, n, 600, func(_ int, d Decision) { writes += changesOf(d, j, runtime.KnobCPUWeight) })
	got := outcomes(records)
	if len(got) == 0 || slices.Contains(got, state.OutcomeKept) {
		t.Fatalf("trials %v: %+v", got, records)
	}
	if j.weight() != 1024 {
		t.Errorf("weight %.0f stands without a proof", j.weight())
	}
	if writes > 24 {
		t.Errorf("%d writes in ten minutes", writes)
	}
}

// TestInconclusiveStandsWhereNobodyLacksIt: of a job whose rate is far too noisy to tell, a weight
// that takes from nobody stands, and is asked again; one that others lack goes back.
func TestInconclusiveStandsWhereNobodyLacksIt(t *testing.T) {
	for _, others := range []string{"want nothing", "wait", "cannot be read"} {
		lacked := others != "want nothing"
		n := newNode(2)
		n.weighted = false
		j := n.sized("train", 1.6, 10, 0)
		j.c.Enrolment.CPU.Min = 1.6
		for i := range 4 {
			o := n.addSpinner(fmt.Sprint("other", i), 1)
			o.patient, o.noPSI = !lacked, others == "cannot be read"
		}
		c := started()
		standing, back := 0, 0
		cost := j.loaderCPU
		records := run(c, n, 300, func(i int, d Decision) {
			j.loaderCPU = cost * []float64{1, 1.3, 0.8, 1.6, 0.7, 1.2, 0.9}[i*i%7]
			if j.weight() > 1024 && len(c.trials) == 0 {
				standing++
			}
			back += len(d.Rollback)
		})
		wantOneStory(t, c, j, records)
		got := outcomes(records)
		told := slices.Contains(got, state.OutcomeUnproven)
		if !lacked && (!told || standing < 20 || back == 0) || lacked && (told || standing > 2) {
			t.Errorf("others %s: trials %v; stood unproven for %d s, reverted %d times", others, got, standing, back)
		}
	}
}

// wantOneStory: what became of a change that a trial left standing is told alike by records, the shown trials and the
// counters, and a change that was taken back is told as standing by none.
func wantOneStory(t *testing.T, c *Controller, j *simJob, records []state.Record) {
	t.Helper()
	count, last := map[string]float64{}, map[string]state.Outcome{}
	for _, r := range records {
		if r.Kind == state.RecordTrial {
			if count[string(r.Outcome)]++; r.Outcome == state.OutcomeWithdrawn && last[r.Plan] != state.OutcomeUnproven {
				t.Errorf("withdrawn after %q: %s", last[r.Plan], r.Text)
			}
			last[r.Plan] = r.Outcome
		}
	}
	if count[string(state.OutcomeUnproven)] > 1 && count[string(state.OutcomeWithdrawn)] == 0 {
		t.Errorf("asked again, and nothing was withdrawn: %v", count)
	}
	for _, x := range shownAs(t, c, j).Trials {
		if x.Outcome != last[x.Plan] || x.Outcome == state.OutcomeWithdrawn && !strings.Contains(x.Why, "asked again") {
			t.Errorf("plan %s is shown as %s, %q; its last record says %s", x.Plan, x.Outcome, x.Why, last[x.Plan])
		}
	}
	for o, n := range count {
		if got := c.totals.trials[state.Count{Policy: c.containers[j.c.Key()].trials[0].Policy, Result: o}]; got != n {
			t.Errorf("%g trials are counted as %s, of %g records", got, o, n)
		}
	}
}

// TestOthersThatMakeRoomVoidATrial: the gain is not the plan's.
func TestOthersThatMakeRoomVoidATrial(t *testing.T) {
	n, j, others := floored()
	n.weighted = false
	c := started()
	left, back := false, false
	records := run(c, n, 60, func(_ int, d Decision) {
		back = back || len(d.Rollback) > 0 && len(d.Rollback[0].Changes) == 1 && d.Rollback[0].Changes[0].From == "1024"
		if changesOf(d, j, runtime.KnobCPUWeight) > 0 && !left {
			left = true
			for _, o := range others[1:] {
				o.spin = 0.01
			}
		}
	})
	if !left {
		t.Fatal("no trial")
	}
	for _, r := range records {
		if r.Kind == state.RecordTrial && r.Outcome == state.OutcomeKept {
			t.Errorf("kept on others' account: %s", r.Text)
		}
	}
	if got := outcomes(records); len(got) == 0 || got[0] != state.OutcomeAborted {
		t.Errorf("trials %v, want the first void: %+v", got, records)
	}
	if !back {
		t.Error("what was not judged stands")
	}
}

// TestTrialsThatEndOtherwise: nothing stands without a judge, and nobody is blamed.
func TestTrialsThatEndOtherwise(t *testing.T) {
	for name, c := range map[string]struct {
		during func(n *node, j *simJob)
		says   string
	}{
		"its owner sets a quota": {func(_ *node, j *simJob) {
			j.c.Now = j.c.Now.Clone()
			j.c.Now[runtime.KnobCPUQuota] = "180000 100000"
		}, "somebody else set its cpu.quota"},
		"it is restored by hand": {func(n *node, j *simJob) {
			j.c.Now = j.c.Now.Clone()
			j.c.Now[runtime.KnobCPUWeight], j.c.Original, j.c.Held = "1024", nil, true
			n.results = append(n.results, Result{Kind: ResultEnded, Key: j.c.Key(), OK: true, Text: "restored by hand"})
		}, "restored by hand"},
		"the engine refuses": {func(n *node, j *simJob) {
			now := j.c.Now.Clone()
			now[runtime.KnobCPUWeight], j.c.Original = "1024", nil
			j.c.Now = now
			for i := range n.results {
				n.results[i].OK, n.results[i].Refused, n.results[i].Key, n.results[i].Text = false, true, j.c.Key(), "read-only file system"
			}
		}, "not applied: read-only file system"},
	} {
		t.Run(name, func(t *testing.T) {
			n, j, _ := floored()
			ctl := started()
			at := -1
			records := run(ctl, n, 25, func(i int, d Decision) {
				if at < 0 && changesOf(d, j, runtime.KnobCPUWeight) > 0 {
					at = i
					c.during(n, j)
				}
				if i == at+3 && at >= 0 && j.weight() != 1024 && len(ctl.trials) == 0 {
					t.Errorf("weight %.0f stands without a judge", j.weight())
				}
			})
			if got := outcomes(records); at < 0 || len(got) == 0 || got[0] != state.OutcomeAborted {
				t.Fatalf("trials %v: %+v", got, records)
			}
			found := false
			for _, r := range records {
				found = found || r.Kind == state.RecordTrial && strings.Contains(r.Text, c.says)
			}
			if !found {
				t.Errorf("nobody says %q: %+v", c.says, records)
			}
		})
	}
}

// TestYieldInATrialCoolsDown: where somebody else writes what trimtab was about to, the next trial
// waits as after any other; an owner who sets another knob is answered at once.
func TestYieldInATrialCoolsDown(t *testing.T) {
	for name, c := range map[string]struct {
		set    runtime.Knob
		to     runtime.Value
		yields []runtime.Knob
		cools  bool
	}{
		"the knob on trial": {runtime.KnobCPUWeight, "2048", []runtime.Knob{runtime.KnobCPUWeight}, true},
		"another":           {runtime.KnobCPUQuota, "180000 100000", nil, false},
	} {
		n, j, _ := floored()
		ctl := started()
		at, last := -1, 0
		run(ctl, n, 25, func(i int, d Decision) {
			if at < 0 && changesOf(d, j, runtime.KnobCPUWeight) > 0 {
				at = i
				j.c.Now, j.c.Original, j.c.Yielded = j.c.Now.Clone(), nil, c.yields
				j.c.Now[c.set] = c.to
				if c.cools { // found before anything was sent
					n.results[0] = Result{Kind: ResultApply, Plan: d.Apply[0].Plan, Key: j.c.Key(), Text: "it was set to 2048 in between"}
				}
			}
			if at >= 0 && i == at+1 {
				last = int(ctl.guarded(j.c.Key()).CoolSeconds)
			}
		})
		if want := int(Defaults().Constants.CoolSeconds); at < 0 || c.cools && last < want || !c.cools && last > 0 {
			t.Errorf("%s: its trial is opened at %d s; a second after, it cools down for %d s, of %d", name, at, last, want)
		}
	}
}

func TestContainerThatEndsInATrial(t *testing.T) {
	n, j, _ := floored()
	c := started()
	gone := false
	run(c, n, 60, func(_ int, d Decision) {
		if !gone && changesOf(d, j, runtime.KnobCPUWeight) > 0 {
			gone = true
			n.jobs = slices.DeleteFunc(n.jobs, func(o *simJob) bool { return o == j })
		}
	})
	if !gone || len(c.trials) != 0 || len(c.containers) != 4 {
		t.Errorf("gone %v; %d trials and %d containers left", gone, len(c.trials), len(c.containers))
	}
}

// TestTrialThatEndsWhileItIsTakenBack: the answer comes when nobody waits for it any more, and
// its container may be written again.
func TestTrialThatEndsWhileItIsTakenBack(t *testing.T) {
	n, j, _ := floored()
	c := started()
	var late []Result
	at := -1
	for i := range 160 {
		in := n.tick()
		in.Results, n.results = n.results, nil
		if i == at+3 && at >= 0 {
			in.Results = append(in.Results, late...)
		}
		d := c.Step(in)
		n.results = n.apply(d)
		if at < 0 && len(c.trials) == 1 && len(d.Rollback) > 0 {
			at, late, n.results = i, n.results, nil
			j.c.Now = j.c.Now.Clone()
			j.c.Now[runtime.KnobCPUQuota] = "180000 100000" // its owner's
		}
		if at >= 0 && i > at+4 {
			if s := c.containers[j.c.Key()]; s.answers != 0 || len(c.unanswered) != 0 {
				t.Fatalf("%d answers are waited for, of %d plans", s.answers, len(c.unanswered))
			}
			return
		}
	}
	t.Fatal("no trial was taken back to be measured without")
}

// TestPausedTrialWaits: while all is frozen nothing is judged, and the time does not count.
func TestPausedTrialWaits(t *testing.T) {
	n, j, _ := floored()
	c := started()
	opened, frozen := -1, 0
	for i := range 160 {
		in := n.tick()
		in.Results, n.results = n.results, nil
		if opened >= 0 && i > opened+2 && frozen < 60 {
			in.Frozen = "paused"
			frozen++
		}
		d := c.Step(in)
		if in.Frozen != "" && len(d.Apply)+len(d.Rollback) > 0 {
			t.Fatalf("written while paused: %+v", d)
		}
		if opened < 0 && changesOf(d, j, runtime.KnobCPUWeight) > 0 {
			opened = i
		}
		n.results = n.apply(d)
	}
	if v := shownAs(t, c, j); len(v.Trials) == 0 || v.Trials[len(v.Trials)-1].Outcome != state.OutcomeKept {
		t.Errorf("after the pause: %+v", v.Trials)
	}
}

// TestSurplusGoesWhereItPays: without quotas, weights are dealt to the jobs that make the most
// of what a donor leaves, and nobody falls below its right. When the donor wakes, they go back.
func TestSurplusGoesWhereItPays(t *testing.T) {
	n := newNode(4)
	big1, big2 := n.sized("big1", 3.9, 10, 0), n.sized("big2", 3.9, 10, 0)
	small1, small2 := n.sized("small1", 1.3, 10, 0), n.sized("small2", 1.3, 10, 0)
	donor := n.sized("donor", 0.1, 10, 0)
	n.sized("donor2", 0.1, 10, 0)
	c := started()
	var before float64
	records := run(c, n, 150, func(i int, _ Decision) {
		if i == 5 {
			before = small1.lastCPUsUsed
		}
	})
	if !slices.Contains(outcomes(records), state.OutcomeKept) || small1.lastCPUsUsed+small2.lastCPUsUsed < 2.2*before {
		t.Fatalf("small jobs: %.2f CPUs before, %.2f and %.2f after; %+v", before, small1.lastCPUsUsed, small2.lastCPUsUsed, records)
	}
	for _, j := range []*simJob{big1, big2} {
		if j.lastCPUsUsed < 0.66*0.97 {
			t.Errorf("%s is left with %.2f of the 0.67 CPUs it has a right to", j.c.Name, j.lastCPUsUsed)
		}
	}
	weight := func(j *simJob) runtime.Value { return j.c.Now[runtime.KnobCPUWeight] }
	kept := []runtime.Value{weight(big1), weight(big2), weight(small1), weight(small2)}
	c = started() // the next daemon
	run(c, n, 10, nil)
	if now := []runtime.Value{weight(big1), weight(big2), weight(small1), weight(small2)}; !slices.Equal(now, kept) {
		t.Errorf("after a handover weights are %v, kept were %v", now, kept)
	}
	donor.trainerCPU, donor.loaderCPU = 10*donor.trainerCPU, 200*donor.loaderCPU
	low := 0
	run(c, n, 60, func(int, Decision) {
		if big1.lastCPUsUsed < 0.66*0.96 {
			low++
		}
	})
	if low > 8 {
		t.Errorf("big1 was below its right for %d of 60 s", low)
	}
}

// TestMaxTunedAdmitsTheFirst: as many containers are changed as may be, and no more.
func TestMaxTunedAdmitsTheFirst(t *testing.T) {
	n := newNode(8)
	for i := range 4 {
		n.addProgram(fmt.Sprint("job", i), 0.4, 2, 1e6)
	}
	cfg := Defaults()
	cfg.MaxTuned = 2
	c := New(cfg, builtin, "t")
	run(c, n, 60, func(i int, _ Decision) {
		changed := 0
		for _, j := range n.jobs {
			if len(j.c.Original) > 0 {
				changed++
			}
		}
		if changed > 2 {
			t.Fatalf("tick %d: %d are changed", i, changed)
		}
	})
	for _, j := range n.jobs {
		if v := shownAs(t, c, j); len(j.c.Original) == 0 && !strings.Contains(v.WhyNot, "maxTuned") {
			t.Errorf("%s waits, and is told: %s", j.c.Name, v.WhyNot)
		}
	}
}

// TestQueriesChangeNothing: whoever looks, and how often, decides nothing.
func TestQueriesChangeNothing(t *testing.T) {
	told := func(look bool) (out []string) {
		n, _, _ := floored()
		n.addJob("starved", 0.2, tune())
		c := started()
		run(c, n, 120, func(i int, d Decision) {
			for _, o := range slices.Concat(d.Apply, d.Rollback) {
				out = append(out, fmt.Sprint(i, o))
			}
			for _, r := range d.Records {
				out = append(out, fmt.Sprint(i, r))
			}
			if look {
				for range 3 {
					var s state.Snapshot
					c.Show(&s)
					c.UsedCPUs()
					c.Open()
					c.TookMemory()
				}
			}
		})
		return out
	}
	a, b := told(false), told(true)
	if !slices.Equal(a, b) || len(a) == 0 {
		t.Errorf("%d decisions, and %d where somebody looked", len(a), len(b))
	}
}

// TestALoanThatIsDueVoidsATrial: what nobody uses is given at once, whatever is being tried.
func TestALoanThatIsDueVoidsATrial(t *testing.T) {
	for _, tt := range []struct {
		name string
		knob runtime.Knob
		edit func(c *Controller, s *containerState)
		void bool
	}{
		{"of its weight", runtime.KnobCPUWeight, func(*Controller, *containerState) {}, true},
		{"of its quota itself", runtime.KnobCPUQuota, func(*Controller, *containerState) {}, false},
		{"loans are off", runtime.KnobCPUWeight, func(_ *Controller, s *containerState) { s.c.Enrolment.Loans = policies.LoansOff }, false},
		{"loans are to be proven", runtime.KnobCPUWeight, func(_ *Controller, s *containerState) { s.c.Enrolment.Loans = policies.LoansProven }, false},
		{"no CPU is idle", runtime.KnobCPUWeight, func(c *Controller, _ *containerState) { c.node.Idle = c.node.Reserve }, false},
		{"its loan was called in a moment ago", runtime.KnobCPUWeight, func(c *Controller, s *containerState) { s.loan.back.untilNs = c.now() + second }, false},
		{"its quota is its owner's to set", runtime.KnobCPUWeight, func(_ *Controller, s *containerState) { s.c.Yielded = []runtime.Knob{runtime.KnobCPUQuota} }, false},
	} {
		n := newNode(4)
		j := n.addJob("train", 0.4, tune())
		c := started()
		for range 4 { // nobody carries out what is decided
			c.Step(n.tick())
		}
		s := c.containers[j.c.Key()]
		s.answers, s.loan = 0, loan{}
		if _, throttled := s.obs.Throttled(); !throttled {
			t.Fatalf("%s: its quota does not stop it", tt.name)
		}
		tt.edit(c, s)
		o := Order{Plan: "p", Changes: []policies.Change{{Key: s.key, Knob: tt.knob, From: s.c.Now[tt.knob], To: s.c.Now[tt.knob]}}}
		if why := c.disturbed(c.open(o)); strings.Contains(why, "it is lent some") != tt.void {
			t.Errorf("%s: void for %q, want it void: %v", tt.name, why, tt.void)
		}
	}
}
