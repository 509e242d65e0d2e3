package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/test/played"
	"github.com/trimtab/trimtab/tuner/advice"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestAdviceOnRecordings: what is advised of real jobs, one line for each container and advice, as
// it was told last, and in how many of the recording's ticks it was told. A recording lasts minutes,
// so confidence that grows by time is small. `-update` writes the table anew.
func TestAdviceOnRecordings(t *testing.T) {
	var out bytes.Buffer
	for _, pattern := range []string{"testdata/recordings/*.trimtab", "../../test/accuracy/testdata/recordings/*.trimtab"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no recordings: %v", pattern, err)
		}
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".trimtab")
			if strings.Contains(file, "accuracy") {
				name = "accuracy/" + name
			}
			got, err := advised(file)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if len(got.last) == 0 {
				fmt.Fprintf(&out, "%s: -\n", name)
			}
			for _, what := range slices.Sorted(maps.Keys(got.last)) {
				fmt.Fprintf(&out, "%s: %s, in %d of %d ticks: %s\n", name, got.last[what].Container, got.times[what], got.ticks, got.last[what])
			}
		}
	}
	const golden = "testdata/advice.golden"
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("advice differs (-want +got):\n%s", diff)
	}
}

// TestAdviceCameTrue: jobs that were recorded twice, once only watched and once with a loan. What
// the loan brought, by counted steps or work done, lies within the bounds that were advised before;
// and in all pairs the quota that was advised is no more than 15 % less than what the loan settled to.
func TestAdviceCameTrue(t *testing.T) {
	files, err := filepath.Glob("testdata/recordings/*starved*.trimtab")
	if err != nil {
		t.Fatal(err)
	}
	quotas, pairs, within := 0, 0, 0
	for _, file := range files {
		with, err := advised(file)
		if err != nil {
			t.Fatal(err)
		}
		watched, err := advised("../../test/accuracy/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for what, measured := range with.last {
			predicted, ok := watched.last[what]
			if !ok {
				continue
			}
			quotas++
			if p, m := predicted.Advised.Value, measured.Advised.Value; p < 0.85*m {
				t.Errorf("%s: %.2f CPUs were advised, and %.2f proved enough", what, p, m)
			}
			if byUse := measured.Gives.Low == 0; byUse {
				continue // more CPU proves no work
			}
			if predicted.Confidence >= measured.Confidence {
				t.Errorf("%s: predicted with a confidence of %.2f, and measured with %.2f", what, predicted.Confidence, measured.Confidence)
			}
			pairs++
			if g := measured.Gives.Share; predicted.Gives.Low <= g && g <= predicted.Gives.High {
				within++
			} else {
				t.Logf("%s: %.0f %%, predicted %.0f to %.0f %%", what, 100*g, 100*predicted.Gives.Low, 100*predicted.Gives.High)
			}
		}
	}
	if quotas != 12 || pairs != 10 || within != 9 { // docs/advice.md says so
		t.Errorf("of %d pairs %d of %d gains within what was predicted; want 9 of 10 of 12", quotas, within, pairs)
	}
}

// toldOf is what was advised in a recording, by container and what.
type toldOf struct {
	ticks int
	times map[string]int // ticks in which it was told
	last  map[string]advice.Advice
}

// advised replays a recording and tells what was advised in it.
func advised(file string) (toldOf, error) {
	out := toldOf{times: map[string]int{}, last: map[string]advice.Advice{}}
	err := played.File(file, nil, func(_ control.Tick, s *state.Snapshot) {
		out.ticks++
		for _, a := range advice.Of(policies.DefaultConstants(), s) {
			what := a.Container + " " + string(a.What)
			out.times[what]++
			out.last[what] = a
		}
	})
	return out, err
}
