package core

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/runtime"
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

// TestASteadyNeedHasNoPeak: noise and one window of a queue being filled are none.
func TestASteadyNeedHasNoPeak(t *testing.T) {
	j := &job{}
	j.reading.Cost.TrainerCPU, j.reading.Cost.Device = 0.5, 0.5
	for _, tc := range []struct {
		needs  []float64
		peak   float64
		varies bool
	}{
		{[]float64{0.5}, 0, false},
		{[]float64{0.5, 0.55, 0.48, 0.52}, 0, false},
		{[]float64{1.2, 0.5, 0.5, 0.5}, 0, true},
		{[]float64{1.2, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}, 0, false},
		{[]float64{0.9, 0.3}, 0, true},
		{[]float64{0.9, 0.3, 0.9, 0.3}, 0.9, true},
		{[]float64{0.9, 0.9, 0.3, 0.3, 0.9, 0.9, 0.3, 0.3}, 0.9, false},
		{[]float64{0.9, 0.6, 0.3, 0.6, 0.9, 0.6, 0.3, 0.6}, 0.9, false},
		{[]float64{0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.65, 0.9, 0.9}, 0.9, false}, // it has changed
		{[]float64{1.2, 0.9, 0.6, 0.3, 0.6, 0.9, 0.6, 0.3, 0.6, 0.9, 0.6, 0.3}, 0.9, false},
	} {
		j.needs = tc.needs
		if j.peak() != tc.peak || j.varies() != tc.varies {
			t.Errorf("%v: peak %.2f, varies %v", tc.needs, j.peak(), j.varies())
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
	for name, tc := range map[string]struct {
		windows []policies.Verdict
		agree   int
	}{
		"by turns":              {[]policies.Verdict{throttled, balanced, throttled}, 2},
		"by turns, device":      {[]policies.Verdict{throttled, device, throttled, device, throttled}, 3},
		"whoever runs out":      {[]policies.Verdict{throttled, trainer, balanced, throttled}, 3},
		"quota, then weight":    {[]policies.Verdict{trainer, balanced, behind}, 1},
		"another shortage":      {[]policies.Verdict{throttled, storage, throttled}, 1},
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
