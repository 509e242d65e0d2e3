package top

import (
	"slices"
	"strings"
	"testing"

	"github.com/gdamore/tcell/v3"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/series"
)

// TestWindowsOfAJob: each window once, also over a restart of the daemon, and after the end.
func TestWindowsOfAJob(t *testing.T) {
	m := seen(80, 24)
	keys(m, "G\n")
	if n := len(m.past["docker-1"].windows); n != 3 {
		t.Errorf("%d windows of 3", n)
	}
	c := lentTrain()
	c.Windows = 1 // counted anew
	m.Update(answer(20, c))
	if n := len(m.past["docker-1"].windows); n != 4 || len(m.past) != 1 {
		t.Errorf("%d windows of 4, of %d containers", n, len(m.past))
	}
	for i := range 2 * kept {
		c.Windows++
		m.Update(answer(21+i, c))
	}
	if n := len(m.past["docker-1"].windows); n != kept {
		t.Errorf("%d windows are kept", n)
	}
	m.Update(answer(2000))
	if text := m.View().String(); !strings.Contains(text, "has ended") || !strings.Contains(text, "14:06:") {
		t.Errorf("after its end:\n%s", text)
	}
	keys(m, "\x1b")
	if text := m.View().String(); !strings.Contains(text, "no containers are running") {
		t.Errorf("back:\n%s", text)
	}
}

// TestHourOfAJob: before what top saw stands what the daemon kept, of the job that is shown alone.
func TestHourOfAJob(t *testing.T) {
	m := seen(80, 24)
	if job := m.Job(); job != "" {
		t.Errorf("of %q an hour is asked for, and it is not shown alone", job)
	}
	m.Update(Key{Code: tcell.KeyEnd})
	if action := m.Update(Key{Code: tcell.KeyEnter}); action != ActionRefresh || m.Job() != "docker-1" {
		t.Fatalf("action %d, job %q", action, m.Job())
	}
	first := m.past["docker-1"].windows[0].unixNs
	var points []series.Point
	for i := range 360 {
		p := series.Point{UnixNs: first + int64(i-300)*series.EveryNs, Rate: 16.6, Steps: true, Quota: 1, Shares: make([]float64, policies.NumParts)}
		p.Shares[policies.PartInputThrottled] = 1
		points = append(points, p)
	}
	points[0].Shares = nil
	last := lentTrain()
	last.Windows = 3
	d := Data(answer(9, append(others(), last)...))
	d.Hour = series.Series{Key: "docker-2", EveryNs: series.EveryNs, Parts: series.PartNames(), Points: points} // another was shown
	m.Update(d)
	if n := len(m.windows()); n != 3 {
		t.Errorf("%d windows, of them %d of another job", n, n-3)
	}
	d.Hour.Key = "docker-1"
	m.Update(d)
	if n := len(m.windows()); n != 299+3 || !slices.IsSortedFunc(m.windows(), func(a, b window) int { return int(a.unixNs - b.unixNs) }) {
		t.Errorf("%d windows, want 299 of the hour and 3 that were seen, in order", n)
	}
	m.Update(Key{Code: tcell.KeyEnd})
	if text := m.View().String(); !strings.Contains(text, "16.6 steps/s 1.0   tttttttttt") {
		t.Errorf("the first of the hour:\n%s", text)
	}
}
