package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// print writes one mix for people.
func (rep report) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s\n", rep.Mix, rep.Why)
	fmt.Fprintf(w, "%d containers on %.0f CPUs. Equal share: a quota of %.2f CPUs and a weight of 1024 for each; a stranger has the weight alone.\n", len(rep.Jobs), rep.CPUs, rep.Share)
	fmt.Fprintf(w, "Best static allocation of %d looks: %s\n", rep.Looks, rep.Best)
	if rep.Limit == nameStatic {
		fmt.Fprintln(w, "It came to less than equal shares, which are the limit therefore")
	}
	fmt.Fprintf(w, "Stolen from the machine while runs were measured: %.1f %% in the mean, %.1f %% in the worst run\n\n", 100*rep.Steal, 100*rep.MostSteal)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "JOB\tALONE, steps/s\tCPUs\tAT EQUAL SHARE")
	for i, name := range rep.Jobs {
		static := math.NaN()
		if rep.Static != nil {
			static = rep.Static[i]
		}
		fmt.Fprintf(t, "%s\t%.1f\t%.2f\t%.1f\n", name, rep.Alone[i], rep.Needs[i], static)
	}
	_ = t.Flush() // to memory or standard output: nobody is left to tell
	fmt.Fprintln(w)
	fmt.Fprintln(t, "POLICY\tLIVE\tSUM OF NORMALISED RATES\tLEAST\tOF THE BEST\t95 % AFTER\tCHANGES\tLEAST OF ENTITLEMENT\tSTARVED JOB\tREACHED")
	for _, l := range rep.Lines {
		starved, reach := "-", "-"
		if l.Starved > 0 {
			starved, reach = fmt.Sprintf("%.2f ×", l.Starved), secondsText(l.After)
		}
		fmt.Fprintf(t, "%s\t%d of %d%s\t%s\t%s\t%s\t%s\t%.1f\t%.2f (%s)\t%s\t%s\n", l.Policy, l.Live, l.Sum.N, map[bool]string{true: " ~"}[l.Moving],
			l.Sum, l.Min, l.OfBest, secondsText(l.To95), l.Changes, l.Fall.Mean, l.FallJob, starved, reach)
	}
	_ = t.Flush()
	fmt.Fprintln(w)
	for _, g := range rep.Goals {
		fmt.Fprintf(t, "%s\t%s\t%s\n", g.Result, g.What, g.Why)
	}
	_ = t.Flush()
}

// row is a mix in the summary.
func (rep report) row() string {
	sum := func(name string) string {
		if i := slices.IndexFunc(rep.Lines, func(l line) bool { return l.Policy == name }); i >= 0 {
			return fmt.Sprintf("%.2f", rep.Lines[i].Sum.Mean)
		}
		return "-"
	}
	of, after := "-", "-"
	best, most := "-", 0.0
	for _, l := range rep.Lines {
		if l.Policy == defaultPolicy {
			of = l.OfBest.percent()
			if l.Starved > 0 {
				after = fmt.Sprintf("%.2f × (%s)", l.Starved, secondsText(l.After))
			}
		} else if kindOf(l.Policy) == kindRival && l.Sum.Mean > most {
			most, best = l.Sum.Mean, fmt.Sprintf("%s %.2f", l.Policy, l.Sum.Mean)
		}
	}
	counts := map[string]int{}
	for _, g := range rep.Goals {
		counts[g.Result]++
	}
	return fmt.Sprintf("| %s | %d | %s | %s | %s | %s | %s | %s | %d / %d / %d | %.1f %% |\n", rep.Mix, len(rep.Jobs), sum(nameStatic), sum(nameBest), sum(defaultPolicy), of, best, after,
		counts["met"], counts["unclear"], counts["MISS"], 100*rep.Steal)
}

const summaryHead = `| mix | containers | equal | best static | ` + defaultPolicy + ` | of the best | best rival | starved job | goals met / unclear / missed | steal |
|---|---|---|---|---|---|---|---|---|---|
`

// write keeps the latest mix's figures, and the summary of all so far.
func write(dir string, o options, all []report) error {
	latest := all[len(all)-1]
	data, err := json.MarshalIndent(latest, "", "  ")
	if err != nil {
		return fmt.Errorf("mix %s as JSON: %w", latest.Mix, err)
	}
	var text, summary strings.Builder
	latest.print(&text)
	fmt.Fprint(&text, o.how())
	summary.WriteString(summaryHead)
	for _, rep := range all {
		summary.WriteString(rep.row())
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, latest.Mix+".json"), append(data, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, latest.Mix+".txt"), []byte(text.String()), 0o644),
		os.WriteFile(filepath.Join(dir, "summary.md"), []byte(summary.String()), 0o644))
}

func secondsText(s float64) string {
	switch {
	case s == notLive:
		return "-"
	case s < 0:
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
	if f.N == 0 {
		return json.Marshal(map[string]any{"n": 0})
	}
	if f.N == 1 {
		return json.Marshal(map[string]any{"mean": f.Mean, "n": f.N})
	}
	return json.Marshal(map[string]any{"mean": f.Mean, "low": f.Low, "high": f.High, "n": f.N})
}

// how explains the columns once.
func (o options) how() string {
	return fmt.Sprintf(howText, defaultPolicy, o.repeats, o.seconds, o.slow, o.repeats, o.measure, o.still, goalStarved, o.speed)
}

const howText = `
How: containers keep running; between runs only limits change. Rounds of all variants, each in another order. A live run begins at equal shares, with
a fresh daemon and an empty store, or the rival in a process of its own. %[1]s is live in each of %[2]d rounds. All others are live in the first; in later
rounds the limits that each left at the end are measured again, standing still, without its process. Where two left the same limits, one measurement
counts for both. ~: limits still changed in the steady state of a live run, so that what was measured again is one moment of it. A live run takes %.0[3]f s, %.0[4]f s where a policy moves step by step, less where it
decides within seconds (of each phase, where jobs change in the middle). The best static allocation is
searched by short looks at few candidates (equal shares; no quotas; weights by what jobs needed alone; then one change after the other of what is furthest
off), so it is a lower bound of the limit; its winner is measured again in each round, and where equal shares came to more, those are the limit. Proportional shares are run where a job holds several devices; elsewhere they are
equal shares. Rates are the jobs' own step lines. Normalised: over the rate alone on the machine without limits, others stopped; measured once for jobs that
are started alike. Intervals: Student's, 95 %%, over %[5]d rounds. Steady state: the last %.0[6]f s of each live run (of each phase), or %.0[7]f s of what stands still. "Of the
best": over the best static allocation's sum in the same round. "95 %% after": seconds from the start of the policy (of the last phase) until the sum over 2 s
is first at 95 %% of its final value. "Least of entitlement": over whole live runs, the job that had least of its rate at its equal share (a stranger: of its
CPU time up to its share). Starved job: final rate over that at its equal share, and seconds until it was %.1[8]f times that. The percentile recommender's clock runs
%.0[9]f times as fast as published.
`
