package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

// Placement tells where jobs that are to start should run: of one job all devices, of several
// which runs where and when.
func Placement(p state.Placement, clock Clock) string {
	if len(p.Jobs) == 1 && p.Plan == nil {
		return placedJob(p.Jobs[0], p.Why, clock)
	}
	plan := p.Plan
	if plan == nil {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s: all done after %s", Clean(plan.Policy), Span(plan.Seconds))
	if plan.BoundSeconds > 0 {
		fmt.Fprintf(&out, "; no division is done before %s (at most %s more)", Span(plan.BoundSeconds), percent(max(0, plan.Seconds/plan.BoundSeconds-1)))
	}
	out.WriteString("\n")
	columns := []column{{"DEVICE", 6, 6, false}, {"MODEL", 30, 10, true}, {"START", 9, 6, false}, {"TAKES", 9, 6, false}, {"JOB", 50, 12, true}}
	var rows [][]string
	for _, s := range plan.Starts {
		job := "-"
		if s.Job >= 0 && s.Job < len(p.Jobs) {
			job = jobName(p.Jobs[s.Job].Job)
		}
		start := "now"
		if s.Start > 0 {
			start = "+" + Span(s.Start)
		}
		rows = append(rows, []string{Clean(s.Label), Clean(cmp.Or(s.Model, "-")), start, Span(s.Seconds), job})
	}
	out.WriteString(table(columns, rows))
	for _, n := range plan.Notes {
		out.WriteString(Clean(n) + "\n")
	}
	return out.String()
}

// jobName is what people call a job.
func jobName(j state.PlaceJob) string { return name(cmp.Or(j.Name, j.Image)) }

func placedJob(j state.PlacedJob, why string, clock Clock) string {
	if len(j.Choices) == 0 {
		return "no GPU here (" + Clean(why) + ")\n"
	}
	columns := []column{{"USE", 3, 3, false}, {"DEVICE", 6, 6, false}, {"MODEL", 30, 10, true}, {"MEMORY", 8, 6, false}, {"STATE", 34, 10, false}, {"RATE", 16, 8, false}, {percent(profiles.Covered), 14, 6, false}, {"RATE IS", 9, 8, false}}
	var rows [][]string
	for _, c := range j.Choices {
		use := "-"
		if slices.Contains(j.Chosen, c.Device) {
			use = "yes"
		}
		memory := "-"
		if c.Memory > 0 {
			memory = enrolment.FormatBytes(float64(c.Memory))
		}
		rows = append(rows, []string{use, Clean(c.Label), Clean(cmp.Or(c.Model, "-")), memory, choiceState(c, clock), expectedRate(c.Rate), interval(c.Rate), Clean(cmp.Or(c.Rate.How, "-"))})
	}
	var out strings.Builder
	out.WriteString(placeSentence(j))
	out.WriteString(table(columns, rows))
	for _, e := range j.Elsewhere {
		where := cmp.Or(each(e.Hosts, name), "this host does not have it now")
		fmt.Fprintf(&out, "On %s (%s): %s, %s, %s\n", Clean(e.Model), where, expectedRate(e.Rate), interval(e.Rate), Clean(e.Rate.How))
	}
	for _, e := range j.Evidence {
		fmt.Fprintf(&out, "  profile %d, %s: %s; last met %s, containers: %d\n", e.ID, name(e.Name), Clean(e.Alike), clock.at(e.LastUnixNs), e.Jobs)
	}
	return out.String()
}

// placeSentence says what is chosen, and on what it rests.
func placeSentence(j state.PlacedJob) string {
	text := jobName(j.Job)
	if len(j.Evidence) == 0 {
		text += ": no such job is known, so free devices come first, and then the data sheet decides"
	} else {
		text += fmt.Sprintf(": profiles of such jobs: %d", len(j.Evidence))
		if j.CPUs > 0 {
			text += "; they had use for " + cpus(j.CPUs) + " CPUs"
		}
		if j.MemoryBytes > 0 {
			text += " and " + enrolment.FormatBytes(j.MemoryBytes) + " of memory"
		}
	}
	if j.Why != "" {
		text += "; " + Clean(j.Why)
	}
	return text + "\n"
}

func choiceState(c state.PlaceChoice, clock Clock) string {
	var state []string
	if c.Unfit != "" {
		state = append(state, Clean(c.Unfit))
	}
	if c.Free {
		state = append(state, "free")
	}
	switch {
	case c.Free && len(c.Holders) > 0:
		state = append(state, "open to "+each(c.Holders, name))
	case len(c.Holders) > 0:
		state = append(state, "used by "+each(c.Holders, name))
	}
	if c.Hold != nil {
		left := time.Unix(0, c.Hold.UntilUnixNs).Sub(clock.Now)
		state = append(state, "held for "+name(c.Hold.For)+", "+Span(left.Seconds()))
	}
	return strings.Join(state, "; ")
}

func expectedRate(r state.PlaceRate) string {
	if r.PerSecond <= 0 {
		return "-"
	}
	return perSecond(r.PerSecond, policies.Rate{Source: r.Unit})
}

func interval(r state.PlaceRate) string {
	if r.High <= 0 {
		return "-"
	}
	return number(r.Low) + " … " + number(r.High)
}
