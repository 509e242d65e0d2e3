package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"text/tabwriter"
)

// print writes one mix for people.
func (rep report) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s\n", rep.Mix, rep.Why)
	fmt.Fprintf(w, "%d containers on %.0f CPUs. Equal share: a quota of %.2f CPUs and a weight of 1024 for each; a stranger has the weight alone.\n", len(rep.Jobs), rep.CPUs, rep.Share)
	fmt.Fprintf(w, "Best static allocation of %d looks: %s\n\n", rep.Looks, rep.Best)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "JOB\tALONE, steps/s\tAT EQUAL SHARE")
	for i, name := range rep.Jobs {
		static := math.NaN()
		if rep.Static != nil {
			static = rep.Static[i]
		}
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\n", name, rep.Alone[i], static)
	}
	_ = t.Flush() // to standard output: nobody is left to tell
	fmt.Fprintln(w)
	fmt.Fprintln(t, "POLICY\tSUM OF NORMALISED RATES\tLEAST\tOF THE BEST\t95 % AFTER\tCHANGES\tLEAST OF ENTITLEMENT\tSTARVED JOB\tREACHED")
	for _, l := range rep.Lines {
		starved, reach := "-", "-"
		if l.Starved > 0 {
			starved, reach = fmt.Sprintf("%.2f ×", l.Starved), secondsText(l.After)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%.1f\t%.2f (%s)\t%s\t%s\n", l.Policy, l.Sum, l.Min, l.OfBest, secondsText(l.To95), l.Changes, l.Fall, l.FallJob, starved, reach)
	}
	_ = t.Flush()
	fmt.Fprintln(w)
	for _, g := range rep.Goals {
		fmt.Fprintf(t, "%s\t%s\t%s\n", g.Result, g.What, g.Why)
	}
	_ = t.Flush()
}

func secondsText(s float64) string {
	if s < 0 {
		return "not reached"
	}
	return fmt.Sprintf("%.1f s", s)
}

// String shows a figure with its interval.
func (f figure) String() string {
	if f.N < 2 {
		return fmt.Sprintf("%.3f", f.Mean)
	}
	return fmt.Sprintf("%.3f (%.3f … %.3f)", f.Mean, f.Low, f.High)
}

// MarshalJSON leaves out an interval that there is not: JSON has no NaN.
func (f figure) MarshalJSON() ([]byte, error) {
	if f.N < 2 {
		return json.Marshal(map[string]any{"mean": f.Mean, "n": f.N})
	}
	return json.Marshal(map[string]any{"mean": f.Mean, "low": f.Low, "high": f.High, "n": f.N})
}

func writeJSON(file string, reports []report) error {
	data, err := json.MarshalIndent(reports, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}

// how explains the columns once.
const how = `
How: containers keep running; for each policy their limits go back to equal shares, and a fresh daemon with an empty store (similarity: with
what its runs before have left), or the rival in a process of its own, is started; policies take turns, each time in another order. Rates are the jobs' own step lines. Normalised: over the
rate alone on the machine without limits. Intervals: Student's, 95 %%, over %d runs. Steady state: the last %.0f s of each run (of each
phase, where jobs change in the middle). "Of the best": over the best static allocation's sum in the same turn. "95 %% after": seconds from
the start of the policy (of the last phase) until the sum over 2 s is first at 95 %% of its final value. "Least of entitlement": over whole
runs, the job that had least of its rate at its equal share (a stranger: of its CPU time up to its share). Starved job: final rate over that
at its equal share, and seconds until it was %.1f times that. The percentile recommender's clock runs %.0f times as fast as published.
`
