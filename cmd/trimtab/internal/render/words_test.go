package render

import (
	"os"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestWordsFitTheBreakdown: who is short of CPU is told that data comes late only where it waits for data for most of what
// it loses. The page has the same words.
func TestWordsFitTheBreakdown(t *testing.T) {
	page, err := os.ReadFile("../../../../tuner/page/assets/words.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, cause := range []policies.Cause{policies.CauseThrottled, policies.CauseContended, policies.CauseStorage, policies.CauseHost} {
		for input, data := range map[float64]bool{0.008: false, 0.6: true} {
			v := policies.Verdict{Class: policies.ClassInput, Cause: cause, Severity: 0.73, Evidence: []policies.Evidence{{Name: "input wait", Value: input, Unit: "share"}}}
			short := cause == policies.CauseThrottled || cause == policies.CauseContended
			got := causeWords(v)
			if short && strings.HasPrefix(got, "data comes late") != data || !strings.Contains(string(page), `"`+got+`"`) {
				t.Errorf("%s, waiting for data %g of its time: %q", cause, input, got)
			}
		}
	}
}

// TestOutcomesAreTold: each way in which a trial may end has its words, here and on the page.
func TestOutcomesAreTold(t *testing.T) {
	page, err := os.ReadFile("../../../../tuner/page/assets/words.js")
	if err != nil {
		t.Fatal(err)
	}
	_, words, _ := strings.Cut(string(page), "export const outcome =")
	words, _, _ = strings.Cut(words, "\n")
	for _, o := range []state.Outcome{state.OutcomeOpen, state.OutcomeKept, state.OutcomeRolledBack, state.OutcomeInconclusive, state.OutcomeUnproven,
		state.OutcomeWithdrawn, state.OutcomeAborted, state.OutcomeWould} {
		if outcomeWords(o) == string(o) && o != state.OutcomeKept || !strings.Contains(words, string(o)+`: "`) {
			t.Errorf("no words of %s", o)
		}
	}
	report, err := os.ReadFile("../../../../tuner/page/assets/report.js")
	if err != nil {
		t.Fatal(err)
	}
	_, lost, _ := strings.Cut(string(report), `section("Lost, in these trials"`)
	lost, _, _ = strings.Cut(lost, "\n")
	if !strings.Contains(lost, `"unproven"`) || strings.Contains(lost, `"withdrawn"`) { // it is the same trial, told once more
		t.Errorf("of what is lost the page lists %s", lost)
	}
}
