package model

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestCorrectKnownCases(t *testing.T) {
	for _, tc := range []struct{ prev, predicted, measured, want float64 }{
		{1, 10, 10, 1},
		{1, 10, 8.1, 0.9},
		{0.9, 10, 10, 0.9},
		{1, 10, 0.1, Min},
		{1, 1, 100, Max},
		{1, 0, 5, 1},
		{1, 5, 0, 1},
		{1.2, math.NaN(), 5, 1.2},
		{math.NaN(), 10, 10, 1},
		{0, 10, 10, 1},
		{7, 10, 10, Max},
	} {
		if got := Correct(tc.prev, tc.predicted, tc.measured); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("Correct(%v, %v, %v) = %v, want %v", tc.prev, tc.predicted, tc.measured, got, tc.want)
		}
	}
}

func TestCorrectIsBoundedAndMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prev, predicted := rapid.Float64().Draw(t, "prev"), rapid.Float64().Draw(t, "predicted")
		a, b := rapid.Float64Range(1e-9, 1e9).Draw(t, "a"), rapid.Float64Range(1e-9, 1e9).Draw(t, "b")
		x, y := Correct(prev, predicted, min(a, b)), Correct(prev, predicted, max(a, b))
		if !(Min <= x && x <= y && y <= Max) {
			t.Fatalf("got %v and %v", x, y)
		}
	})
}

func TestCorrectConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := rapid.Float64Range(Min, Max).Draw(t, "truth") // measured over the bare curve
		factor := 1.0
		for range 12 {
			factor = Correct(factor, 10*factor, 10*truth)
		}
		if math.Abs(factor/truth-1) > 0.01 {
			t.Fatalf("after 12 trials %v, want %v", factor, truth)
		}
	})
}
