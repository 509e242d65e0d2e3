package control

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/allocate"
	"github.com/trimtab/trimtab/tuner/guard"
	"github.com/trimtab/trimtab/tuner/observe"
	"github.com/trimtab/trimtab/tuner/trial"
)

// TestLoanOfNoUseGoesBack: a job that spins has more CPU and no higher rate.
func TestLoanOfNoUseGoesBack(t *testing.T) {
	n := newNode(4)
	j := n.addJob("spins", 0.4, tune())
	c := started()
	var lent, back int
	run(c, n, 200, func(i int, _ Decision) {
		// Whatever it is given, its steps take as long, and it burns the rest.
		j.trainerCPU = j.quota() * 0.06
		j.loaderCPU = j.quota() * 0.12
		j.device = 0.001
		if j.quota() > 0.4 && lent == 0 {
			lent = i
		}
		if lent > 0 && back == 0 && j.quota() == 0.4 {
			back = i
		}
	})
	if lent == 0 || back == 0 || back-lent > 30 {
		t.Fatalf("lent at tick %d, back at %d", lent, back)
	}
	if j.quota() != 0.4 {
		t.Errorf("lent again, %.2f CPUs: nothing that it depends on has changed", j.quota())
	}
	if v := shownAs(t, c, j); !strings.Contains(v.WhyNot, "brought it nothing") {
		t.Errorf("said: %q", v.WhyNot)
	}
}

// TestInconclusiveKeepsTheLoan: a rate that swings too much to tell proves no loan useless; what was
// useless is judged anew when it is lent again.
func TestInconclusiveKeepsTheLoan(t *testing.T) {
	n := newNode(4)
	j := n.addJob("swings", 0.4, tune())
	c := started()
	run(c, n, 12, nil)
	s := c.containers[j.c.Key()]
	rates := func(with bool, each ...float64) (out []observe.RateSample) {
		for i, r := range each {
			at := int64(i) * second
			if !with {
				at += 11 * second
			}
			out = append(out, observe.RateSample{StartNs: at, EndNs: at + second, Rate: r})
		}
		return out
	}
	for name, tt := range map[string]struct {
		without []float64
		want    int
	}{
		"it swings":       {[]float64{1, 9, 2, 8, 1, 9, 2, 8, 5}, 1},
		"it is the same":  {[]float64{5, 5.01, 4.99, 5, 5.02, 5, 4.98, 5, 5}, -1},
		"it fell without": {[]float64{3, 3.01, 2.99, 3, 3.02, 3, 2.98, 3, 3}, 1},
	} {
		s.loan.with, s.loan.doubt, s.loan.checkNs = rates(true, 5, 5.01, 5, 4.99, 5, 5.01, 5, 4.98, 5, 5), true, 1
		if c.judgeCheck(s, rates(false, tt.without...)); s.loan.brings != tt.want || s.loan.doubt {
			t.Errorf("%s: brings %d, want %d", name, s.loan.brings, tt.want)
		}
	}
	s.loan.brings = -1
	s.failures = trial.Failures{} // what it depended on has moved
	run(c, n, 30, nil)
	if s.loan.brings < 0 || j.quota() < 1 {
		t.Errorf("brings %d with %.2f CPUs", s.loan.brings, j.quota())
	}
}

// TestDoubtEnds: a loan that was taken back to be measured without is lent again where that cannot
// be told: its readings are too rare, or its steps are counted another way.
func TestDoubtEnds(t *testing.T) {
	for _, counted := range []bool{true, false} {
		n := newNode(4)
		c := started()
		j := n.addJob("slow", 0.4, tune())
		run(c, n, 30, nil)
		s := c.containers[j.c.Key()]
		l := &s.loan
		l.brings, l.doubt, l.checkNs, l.with = 0, true, c.now(), slices.Clone(s.obs.Rates.Samples)
		if l.back.untilNs = c.now() + 60*second; counted {
			l.back.untilNs = c.now() + second
		} else {
			s.before.source = "another"
		}
		if run(c, n, 1, nil); l.doubt || l.brings != 1 || l.checkNs != 0 {
			t.Errorf("counted %v: %+v", counted, *l)
		}
	}
}

// TestUnusedLoanGoesBack: a job that has become small keeps what it uses.
func TestUnusedLoanGoesBack(t *testing.T) {
	n := newNode(4)
	j := n.addProgram("small", 0.4, 3, 1e6)
	c := started()
	run(c, n, 30, nil)
	if j.quota() < 2.9 {
		t.Fatalf("lent %.2f CPUs", j.quota())
	}
	j.spin = 0.2
	run(c, n, 90, nil)
	if j.quota() != 0.4 || j.weight() != 1024 {
		t.Errorf("%.2f CPUs at weight %.0f stand for one that uses 0.2", j.quota(), j.weight())
	}
}

// TestSettledTooLowIsRaisedOnce: a job that works harder every minute is lent more each time
// its quota stops it, and what is left above its use doubles.
func TestSettledTooLowIsRaisedOnce(t *testing.T) {
	n := newNode(8)
	j := n.addProgram("bursts", 0.4, 2, 1e6)
	c := started()
	writes := 0
	run(c, n, 600, func(i int, d Decision) {
		j.spin = 2
		if i%60 < 6 {
			j.spin = 4
		}
		writes += len(d.Apply)
	})
	if writes > 12 {
		t.Errorf("%d writes in ten minutes: what settled too low is not remembered", writes)
	}
	if j.quota() < 3.9 {
		t.Errorf("%.2f CPUs stand; its bursts use 4", j.quota())
	}
}

// TestNewProcessHasNoBaseline: what the container did before its first loan says nothing of
// the training process that was started in it since.
func TestNewProcessHasNoBaseline(t *testing.T) {
	n := newNode(4)
	j := n.addJob("train", 0.4, tune())
	c := started()
	run(c, n, 60, nil)
	if v := shownAs(t, c, j); !v.HasGain || v.Gain < 1 {
		t.Fatalf("gain %v %.2f", v.HasGain, v.Gain)
	}
	for i := range j.threads { // another one, whose steps take ten times as long
		th := &j.threads[i]
		*th = probes.Thread{TID: th.TID + 500, TGID: th.TGID + 500, PPID: th.PPID, StartNs: uint64(n.nowNs), Comm: th.Comm, SinceNs: n.nowNs, AtNs: n.nowNs}
		if th.PPID > 1 {
			th.PPID += 500
		}
	}
	j.ticks.TGID += 500
	j.trainerCPU, j.loaderCPU, j.device = 0.2, 0.5, 0.4
	run(c, n, 90, nil)
	if v := shownAs(t, c, j); v.HasGain && v.Gain < 0 {
		t.Errorf("said to have lost %.0f %% by its loan", -100*v.Gain)
	}
}

// TestSecondLoanHasItsOwnBaseline: what a job did before its first loan says nothing of the next
// one, which comes when a neighbour has gone: its steps are others by then.
func TestSecondLoanHasItsOwnBaseline(t *testing.T) {
	n := newNode(4)
	n.weighted = false
	j := n.addJob("train", 0.4, tune())
	other := n.addSpinner("neighbour", 4)
	other.spin = 0.01
	other.c.Now[runtime.KnobCPUQuota] = "360000 100000"
	c := started()
	run(c, n, 60, nil)
	if v := shownAs(t, c, j); !v.HasGain || v.Gain < 1 {
		t.Fatalf("gain %v %.2f", v.HasGain, v.Gain)
	}
	other.spin = 4
	j.trainerCPU, j.loaderCPU, j.device = 8*j.trainerCPU, 8*j.loaderCPU, 8*j.device // an epoch of larger pictures
	run(c, n, 90, nil)
	if j.quota() != 0.4 || j.weight() != 1024 {
		t.Fatalf("%.2f CPUs stand at weight %.0f", j.quota(), j.weight())
	}
	other.spin = 0.01
	run(c, n, 60, nil)
	if v := shownAs(t, c, j); j.quota() < 0.6 || !v.HasGain || v.Gain < 0.5 {
		t.Errorf("%.2f CPUs, gain %v %.2f", j.quota(), v.HasGain, v.Gain)
	}
}

// TestRecallInParts: what is called in before the next loan is one recall, and waits once.
func TestRecallInParts(t *testing.T) {
	k := policies.DefaultConstants()
	var b backOff
	for i, tt := range []struct{ at, given, until float64 }{
		{100, 50, 100 + k.WriteSeconds}, {102, 50, 102 + k.WriteSeconds}, {110, 108, 110 + 2*k.WriteSeconds}, {140, 121, 140 + k.WriteSeconds},
	} {
		if b.again(k, int64(tt.at*1e9), int64(tt.given*1e9)); b.untilNs != int64(tt.until*1e9) {
			t.Errorf("recall %d: waits until %.0f, want %.0f", i, float64(b.untilNs)/1e9, tt.until)
		}
	}
}

// TestATurnIsNoShortage: the host's own processes take a CPU from one reading to the next. What each
// had in its better one is more than all had in either, so nobody is owed that. Who lacks in both is
// short, however much there is in which.
func TestATurnIsNoShortage(t *testing.T) {
	for name, c := range map[string]struct {
		borrower, neighbour [2]float64 // CPUs
		spared              bool
	}{
		"they begin":            {[2]float64{0.5, 0.24}, [2]float64{0.9, 0.78}, true},
		"they end":              {[2]float64{0.24, 0.5}, [2]float64{0.78, 0.9}, true},
		"they come and go":      {[2]float64{1, 0.6}, [2]float64{1, 0.6}, false},
		"it lacks all the time": {[2]float64{1, 1}, [2]float64{1, 1}, false},
	} {
		ctl := started()
		ctl.node.CPUs, ctl.idleCPUs = 2, []float64{0, 0}
		for i, uses := range [][2]float64{c.borrower, c.neighbour} {
			s := newContainer(string(rune('a' + i)))
			for r, cpus := range uses {
				s.obs.Uses = append(s.obs.Uses, observe.Use{StartNs: int64(r) * second, EndNs: int64(r+1) * second, CPUs: cpus, HasPSI: true, Waiting: 0.3})
			}
			p := allocate.Party{Key: s.key, Claim: policies.Claim{Weight: 1024, Active: true, Demand: 2}, OwnWeight: 1024, Waiting: 0.3}
			if i == 0 {
				p.OwnQuota, p.Quota = 0.4, 2
			}
			ctl.all, ctl.parties, ctl.rights.Grants = append(ctl.all, s), append(ctl.parties, p), append(ctl.rights.Grants, allocate.Grant{Right: 2})
		}
		if ctl.spare(); ctl.parties[1].Spared != c.spared {
			t.Errorf("%s: %t", name, ctl.parties[1].Spared)
		}
	}
}

// TestASmallLoanSettlesOnce: what a quota is rounded up to is no use that it lost.
func TestASmallLoanSettlesOnce(t *testing.T) {
	for _, wants := range []float64{0.2, 0.33, 0.7} {
		n := newNode(2)
		n.addProgram("small", 0.1, wants, 1e6)
		writes := 0
		run(started(), n, 150, func(_ int, d Decision) {
			for _, o := range d.Apply {
				if slices.ContainsFunc(o.Changes, func(ch policies.Change) bool { return ch.Knob == runtime.KnobCPUQuota }) {
					writes++
				}
			}
		})
		if writes > 2 {
			t.Errorf("wants %.2f CPUs: %d writes, want a loan and what it settles to", wants, writes)
		}
	}
}

// TestARecallIsTold: who asks for a trial after its loan was called in is told of both.
func TestARecallIsTold(t *testing.T) {
	c := started()
	c.containers = map[string]*containerState{"x": newContainer("x")}
	s := c.containers["x"]
	s.loan.why = "b gets 1.52 of the 1.59 CPUs it has a right to"
	for state, want := range map[State]string{StateMeasured: "0 of 8", StateReturned: "its loan went back, since " + s.loan.why + "; 0 of 8"} {
		s.state = state
		if c.refuse([]guard.Rejection{{Container: "x", Gate: guard.GateMeasuring, Text: "0 of 8"}}); s.refused.Text != want {
			t.Errorf("%s: %q", state, s.refused.Text)
		}
	}
}

// TestRecalledLoanIsNotWorthLess: who is short because its loan came with a lower weight gets
// its owner's values back.
func TestRecalledLoanIsNotWorthLess(t *testing.T) {
	n := newNode(2)
	j := n.addProgram("borrower", 0.4, 2, 1e6)
	others := []*simJob{n.addSpinner("a", 0.05), n.addSpinner("b", 0.05), n.addSpinner("c", 0.05)}
	c := started()
	run(c, n, 20, nil)
	for _, o := range others {
		o.spin = 2
	}
	run(c, n, 20, nil)
	if j.lastCPUsUsed < 0.97*0.4 {
		t.Errorf("%.2f CPUs of the 0.4 it has a right to, at weight %.0f", j.lastCPUsUsed, j.weight())
	}
}

// TestEnoughOutlivesARecall: what a job used while free tells what is enough though its loan was
// called in meanwhile; what it uses since it was lent anew outweighs that as soon as it is told.
func TestEnoughOutlivesARecall(t *testing.T) {
	k := policies.DefaultConstants()
	type span struct {
		n           int
		cpus, quota float64
		stopped     bool
	}
	recalled := []span{{8, 1, 2, false}, {5, 0.4, 0.4, true}}
	for name, c := range map[string]struct {
		spans []span // the last is since the latest raise
		doubt bool   // what it settled to turned out too little at that raise
		want  float64
	}{
		"too few in all":          {append(slices.Clip(recalled), span{1, 1, 2, false}), false, 0},
		"before and since":        {append(slices.Clip(recalled), span{5, 1, 2, false}), false, 1.05},
		"it wants more since":     {[]span{{60, 1, 2, false}, {5, 0.4, 0.4, true}, {6, 3, 4, false}}, false, 3.15},
		"enough to tell since":    {[]span{{60, 3, 4, false}, {5, 0.4, 0.4, true}, {11, 1, 2, false}}, false, 1.05},
		"what was before misled":  {[]span{{60, 1, 2, false}, {5, 1, 1, true}, {5, 1, 2, false}}, true, 0},
		"it was stopped since":    {[]span{{20, 1, 2, false}, {5, 2, 2, true}, {5, 1, 2, false}}, false, 0},
		"it was stopped at first": {[]span{{5, 0.4, 0.4, true}, {16, 1, 2, false}}, false, 1.05},
		"it always had its quota": {[]span{{20, 0.4, 0.4, true}}, false, 0},
	} {
		s := newContainer("x")
		s.state = StateLent
		var at int64
		for i, p := range c.spans {
			if i == len(c.spans)-1 {
				if s.loan.givenNs = at; c.doubt {
					s.loan.doubtedNs = at
				}
			}
			for range p.n {
				s.obs.Uses = append(s.obs.Uses, observe.Use{StartNs: at, EndNs: at + second, CPUs: p.cpus, Quota: p.quota, Throttled: p.stopped, Wanted: p.cpus, Held: p.stopped})
				at += second
			}
		}
		if got, n := s.enough(k); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %.2f CPUs are enough by %g readings, want %.2f", name, got, n, c.want)
		}
	}
}

// TestHarmToOthersIsNoVerdict: a trial that ends since somebody lacked CPU under it says nothing of
// whether its change is of use: the job is lent CPU again once some is idle.
func TestHarmToOthersIsNoVerdict(t *testing.T) {
	n := newNode(4)
	j := n.addJob("train", 0.4, tune())
	c := started()
	run(c, n, 12, nil)
	s := c.containers[j.c.Key()]
	ch := policies.Change{Key: s.key, Knob: runtime.KnobCPUQuota, From: "40000 100000", To: "80000 100000"}
	on := c.conditions(s, ch.Knob, ch.From)
	for _, harmed := range []bool{false, true} {
		s.failures = trial.Failures{}
		c.ended(&openTrial{Trial: &trial.Trial{}, order: Order{Changes: []policies.Change{ch}}, on: map[string]trial.Conditions{s.key: on}, harmed: harmed}, s, trial.Worse)
		if s.failures.Blocks(c.k(), ch.Knob, false, on) == harmed {
			t.Errorf("harm to others: %v; remembered as of no use: %v", harmed, !harmed)
		}
	}
}

// TestHarmWhileFrozenIsNoVerdict: neither is what was taken back while trimtab was paused.
func TestHarmWhileFrozenIsNoVerdict(t *testing.T) {
	n := newNode(4)
	j, neighbour := n.addJob("train", 0.4, tune()), n.addProgram("neighbour", 1, 0.1, 1e6)
	c := started()
	run(c, n, 12, nil)
	s := c.containers[j.c.Key()]
	ch := policies.Change{Key: s.key, Knob: runtime.KnobCPUQuota, From: "40000 100000", To: "80000 100000"}
	on := c.conditions(s, ch.Knob, ch.From)
	tr := &openTrial{Trial: trial.New(trial.Progress{}, nil), order: Order{Plan: "p", Changes: []policies.Change{ch}}, on: map[string]trial.Conditions{s.key: on}}
	tr.view.Changes = tr.order.Changes
	tr.SinceNs, c.trials["p"], s.plan, s.failures, s.answers = 1, tr, "p", trial.Failures{}, 0
	for i, o := range c.all {
		if o.key == neighbour.c.Key() {
			p := &c.parties[i]
			p.Active, p.Spared, p.Waiting, p.Used, p.Wants, c.rights.Grants[i].Due = true, false, 1, 0.1, 1, 1
		}
	}
	c.stepTrials(Input{Frozen: "paused"}, &Decision{})
	if len(c.trials) != 0 || s.failures.Blocks(c.k(), ch.Knob, false, on) {
		t.Errorf("%d trials are open; remembered as of no use: %v", len(c.trials), s.failures.Blocks(c.k(), ch.Knob, false, on))
	}
}

// second write of the same quota.
func TestATrialWaitsForARecall(t *testing.T) {
	n := newNode(4)
	j := n.addJob("train", 0.4, tune())
	c := started()
	run(c, n, 12, nil)
	s := c.containers[j.c.Key()]
	for answers, ended := range map[int]bool{0: true, 1: false} {
		s.answers, s.c.Held = answers, true // what voids any trial
		c.trials = map[string]*openTrial{"p": {Trial: trial.New(trial.NoHarm{}, nil), order: Order{Plan: "p", Changes: []policies.Change{{Key: s.key, Knob: runtime.KnobCPUQuota, From: "40000 100000", To: "80000 100000"}}}}}
		var d Decision
		if c.stepTrials(Input{}, &d); (len(c.trials) == 0) != ended {
			t.Errorf("%d answers to come: ended %t", answers, !ended)
		}
	}
}

// TestAGroupsQuotaIsShared: what one member of a group is lent, the others there lack once they run.
func TestAGroupsQuotaIsShared(t *testing.T) {
	n := newNode(8)
	a, b := n.addProgram("a", 1, 4, 1e6), n.addProgram("b", 1, 0.01, 1e6)
	for _, j := range []*simJob{a, b} {
		j.c.Cgroup.Unified = "/team/" + j.c.Name
	}
	a.c.Enrolment.Group, a.c.Enrolment.GroupCPUs, a.c.Enrolment.CPU.Max = "/team", 2, 2 // of b nothing is known
	c := started()
	run(c, n, 20, nil)
	if a.quota() != 2 {
		t.Errorf("%.2f CPUs beside one that sleeps, in a group of 2", a.quota())
	}
	b.spin = 1
	run(c, n, 15, nil)
	if a.quota() != 1 {
		t.Errorf("%.2f CPUs beside one that has a right to the other CPU of the group", a.quota())
	}
	a.c.Enrolment.GroupCPUs, a.c.Enrolment.CPU.Max, b.spin = 4, 4, 4
	b.c.Enrolment.Group, b.c.Enrolment.GroupCPUs, b.c.Enrolment.CPU.Max = "/team", 4, 4
	run(c, n, 60, nil)
	if sum := a.quota() + b.quota(); sum > 4 || a.quota() < 1.9 || b.quota() < 1.9 {
		t.Errorf("%.2f and %.2f CPUs of a group of 4", a.quota(), b.quota())
	}
}

// TestProvenWithoutProgress: what a program gets done shows nowhere, so that no trial can prove
// a loan. After half a minute it is lent as where loans are free: nothing that a neighbour uses or
// wakes up to use, and what is not used goes back.
func TestProvenWithoutProgress(t *testing.T) {
	spins := func(cpus float64, from int) func(int, *simJob, *simJob) {
		return func(i int, _, other *simJob) {
			if i >= from {
				other.spin = cpus
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(i int, j, other *simJob)
		uses   [2]float64 // CPUs at the end, least and most
		quota  float64    // at the most
	}{
		"alone": {spins(1e-3, 0), [2]float64{3.9, 4}, 4},
		"has no use for it": {func(_ int, j, _ *simJob) {
			if j.quota() > 0.4 {
				j.spin = 0.45
			}
		}, [2]float64{0.4, 0.6}, 0.6},
		"beside one that uses three":   {spins(3, 0), [2]float64{0.8, 1.01}, 4},
		"one wakes up and wants three": {spins(3, 60), [2]float64{0.8, 1.01}, 4},
		"watched for 25 s alone":       {func(i int, j, _ *simJob) { j.c.Watched = i >= 95 }, [2]float64{0.4, 0.4}, 0.4},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(4)
			n.weighted = true
			j, other := n.addProgram("computes", 0.4, 4, 0), n.addSpinner("other", 1e-3)
			j.c.Enrolment.Loans = policies.LoansProven
			c := started()
			most := 0.0
			records := run(c, n, 120, func(i int, _ Decision) {
				tc.change(i, j, other)
				if most = max(most, j.quota()); most > 0.4 && i < 25 {
					t.Fatalf("second %d: lent before enough was read", i)
				}
				if i > 70 && other.lastCPUsUsed < 0.97*other.spin {
					t.Fatalf("second %d: the neighbour has %.2f of %.2f CPUs", i, other.lastCPUsUsed, other.spin)
				}
			})
			if got := outcomes(records); len(got) > 0 || (most > 0.4) != (tc.uses[1] > 0.4) {
				t.Errorf("trials %v, %.2f CPUs at the most; why not: %s", got, most, c.containers[j.c.Key()].refused.Text)
			}
			if used := j.lastCPUsUsed; used < tc.uses[0]-1e-6 || used > tc.uses[1]+1e-6 || j.quota() > tc.quota {
				t.Errorf("it uses %.2f CPUs under a quota of %.2f; want %v under %.2f", used, j.quota(), tc.uses, tc.quota)
			}
		})
	}
}

// TestGainOfStolenSeconds: a loan that follows readings under excess steal, which are no evidence
// for a trial, still has a rate of before to compare with.
func TestGainOfStolenSeconds(t *testing.T) {
	n := newNode(4)
	j := n.addJob("train", 0.4, tune())
	c := started()
	run(c, n, 30, func(i int, _ Decision) {
		if n.steal = 0; i < 6 {
			n.steal = 0.08
		}
	})
	v := shownAs(t, c, j)
	if v.Loan == nil || !v.HasGain || v.Gain < 0.5 || v.Gain > 3 {
		t.Errorf("%+v, gain %v %.2f", v.Loan, v.HasGain, v.Gain)
	}
}
