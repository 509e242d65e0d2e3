package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/tuner/render"
)

func narrow(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > render.Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// TestSimulateText is the same twice, fits a terminal, and has a row for each policy.
func TestSimulateText(t *testing.T) {
	f := simulateFlags{seeds: 2, loads: []float64{0.5, 2}}
	var texts []string
	for range 2 {
		out, err := f.simulate([]string{"cpu", "gpu"})
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, simulatedText(out))
	}
	if diff := cmp.Diff(texts[0], texts[1]); diff != "" {
		t.Errorf("two runs differ:\n%s", diff)
	}
	narrow(t, texts[0])
	for _, want := range []string{"trimtab", "proportional", "synergy-tune *", "oracle", "similarity", "not the same measurement", "Not a measurement"} {
		if !strings.Contains(texts[0], want) {
			t.Errorf("no %q in it:\n%s", want, texts[0])
		}
	}
	for _, bad := range []simulateFlags{{loads: []float64{-1}}, {seeds: -1}, {probe: "h100"}} {
		if _, err := bad.simulate([]string{"cpu", "gpu"}); err == nil {
			t.Errorf("%+v: simulated", bad)
		}
	}
}
