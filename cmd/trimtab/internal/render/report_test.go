package render

import (
	"encoding/csv"
	"errors"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/net/html"

	"github.com/trimtab/trimtab/tuner/state"
)

func reported() state.Report {
	h := 3600.0
	gpu := state.ReportUse{Held: 336 * h, Idle: 40 * h, Stalled: 101 * h, Actionable: 88.5 * h, NotKnown: 3 * h, Proven: 120 * h, Saved: 31 * h, Tried: 2 * h, Lost: 0.4 * h}
	cpu := state.ReportUse{Held: 1344 * h, Idle: 500 * h, Stalled: 300 * h, Actionable: 250 * h, Saved: 0.002 * h, Proven: 1}
	vision := state.ReportGroup{Name: "vision", GPU: gpu, CPU: cpu, LentCPUSeconds: 210 * h, GivenCPUSeconds: 12 * h}
	web := state.ReportGroup{CPU: state.ReportUse{Held: 168 * h, Idle: 160 * h}}
	total := state.ReportGroup{GPU: gpu, CPU: state.ReportUse{Held: 1512 * h, Idle: 660 * h, Stalled: 300 * h, Actionable: 250 * h, Saved: 0.002 * h, Proven: 1}, LentCPUSeconds: 210 * h, GivenCPUSeconds: 12 * h}
	return state.Report{FromUnixNs: at(15, 0) - 7*24*3600e9, ToUnixNs: at(15, 0), By: "team", Source: "history", ObservedSeconds: 160 * h, UnobservedSeconds: 8 * h,
		Gaps:   []state.Gap{{FromUnixNs: at(2, 0), ToUnixNs: at(9, 0)}, {FromUnixNs: at(10, 0), ToUnixNs: at(11, 0)}},
		Groups: []state.ReportGroup{vision, web}, Total: total}
}

func TestReport(t *testing.T) {
	golden(t, "report.txt", Report(reported(), testClock()))
	r := reported()
	r.Total.GPU, r.Groups, r.Hosts, r.UnobservedSeconds, r.Gaps = state.ReportUse{}, r.Groups[1:], 12, 0, nil
	golden(t, "report-cpus.txt", Report(r, testClock()))
	golden(t, "report-none.txt", Report(state.Report{FromUnixNs: at(12, 0), ToUnixNs: at(13, 0), By: "cause", UnobservedSeconds: 3600}, testClock()))
	r.SinceUnixNs = r.ToUnixNs - 1800e9
	r.FromUnixNs = r.ToUnixNs - 3600e9
	if text := Report(r, testClock()); !strings.Contains(text, "\nit begins before the 2026-01-02 14:30 that was asked for: whole hours are stored, after 8 days whole days\n") {
		t.Errorf("half an hour was asked for:\n%s", text)
	}
	if r.FromUnixNs = r.SinceUnixNs - 17e9; strings.Contains(Report(r, testClock()), "asked") {
		t.Error("it begins where it was asked to, but for seconds, and says that it does not")
	}
	var sheet, page strings.Builder
	if err := errors.Join(ReportCSV(&sheet, reported()), ReportHTML(&page, reported(), testClock())); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.csv", sheet.String())
	golden(t, "report.html", page.String())
}

// hostileNames are what a container, an image or a label may be called.
func hostileNames() []string {
	return []string{"</td><script>alert(1)</script>", "<img src=x onerror=alert(1)>", `" onmouseover="x`, "=HYPERLINK(\"http://x\")", "@SUM(A1)", "-1+1", "+1",
		"\x1b]0;title\x07\x1b[31m", "a\r\nb,c;\"d\"", "\u202egnp.exe", "🦀🦀", strings.Repeat("long", 1024), "{{.}}", "javascript:alert(1)", "e\u0301\u0301", "\xff\xfe", "url(http://x/)"}
}

func hostile() state.Report {
	r := reported()
	r.Groups = nil
	for _, n := range hostileNames() {
		r.Groups = append(r.Groups, state.ReportGroup{Name: n, GPU: state.ReportUse{Held: 5, Idle: 1}, CPU: state.ReportUse{Held: 1}})
	}
	return r
}

func TestReportOfHostileNames(t *testing.T) {
	r := hostile()
	for _, line := range strings.Split(Report(r, testClock()), "\n") {
		if len([]rune(line)) > Width || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("line %q", line)
		}
	}
	var text strings.Builder
	if err := ReportCSV(&text, r); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(strings.NewReader(text.String())).ReadAll()
	if err != nil || len(lines) != 1+2*len(hostileNames()) {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	for _, line := range lines {
		for _, cell := range line {
			if cell != "" && strings.ContainsAny(cell[:1], "=+-@") || strings.ContainsFunc(cell, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("cell %q", cell)
			}
		}
	}
}

// The page has the elements of its template whatever names are in it, no script, and nothing that
// is loaded from elsewhere.
func TestReportPageIsSelfContained(t *testing.T) {
	elements := func(r state.Report) (names map[string]int) {
		var page strings.Builder
		if err := ReportHTML(&page, r, testClock()); err != nil {
			t.Fatal(err)
		}
		names = map[string]int{}
		tokens := html.NewTokenizer(strings.NewReader(page.String()))
		for tokens.Next() != html.ErrorToken {
			token := tokens.Token()
			if token.Type != html.StartTagToken && token.Type != html.SelfClosingTagToken {
				continue
			}
			names[token.Data]++
			for _, a := range token.Attr {
				if strings.HasPrefix(a.Key, "on") || a.Key == "src" || a.Key == "href" {
					t.Errorf("<%s %s=%q>", token.Data, a.Key, a.Val)
				}
			}
		}
		if strings.Contains(strings.ToLower(page.String()), "@import") || strings.Contains(page.String(), "\u202e") {
			t.Error("the page loads something, or turns the direction of writing")
		}
		return names
	}
	plain := hostile()
	for i := range plain.Groups {
		plain.Groups[i].Name = "plain"
	}
	want, got := elements(plain), elements(hostile())
	for name, n := range got {
		if want[name] != n || name == "script" || name == "link" || name == "img" {
			t.Errorf("%d elements %s, want %d", n, name, want[name])
		}
	}
}
