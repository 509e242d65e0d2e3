package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/userland"
)

// TestPlainCallsWhatADriverHas: a driver that was seen exports all that the plain program looks for.
func TestPlainCallsWhatADriverHas(t *testing.T) {
	code, err := os.ReadFile("../workloads/gpu/plain.c")
	if err != nil {
		t.Fatal(err)
	}
	driver := userland.Seen(t, "libcuda")
	names := regexp.MustCompile(`X\((cu\w+),`).FindAllStringSubmatch(string(code), -1)
	if len(names) < 20 {
		t.Fatalf("only %d calls are found in it", len(names))
	}
	for _, n := range names {
		if !slices.Contains(driver, n[1]) {
			t.Errorf("%s is exported by no driver that was seen", n[1])
		}
	}
}

// TestAMissedCallIsAProblem: the counts are to be the same, one by one.
func TestAMissedCallIsAProblem(t *testing.T) {
	truth, err := parseCalls("launches=1000 graphs=2 in=3 out=4 waits=5")
	if err != nil || truth != (calls{1000, 2, 3, 4, 5}) {
		t.Fatalf("%+v %v", truth, err)
	}
	counted := callsOf(probes.CUDAProcess{Launches: 1010, Graphs: 2, Copies: [probes.NumDirections]uint64{1: 3, 2: 4}, Threads: []probes.CUDAThread{{Syncs: 2}, {Syncs: 3}}})
	judged := func(ours calls) bool {
		c := check{report: report{out: new(bytes.Buffer)}}
		c.judgeCalls("plain-async", truth, ours, nil)
		return c.report.problems() == 0
	}
	if ours := counted.since(calls{launches: 10}); !judged(ours) {
		t.Errorf("%+v is %+v", ours, truth)
	}
	for _, wrong := range []calls{{1001, 2, 3, 4, 5}, {999, 2, 3, 4, 5}, {1000, 1, 3, 4, 5}, {1000, 2, 2, 4, 5}, {1000, 2, 3, 5, 5}, {1000, 2, 3, 4, 4}} {
		if judged(wrong) {
			t.Errorf("%+v passes for %+v", wrong, truth)
		}
	}
	for _, words := range []string{"", "launches=many", "launches=1 graphs=2"} {
		if n, err := parseCalls(words); err == nil || !strings.Contains(err.Error(), "counts") {
			t.Errorf("%q: %+v %v", words, n, err)
		}
	}
}
