package core

import (
	"testing"

	"github.com/trimtab/trimtab/tuner/trial"
)

// TestANeighbourThatKeepsItsRateIsNotHarmed: by readings on both sides, as many as it takes;
// else its CPU use decides.
func TestANeighbourThatKeepsItsRateIsNotHarmed(t *testing.T) {
	const applied = 100 * second
	obs := func(rates ...float64) (out []trial.Obs) { // a second each, the plan after the fourth
		for i, r := range rates {
			start := applied + int64(i-4)*second
			out = append(out, trial.Obs{StartNs: start, EndNs: start + second, Rate: r, FromNs: start, ToNs: start + second})
		}
		return out
	}
	c := New(Defaults(), nil, "t")
	for name, tc := range map[string]struct {
		pace []trial.Obs
		want bool
	}{
		"as before":              {obs(10, 10, 10, 10, 4, 10, 10, 9.9), true}, // the second of the write does not count
		"slower":                 {obs(10, 10, 10, 10, 10, 9, 9.5, 9), false},
		"too few since":          {obs(10, 10, 10, 10, 10, 10), false},
		"none before":            {obs(10, 10, 10, 10, 10, 10, 10, 10)[4:], false},
		"not watched":            {nil, false},
		"faster than before":     {obs(8, 8, 8, 8, 10, 10, 10, 10), true},
		"slower within a margin": {obs(10, 10, 10, 10, 10, 9.8, 9.8, 9.8), true},
	} {
		if got := c.keepsRate(&job{pace: tc.pace}, applied); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
