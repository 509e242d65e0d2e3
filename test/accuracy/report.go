package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Sum is what a set of cases adds up to.
type Sum struct {
	Jobs         int     `json:"jobs"`
	Cases        int     `json:"cases"`
	Windows      int     `json:"windows"`
	Class        float64 `json:"class"` // share of windows with the right class
	Cause        float64 `json:"cause"` // share with the right label, of windows whose truth names a cause
	DetectP95S   float64 `json:"detectP95"`
	Late         int     `json:"late"`   // cases beyond max(5 s, 8 steps)
	Missed       int     `json:"missed"` // cases in which no right verdict stayed
	RateErrorP95 float64 `json:"rateErrorP95"`
	RateReadings int     `json:"rateReadings"`
	WrongActions int     `json:"wrongActions"`
	CasesRight   int     `json:"casesRight"` // whose majority is right
}

func sum(cases []Case) Sum {
	var s Sum
	jobs := map[string]bool{}
	var detect, errors []float64
	var rightClass, caused, right int
	for _, c := range cases {
		jobs[c.Job] = true
		s.Cases++
		s.Windows += c.Windows
		rightClass += c.RightClass
		if c.Truth.Is.HasCause() {
			caused += c.Windows
			right += c.Right
		}
		if c.Begins {
			detect = append(detect, c.DetectS)
			if !c.Detected {
				s.Missed++
			}
			if c.DetectS > c.AllowedS {
				s.Late++
			}
		}
		errors = append(errors, c.RateErrors...)
		s.WrongActions += c.WrongActions
		if c.Windows > 0 && c.Truth.right(c.Majority) {
			s.CasesRight++
		}
	}
	s.Jobs, s.Class, s.Cause = len(jobs), shareOf(rightClass, s.Windows), shareOf(right, caused)
	s.DetectP95S, s.RateErrorP95, s.RateReadings = quantile(detect, 0.95), quantile(errors, 0.95), len(errors)
	return s
}

func shareOf(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// line is how a run ends.
func (s Sum) line() string {
	return fmt.Sprintf("accuracy: CLASS %.3f CAUSE %.3f windows %d jobs %d detect-p95 %.1f s rate-error-p95 %.1f %% wrong-actions %d",
		s.Class, s.Cause, s.Windows, s.Jobs, s.DetectP95S, 100*s.RateErrorP95, s.WrongActions)
}

func (s Sum) row(name string) string {
	return fmt.Sprintf("%-24s CLASS %.3f CAUSE %.3f  windows %4d  cases right %d of %d  detect-p95 %.1f s (late %d, never %d)  rate-error-p95 %.1f %% of %d  wrong-actions %d",
		name, s.Class, s.Cause, s.Windows, s.CasesRight, s.Cases, s.DetectP95S, s.Late, s.Missed, 100*s.RateErrorP95, s.RateReadings, s.WrongActions)
}

// cell is the truth and what was said of it.
type cell struct{ truth, said Label }

// byWindow counts windows; a window that one of Also's labels is right for counts as the truth.
func byWindow(cases []Case) map[cell]int {
	out := map[cell]int{}
	for _, c := range cases {
		for l, n := range c.Said {
			if c.Truth.right(l) {
				l = c.Truth.Is
			}
			out[cell{c.Truth.Is, l}] += n
		}
	}
	return out
}

// byCase counts cases by the majority of their windows.
func byCase(cases []Case) map[cell]int {
	out := map[cell]int{}
	for _, c := range cases {
		said := c.Majority
		switch {
		case said == "":
			said = "(no window)"
		case c.Truth.right(said):
			said = c.Truth.Is
		}
		out[cell{c.Truth.Is, said}]++
	}
	return out
}

// printMatrix lists each truth with what was said of it: a matrix of twenty
// columns, most of them empty, would not be read.
func printMatrix(w io.Writer, title string, m map[cell]int) {
	if len(m) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	rows := map[Label]map[Label]int{}
	for c, n := range m {
		if rows[c.truth] == nil {
			rows[c.truth] = map[Label]int{}
		}
		rows[c.truth][c.said] += n
	}
	for _, truth := range slices.Sorted(maps.Keys(rows)) {
		total, wrong := 0, []string{}
		for _, said := range slices.Sorted(maps.Keys(rows[truth])) {
			total += rows[truth][said]
			if said != truth {
				wrong = append(wrong, fmt.Sprintf("%s %d", said, rows[truth][said]))
			}
		}
		fmt.Fprintf(w, "  %-26s right %4d of %4d  %s\n", truth, rows[truth][truth], total, strings.Join(wrong, ", "))
	}
}

// noisyCPUs is how much work outside of containers makes a machine noisy. The
// daemon itself, Docker and the reading of logs take some hundredths.
const noisyCPUs = 0.2

// stolenShare of the machine's CPU time stolen makes a case one under excess steal: such are counted
// like all others, and the rest is summed once more by itself.
const stolenShare = 0.05

// printCase says how one case went, in a line, and why where it went wrong.
func printCase(w io.Writer, c Case) {
	mark := "ok  "
	if c.Right < c.Windows || c.Windows == 0 {
		mark = "part"
	}
	if !c.Truth.right(c.Majority) {
		mark = "MISS"
	}
	detect := "never"
	switch {
	case !c.Begins:
		detect = "-"
	case c.Detected:
		detect = fmt.Sprintf("%.1f s", c.DetectS)
	}
	rate := "-"
	if len(c.RateErrors) > 0 {
		rate = fmt.Sprintf("%.1f %% (%s%s)", 100*quantile(c.RateErrors, 0.95), c.RateSource, map[bool]string{true: ", steps", false: ""}[c.Steps])
	}
	noisy := ""
	if c.OutsideCPUs > noisyCPUs {
		noisy = fmt.Sprintf("  (beside %.1f CPUs of other work)", c.OutsideCPUs)
	}
	if c.Stolen > stolenShare {
		noisy += fmt.Sprintf("  (%.0f %% of the CPU time stolen)", 100*c.Stolen)
	}
	fmt.Fprintf(w, "%s %-34s %-12s is %-22s right %d of %d  detected %-7s rate error %s%s\n",
		mark, strings.TrimPrefix(c.Container, prefix), c.Phase, c.Truth.Is, c.Right, c.Windows, detect, rate, noisy)
	for _, l := range slices.Sorted(maps.Keys(c.Whys)) {
		fmt.Fprintf(w, "       said %s ×%d: %s\n", l, c.Said[l], c.Whys[l])
	}
	if c.Knee > 0 && !c.kneeRight() {
		fmt.Fprintf(w, "       knee said %.2f CPUs, is %.2f\n", c.SaidKnee, c.Knee)
	}
	for _, knob := range c.WrongKnobs {
		fmt.Fprintf(w, "       WRONG ACTION: %s\n", knob)
	}
}

// report prints the matrices and ends with the line.
func report(w io.Writer, cases []Case) Sum {
	for _, virtual := range []bool{false, true} {
		part := filter(cases, func(c Case) bool { return c.Virtual == virtual })
		name := map[bool]string{false: "real", true: "virtual GPU"}[virtual]
		printMatrix(w, "Windows, "+name+": truth, and what was said", byWindow(part))
		printMatrix(w, "Jobs, "+name+": one for each container and phase, by the majority of its windows", byCase(part))
	}
	fmt.Fprintln(w)
	for _, p := range []struct {
		name string
		in   func(Case) bool
	}{
		{"real", func(c Case) bool { return !c.Virtual }},
		{"virtual GPU", func(c Case) bool { return c.Virtual }},
		{"thresholds set on", func(c Case) bool { return !c.HeldOut }},
		{"families set aside", func(c Case) bool { return c.HeldOut }},
		{"alone", func(c Case) bool { return !strings.HasPrefix(c.Phase, "beside") }},
		{"beside a neighbour", func(c Case) bool { return strings.HasPrefix(c.Phase, "beside") }},
		{"CPU time not stolen", func(c Case) bool { return c.Stolen <= stolenShare }},
	} {
		if part := filter(cases, p.in); len(part) > 0 {
			fmt.Fprintln(w, sum(part).row(p.name))
		}
	}
	if n := len(filter(cases, func(c Case) bool { return c.OutsideCPUs > noisyCPUs })); n > 0 {
		fmt.Fprintf(w, "\nThe machine was not quiet: %d of %d cases ran beside more than %.1f CPUs of work outside of containers.\n", n, len(cases), noisyCPUs)
	}
	if n := len(filter(cases, func(c Case) bool { return c.Stolen > stolenShare })); n > 0 {
		fmt.Fprintf(w, "\nIts hypervisor took more than %.0f %% of the CPU time in %d of %d cases: what a thread was then seen to run, or to queue, it did not.\n", 100*stolenShare, n, len(cases))
	}
	judged := filter(cases, func(c Case) bool { return c.Knee > 0 })
	if right := filter(judged, func(c Case) bool { return c.kneeRight() }); len(judged) > 0 {
		fmt.Fprintf(w, "\nKnees, the CPUs beyond which more bring no speed: %d of %d are within a factor of %.2f.\n", len(right), len(judged), kneeFactor)
	}
	printCalibration(w, cases)
	total := sum(cases)
	fmt.Fprintf(w, "\n%s\n", total.line())
	return total
}

func filter(cases []Case, in func(Case) bool) []Case {
	return slices.DeleteFunc(slices.Clone(cases), func(c Case) bool { return !in(c) })
}
