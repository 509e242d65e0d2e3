package core

import (
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/trial"
	"github.com/trimtab/trimtab/tuner/view"
	"github.com/trimtab/trimtab/tuner/window"
)

// TestTrialOfAJobThatChangesItsWork: a job whose steps become dearer while a plan is on trial
// makes fewer of them, which is not the plan's doing. What it needs then is given without a
// cool-down, once: one that does so again and again is given no more than others.
func TestTrialOfAJobThatChangesItsWork(t *testing.T) {
	n := newNode(4)
	j := n.sized("turncoat", 0.5, 12, 0.3)
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	light := j.loaderCPU
	var given []int // seconds at which its quota was raised
	heavySince := -1
	records := run(c, n, 120, func(i int, d Decision) {
		if len(d.Apply) > 0 {
			given = append(given, i)
			if heavySince < 0 {
				heavySince, j.loaderCPU = i, 6*light // as the plan is carried out
			}
		}
	})
	if len(given) < 2 {
		t.Fatalf("given at %v: %+v", given, records)
	}
	excused := 0
	for _, r := range records {
		if r.Kind == view.RecordTrial && r.Outcome == view.OutcomeAborted && strings.Contains(r.Text, "does other work") {
			excused++
		}
	}
	if excused != 1 {
		t.Errorf("excused %d times: %+v", excused, records)
	}
	if waited := given[1] - given[0]; waited > 16 {
		t.Errorf("what it needs now was given %d s after the first plan, with a cool-down of 20 s", waited)
	}
	if quota, _ := j.c.Now[runtime.KnobCPUQuota].CPUs(); quota < 0.95*j.knee() {
		t.Errorf("a quota of %.2f stands, it needs %.2f: %+v", quota, j.knee(), records)
	}
}

// TestAJobThatChangesItsWorkIsJudgedByTheNew: a light job that becomes a heavy one is given what
// it needs by a plan that is judged by the rate it has since.
func TestAJobThatChangesItsWorkIsJudgedByTheNew(t *testing.T) {
	for at := 20; at < 24; at++ {
		n := newNode(4)
		j := n.addJob("turncoat", 0.5, tune())
		j.loaderCPU = 0.0105 // it lacks a little already
		c := New(Defaults(), knee.New(knee.Defaults()), "t")
		given := -1
		records := run(c, n, 60, func(i int, d Decision) {
			if i == at {
				j.loaderCPU, j.device = 0.110, 0.100 // its steps are longer for good
			}
			if given < 0 && i > at && len(d.Apply) > 0 {
				given = i
			}
		})
		if quota, _ := j.c.Now[runtime.KnobCPUQuota].CPUs(); given < 0 || given > at+8 || quota < 0.95*j.knee() {
			t.Errorf("change at %d: given at %d, a quota of %.2f stands, it needs %.2f: %+v", at, given, quota, j.knee(), records)
		}
		if out := outcomes(records); len(out) != 1 || out[0] != view.OutcomeKept {
			t.Errorf("change at %d: %v", at, out)
		}
	}
}

// TestNoPlanWhileTheWorkIsChanging: a second whose work is unlike all before is one of both
// kinds, or the first of another: the next one tells. Who goes up and down departs from nothing.
func TestNoPlanWhileTheWorkIsChanging(t *testing.T) {
	n := newNode(4)
	j := n.addJob("turncoat", 0.5, tune())
	c := New(Defaults(), script{func(policies.Job) []policies.Change { return nil }}, "t")
	run(c, n, 20, func(int, Decision) {})
	subject := c.jobs[j.c.Key()]
	ch := policies.Change{Key: subject.key, Knob: runtime.KnobCPUWeight, From: "1024", To: "4096", Gain: 0.1}
	for _, tc := range []struct {
		works []float64
		waits bool
	}{
		{[]float64{0.3, 0.32, 0.3, 0.31, 0.5}, true},
		{[]float64{0.3, 0.32, 0.3, 0.31, 0.45}, false},
		{[]float64{0.3, 0.32, 0.3, 0.31, 0.5, 1.1}, true},
		{[]float64{0.3, 0.32, 0.3, 0.31, 1, 1.1}, false},
		{[]float64{0.9, 0.9, 0.9, 1, 0.6}, true},
		{[]float64{0.9, 0.3, 0.9, 0.3, 0.9}, false},
		{[]float64{0.3, 0.3, 0.3, 0.5}, false}, // too few to tell
	} {
		subject.works = tc.works
		if why := c.ready(subject, ch); strings.Contains(why, "unlike") != tc.waits || !tc.waits && why != "" {
			t.Errorf("%.2f: %q", tc.works, why)
		}
	}
}

// TestTheSecondOfAChangeIsNoTurn: a second of both kinds of work, between eight of the one and
// the first of the other, makes nobody one whose need varies.
func TestTheSecondOfAChangeIsNoTurn(t *testing.T) {
	j := &job{}
	for i, need := range []float64{0.27, 0.28, 0.27, 0.26, 0.27, 0.27, 0.28, 0.27, 0.67, 1.03} {
		w := &window.Window{StartNs: int64(i) * second, EndNs: int64(i+1) * second}
		j.obs = append(j.obs, trial.Obs{StartNs: w.StartNs, EndNs: w.EndNs, Rate: 1 / need})
		j.noteNeed(window.Reading{Window: w, Need: need, NeedAlone: need})
	}
	if !slices.Equal(j.needs, []float64{1.03}) || j.varies() || len(j.obs) != 1 || j.otherSinceNs != 9*second {
		t.Errorf("needs %.2f, varies %v, %d readings, other work since %d s", j.needs, j.varies(), len(j.obs), j.otherSinceNs/second)
	}
}
