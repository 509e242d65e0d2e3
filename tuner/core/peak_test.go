package core

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/view"
	"github.com/trimtab/trimtab/tuner/window"
)

// TestPeaksSetTheQuota: a job that is busy for two seconds of every four needs what it
// needs then, however its turns lie beside the windows.
func TestPeaksSetTheQuota(t *testing.T) {
	for offset := range 4 {
		n := newNode(4)
		n.weighted = true
		j := n.addJob("turns", 0.5, tune())
		c := New(Defaults(), knee.New(knee.Defaults()), "t")
		turn := func(i int, _ Decision) {
			if j.loaderCPU = 0.004; (i+offset)%4 < 2 {
				j.loaderCPU = 0.050
			}
		}
		run(c, n, 60, turn)
		j.loaderCPU = 0.050
		quota, _ := j.c.Now[runtime.KnobCPUQuota].CPUs()
		if quota < 0.95*j.knee() || quota > 1.2*j.knee() {
			t.Errorf("offset %d: a quota of %.2f; it needs %.2f in its busy turns (%s)", offset, quota, j.knee(), c.jobs[j.c.Key()].whyNot)
		}
	}
}

// TestMoreByTurns: a job that was given less than its busy turns need, and more than the mean
// does, is given the rest.
func TestMoreByTurns(t *testing.T) {
	n := newNode(4)
	n.weighted = true
	j := n.addJob("turns", 0.9, tune())
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	run(c, n, 60, func(i int, _ Decision) {
		if j.loaderCPU = 0.004; i%4 < 2 {
			j.loaderCPU = 0.050
		}
	})
	j.loaderCPU = 0.050
	if quota, _ := j.c.Now[runtime.KnobCPUQuota].CPUs(); quota < 0.95*j.knee() {
		t.Errorf("a quota of %.2f; it needs %.2f in its busy turns (%s)", quota, j.knee(), c.jobs[j.c.Key()].whyNot)
	}
}

// TestALittleByTurns: what a job lacks in its busy turns alone, and by which it would gain too
// little in the mean to be seen from second to second, is shown over whole turns.
func TestALittleByTurns(t *testing.T) {
	for _, quota := range []float64{0.5, 0.72, 0.76, 0.8} {
		for k := range 4 + 6 + 8 { // every beginning in turns of two, three and four seconds
			period, offset := 4, k
			if k >= 10 {
				period, offset = 8, k-10
			} else if k >= 4 {
				period, offset = 6, k-4
			}
			n := newNode(4)
			n.weighted = true
			j := n.addJob("turns", quota, tune())
			c := New(Defaults(), knee.New(knee.Defaults()), "t")
			records := run(c, n, 150, func(i int, _ Decision) {
				if j.loaderCPU = 0.004; (i+offset)%period < period/2 {
					j.loaderCPU = 0.050
				}
			})
			j.loaderCPU = 0.050
			now, _ := j.c.Now[runtime.KnobCPUQuota].CPUs()
			if out := outcomes(records); now < 0.95*j.knee() || len(out) == 0 || out[len(out)-1] != view.OutcomeKept {
				t.Errorf("%.2f CPUs, turns of %d, offset %d: a quota of %.2f; it needs %.2f in its busy turns (%v, %s) %+v", quota, period, offset, now, j.knee(), out, c.jobs[j.c.Key()].whyNot, c.jobs[j.c.Key()].trials)
			}
		}
	}
}

// TestASteadyNeedHasNoPeak: noise and one window of a queue being filled are none.
func TestASteadyNeedHasNoPeak(t *testing.T) {
	j := &job{}
	j.reading.Cost.TrainerCPU, j.reading.Cost.Device = 0.5, 0.5
	for _, tc := range []struct {
		needs  []float64
		peak   float64
		varies bool
		turns  bool
	}{
		{[]float64{0.5}, 0, false, false},
		{[]float64{0.5, 0.55, 0.48, 0.52}, 0, false, false},
		{[]float64{1.2, 0.5, 0.5, 0.5}, 0, true, false},
		{[]float64{1.2, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}, 0, false, false},
		{[]float64{0.9, 0.3}, 0, true, false},
		{[]float64{0.9, 0.3, 0.9, 0.3}, 0.9, true, true},
		{[]float64{0.9, 0.9, 0.3, 0.3, 0.9, 0.9, 0.3, 0.3}, 0.9, false, true},
		{[]float64{0.9, 0.6, 0.3, 0.6, 0.9, 0.6, 0.3, 0.6}, 0.9, false, true},
		{[]float64{0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.65, 0.9, 0.9}, 0.9, false, false}, // it has changed
		{[]float64{0.9, 0.9, 0.9, 0.9, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3}, 0.9, false, false},
		{[]float64{1.2, 0.9, 0.6, 0.3, 0.6, 0.9, 0.6, 0.3, 0.6, 0.9, 0.6, 0.3}, 0.9, false, true},
	} {
		j.needs = tc.needs
		if j.peak() != tc.peak || j.varies() != tc.varies || j.turns() != tc.turns {
			t.Errorf("%v: peak %.2f, varies %v, turns %v", tc.needs, j.peak(), j.varies(), j.turns())
		}
	}
}

// TestWindowsBetweenSpeakAgainstNoShortage: those in which nothing is short; not those of
// another shortage, nor many.
func TestWindowsBetweenSpeakAgainstNoShortage(t *testing.T) {
	throttled := policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseThrottled}
	storage := policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseStorage}
	device := policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseDevice}
	balanced := policies.Verdict{Class: policies.ClassBalanced}
	throttled.Relief = policies.ReliefQuota
	trainer := policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseHost, Relief: policies.ReliefQuota}
	behind := policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseContended, Relief: policies.ReliefWeight}
	severe := throttled
	severe.Severity, behind.Severity = 0.6, 0.1
	for name, tc := range map[string]struct {
		windows []policies.Verdict
		agree   int
	}{
		"by turns":              {[]policies.Verdict{throttled, balanced, throttled}, 2},
		"by turns, device":      {[]policies.Verdict{throttled, device, throttled, device, throttled}, 3},
		"whoever runs out":      {[]policies.Verdict{throttled, trainer, balanced, throttled}, 3},
		"quota, then weight":    {[]policies.Verdict{trainer, balanced, behind}, 1},
		"another shortage":      {[]policies.Verdict{throttled, storage, throttled}, 1},
		"a lesser one between":  {[]policies.Verdict{severe, behind, severe}, 2},
		"lesser ones for long":  {[]policies.Verdict{severe, behind, behind, behind, behind, behind}, 5},
		"a worse one":           {[]policies.Verdict{behind, behind, severe}, 1},
		"long ago":              {[]policies.Verdict{throttled, balanced, balanced, balanced, balanced, throttled}, 1},
		"nothing short":         {[]policies.Verdict{throttled, balanced, balanced}, 2},
		"the first of nothing":  {[]policies.Verdict{throttled, throttled, balanced}, 1},
		"the same all the time": {[]policies.Verdict{throttled, throttled, throttled}, 3},
	} {
		j := &job{}
		for _, v := range tc.windows {
			j.settle(v, window.Reading{})
			j.verdict = v
			j.windows++
		}
		if j.agree != tc.agree {
			t.Errorf("%s: %d agree, want %d", name, j.agree, tc.agree)
		}
	}
}
