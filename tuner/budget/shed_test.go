package budget

import "testing"

// TestSheds: what lasts makes readings rarer, a container that begins does not, and what
// is far above the budget does at once; they come back when little is used.
func TestSheds(t *testing.T) {
	const budget = 0.02
	for name, c := range map[string]struct {
		uses []float64 // CPUs, a stretch each
		want []int     // ticks, after each
	}{
		"calm":                        {[]float64{0.004, 0.004, 0.004, 0.004}, []int{1, 1, 1, 1}},
		"a container begins":          {[]float64{0.004, 0.035, 0.005, 0.005}, []int{1, 1, 1, 1}},
		"two begin, one by one":       {[]float64{0.005, 0.025, 0.02, 0.005}, []int{1, 1, 1, 1}},
		"it lasts":                    {[]float64{0.019, 0.019, 0.019, 0.012, 0.012, 0.012}, []int{1, 1, 2, 2, 2, 2}},
		"still too much":              {[]float64{0.03, 0.03, 0.03, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02}, []int{1, 1, 2, 2, 2, 4, 4, 4, 4}},
		"a thousand containers begin": {[]float64{0.15, 0.08}, []int{2, 4}},
		"less":                        {[]float64{0.15, 0.08, 0.006, 0.005, 0.005}, []int{2, 4, 2, 1, 1}},
	} {
		var s Shedder
		for i, use := range c.uses {
			before := s.Every()
			if changed := s.Next(use, budget); s.Every() != c.want[i] || changed != (s.Every() != before) {
				t.Errorf("%s: after %d stretches every %d ticks (changed: %v), want %d", name, i+1, s.Every(), changed, c.want[i])
			}
		}
	}
}
