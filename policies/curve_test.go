package policies

import (
	"math"
	"testing"
)

func TestCurveAt(t *testing.T) {
	c := Curve{Points: []Point{{X: 1, Rate: 10, Low: 8, High: 12}, {X: 2, Rate: 16, Low: 16, High: 16}}}
	for _, tc := range []struct{ x, rate, low, high float64 }{
		{0, 0, 0, 0}, {-1, 0, 0, 0}, {math.NaN(), 0, 0, 0}, {0.5, 5, 4, 6}, {1, 10, 8, 12}, {1.5, 13, 12, 14}, {2, 16, 16, 16}, {9, 16, 16, 16}, {math.Inf(1), 16, 16, 16},
	} {
		if rate, low, high := c.At(tc.x); rate != tc.rate || low != tc.low || high != tc.high {
			t.Errorf("At(%v) = %v, %v, %v; want %v, %v, %v", tc.x, rate, low, high, tc.rate, tc.low, tc.high)
		}
	}
	if rate, low, high := (Curve{}).At(1); rate != 0 || low != 0 || high != 0 || (Curve{}).Known() {
		t.Errorf("an unknown curve says %v, %v, %v", rate, low, high)
	}
	if x, ok := c.Reach(13); !ok || x != 1.5 {
		t.Errorf("13/s is reached at %v, %v; want 1.5", x, ok)
	}
	if x, ok := c.Reach(17); ok {
		t.Errorf("17/s is reached at %v", x)
	}
}
