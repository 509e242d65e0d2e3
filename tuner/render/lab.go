package render

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/lab/cluster"
	"github.com/trimtab/trimtab/tuner/lab/sidebyside"
)

// spread shows a mean with the least and the most of the seeds.
func spread(mean, least, most float64, show func(float64) string) string {
	return fmt.Sprintf("%s (%s … %s)", show(mean), show(least), show(most))
}

// hundredths shows a ratio's distance from one in per cent, without the sign's space.
func hundredths(v float64) string {
	return strconv.FormatFloat(100*v, 'f', 1, 64)
}

// Simulation is the table of a simulated cluster, with its set-up.
func Simulation(r cluster.Report) string {
	var out strings.Builder
	s := r.Setup
	fmt.Fprintf(&out, "Simulated: servers that share CPUs and memory among jobs. Not a measurement.\n")
	fmt.Fprintf(&out, "  servers      %d, each %d GPUs, %g CPUs, %g GB (Synergy's)\n", s.Servers, s.Server.GPUs, s.Server.CPUs, s.Server.MemoryGB)
	fmt.Fprintf(&out, "  jobs         %d: GPUs, order and gaps of the 60-job Tiresias trace; each draws one of Synergy's 12 models, evenly\n", s.Jobs)
	if s.SpanS > 0 {
		fmt.Fprintf(&out, "  load         GPU seconds asked for over those there are while jobs come, %g h; durations are scaled\n", s.SpanS/3600)
	} else {
		fmt.Fprintf(&out, "  load         GPU seconds asked for over those there are while jobs come; durations are the trace's, gaps scaled\n")
	}
	fmt.Fprintf(&out, "  rates        Synergy's CPU and memory sensitivity, rounded by hand by its authors: a model, not measurements\n")
	between := "counts as the lower"
	if s.Parts {
		between = "counts in proportion"
	}
	fmt.Fprintf(&out, "               memory between two of its steps %s\n", between)
	fmt.Fprintf(&out, "  queue        first come, first served, nobody overtakes; on the server that the job leaves fullest\n")
	fmt.Fprintf(&out, "  policies     verdict after %g s, one trial on a server at a time (%g s; weights %g s, takes %g s,\n", s.Times.Verdict, s.Times.Trial, s.Times.Deal, s.Times.Take)
	fmt.Fprintf(&out, "               memory %g s longer), readings off by %g %%\n", s.Times.Fill, 100*s.Times.Noise)
	fmt.Fprintf(&out, "               with the arbiter, by %s, as the daemon runs them; alone: without it\n", cmp.Or(s.Objective, policies.ObjectiveSum))
	fmt.Fprintf(&out, "  * knows the curves, and divides at once; others measure, or need to know nothing\n")
	fmt.Fprintf(&out, "  seeds        1 … %d; a cell is the mean over seeds (least … most)\n\n", s.Seeds)
	columns := []column{{"LOAD", 4, 4, false}, {"BY", 14, 6, false}, {"COMPLETION s", 8, 8, false}, {"P50 s", 6, 5, false}, {"P95 s", 6, 5, false},
		{"QUEUE s", 8, 8, false}, {"COMPLETION %", 8, 8, false}, {"QUEUE %", 8, 8, false}}
	var rows [][]string
	for _, row := range r.Rows {
		by := row.Mechanism
		if row.Knows {
			by += " *"
		}
		completion, queue := "-", "-"
		if v := row.CompletionRatio; v != nil && row.Mechanism != "proportional" {
			completion = spread(v.Mean, v.Min, v.Max, hundredths)
		}
		if v := row.QueueingRatio; v != nil && row.Mechanism != "proportional" {
			queue = spread(v.Mean, v.Min, v.Max, hundredths)
		}
		rows = append(rows, []string{number(row.Load), by, spread(row.Completion.Mean, row.Completion.Min, row.Completion.Max, number),
			number(row.CompletionP50.Mean), number(row.CompletionP95.Mean), number(row.Queueing.Mean), completion, queue})
	}
	out.WriteString(table(columns, rows))
	out.WriteString("\n%: against proportional on the same jobs; - where a seed's jobs hardly queue.\n" +
		"NEARCHUS (NOMS 2024) reports -35.6 % completion and -67.8 % queueing time on its own set-up: not the same measurement.\n")
	return out.String()
}

// SideBySide sets decisions of two policies beside each other.
func SideBySide(r sidebyside.Report) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %d ticks, recorded with %s\n", clean(r.File), r.Ticks, clean(r.Recorded))
	if len(r.Rows) > 0 {
		columns := []column{{"TIME", 8, 8, false}, {"CONTAINER", 24, 10, true}, {"KNOB", 10, 6, false}, {"RECORDED", 20, 10, false}, {"BY", 10, 5, false},
			{strings.ToUpper(clean(r.Policy)), 20, 10, false}, {"BY", 10, 5, false}}
		var rows [][]string
		for _, row := range r.Rows {
			was, wasBy := side(row.Recorded)
			is, isBy := side(row.Other)
			at := time.Unix(0, row.UnixNs()).UTC().Format("15:04:05")
			rows = append(rows, []string{at, name(row.Container()), knob(row.Knob()), was, wasBy, is, isBy})
		}
		out.WriteString(table(columns, rows))
	}
	out.WriteString(counts(r.Counts, clean(r.Policy)))
	if r.Truncated {
		out.WriteString("the recording was cut: what is whole of it was read\n")
	}
	return out.String()
}

// SideBySideTotal sums several recordings up; "" for one, which has said it all.
func SideBySideTotal(all []sidebyside.Report) string {
	if len(all) < 2 {
		return ""
	}
	var sum sidebyside.Counts
	for _, r := range all {
		sum = sum.Plus(r.Counts)
	}
	return fmt.Sprintf("%d recordings: ", len(all)) + counts(sum, clean(all[0].Policy))
}

func counts(c sidebyside.Counts, policy string) string {
	return fmt.Sprintf("recorded %d (taken back %d), %s %d; in one row %d, alike %d; only recorded %d, only %s %d\n",
		c.Recorded, c.TakenBack, policy, c.Other, c.Both, c.Alike, c.OnlyRecorded, policy, c.OnlyOther)
}

// side shows one change, and whose it was; "would": it was never to be applied.
func side(c *sidebyside.Change) (what, by string) {
	if c == nil {
		return "-", "-"
	}
	what = value(c.Knob, c.From) + "→" + value(c.Knob, c.To)
	if c.DryRun {
		what += " would"
	}
	return what, clean(c.Policy)
}
