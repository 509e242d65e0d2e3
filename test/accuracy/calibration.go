package main

import (
	"fmt"
	"io"

	"github.com/trimtab/trimtab/policies"
)

// sureBounds are the upper bounds of the confidences that are counted together.
var sureBounds = [...]float64{0.5, 0.7, 0.85, 0.95, 1}

// Told counts shown verdicts of about one confidence, and how many of them were right.
type Told struct {
	N, Right int
	Sum      float64 // of their confidences
}

// add takes a shown verdict; one that calls a bottleneck unknown claims nothing.
func (t *Told) add(v policies.Verdict, truth Truth) {
	if v.Class == policies.ClassUnknown || v.Class == "" {
		return
	}
	t.N++
	t.Sum += v.Confidence
	if truth.rightClass(labelOf(v)) {
		t.Right++
	}
}

// sureBin is the place in sureBounds of a confidence.
func sureBin(confidence float64) int {
	for i, most := range sureBounds {
		if confidence <= most {
			return i
		}
	}
	return len(sureBounds) - 1
}

// calibration adds up cases: of verdicts shown with about one confidence, how many were right.
func calibration(cases []Case) (out [len(sureBounds)]Told) {
	for _, c := range cases {
		for i, t := range c.Shown {
			out[i].N, out[i].Right, out[i].Sum = out[i].N+t.N, out[i].Right+t.Right, out[i].Sum+t.Sum
		}
	}
	return out
}

// offBy is the mean distance between confidence and share right, weighted by the number of
// verdicts (expected calibration error: Naeini et al., AAAI 2015).
func offBy(bins [len(sureBounds)]Told) float64 {
	var off float64
	var n int
	for _, t := range bins {
		n += t.N
		off += max(t.Sum-float64(t.Right), float64(t.Right)-t.Sum)
	}
	if n == 0 {
		return 0
	}
	return off / float64(n)
}

// printCalibration prints one row for each bound that has verdicts.
func printCalibration(w io.Writer, cases []Case) {
	bins := calibration(cases)
	fmt.Fprintf(w, "\nShown verdicts by their confidence\n  %-12s %8s %10s %8s\n", "confidence", "verdicts", "mean", "right")
	low := 0.0
	for i, t := range bins {
		if t.N > 0 {
			fmt.Fprintf(w, "  %.2f to %.2f %8d %10.3f %8.3f\n", low, sureBounds[i], t.N, t.Sum/float64(t.N), shareOf(t.Right, t.N))
		}
		low = sureBounds[i]
	}
	fmt.Fprintf(w, "  confidence and share right are %.3f apart in the mean\n", offBy(bins))
}
