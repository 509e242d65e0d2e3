package agent

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/control"
)

// TestAnswerNamesWhatFailed: the container that a plan of several failed on, wherever
// in the plan it stands.
func TestAnswerNamesWhatFailed(t *testing.T) {
	res := func(key string, o actuator.Outcome, text string) actuator.ChangeResult {
		return actuator.ChangeResult{Change: policies.Change{Key: key, Knob: runtime.KnobCPUQuota}, Outcome: o, Text: text}
	}
	skipped, undone := res("a", actuator.Skipped, "another part of the plan could not be carried out"), res("a", actuator.Undone, "another part failed")
	for _, tc := range []struct {
		name string
		r    actuator.Result
		want control.Result
	}{
		{"carried out", actuator.Result{Applied: true, Changes: []actuator.ChangeResult{res("a", actuator.Applied, "")}}, control.Result{OK: true}},
		{"the second is refused", actuator.Result{Changes: []actuator.ChangeResult{skipped, res("b", actuator.Refused, "no")}}, control.Result{Key: "b", Refused: true, Text: "cpu.quota: no"}},
		{"the second fails", actuator.Result{Changes: []actuator.ChangeResult{undone, res("b", actuator.Failed, "no"), skipped}}, control.Result{Key: "b", Text: "cpu.quota: no"}},
		{"the first of two that fail", actuator.Result{Changes: []actuator.ChangeResult{res("b", actuator.Yielded, "theirs"), res("c", actuator.Refused, "no")}}, control.Result{Key: "b", Text: "cpu.quota: theirs"}},
		{"nobody says why", actuator.Result{Changes: []actuator.ChangeResult{undone}}, control.Result{Text: "cpu.quota: another part failed"}},
	} {
		tc.want.Kind, tc.want.Plan = control.ResultApply, "p"
		if got := answered("p", tc.r); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}
