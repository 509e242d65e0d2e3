package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/trimtab/trimtab/test/stats"
)

// What is promised (README).
const (
	minOfFree = 0.90 // of the rate without a quota beside the same neighbour
	maxOfUsed = 1.20 // CPUs granted over those that the job uses without a quota
	minOfDue  = 0.97 // of what the neighbour used and is entitled to
)

// figures are what one demo measured: one value for each reading.
type figures struct {
	free, starved, helped             []float64 // the job's steps/s: without a quota, under its owner's, with a loan
	freeCPUs                          []float64 // that it used without a quota
	neighbourStarved, neighbourHelped []float64 // CPUs that the neighbour used
	quota, granted                    float64   // CPUs: its owner's, and what stood with the loan
	changed                           []string  // limits that are not back at the end
	limits                            int       // that were read
	readings, skipped                 int       // all, and those in which something else used the machine
	ownStood                          string    // the owner's quota as the kernel has it, before trimtab and after it
	ownBack                           string
}

// promise is one of them, held against what was measured.
type promise struct {
	kept bool
	text string
}

// judge holds the figures against the promises. A ratio of two rates is an interval, and a
// promise is broken where the whole interval says so.
func judge(f figures) []promise {
	rate, low, high := stats.Ratio95(f.helped, f.free)
	_, usedHigh := stats.Interval95(f.freeCPUs)
	due := make([]float64, len(f.neighbourStarved))
	for i, cpus := range f.neighbourStarved {
		due[i] = min(cpus, 1) // two equal weights on two CPUs entitle each to one
	}
	kept, keptLow, keptHigh := stats.Ratio95(f.neighbourHelped, due)
	return []promise{
		{high >= minOfFree, fmt.Sprintf("rate is %.0f %% of that without a quota (95 %%: %.0f … %.0f; promised: %.0f)", 100*rate, 100*low, 100*high, 100*minOfFree)},
		{f.granted > f.quota && f.granted <= maxOfUsed*usedHigh, fmt.Sprintf("granted %.2f CPUs, %.2f × the %.2f that it uses without a quota (promised: above its own, at most %.1f)",
			f.granted, f.granted/stats.Mean(f.freeCPUs), stats.Mean(f.freeCPUs), maxOfUsed)},
		{keptHigh >= minOfDue, fmt.Sprintf("the neighbour has %.0f %% of what it used and is entitled to (95 %%: %.0f … %.0f; promised: %.0f)", 100*kept, 100*keptLow, 100*keptHigh, 100*minOfDue)},
		{len(f.changed) == 0 && f.ownBack == f.ownStood, fmt.Sprintf("every limit is back, of %d of both containers%s", f.limits, strings.Join(append([]string{""}, f.changed...), "; "))},
	}
}

// summary is the figures for people.
func summary(f figures) string {
	var b strings.Builder
	row := func(name string, rates []float64, cpus string) {
		low, high := stats.Interval95(rates)
		fmt.Fprintf(&b, "  %-14s %5.2f steps/s (95 %%: %.2f … %.2f) on %s\n", name, stats.Mean(rates), max(0, low), high, cpus)
	}
	b.WriteString("Summary, all measured in this run; steps/s as the job itself printed them\n")
	row("its own quota", f.starved, fmt.Sprintf("%.2f CPUs", f.quota))
	row("with trimtab", f.helped, fmt.Sprintf("%.2f CPUs   (%+.0f %%)", f.granted, 100*(stats.Mean(f.helped)/stats.Mean(f.starved)-1)))
	row("without quota", f.free, fmt.Sprintf("as many as it likes: %.2f", stats.Mean(f.freeCPUs)))
	fmt.Fprintf(&b, "  read back      cpu.quota %s after trimtab ended, %s before it began\n", f.ownBack, f.ownStood)
	if f.skipped > 0 {
		fmt.Fprintf(&b, "  left out       %d of %d readings: something else used the machine\n", f.skipped, f.readings)
	}
	return b.String()
}

// reading is what was seen in a stretch of time.
type reading struct {
	rate, job, neighbour float64 // steps/s; CPUs
	other                float64 // CPUs that neither of the two used, the hypervisor's share included
}

// maxOther is what the system itself and the daemon use: a reading beside more is no evidence.
const maxOther = 0.15

// quiet reports whether nothing but the two containers used the machine.
func (r reading) quiet() bool { return r.other <= maxOther && !math.IsNaN(r.rate) }
