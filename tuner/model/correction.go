package model

import "math"

// A correction is how far a response curve is off: after a trial the prediction is compared
// with what came, and later predictions of the same container are multiplied by it.
const (
	// Min and Max bound the factor: a curve that is off by more is the wrong curve,
	// and no factor fixes it.
	Min = 0.5
	Max = 2.0
	// damping is the share of the error, on the logarithmic scale, that one trial
	// corrects. Half of it: one trial's rate carries its own noise (CV about 2 %,
	// correlated), and errors still fall to a quarter in two trials.
	damping = 0.5
)

// Correct returns the factor after a trial. predicted is the rate that was
// predicted with prev applied, measured is what came, in the same unit. What
// cannot be compared (not positive, not finite) leaves prev as it was; a prev
// that is no factor counts as 1.
func Correct(prev, predicted, measured float64) float64 {
	if !positive(prev) {
		prev = 1
	}
	prev = min(max(prev, Min), Max)
	if !positive(predicted) || !positive(measured) {
		return prev
	}
	step := damping * (math.Log(measured) - math.Log(predicted))
	return min(max(prev*math.Exp(step), Min), Max)
}
