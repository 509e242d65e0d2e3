package render

import (
	"strconv"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// ReadingColumns are the names of what Readings gives, units in them; columns are only ever added,
// at the end.
func ReadingColumns() []string {
	out := []string{"time", "container", "team", "rate", "rate_of", "used_cpus", "quota_cpus", "own_cpus", "lent_cpus", "state", "class", "cause", "confidence", "windows"}
	for p := range policies.NumParts {
		out = append(out, p.String())
	}
	return out
}

// Readings has a line for each watched container of a snapshot. What is not known is empty, as is
// a quota where there is none. Parts are shares of the latest window, the windows-th.
func Readings(s *state.Snapshot) (lines [][]string) {
	for i := range s.Containers {
		c := &s.Containers[i]
		if !c.Watched {
			continue
		}
		figure := func(v float64, known bool) string {
			if !known {
				return ""
			}
			return strconv.FormatFloat(v, 'f', 4, 64)
		}
		quota, limited := c.Now[runtime.KnobCPUQuota].CPUs()
		own, lent := quota, 0.0
		if c.Loan != nil {
			own, lent = c.Loan.Own, c.Loan.CPUs
		} else if o, ok := c.Original[runtime.KnobCPUQuota].CPUs(); ok {
			own = o
		}
		rate, of := "", ""
		if c.RateWhy == "" && c.Rate.PerSecond > 0 {
			if rate, of = figure(c.Rate.PerSecond, true), sheetText(c.Rate.Source); c.Rate.Steps {
				of = "steps"
			}
		}
		line := []string{time.Unix(0, s.UnixNs).UTC().Format(time.RFC3339Nano), sheetText(c.Name), sheetText(c.Enrolment.Team), rate, of,
			figure(c.UsedCPUs, true), figure(quota, limited), figure(own, limited), figure(lent, true),
			sheetText(c.Tuning), sheetText(string(c.Verdict.Class)), sheetText(string(c.Verdict.Cause)), figure(c.Verdict.Confidence, c.Verdict.Class != ""), strconv.FormatUint(c.Windows, 10)}
		for p := range policies.NumParts {
			line = append(line, figure(c.Breakdown.Share(p), c.Breakdown.WallNs > 0))
		}
		lines = append(lines, line)
	}
	return lines
}
