package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/test/lab/placement"
	"github.com/trimtab/trimtab/test/lab/tables"
	"github.com/trimtab/trimtab/tuner/profiles"
)

// What is demanded of predictions and of placing by them.
const (
	mostMedian = 1.25
	mostWorst  = 3.0
	leastAhead = 0.75 // of the seeds
)

// placementText is the tables of simulated placing on GPUs of several kinds.
func placementText(r placement.Report) string {
	var out strings.Builder
	s := r.Setup
	fmt.Fprintf(&out, "Simulated: placing jobs on GPUs of several kinds. Not a measurement.\n")
	fmt.Fprintf(&out, "  GPUs         %d each of K80, P100, V100\n", s.EachKind)
	fmt.Fprintf(&out, "  jobs         %d, all there from the start; models drawn evenly from Gavel's, %g … %g s each on a V100\n", s.Jobs, s.ShortS, s.LongS)
	fmt.Fprintf(&out, "  rates        Gavel's, of %d (model, batch size) configurations on one GPU\n", r.Configs)
	fmt.Fprintf(&out, "  known        a job's own rate on one kind, where its first steps were seen (not charged to anyone); of other models all\n")
	fmt.Fprintf(&out, "               rates, of its own model none; predicted+ knows its other batch sizes\n")
	fmt.Fprintf(&out, "  first-come, fastest-first: the next job to the first, the nominally fastest free GPU\n")
	fmt.Fprintf(&out, "  the others   divide what waits so that the last is believed to end soonest, anew at each end, by\n")
	fmt.Fprintf(&out, "               nominal (data sheets' FP32), average (the mean of other models), likeness (the one most alike),\n")
	fmt.Fprintf(&out, "               sheets, predicted: the daemon's own prediction with its interval, without and with known jobs;\n")
	fmt.Fprintf(&out, "               learned: the same, by weights learned from the other models instead of equal ones;\n")
	fmt.Fprintf(&out, "               learning: predicted, and what runs shows its rate to others of its configuration; true rates\n")
	fmt.Fprintf(&out, "  oracle       true rates, and the best division found; bound: what no division can be below (linear program)\n")
	fmt.Fprintf(&out, "  seeds        1 … %d; a cell is the mean over seeds (least … most)\n\n", s.Seeds)
	out.WriteString("Makespans, first steps seen on a " + strings.ToUpper(s.Probe) + ":\n")
	out.WriteString(makespanTable(r))
	out.WriteString("\nHow far believed rates on the other two kinds are off, as a factor: median (worst); in how many of the rates the interval holds:\n")
	out.WriteString(errorTable(r))
	fmt.Fprintf(&out, "\nDemanded, and reached by predictions that know nothing of the job's own model (no: missed):\n")
	out.WriteString(demandTable(r))
	return out.String()
}

func makespanTable(r placement.Report) string {
	hours := func(v float64) string { return number(v / 3600) }
	above := func(v float64) string { return strconv.FormatFloat(100*(1+v), 'f', 0, 64) }
	cell := func(s placement.Spread, as func(float64) string) string { return spread(s.Mean, s.Min, s.Max, as) }
	var rows [][]string
	for _, row := range r.Rows {
		if row.Probe != r.Setup.Probe {
			continue
		}
		against, ahead := "-", "-"
		if row.Rule != "nominal" {
			against, ahead = cell(row.AgainstNominal, above), fmt.Sprintf("%d of %d", row.Ahead, r.Setup.Seeds)
		}
		rows = append(rows, []string{row.Batch, row.Rule, cell(row.Makespan, hours), cell(row.OfBound, above), against, ahead})
	}
	return table([]string{"BATCH", "BY", "MAKESPAN h", "% OF BOUND", "% OF NOMINAL", "SHORTER THAN NOMINAL"}, rows)
}

func errorTable(r placement.Report) string {
	rules := []string{"nominal", "average", "likeness", "sheets", "learned", "predicted", "predicted+", "hindsight"}
	columns := []string{"SEEN ON", "BATCH"}
	for _, rule := range rules {
		columns = append(columns, strings.ToUpper(rule))
	}
	var rows [][]string
	for _, probe := range tables.Devices() {
		for _, batch := range placement.Batches() {
			cells := []string{probe, batch}
			for _, rule := range rules {
				e := r.Error(probe, batch, rule)
				cell := fmt.Sprintf("%.2f (%.2f)", 1+e.Median, 1+e.Worst)
				if e.Width > 0 && rule != "learned" {
					cell += fmt.Sprintf(" %d/%d", e.Inside, e.Rates)
				}
				cells = append(cells, cell)
			}
			rows = append(rows, cells)
		}
	}
	return table(columns, rows)
}

// demandTable has a line for each kind on which first steps were seen and each part of the batch sizes.
func demandTable(r placement.Report) string {
	judged := func(met bool, format string, args ...any) string {
		if met {
			return fmt.Sprintf(format, args...)
		}
		return "no: " + fmt.Sprintf(format, args...)
	}
	seeds := r.Setup.Seeds
	enough := func(n int) bool { return float64(n) >= leastAhead*float64(seeds) }
	var rows [][]string
	for _, probe := range tables.Devices() {
		for _, batch := range placement.Batches() {
			p, n, l := r.Error(probe, batch, "predicted"), r.Error(probe, batch, "nominal"), r.Error(probe, batch, "likeness")
			alone, learning := r.Row(probe, batch, "predicted"), r.Row(probe, batch, "learning")
			rows = append(rows, []string{probe, batch, judged(1+p.Median <= mostMedian, "%.2f", 1+p.Median), judged(1+p.Worst <= mostWorst, "%.2f", 1+p.Worst),
				judged(p.Median < n.Median, "%.2f", 1+n.Median), judged(p.Median < l.Median, "%.2f", 1+l.Median),
				judged(float64(p.Inside) >= profiles.Covered*float64(p.Rates), "%d of %d", p.Inside, p.Rates),
				judged(enough(alone.Ahead), "%d of %d", alone.Ahead, seeds), judged(enough(learning.Ahead), "%d of %d", learning.Ahead, seeds),
				judged(alone.OfOracle.Mean <= placement.Nearby, "%.0f %%", 100*(1+alone.OfOracle.Mean)), judged(learning.OfOracle.Mean <= placement.Nearby, "%.0f %%", 100*(1+learning.OfOracle.Mean)),
				fmt.Sprintf("%d of %d", alone.AheadOfSheets, seeds)})
		}
	}
	return table([]string{"SEEN ON", "BATCH", "MEDIAN ≤ 1.25", "WORST ≤ 3", "BELOW NOMINAL", "BELOW LIKENESS", "INSIDE ≥ 90 %", "SHORTER ≥ 75 %", "LEARNING", "OF ORACLE ≤ 105 %", "LEARNING", "SHORTER THAN SHEETS"}, rows)
}
