package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEachRuleFindsItsBreach: testdata/broken breaks each rule once, and nothing
// else in it is found; a rule that is written but never switched on fails here.
func TestEachRuleFindsItsBreach(t *testing.T) {
	want := []string{
		"elsewhere: no layer",
		"example.com/broken/tuner/helper imports testing and is shipped (cmd/app → tuner/helper)",
		"policies imports policies/knee",
		"policies/knee/k.go:7: pure code (policies → policies/knee) uses math/rand/v2.Float64",
		"policies/knee/k.go:7: pure code (policies/knee) uses math/rand/v2.Float64",
		"runtime/docker imports tuner/loop",
		"runtime/r.go:27: package-level variable noReason",
		"runtime/r.go:29: package-level variable counter",
		"runtime/r.go:31: init function",
		"tuner/guard/g.go:11: Long has 51 lines",
		"tuner/guard/g.go:5: a struct of 26 fields",
		"tuner/helper/h.go:5: pure code (tuner/trial → tuner/helper) imports os: files",
		"tuner/loop imports policies/knee",
		"tuner/verdict/v.go:12: pure code (tuner/verdict) uses time.Now",
		"tuner/verdict/v.go:16: pure code (tuner/verdict) uses context.WithTimeout",
		"tuner/verdict/v.go:18: pure code (tuner/verdict) uses log/slog.Info",
		"tuner/verdict/v.go:7: pure code (tuner/verdict) imports net/http: the network",
	}
	got := checkDir(t, "testdata/broken")
	for i := range got {
		for _, w := range want {
			if strings.HasPrefix(got[i], w) {
				got[i] = w
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestCleanModuleHasNoFindings(t *testing.T) {
	if got := checkDir(t, "testdata/clean"); len(got) > 0 {
		t.Errorf("findings in a clean module: %v", got)
	}
}

// TestTrimtab holds trimtab itself to its rules.
func TestTrimtab(t *testing.T) {
	for _, f := range checkDir(t, "../..") {
		t.Error(f)
	}
}

// TestLines: packages are counted together.
func TestLines(t *testing.T) {
	m, err := load(t.Context(), "testdata/broken")
	if err != nil {
		t.Fatal(err)
	}
	s := sizes{packages: []string{"tuner/guard", "tuner/trial"}, linesOfFunc: 51, fieldsOfOne: 26}
	for _, c := range []struct{ most, found int }{{61, 1}, {1000, 0}} {
		found := 0
		s.lines = c.most
		m.checkSizes(s, func(string, ...any) { found++ })
		if found != c.found {
			t.Errorf("%d findings where %d lines are allowed, want %d", found, c.most, c.found)
		}
	}
}

func TestDenied(t *testing.T) {
	for imp, want := range map[string]bool{
		"os": true, "os/exec": true, "net/http/httptest": true, "golang.org/x/sys/unix": true, "math/rand": true,
		"math/rand/v2": false, "math": false, "path": false, "osmium": false, "context": false, "errors": false,
	} {
		if _, got := trimtabRules().denied(imp); got != want {
			t.Errorf("denied(%q) = %v, want %v", imp, got, want)
		}
	}
}

func checkDir(t *testing.T, dir string) []string {
	t.Helper()
	m, err := load(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return m.check(trimtabRules())
}
