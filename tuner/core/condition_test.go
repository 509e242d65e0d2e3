package core

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/view"
)

// TestFailuresByEachVerdictAreRemembered: a change that failed by one cause, and then by
// another, is tried by none again; one whose conditions are new is.
func TestFailuresByEachVerdictAreRemembered(t *testing.T) {
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	j := &job{failed: map[runtime.Knob][]condition{}}
	j.c.Now = runtime.Values{runtime.KnobCPUQuota: "167000 100000"}
	by := func(cause policies.Cause) { j.verdict.Cause = cause }
	for _, cause := range []policies.Cause{policies.CauseThrottled, policies.CauseHost} {
		by(cause)
		if c.failedAlready(j, runtime.KnobCPUQuota) {
			t.Errorf("%s: it was not tried yet", cause)
		}
		j.hasFailed(runtime.KnobCPUQuota, j.condition(c.node))
	}
	for _, cause := range []policies.Cause{policies.CauseThrottled, policies.CauseHost} {
		if by(cause); !c.failedAlready(j, runtime.KnobCPUQuota) || c.failedAlready(j, runtime.KnobCPUWeight) {
			t.Errorf("%s: what failed by it is forgotten, or another knob is taken for it", cause)
		}
	}
	if by(policies.CauseContended); !c.failedAlready(j, runtime.KnobCPUQuota) {
		t.Error("a third cause makes it new")
	}
	if j.c.Now[runtime.KnobCPUQuota] = "100000 100000"; c.failedAlready(j, runtime.KnobCPUQuota) {
		t.Error("it never failed from this quota")
	}
	for range 2 * keptFailures {
		j.hasFailed(runtime.KnobCPUQuota, j.condition(c.node))
	}
	if len(j.failed[runtime.KnobCPUQuota]) > keptFailures {
		t.Errorf("%d failures are kept", len(j.failed[runtime.KnobCPUQuota]))
	}
}

// TestOnTheEdgeOfTwoCausesTrialsEnd: a quota as large as what others leave is out and not out by
// turns, so that throttling and neighbours take turns as causes; its raise fails by both, and rests.
func TestOnTheEdgeOfTwoCausesTrialsEnd(t *testing.T) {
	n := newNode(5)
	n.weighted = true
	n.sized("edge", 1.875, 5, 0.6)
	n.sized("other", 3, 5, 0).c.Enrolment.Importance = 1
	n.sized("small", 0.44, 17, 0).c.Enrolment.Importance = 1
	n.addSpinner("noise", 1.56)
	cfg := Defaults()
	cfg.Objective = policies.ObjectiveMaxMin
	failed := 0
	for _, r := range run(New(cfg, knee.New(knee.Defaults()), "t"), n, 600, nil) {
		if r.Kind == view.RecordTrial && r.Outcome == view.OutcomeInconclusive {
			failed++
		}
	}
	if failed > 3 {
		t.Errorf("%d trials failed", failed)
	}
}
