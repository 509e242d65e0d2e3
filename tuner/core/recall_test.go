package core

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/trial"
	"github.com/trimtab/trimtab/tuner/view"
)

func TestTriedIsWhatWasJudged(t *testing.T) {
	const key = "own"
	j := &job{key: key}
	give := policies.Change{Key: key, Knob: runtime.KnobCPUQuota, From: "50000 100000", To: "75000 100000"}
	others := policies.Change{Key: "other", Knob: runtime.KnobCPUWeight, From: "1024", To: "512", Take: true}
	j.trials = []view.Trial{
		{Policy: "a", Outcome: view.OutcomeAborted, Changes: []policies.Change{give}},
		{Policy: "a", Outcome: view.OutcomeRolledBack, Ratio: 1.01, Changes: []policies.Change{give, others}},
		{Policy: "a", Outcome: view.OutcomeWould, Changes: []policies.Change{give}},
		{Policy: "b", Outcome: view.OutcomeKept, Ratio: 1.5, Changes: []policies.Change{give}},
	}
	want := []policies.Tried{
		{Policy: "a", Knob: give.Knob, From: give.From, To: give.To, Ratio: 1.01},
		{Policy: "b", Knob: give.Knob, From: give.From, To: give.To, Ratio: 1.5, Kept: true},
	}
	if diff := cmp.Diff(want, j.tried()); diff != "" {
		t.Error(diff)
	}
}

func TestSteadyNeedsRateAndUse(t *testing.T) {
	make := func(rate, cpus func(i int) float64) *job {
		j := &job{}
		for i := range 12 {
			at := int64(i) * second
			j.obs = append(j.obs, trial.Obs{StartNs: at, EndNs: at + second, Rate: rate(i)})
			j.usage = append(j.usage, usage{endNs: at + second, cpus: cpus(i)})
		}
		return j
	}
	still := func(int) float64 { return 1 }
	grows := func(i int) float64 { return 1 + 0.1*float64(i) }
	if !make(still, still).steady() {
		t.Error("a job that stands still is not steady")
	}
	if make(grows, still).steady() || make(still, grows).steady() || (&job{}).steady() {
		t.Error("steady while its rate or its use grows, or before there are readings")
	}
}
