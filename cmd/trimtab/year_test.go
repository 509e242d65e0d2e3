package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/history"
	"github.com/trimtab/trimtab/tuner/state"
)

// remembering tells what is stored, as the daemon adds it up.
type remembering struct {
	fake
	stored *history.Store
	to     time.Time
}

func (d remembering) Report(ctx context.Context, q api.ReportQuery) (state.Report, error) {
	tally := account.NewTally(account.By(q.By), q.SinceUnixNs, d.to.UnixNano())
	err := d.stored.Accounts(ctx, q.SinceUnixNs, tally.Add)
	return tally.Report(), err
}

// yearOf stores what 20 containers held from an instant on, each a GPU and two CPUs, for 365 days less one on
// which the daemon was off: the last eight by the hour, those before by the day.
func yearOf(t *testing.T, from time.Time) remembering {
	t.Helper()
	to := from.AddDate(0, 0, 365)
	s, err := history.Open(filepath.Join(t.TempDir(), "history.db"), history.Options{Now: func() time.Time { return to }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	var all []account.Hour
	for day := range 365 {
		step := account.HoursInDay
		if day >= 365-8 {
			step = 1
		}
		for hour := 0; hour < account.HoursInDay && day != 100; hour += step {
			ms := int64(step) * time.Hour.Milliseconds()
			h := account.Hour{StartUnixNs: from.Add(time.Duration(24*day+hour) * time.Hour).UnixNano(), Hours: int64(step), Observed: ms}
			for i := range 20 {
				r := account.Row{Key: fmt.Sprintf("docker-%d-%d", day, i), Name: fmt.Sprintf("train-%02d", i), Image: "torch", Team: fmt.Sprintf("team-%d", i%3)}
				r.Observed, r.Lent = ms, ms/2
				r.GPU[0][account.Held], r.GPU[account.Idle][account.Held] = ms*3/4, ms/4
				r.CPU[0][account.Held] = 2 * ms
				h.Rows = append(h.Rows, r)
			}
			all = append(all, h)
		}
	}
	if err := s.AddAccounts(all...); err != nil {
		t.Fatal(err)
	}
	return remembering{fake{}, s, to}
}

// TestReportOfAYear: it adds up in each format, and says which day is missing.
func TestReportOfAYear(t *testing.T) {
	from := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	socket := filepath.Join(t.TempDir(), "t.sock")
	serveAt(t, socket, yearOf(t, from))
	report := func(args ...string) string {
		var out, stderr bytes.Buffer
		args = append([]string{"report", "--socket", socket, "--since", from.Format(time.RFC3339)}, args...)
		if code := execute(t.Context(), newRoot(), args, &out, &stderr); code != 0 {
			t.Fatalf("%v ended with %d: %s", args, code, stderr.String())
		}
		return out.String()
	}
	for format, want := range map[string]struct{ each, whole string }{ // 364 days have 8,736 hours
		"table": {`(?m)^train-\d\d +8736 +2184( +0){5}$`, `(?m)^total +174720 +43680( +0){5}$`},
		"csv":   {`(?m)^2025-01-01T00:00:00Z,2026-01-01T00:00:00Z,8736.0000,24.0000,container,train-\d\d,cpu,17472.0000(,0.0000){6},4368.0000,0.0000$`, ""},
		"html":  {`<tr><td>train-\d\d</td><td>8736</td><td>2184</td>(<td>0</td>){5}`, `<tr><td>total</td><td>174720</td><td>43680</td>`},
	} {
		args := []string{"--by", "container", "--output", format}
		if format == "html" {
			args = []string{"--by", "container", "--html", "-"}
		}
		text := report(args...)
		if n := len(regexp.MustCompile(want.each).FindAllString(text, -1)); n != 20 || !regexp.MustCompile(want.whole).MatchString(text) {
			t.Errorf("%s: %d containers of 20 are right:\n%s", format, n, text)
		}
		if format != "csv" && !strings.Contains(text, "not observed 24.0 h (0.3 %)") {
			t.Errorf("%s: it does not say that a day is missing:\n%s", format, text)
		}
	}
	for by, want := range map[string]string{"team": `(?m)^team-2 +52416 +13104 `, "image": `(?m)^torch +174720 +43680 `, "cause": `(?m)^idle +43680 +43680 `} {
		if text := report("--by", by); !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("by %s:\n%s", by, text)
		}
	}
}
