package render

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/tuner/lab/cluster"
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
	fmt.Fprintf(&out, "  trimtab      lends what is idle %g s after a job starts, memory once what it keeps was read (%g s)\n", s.Times.Grant, s.Times.Fill)
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
