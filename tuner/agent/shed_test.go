package agent

import (
	"math"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/budget"
)

// TestReportsAreNotShed: what a report takes is used, and is no reason to read less often.
func TestReportsAreNotShed(t *testing.T) {
	const bound = 0.02
	var shed budget.Shedder
	var s spending
	at, cpu, reports := time.Unix(1e9, 0), 5.0, 1.0
	s.next(at, cpu, reports)
	for _, report := range []float64{0, 0.8, 0.8, 0.8, 0} {
		at, cpu, reports = at.Add(10*time.Second), cpu+0.05+report, reports+report
		s.next(at, cpu, reports)
		if want := (0.05 + report) / 10; math.Abs(s.use-want) > 1e-9 {
			t.Errorf("%.4f CPUs are used, want %.4f", s.use, want)
		}
		if shed.Next(s.own, bound) {
			t.Errorf("a report that took %.1f s has readings taken every %d ticks", report, shed.Every())
		}
	}
}
