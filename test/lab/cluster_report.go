package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/trimtab/trimtab/test/lab/cluster"
)

// table lays out rows below their titles.
func table(titles []string, rows [][]string) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{titles}, rows...) {
		fmt.Fprintln(w, strings.Join(row, "\t")) //nolint:errcheck // a Builder does not fail
	}
	_ = w.Flush() // nor here
	return out.String()
}

// number shows three digits, as far as two decimals hold them.
func number(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// spread shows a mean with the least and the most of the seeds.
func spread(mean, least, most float64, show func(float64) string) string {
	return fmt.Sprintf("%s (%s … %s)", show(mean), show(least), show(most))
}

// hundredths shows a ratio's distance from one in per cent, without the sign's space.
func hundredths(v float64) string {
	return strconv.FormatFloat(100*v, 'f', 1, 64)
}

// clusterText is the table of a simulated cluster, with its set-up.
func clusterText(r cluster.Report) string {
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
	fmt.Fprintf(&out, "  trimtab      the daemon's control step each second, on counters made from the rates; an epoch of files is read in %g s\n", s.EpochS)
	fmt.Fprintf(&out, "  * knows the curves, and divides at once; others measure, or need to know nothing\n")
	fmt.Fprintf(&out, "  seeds        1 … %d; a cell is the mean over seeds (least … most)\n\n", s.Seeds)
	columns := []string{"LOAD", "BY", "COMPLETION s", "P50 s", "P95 s",
		"QUEUE s", "COMPLETION %", "QUEUE %"}
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
