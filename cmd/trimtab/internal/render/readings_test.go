package render

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

func reading(t *testing.T, c state.Container) map[string]string {
	t.Helper()
	c.Watched = true
	lines := Readings(&state.Snapshot{UnixNs: at(14, 2), Containers: []state.Container{c, {Name: "not watched"}}})
	if len(lines) != 1 || len(lines[0]) != len(ReadingColumns()) {
		t.Fatalf("%d lines for one watched container: %q", len(lines), lines)
	}
	out := map[string]string{}
	for i, column := range ReadingColumns() {
		out[column] = lines[0][i]
	}
	return out
}

func TestReadings(t *testing.T) {
	c := lent()
	c.Windows, c.Tuning, c.UsedCPUs = 7, "lent", 1.25
	c.Breakdown = policies.Breakdown{WallNs: 4}
	c.Breakdown.Ns[policies.PartInputThrottled] = 1
	got := reading(t, c)
	for column, want := range map[string]string{"rate_of": "steps", "used_cpus": "1.2500", "quota_cpus": "1.8000", "own_cpus": "0.4000", "lent_cpus": "1.4000",
		"state": "lent", "windows": "7", "input_throttled": "0.2500", "compute": "0.0000"} {
		if got[column] != want {
			t.Errorf("%s is %q, want %q", column, got[column], want)
		}
	}
}

// What is not known is empty and no zero.
func TestReadingsOfNothing(t *testing.T) {
	c := state.Container{Now: runtime.Values{runtime.KnobCPUQuota: "max 100000"}, Rate: policies.Rate{PerSecond: 3}, RateWhy: "in doubt"}
	for _, column := range []string{"rate", "rate_of", "quota_cpus", "own_cpus", "class", "confidence", "compute", "other"} {
		if got := reading(t, c)[column]; got != "" {
			t.Errorf("%s is %q, and it is not known", column, got)
		}
	}
}

func TestReadingsOfHostileNames(t *testing.T) {
	for _, text := range []string{"=1+1", "+1", "-1", "@x", "\x1b[2J", "a\nb\tc", "\u202egnp.exe", strings.Repeat("W", 4096)} {
		got := reading(t, state.Container{Name: text, Enrolment: policies.Enrolment{Team: text}, Rate: policies.Rate{PerSecond: 1, Source: text}})
		for _, column := range []string{"container", "team", "rate_of"} {
			if strings.ContainsAny(got[column], "\x1b\n\t\u202e") || strings.ContainsAny(got[column][:1], "=+-@") {
				t.Errorf("%s of %q is %q", column, text, got[column])
			}
		}
	}
}
