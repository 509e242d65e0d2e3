package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is one line of `go test -json` (see `go doc test2json`); build events
// carry ImportPath instead of Package.
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string
}

// testKey names one test of one package.
type testKey struct{ pkg, test string }

// failure is a failed test without subtests, and what it said.
type failure struct {
	key  testKey
	says []string
}

// saysLines is how much of a failure the end of the summary repeats: the whole of it stands
// above, where a long log may have lost it.
const saysLines = 6

// skip is one skipped test and why.
type skip struct {
	key    testKey
	reason string
}

// counts tells how a package's tests ended. A test with subtests is itself not
// counted where a subtest was: each leaf counts once.
type counts struct{ passed, failed, skipped int }

// summary gathers the stream; it writes as packages end.
type summary struct {
	out      io.Writer
	each     bool                 // a line for each test, with what it logged
	wants    bool                 // the last line says for want of what tests were skipped
	output   map[testKey][]string // of tests that run; "" as test is the package's own
	build    map[string][]string  // compiler output by import path
	parent   map[testKey]bool     // has subtests
	results  map[string]map[string]string
	open     map[string]bool // packages started and not ended
	skips    []skip
	failed   []failure
	running  map[testKey]bool
	ended    map[string]counts // by package; of one that ran again, of its tests' latest runs
	bad      map[string]bool   // packages whose latest run failed
	broke    map[string]bool   // packages that failed by themselves once: no test that runs again mends that
	problems []string
	slow     []timing // tests of a second or more, without their subtests
}

// timing is how long a test took, seconds.
type timing struct {
	key     testKey
	seconds float64
}

// slowest is how many of them the end of the summary names: where the time of a run goes.
const slowest = 10

func newSummary(out io.Writer) *summary {
	return &summary{
		out:     out,
		output:  map[testKey][]string{},
		build:   map[string][]string{},
		parent:  map[testKey]bool{},
		results: map[string]map[string]string{},
		open:    map[string]bool{},
		running: map[testKey]bool{},
		bad:     map[string]bool{},
		broke:   map[string]bool{},
		ended:   map[string]counts{},
	}
}

// read consumes the whole stream. A line that is no JSON (go's own errors, when
// standard error is joined in) is shown; it alone fails nothing.
func (s *summary) read(in io.Reader) error {
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			s.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *summary) line(line string) {
	var e event
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil {
		fmt.Fprint(s.out, line)
		return
	}
	s.event(e)
}

func (s *summary) event(e event) {
	key := testKey{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		s.build[e.ImportPath] = append(s.build[e.ImportPath], e.Output)
	case "start":
		s.open[e.Package] = true
	case "run":
		s.running[key] = true
		for i := strings.LastIndexByte(e.Test, '/'); i > 0; i = strings.LastIndexByte(e.Test[:i], '/') {
			s.parent[testKey{e.Package, e.Test[:i]}] = true
		}
	case "output":
		s.output[key] = append(s.output[key], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.packageEnded(e)
		} else {
			s.testEnded(key, e)
		}
	}
}

func (s *summary) testEnded(key testKey, e event) {
	if s.results[key.pkg] == nil {
		s.results[key.pkg] = map[string]string{}
	}
	if e.Action == "skip" && s.results[key.pkg][key.test] == "fail" {
		e.Action = "fail" // what failed, and cannot run again, has failed
		s.output[key] = append(s.output[key], "failed, and was skipped when run again\n")
	}
	s.results[key.pkg][key.test] = e.Action
	if e.Elapsed >= 1 && !strings.Contains(key.test, "/") {
		s.slow = append(s.slow, timing{key, e.Elapsed})
	}
	if e.Action == "skip" {
		s.skips = append(s.skips, skip{key, reason(s.output[key])})
	}
	if e.Action == "fail" {
		fmt.Fprintf(s.out, "--- FAIL %s %s (%.1f s)\n", short(key.pkg), key.test, e.Elapsed)
		s.show(s.output[key])
		if !s.failedUnder(key) {
			s.failed = append(s.failed, failure{key, said(s.output[key], false)})
		}
	} else if s.each {
		fmt.Fprintf(s.out, "%-5s %7.1f s  %s\n", map[string]string{"pass": "ok", "skip": "skip"}[e.Action], e.Elapsed, strings.ReplaceAll(e.Test, "_", " "))
		s.show(s.output[key])
	}
	delete(s.output, key)
	delete(s.running, key)
}

// failedUnder reports whether a subtest of a test failed, which says why it did.
func (s *summary) failedUnder(key testKey) bool {
	for test, result := range s.results[key.pkg] {
		if result == "fail" && strings.HasPrefix(test, key.test+"/") {
			return true
		}
	}
	return false
}

// packageEnded prints the package's line and keeps its counts. A package may end twice: some
// of its tests failed, and ran again.
func (s *summary) packageEnded(e event) {
	delete(s.open, e.Package)
	own := s.output[testKey{e.Package, ""}]
	delete(s.output, testKey{e.Package, ""})
	c, hadFailedTest := s.count(e.Package)
	if e.Action == "fail" && (!hadFailedTest || len(s.openTests(e.Package)) > 0) {
		s.broke[e.Package] = true
		s.packageBroke(e, own)
	}
	if s.broke[e.Package] { // as a leak at its end, or a process that died: what came after never ran
		c.failed++
	}
	ranAgain := s.bad[e.Package]
	s.ended[e.Package], s.bad[e.Package] = c, e.Action == "fail"
	if c == (counts{}) {
		return // no test files, nothing to tell
	}
	mark := "ok  "
	if e.Action == "fail" {
		mark = "FAIL"
	}
	again := ""
	if ranAgain {
		again = " (some ran again)"
	}
	fmt.Fprintf(s.out, "%s %-46s %7.1f s  %4d passed %3d failed %3d skipped%s\n", mark, short(e.Package), e.Elapsed, c.passed, c.failed, c.skipped, again)
}

// packageBroke shows why a package failed though no test of it did: it did not
// build, or its process died and took the open tests with it.
func (s *summary) packageBroke(e event, own []string) {
	const itself = "(the package itself)"
	fmt.Fprintf(s.out, "--- FAIL %s %s\n", short(e.Package), itself)
	s.failed = append(s.failed, failure{testKey{e.Package, itself}, said(own, false)})
	if e.FailedBuild != "" {
		s.show(s.build[e.FailedBuild])
	}
	s.show(own)
	for _, key := range s.openTests(e.Package) {
		fmt.Fprintf(s.out, "    unfinished: %s\n", key.test)
		s.show(s.output[key])
		delete(s.output, key)
		delete(s.running, key)
	}
}

func (s *summary) openTests(pkg string) []testKey {
	var keys []testKey
	for key := range s.running {
		if key.pkg == pkg {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b testKey) int { return strings.Compare(a.test, b.test) })
	return keys
}

// count adds up a package's leaf tests. A parent that failed while none of its
// subtests did failed by itself and counts; so does one that skipped.
func (s *summary) count(pkg string) (c counts, failed bool) {
	failedUnder := map[string]bool{}
	for test, result := range s.results[pkg] {
		if result == "fail" {
			failed = true
			for i := strings.LastIndexByte(test, '/'); i > 0; i = strings.LastIndexByte(test[:i], '/') {
				failedUnder[test[:i]] = true
			}
		}
	}
	for test, result := range s.results[pkg] {
		isParent := s.parent[testKey{pkg, test}]
		switch {
		case result == "pass" && !isParent:
			c.passed++
		case result == "skip":
			c.skipped++
		case result == "fail" && !(isParent && failedUnder[test]):
			c.failed++
		}
	}
	return c, failed
}

// said is what a test said, without the lines that only frame it; frames keeps how it ended.
func said(lines []string, frames bool) (out []string) {
	for line := range strings.SplitSeq(strings.Join(lines, ""), "\n") {
		text := strings.TrimSpace(line)
		if text == "" || strings.HasPrefix(text, "=== ") || !frames && strings.HasPrefix(text, "--- ") {
			continue
		}
		out = append(out, line)
	}
	return out
}

// show indents what a test said.
func (s *summary) show(lines []string) {
	for _, line := range said(lines, !s.each) {
		fmt.Fprintf(s.out, "    %s\n", line)
	}
}

// broken notes a failure of the stream itself.
func (s *summary) broken(why string) { s.problems = append(s.problems, why) }

// finish prints skips, failures, problems and the last line; it reports success.
func (s *summary) finish() bool {
	for _, pkg := range slices.Sorted(maps.Keys(s.open)) {
		s.broken("package " + short(pkg) + " started and never ended: the test run was cut short")
	}
	var total counts
	for _, c := range s.ended {
		total.passed += c.passed
		total.failed += c.failed
		total.skipped += c.skipped
	}
	if total.passed+total.failed == 0 {
		s.broken("no test ran")
	}
	s.showSkips()
	slices.SortStableFunc(s.slow, func(a, b timing) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, t := range s.slow[:min(slowest, len(s.slow))] {
		fmt.Fprintf(s.out, "slow: %6.1f s  %s %s\n", t.seconds, short(t.key.pkg), t.key.test)
	}
	again := s.showFailures()
	for _, p := range s.problems {
		fmt.Fprintf(s.out, "PROBLEM: %s\n", p)
	}
	failed := total.failed + len(s.problems)
	fmt.Fprintf(s.out, "%d passed%s, %d failed, %d skipped%s\n", total.passed, again, failed, total.skipped, s.wanted())
	return failed == 0
}

// wanted counts skipped tests by what they lacked, most wanted first, as the end of the last line.
func (s *summary) wanted() string {
	var list []string
	reasons, groups := s.grouped()
	for _, r := range reasons {
		what, _, _ := strings.Cut(strings.TrimPrefix(r, "needs "), ": ")
		list = append(list, fmt.Sprintf("%d for want of %s", len(groups[r]), what))
	}
	if !s.wants || list == nil {
		return ""
	}
	return ": " + strings.Join(list, ", ")
}

// showFailures repeats what each failed test said. A test that passed when it ran again is named
// as one, and returned as a part of the last line: a green run must not hide it.
func (s *summary) showFailures() (again string) {
	told, n := map[testKey]bool{}, 0
	for _, f := range s.failed {
		if told[f.key] {
			continue // it failed both times
		}
		told[f.key] = true
		word := "FAILED"
		if s.results[f.key.pkg][f.key.test] == "pass" {
			word = "PASSED ONLY WHEN RUN AGAIN"
			n++
		}
		fmt.Fprintf(s.out, "%s %s %s\n", word, short(f.key.pkg), f.key.test)
		for _, line := range f.says[:min(saysLines, len(f.says))] {
			fmt.Fprintf(s.out, "    %s\n", strings.TrimSpace(line))
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d only when run again)", n)
}

// showSkips groups skipped tests by reason, most wanted first.
func (s *summary) showSkips() {
	if len(s.skips) == 0 {
		return
	}
	reasons, groups := s.grouped()
	fmt.Fprintln(s.out, "\nSkipped:")
	for _, r := range reasons {
		fmt.Fprintf(s.out, "  %s\n", r)
		for _, test := range groups[r] {
			fmt.Fprintf(s.out, "      %s\n", test)
		}
	}
	fmt.Fprintln(s.out)
}

// grouped are the skipped tests by reason, and the reasons, most wanted first.
func (s *summary) grouped() (reasons []string, groups map[string][]string) {
	groups = map[string][]string{}
	for _, sk := range s.skips {
		groups[sk.reason] = append(groups[sk.reason], short(sk.key.pkg)+" "+sk.key.test)
	}
	reasons = slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
		if d := len(groups[b]) - len(groups[a]); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return reasons, groups
}

// skipLine matches what t.Skip printed: "    file_test.go:12: needs Docker: …".
var skipLine = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: (.*)$`)

// reason finds why a test was skipped: the "needs …" message if there is one,
// else the last message. A skip without any is named as such, for it says
// nothing to the reader.
func reason(output []string) string {
	last := "no reason given"
	for line := range strings.SplitSeq(strings.Join(output, ""), "\n") {
		m := skipLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		last = strings.TrimSpace(m[1])
		if strings.HasPrefix(last, "needs ") {
			return last
		}
	}
	return last
}

// short drops the module's name, which every line would repeat.
func short(pkg string) string {
	const module = "github.com/trimtab/trimtab"
	if pkg == module {
		return "."
	}
	return strings.TrimPrefix(pkg, module+"/")
}
