package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/tuner/lab/sidebyside"
	"github.com/trimtab/trimtab/tuner/render"
)

// TestLabReplayOfTheSamePolicy: the policy that a recording was made with makes
// what it made then, up to the first trial that changes what it sees.
func TestLabReplayOfTheSamePolicy(t *testing.T) {
	data, err := os.Open("testdata/recordings/starved.trimtab")
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	r, err := beside(data, "starved.trimtab", knee.Name)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) == 0 || r.Ticks == 0 {
		t.Fatalf("nothing was compared: %+v", r)
	}
	if first := r.Rows[0]; first.Recorded == nil || first.Other == nil || first.Recorded.To != first.Other.To || first.Recorded.UnixNs != first.Other.UnixNs {
		t.Errorf("first row: recorded %+v, the same policy %+v", first.Recorded, first.Other)
	}
}

// TestLabReplayOfAllRecordings reads them all, within the width of a terminal.
func TestLabReplayOfAllRecordings(t *testing.T) {
	files, err := filepath.Glob("testdata/recordings/*.trimtab")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, policy := range policyNames() {
		var all []sidebyside.Report
		for _, file := range files {
			r, err := besideFile(file, policy)
			if err != nil {
				t.Errorf("%s, %s: %v", file, policy, err)
				continue
			}
			if c := r.Counts; c.Recorded != c.Both+c.OnlyRecorded || c.Other != c.Both+c.OnlyOther || c.Alike > c.Both || len(r.Rows) != c.Both+c.OnlyRecorded+c.OnlyOther {
				t.Errorf("%s, %s: counts do not add up: %+v, %d rows", file, policy, c, len(r.Rows))
			}
			narrow(t, render.SideBySide(r))
			all = append(all, r)
			again, err := besideFile(file, policy)
			if err != nil || render.SideBySide(again) != render.SideBySide(r) {
				t.Errorf("%s, %s: twice is not the same (%v)", file, policy, err)
			}
		}
		narrow(t, render.SideBySideTotal(all))
	}
	if _, err := besideFile(files[0], "nobody"); err == nil || !strings.Contains(err.Error(), knee.Name) {
		t.Errorf("a policy that is none: %v", err)
	}
}

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
	for _, want := range []string{knee.Name, "proportional", "synergy-tune *", "oracle", "similarity", "not the same measurement", "Not a measurement"} {
		if !strings.Contains(texts[0], want) {
			t.Errorf("no %q in it:\n%s", want, texts[0])
		}
	}
	for _, bad := range []simulateFlags{{policies: []string{"nobody"}}, {loads: []float64{-1}}, {seeds: -1}, {objective: "most"}, {probe: "h100"}} {
		if _, err := bad.simulate([]string{"cpu", "gpu"}); err == nil {
			t.Errorf("%+v: simulated", bad)
		}
	}
}
