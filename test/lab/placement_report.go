package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/test/lab/placement"
)

// placementText is the table of simulated placing on GPUs of several kinds.
func placementText(r placement.Report) string {
	var out strings.Builder
	s := r.Setup
	fmt.Fprintf(&out, "Simulated: placing jobs on GPUs of several kinds. Not a measurement.\n")
	fmt.Fprintf(&out, "  GPUs         %d each of K80, P100, V100\n", s.EachKind)
	fmt.Fprintf(&out, "  jobs         %d, all there from the start; models drawn evenly from Gavel's, %g … %g s each on a V100\n", s.Jobs, s.ShortS, s.LongS)
	fmt.Fprintf(&out, "  rates        Gavel's, of %d (model, batch size) configurations on one GPU\n", r.Configs)
	fmt.Fprintf(&out, "  known        a job's own rate on a %s, where its first steps were seen (not charged to anyone); of others all rates,\n", strings.ToUpper(s.Probe))
	fmt.Fprintf(&out, "               but nothing of its own model; similarity+ knows its other batch sizes\n")
	fmt.Fprintf(&out, "  similarity   the daemon's book of known jobs, by the 5 of its 20 attributes that the table can stand for; it knew the\n")
	fmt.Fprintf(&out, "               like of %d of %d configurations, nominal speed stands in for the rest\n", r.Told, r.Configs)
	fmt.Fprintf(&out, "  first-come, random, fastest-first: the next job to the first, any, the nominally fastest free GPU\n")
	fmt.Fprintf(&out, "  the others: where each is believed to end first: by data sheets (nominal), the mean of other models (average), the\n")
	fmt.Fprintf(&out, "               like of it (similarity), true rates; oracle: these, bettered by search (near the best, not proven)\n")
	fmt.Fprintf(&out, "  seeds        1 … %d; a cell is the mean over seeds (least … most)\n\n", s.Seeds)
	columns := []string{"BATCH", "BY", "MAKESPAN h", "% OF ORACLE",
		"% OF SIMILARITY", "SIMILARITY SHORTER"}
	hours := func(v float64) string { return number(v / 3600) }
	above := func(v float64) string { return strconv.FormatFloat(100*(1+v), 'f', 0, 64) }
	var rows [][]string
	for _, row := range r.Rows {
		against, shorter := "-", "-"
		if row.Rule != "similarity" {
			against = spread(row.AgainstSimilarity.Mean, row.AgainstSimilarity.Min, row.AgainstSimilarity.Max, above)
			shorter = fmt.Sprintf("%d of %d", row.Behind, s.Seeds)
		}
		rows = append(rows, []string{row.Batch, row.Rule, spread(row.Makespan.Mean, row.Makespan.Min, row.Makespan.Max, hours),
			spread(row.OfOracle.Mean, row.OfOracle.Min, row.OfOracle.Max, above), against, shorter})
	}
	out.WriteString(table(columns, rows))
	out.WriteString("\nHow far believed rates on the other two kinds are off, as a factor:\n")
	columns = []string{"BATCH", "BY", "MEDIAN", "WORST", "OF"}
	rows = nil
	for _, e := range r.Errors {
		rows = append(rows, []string{e.Batch, e.Rule, number(1 + e.Median), number(1 + e.Worst), e.WorstJob})
	}
	out.WriteString(table(columns, rows))
	return out.String()
}
