package actuator

import (
	"errors"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// TestFailureNamesWhatFailed: the container that a plan of several failed on, wherever
// in the plan it stands.
func TestFailureNamesWhatFailed(t *testing.T) {
	type failure struct {
		Key, Text string
		Refused   bool
	}
	res := func(key string, o Outcome, text string) ChangeResult {
		return ChangeResult{Change: policies.Change{Key: key, Knob: runtime.KnobCPUQuota}, Outcome: o, Text: text}
	}
	skipped, undone := res("a", Skipped, "another part of the plan could not be carried out"), res("a", Undone, "another part failed")
	for _, tc := range []struct {
		name string
		r    Result
		want failure
	}{
		{"carried out", Result{Applied: true, Changes: []ChangeResult{res("a", Applied, "")}}, failure{}},
		{"the second is refused", Result{Changes: []ChangeResult{skipped, res("b", Refused, "no")}}, failure{Key: "b", Refused: true, Text: "cpu.quota: no"}},
		{"the second fails", Result{Changes: []ChangeResult{undone, res("b", Failed, "no"), skipped}}, failure{Key: "b", Text: "cpu.quota: no"}},
		{"the first of two that fail", Result{Changes: []ChangeResult{res("b", Yielded, "theirs"), res("c", Refused, "no")}}, failure{Key: "b", Text: "cpu.quota: theirs"}},
		{"nobody says why", Result{Changes: []ChangeResult{undone}}, failure{Text: "cpu.quota: another part failed"}},
	} {
		var got failure
		if got.Key, got.Text, got.Refused = tc.r.Failure(); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// TestWhatWasNotChangedIsNotTold: a knob that stood at its owner's value is no news.
func TestWhatWasNotChangedIsNotTold(t *testing.T) {
	weight := KnobResult{Knob: runtime.KnobCPUWeight, Before: "1024", Actual: "1024", Outcome: Restored}
	quota := KnobResult{Knob: runtime.KnobCPUQuota, Before: "150000 100000", Actual: "100000 100000", Outcome: Restored}
	for want, knobs := range map[string][]KnobResult{"restored CPU 1.50→1.00": {weight, quota}, "nothing to restore": {weight}} {
		if got := (RestoreResult{Knobs: knobs}).Text(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	weight.Outcome, weight.Text = Yielded, "somebody else set it"
	if got := (RestoreResult{Knobs: []KnobResult{weight}}).Text(); !strings.Contains(got, weight.Text) {
		t.Errorf("%q does not say who set it", got)
	}
}

// TestWhatIsNotBackIsNamed: a limit that is not safe to lower is no success either.
func TestWhatIsNotBackIsNamed(t *testing.T) {
	pending := []KnobResult{{Outcome: Restored, Text: "fine"}, {Outcome: Pending, Text: "memory.limit 1000 is pending: memory in use needs 2000 MiB"}}
	for outcome, want := range map[Outcome]string{
		Restored: "", Yielded: "", Gone: "",
		Pending: `container "train": memory.limit 1000 is pending`, Failed: `container "train" could not be restored: full`, Unavailable: "could not be restored",
	} {
		err := RestoreResult{Name: "train", Outcome: outcome, Knobs: pending, Err: errors.New("full")}.NotBack()
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "fine")) {
			t.Errorf("%s: %v, want %q", outcome, err, want)
		}
	}
	if err := (RestoreResult{Name: "train", Outcome: Failed}).NotBack(); err == nil || strings.Contains(err.Error(), "%!") {
		t.Errorf("failed without an error of its own: %v", err)
	}
}
