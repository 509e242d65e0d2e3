package agent

import (
	"math"
	"testing"
	"time"
)

// TestSheds: what lasts makes readings rarer, a container that begins does not, and what
// is far above the budget does at once; they come back when little is used.
func TestSheds(t *testing.T) {
	const budget = 0.02
	for name, c := range map[string]struct {
		uses []float64 // CPUs, a stretch each
		want []int     // ticks, after each
	}{
		"calm":                        {[]float64{0.004, 0.004, 0.004, 0.004}, []int{1, 1, 1, 1}},
		"a container begins":          {[]float64{0.004, 0.035, 0.005, 0.005}, []int{1, 1, 1, 1}},
		"two begin, one by one":       {[]float64{0.005, 0.025, 0.02, 0.005}, []int{1, 1, 1, 1}},
		"it lasts":                    {[]float64{0.019, 0.019, 0.019, 0.012, 0.012, 0.012}, []int{1, 1, 2, 2, 2, 2}},
		"still too much":              {[]float64{0.03, 0.03, 0.03, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02}, []int{1, 1, 2, 2, 2, 4, 4, 4, 4}},
		"a thousand containers begin": {[]float64{0.15, 0.08}, []int{2, 4}},
		"less":                        {[]float64{0.15, 0.08, 0.006, 0.005, 0.005}, []int{2, 4, 2, 1, 1}},
	} {
		var s loadShedder
		for i, use := range c.uses {
			before := max(1, s.every)
			if changed := s.next(use, budget); s.every != c.want[i] || changed != (s.every != before) {
				t.Errorf("%s: after %d stretches every %d ticks (changed: %v), want %d", name, i+1, s.every, changed, c.want[i])
			}
		}
	}
}

// TestReportsAreNotShed: what a report takes is used, and is no reason to read less often.
func TestReportsAreNotShed(t *testing.T) {
	const budget = 0.02
	var shed loadShedder
	var s spending
	at, cpu, reports := time.Unix(1e9, 0), 5.0, 1.0
	s.next(at, cpu, reports)
	for _, report := range []float64{0, 0.8, 0.8, 0.8, 0} {
		at, cpu, reports = at.Add(10*time.Second), cpu+0.05+report, reports+report
		s.next(at, cpu, reports)
		if want := (0.05 + report) / 10; math.Abs(s.use-want) > 1e-9 {
			t.Errorf("%.4f CPUs are used, want %.4f", s.use, want)
		}
		if shed.next(s.own, budget) {
			t.Errorf("a report that took %.1f s has readings taken every %d ticks", report, shed.every)
		}
	}
}
