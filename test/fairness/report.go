package main

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/test/stats"
	"github.com/trimtab/trimtab/test/workload"
)

// report prints a case, and returns how many runs missed.
func report(c fairCase, all []result) (missed int) {
	var least, together []float64
	floor, back := share{2, 2}, 0.0
	for _, r := range all {
		least, together, back = append(least, r.least.each), append(together, r.least.together), max(back, r.back)
		floor = share{min(floor.each, r.nobody.each), min(floor.together, r.nobody.together)}
	}
	for _, r := range all {
		if c.by != byWork && !r.holds(floor) {
			missed++
		}
	}
	interval := "of one run: no interval, so not told"
	low, high := stats.Interval95(means(all))
	if len(all) > 1 {
		interval = fmt.Sprintf("95 %%: %.3f … %.3f", low, high)
	}
	if c.by == byWork && len(all) > 1 && high < goal { // others on the same hardware move it by more, from one minute to the next
		missed = len(all)
	}
	cut := "-"
	if back > 0 {
		cut = fmt.Sprintf("%.1f s", back)
	}
	held := fmt.Sprintf("%d of %d", len(all)-missed, len(all))
	if loud := disturbed(all); loud > 0 {
		held += fmt.Sprintf(", disturbed %d", loud)
	}
	if c.by == byWork && len(all) == 1 {
		held = "-"
	}
	fmt.Printf("%-18s %-22s %9.3f %9.3f %9.3f %9.3f %9s  %s\n", c.name, c.by, slices.Min(least), stats.Median(least), slices.Min(together), floor.each, cut, held)
	if c.by == byWork {
		fmt.Printf("%-18s its mean over each run is %.3f of what it was without a loan (%s)\n", "", stats.Mean(means(all)), interval)
	}
	return missed
}

func disturbed(all []result) (n int) {
	for _, r := range all {
		if r.taken > workload.MaxTaken {
			n++
		}
	}
	return n
}

func means(all []result) (out []float64) {
	for _, r := range all {
		out = append(out, r.mean)
	}
	return out
}
