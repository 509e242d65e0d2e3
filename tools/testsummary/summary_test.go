package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const pkg = "github.com/trimtab/trimtab/a/b"

// stream renders events as `go test -json` does.
func stream(t *testing.T, events ...event) string {
	t.Helper()
	var b strings.Builder
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}

func digest(t *testing.T, in string) (out string, ok bool) {
	t.Helper()
	var b strings.Builder
	s := newSummary(&b)
	if err := s.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	ok = s.finish()
	return b.String(), ok
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	return lines[len(lines)-1]
}

func start() event          { return event{Action: "start", Package: pkg} }
func run(test string) event { return event{Action: "run", Package: pkg, Test: test} }
func say(test, text string) event {
	return event{Action: "output", Package: pkg, Test: test, Output: text}
}
func end(action, test string) event {
	return event{Action: action, Package: pkg, Test: test, Elapsed: 0.5}
}

// TestTheEndSaysWhatFailed: a log is often read by its last lines alone.
func TestTheEndSaysWhatFailed(t *testing.T) {
	out, ok := digest(t, stream(t, start(), run("A"), run("A/x"), say("A/x", "=== RUN   A/x\n"), say("A/x", "    a_test.go:7: 3 CPUs, want 4\n"), end("fail", "A/x"), end("fail", "A"),
		run("B"), end("pass", "B"), end("fail", "")))
	if want := "FAILED a/b A/x\n    a_test.go:7: 3 CPUs, want 4\n1 passed, 1 failed, 0 skipped\n"; ok || !strings.HasSuffix(out, want) {
		t.Errorf("%s\nwant at its end\n%s", out, want)
	}
}

// TestTheEndSaysWhatPassedOnlyAgain: a run that is green by a second chance says so.
func TestTheEndSaysWhatPassedOnlyAgain(t *testing.T) {
	out, ok := digest(t, stream(t, start(), run("A"), say("A", "    a_test.go:7: 3 CPUs, want 4\n"), end("fail", "A"), end("fail", ""),
		start(), run("A"), end("pass", "A"), end("pass", "")))
	if want := "PASSED ONLY WHEN RUN AGAIN a/b A\n    a_test.go:7: 3 CPUs, want 4\n1 passed (1 only when run again), 0 failed, 0 skipped\n"; !ok || !strings.HasSuffix(out, want) {
		t.Errorf("%s\nwant at its end\n%s", out, want)
	}
}

func TestLastLineCountsLeaves(t *testing.T) {
	tests := map[string]struct {
		in   []event
		want string
		ok   bool
	}{
		"passes": {[]event{start(), run("A"), end("pass", "A"), run("B"), end("pass", "B"), end("pass", "")},
			"2 passed, 0 failed, 0 skipped", true},
		"parent counts by its subtests": {[]event{start(), run("A"), run("A/x"), run("A/y"), end("pass", "A/x"), end("pass", "A/y"), end("pass", "A"), end("pass", "")},
			"2 passed, 0 failed, 0 skipped", true},
		"failed subtest counts once": {[]event{start(), run("A"), run("A/x"), end("fail", "A/x"), end("fail", "A"), end("fail", "")},
			"0 passed, 1 failed, 0 skipped", false},
		"parent that fails by itself": {[]event{start(), run("A"), run("A/x"), end("pass", "A/x"), end("fail", "A"), end("fail", "")},
			"1 passed, 1 failed, 0 skipped", false},
		"skip": {[]event{start(), run("A"), end("skip", "A"), run("B"), end("pass", "B"), end("pass", "")},
			"1 passed, 0 failed, 1 skipped", true},
		"parent whose subtests skip": {[]event{start(), run("A"), run("A/x"), end("skip", "A/x"), end("pass", "A"), run("B"), end("pass", "B"), end("pass", "")},
			"1 passed, 0 failed, 1 skipped", true},
		"nothing ran":        {nil, "0 passed, 1 failed, 0 skipped", false},
		"everything skipped": {[]event{start(), run("A"), end("skip", "A"), end("pass", "")}, "0 passed, 1 failed, 1 skipped", false},
		"build failed":       {[]event{start(), {Action: "fail", Package: pkg, FailedBuild: pkg}}, "0 passed, 1 failed, 0 skipped", false},
		"passes when run again": {[]event{start(), run("A"), run("A/x"), end("fail", "A/x"), end("fail", "A"), run("B"), end("pass", "B"), end("fail", ""),
			start(), run("A"), run("A/x"), end("pass", "A/x"), end("pass", "A"), end("pass", "")},
			"2 passed (1 only when run again), 0 failed, 0 skipped", true},
		"fails again": {[]event{start(), run("A"), end("fail", "A"), run("B"), end("pass", "B"), end("fail", ""), start(), run("A"), end("fail", "A"), end("fail", "")},
			"1 passed, 1 failed, 0 skipped", false},
		"does not come again": {[]event{start(), run("A"), run("A/x"), end("fail", "A/x"), end("fail", "A"), end("fail", ""), start(), run("A"), end("pass", "A"), end("pass", "")},
			"0 passed, 1 failed, 0 skipped", false},
		"is skipped when run again": {[]event{start(), run("A"), end("fail", "A"), run("B"), end("pass", "B"), end("fail", ""), start(), run("A"), end("skip", "A"), end("pass", "")},
			"1 passed, 1 failed, 0 skipped", false},
		"its process dies when run again": {[]event{start(), run("A"), end("fail", "A"), run("B"), end("pass", "B"), end("fail", ""), start(), run("A"), say("A", "panic: x\n"), end("fail", "")},
			"1 passed, 2 failed, 0 skipped", false},
		"leaks, and none of it runs again": {[]event{start(), run("A"), end("pass", "A"), say("", "goleak: x\n"), end("fail", ""), start(), end("pass", "")},
			"1 passed, 1 failed, 0 skipped", false},
		"its process dies, and one runs again": {[]event{start(), run("A"), end("fail", "A"), run("B"), end("fail", ""), start(), run("A"), end("pass", "A"), run("B"), end("pass", "B"), end("pass", "")},
			"2 passed (1 only when run again), 1 failed, 0 skipped", false},
		"a parent by itself, and passes again": {[]event{start(), run("A"), run("A/x"), end("pass", "A/x"), end("fail", "A"), end("fail", ""), start(), run("A"), run("A/x"), end("pass", "A/x"), end("pass", "A"), end("pass", "")},
			"1 passed (1 only when run again), 0 failed, 0 skipped", true},
		"panic":     {[]event{start(), run("A"), say("A", "panic: x\n"), end("fail", "A"), end("fail", "")}, "0 passed, 1 failed, 0 skipped", false},
		"cut short": {[]event{start(), run("A"), end("pass", "A")}, "0 passed, 2 failed, 0 skipped", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			out, ok := digest(t, stream(t, tc.in...))
			if got := lastLine(out); got != tc.want || ok != tc.ok {
				t.Errorf("got %q, ok %v; want %q, ok %v\n%s", got, ok, tc.want, tc.ok, out)
			}
		})
	}
}

// TestAnotherCommandIsNotAgain: make test tests some packages twice, the second time with a tag.
func TestAnotherCommandIsNotAgain(t *testing.T) {
	const says = "(some ran again)"
	out, _ := digest(t, stream(t, start(), run("A"), end("pass", "A"), end("pass", ""), start(), run("B"), end("pass", "B"), end("pass", "")))
	if strings.Contains(out, says) {
		t.Errorf("nothing ran again:\n%s", out)
	}
	out, _ = digest(t, stream(t, start(), run("A"), end("fail", "A"), end("fail", ""), start(), run("A"), end("pass", "A"), end("pass", "")))
	if strings.Count(out, says) != 1 {
		t.Errorf("A ran again:\n%s", out)
	}
}

func TestFailureIsShownWhole(t *testing.T) {
	out, _ := digest(t, stream(t, start(), run("A"), say("A", "=== RUN   A\n"), say("A", "    a_test.go:3: want 1\n"),
		say("A", "    a_test.go:4: got 2\n"), end("fail", "A"), end("fail", "")))
	for _, want := range []string{"--- FAIL a/b A", "want 1", "got 2", "FAIL a/b"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "=== RUN") {
		t.Errorf("framing is shown:\n%s", out)
	}
}

func TestOutputOfPassedTestsIsNotShown(t *testing.T) {
	out, _ := digest(t, stream(t, start(), run("A"), say("A", "chatter\n"), end("pass", "A"), end("pass", "")))
	if strings.Contains(out, "chatter") {
		t.Errorf("output of a passed test:\n%s", out)
	}
}

// TestTheSlowestAreNamed: where the time of a run goes, longest first, without subtests.
func TestTheSlowestAreNamed(t *testing.T) {
	took := func(test string, seconds float64) event {
		return event{Action: "pass", Package: pkg, Test: test, Elapsed: seconds}
	}
	out, _ := digest(t, stream(t, start(), run("A"), run("A/x"), took("A/x", 70), took("A", 71.25), run("B"), took("B", 0.9), run("C"), took("C", 120), end("pass", "")))
	if want := "slow:  120.0 s  a/b C\nslow:   71.2 s  a/b A\n3 passed"; !strings.Contains(out, want) {
		t.Errorf("want\n%s\nin\n%s", want, out)
	}
}

func TestSkipsAreGroupedByNeed(t *testing.T) {
	out, _ := digest(t, stream(t, start(),
		run("A"), say("A", "    a_test.go:3: starting\n"), say("A", "    a_test.go:4: needs Docker: no socket\n"), end("skip", "A"),
		run("B"), say("B", "    a_test.go:9: needs Docker: no socket\n"), end("skip", "B"),
		run("C"), end("skip", "C"), run("D"), end("pass", "D"), end("pass", "")))
	want := "Skipped:\n  needs Docker: no socket\n      a/b A\n      a/b B\n  no reason given\n      a/b C\n"
	if !strings.Contains(out, want) {
		t.Errorf("want\n%s\nin\n%s", want, out)
	}
}

// TestTheLastLineSaysWhatSkippedTestsLacked: where a run is judged by its last line, it says what was not tried.
func TestTheLastLineSaysWhatSkippedTestsLacked(t *testing.T) {
	skipped := func(test, why string) []event {
		return []event{run(test), say(test, "    a_test.go:7: "+why+"\n"), end("skip", test)}
	}
	events := slices.Concat([]event{start(), run("A"), end("pass", "A")}, skipped("B", "needs g++: builds programs"), skipped("C", "needs driver_valid.c: the proof is: not here"),
		skipped("D", "needs driver_valid.c: the proof is: not here"), []event{end("pass", "")})
	for wants, want := range map[bool]string{false: "1 passed, 0 failed, 3 skipped", true: "1 passed, 0 failed, 3 skipped: 2 for want of driver_valid.c, 1 for want of g++"} {
		var b strings.Builder
		s := newSummary(&b)
		s.wants = wants
		if err := s.read(strings.NewReader(stream(t, events...))); err != nil {
			t.Fatal(err)
		}
		if s.finish(); lastLine(b.String()) != want {
			t.Errorf("%q, want %q", lastLine(b.String()), want)
		}
	}
}

func TestBrokenBuildShowsCompilerOutput(t *testing.T) {
	in := stream(t, event{Action: "build-output", ImportPath: pkg + " [x.test]", Output: "x.go:1: undefined: y\n"},
		start(), event{Action: "fail", Package: pkg, FailedBuild: pkg + " [x.test]"})
	out, ok := digest(t, "go: a warning that is not JSON\n"+in)
	if ok || !strings.Contains(out, "undefined: y") || !strings.Contains(out, "a warning that is not JSON") {
		t.Errorf("ok %v:\n%s", ok, out)
	}
}

// TestRealGoTest runs the real tool on a module that passes, fails, skips,
// panics and does not build, so that a change of its format is noticed.
func TestRealGoTest(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"go.mod":           "module example.com/m\n\ngo 1.26\n",
		"good/g_test.go":   "package good\nimport \"testing\"\nfunc TestA(t *testing.T) { t.Run(\"x\", func(t *testing.T) {}) }\nfunc TestS(t *testing.T) { t.Skip(\"needs a moon\") }\nfunc TestF(t *testing.T) { t.Error(\"as told\") }\n",
		"boom/b_test.go":   "package boom\nimport \"testing\"\nfunc TestP(t *testing.T) { panic(\"bang\") }\n",
		"broken/b_test.go": "package broken\nfunc x() { undefinedName() }\n",
		"none/n.go":        "package none\n",
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-json", "./...")
	cmd.Dir = dir
	raw, _ := cmd.CombinedOutput() // fails, as it must
	out, ok := digest(t, string(raw))
	if ok || lastLine(out) != "1 passed, 3 failed, 1 skipped" {
		t.Errorf("ok %v, last line %q\n%s", ok, lastLine(out), out)
	}
	for _, want := range []string{"as told", "bang", "undefinedName", "needs a moon"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

// TestEachTestHasALine: with -each, whoever waits sees what goes on.
func TestEachTestHasALine(t *testing.T) {
	var b strings.Builder
	s := newSummary(&b)
	s.each = true
	in := stream(t, start(), run("A"), run("A/a_part"), say("A/a_part", "    x_test.go:3: 16.2 steps/s\n"), say("A/a_part", "    --- PASS: A/a_part (0.50s)\n"),
		end("pass", "A/a_part"), run("A/other"), say("A/other", "    x_test.go:4: needs a GPU\n"), end("skip", "A/other"), end("pass", "A"), end("pass", ""))
	if err := s.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ok        0.5 s  A/a part\n", "x_test.go:3: 16.2 steps/s\n", "skip      0.5 s  A/other\n", "ok        0.5 s  A\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	if strings.Contains(b.String(), "--- PASS") {
		t.Errorf("%s", &b)
	}
}
