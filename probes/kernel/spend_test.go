package kernel

import (
	"math"
	"testing"
)

// TestPriceOfAWatchedSwitch: what others' switches cost is not the jobs', and does not
// make theirs look cheap either.
func TestPriceOfAWatchedSwitch(t *testing.T) {
	for _, tc := range []struct {
		name                       string
		totalNs, switches, watched float64
		want                       float64
	}{
		{"all watched", 280e6, 1e6, 1e6, 280},
		{"one in a hundred", 1e6*0.01*280 + 0.99e6*20, 1e6, 1e4, 280},
		{"cheaper others than supposed", 1e4*280 + 0.99e6*5, 1e6, 1e4, 7.75}, // never below the mean
		{"others are dearer than supposed", 1e3*280 + 999e3*60, 1e6, 1e3, 1000},
		{"too few to tell", 1e6, 1e5, 50, 99},
	} {
		s := spending{hitNs: 99}
		if s.price(tc.totalNs, tc.switches, tc.watched); math.Abs(s.hitNs-tc.want) > 1 {
			t.Errorf("%s: %.2f ns, want %.2f", tc.name, s.hitNs, tc.want)
		}
	}
}
