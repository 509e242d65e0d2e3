package stats

import (
	"math"
	"testing"
)

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

func TestInterval95(t *testing.T) {
	// mean 5, s = 2.1381, n = 8, t = 2.365: half-width 1.788
	low, high := Interval95([]float64{2, 4, 4, 4, 5, 5, 7, 9})
	if !near(low, 3.2122, 1e-3) || !near(high, 6.7878, 1e-3) {
		t.Errorf("%.4f … %.4f", low, high)
	}
	for freedom, want := range map[int]float64{1: 12.706, 15: 2.131, 16: 2.120, 30: 2.042, 120: 1.980} {
		if got := Student975(freedom); !near(got, want, 5e-3) {
			t.Errorf("t(%d) = %.4f, want %.3f", freedom, got, want)
		}
	}
}

func TestMedian(t *testing.T) {
	if Median([]float64{3, 1, 2}) != 2 || Median([]float64{4, 1, 3, 2}) != 2.5 || !math.IsNaN(Median(nil)) {
		t.Error("median")
	}
}

// TestRatio95: a tenth more, without a spread and with one.
func TestRatio95(t *testing.T) {
	if r, low, high := Ratio95([]float64{11, 11}, []float64{10, 10}); !near(r, 1.1, 1e-9) || low != r || high != r {
		t.Errorf("%.4f (%.4f … %.4f)", r, low, high)
	}
	// logs 1, 2, 3 against 0: a mean of 2, s/√n = 0.5774, t(2) = 4.303
	r, low, high := Ratio95([]float64{math.E, math.Exp(2), math.Exp(3)}, []float64{1, 1, 1})
	if !near(math.Log(r), 2, 1e-9) || !near(math.Log(low), -0.4844, 1e-3) || !near(math.Log(high), 4.4844, 1e-3) {
		t.Errorf("%.4f (%.4f … %.4f)", r, low, high)
	}
}
