package render

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/state"
)

// reportResource is one of the two tables of a report.
type reportResource struct {
	key, title string
	use        func(state.ReportGroup) state.ReportUse
	above      []account.AboveColumn // that it has
}

// used is what of it a group used above owners' quotas.
func (x reportResource) used(g state.ReportGroup) (seconds float64) {
	for _, t := range x.above {
		seconds += t.Of(g)
	}
	return seconds
}

func reportResources() []reportResource {
	return []reportResource{
		{"gpu", "GPU-hours", func(g state.ReportGroup) state.ReportUse { return g.GPU }, nil},
		{"cpu", "CPU-hours", func(g state.ReportGroup) state.ReportUse { return g.CPU }, account.AboveColumns()},
	}
}

// hours shows seconds in hours.
func hours(seconds float64) string {
	if v := seconds / 3600; v == 0 || v >= 0.005 {
		return number(v)
	}
	return "<0.01"
}

// Report is a sentence on what was looked on, then a table for each resource.
func Report(r state.Report, clock Clock) string {
	out := reportSentence(r, clock) + "\n"
	for _, more := range []string{early(r, clock), longestGap(r, clock)} {
		if more != "" {
			out += more + "\n"
		}
	}
	if r.ObservedSeconds == 0 {
		return out + "nothing is stored of that time; the daemon stores what it counts once a minute\n"
	}
	if !slices.ContainsFunc(reportResources(), func(x reportResource) bool { return x.use(r.Total).Held+x.used(r.Total) > 0 }) {
		return out + "nothing was held in that time\n"
	}
	for _, x := range reportResources() {
		if x.use(r.Total).Held+x.used(r.Total) == 0 {
			out += "\n" + x.title + ": none held\n"
			continue
		}
		var rows [][]string
		for _, g := range x.groups(r) {
			rows = append(rows, append([]string{groupName(r.By, name(g.Name))}, x.hours(g)...))
		}
		out += "\n" + x.title + "\n" + table(reportColumns(r, x), rows)
	}
	return out
}

func reportSentence(r state.Report, clock Clock) string {
	out := fmt.Sprintf("%s: looked on for %s h", stretch(r.FromUnixNs, r.ToUnixNs, clock), hours(r.ObservedSeconds))
	if r.Hosts > 0 {
		out += fmt.Sprintf(" on %d hosts", r.Hosts)
	}
	if r.UnobservedSeconds >= 1 {
		out += fmt.Sprintf(", not observed %s h (%s): nothing is said of those", hours(r.UnobservedSeconds), percent(r.UnobservedSeconds/(r.ObservedSeconds+r.UnobservedSeconds)))
	}
	return out
}

// early says what was asked for where it begins noticeably before that; "" elsewhere.
func early(r state.Report, clock Clock) string {
	if !r.Early() {
		return ""
	}
	return "it begins before the " + minute(r.SinceUnixNs, clock) + " that was asked for: whole hours are stored, after 8 days whole days"
}

// longestGap is the longest stretch of whole hours in which nobody looked on; "" if there is none.
func longestGap(r state.Report, clock Clock) string {
	if len(r.Gaps) == 0 {
		return ""
	}
	return "the longest gap: " + stretch(r.Gaps[0].FromUnixNs, r.Gaps[0].ToUnixNs, clock)
}

func stretch(fromNs, toNs int64, clock Clock) string {
	return minute(fromNs, clock) + " to " + minute(toNs, clock)
}

func minute(ns int64, clock Clock) string {
	return time.Unix(0, ns).In(clock.Zone).Format("2006-01-02 15:04")
}

func reportColumns(r state.Report, x reportResource) []column {
	columns := []column{{strings.ToUpper(Clean(r.By)), 24, 12, true}}
	for _, title := range x.titles() {
		columns = append(columns, column{strings.ToUpper(title), 8, 8, false})
	}
	return columns
}

// titles are those of the terms that the resource has.
func (x reportResource) titles() (out []string) {
	for _, t := range account.Columns() {
		out = append(out, t.Title)
	}
	for _, t := range x.above {
		out = append(out, t.Title)
	}
	return out
}

// hours are a group's terms, in the order of titles.
func (x reportResource) hours(g state.ReportGroup) (out []string) {
	for _, t := range account.Columns() {
		out = append(out, hours(t.Value(x.use(g))))
	}
	for _, t := range x.above {
		out = append(out, hours(t.Of(g)))
	}
	return out
}

// nothing: a group has nothing of the resource.
func (x reportResource) nothing(g state.ReportGroup) bool {
	u := x.use(g)
	return u.Held+u.Proven+u.Tried+x.used(g) == 0
}

// groups are those that have something of the resource, and the total.
func (x reportResource) groups(r state.Report) []state.ReportGroup {
	total := r.Total
	total.Name = "total"
	return append(slices.DeleteFunc(slices.Clone(r.Groups), x.nothing), total)
}

// groupName says what a group without a name is.
func groupName(by, group string) string {
	if group == "" {
		return "(no " + by + ")"
	}
	return group
}

// ReportCSV has a line for each group and resource, in hours, and no total: sheets add up
// themselves.
func ReportCSV(w io.Writer, r state.Report) error {
	header := []string{"from", "to", "observed_hours", "unobserved_hours", "by", "group", "resource"}
	for _, t := range account.Columns() {
		header = append(header, t.Key+"_hours")
	}
	for _, t := range account.AboveColumns() {
		header = append(header, t.Key+"_hours")
	}
	lines := [][]string{header}
	instant := func(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339) }
	for _, g := range r.Groups {
		for _, x := range reportResources() {
			line := []string{instant(r.FromUnixNs), instant(r.ToUnixNs), decimal(r.ObservedSeconds), decimal(r.UnobservedSeconds),
				sheetText(r.By), sheetText(groupName(r.By, g.Name)), x.key}
			for _, t := range account.Columns() {
				line = append(line, decimal(t.Value(x.use(g))))
			}
			for i, t := range account.AboveColumns() {
				of := 0.0
				if i < len(x.above) {
					of = t.Of(g)
				}
				line = append(line, decimal(of))
			}
			lines = append(lines, line)
		}
	}
	return csv.NewWriter(w).WriteAll(lines)
}

func decimal(seconds float64) string { return strconv.FormatFloat(seconds/3600, 'f', 4, 64) }

// sheetText is a text that no program of sheets takes for a formula.
func sheetText(s string) string {
	if s = Clean(s); s != "" && strings.ContainsAny(s[:1], "=+-@") {
		return "'" + s
	}
	return s
}

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
