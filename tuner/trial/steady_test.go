package trial

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// every makes windows of a second at the rates of a function of the second.
func every(n int, rate func(second int) float64) (out []Obs) {
	for i := range n {
		out = append(out, Obs{StartNs: int64(i) * secondNs, EndNs: int64(i+1) * secondNs, Rate: rate(i)})
	}
	return out
}

func TestTurn(t *testing.T) {
	turns := func(period int) func(int) float64 {
		return func(i int) float64 {
			if i%period < period/2 {
				return 5
			}
			return 14
		}
	}
	for name, tc := range map[string]struct {
		obs  []Obs
		want int64 // seconds; 0: none
	}{
		"of two seconds":    {every(12, turns(2)), 2},
		"of four":           {every(14, turns(4)), 4},
		"of six":            {every(30, turns(6)), 6},
		"of eight, nearly":  {every(30, turns(8)), 7},
		"of four, too few":  {every(11, turns(4)), 0},
		"too long":          {every(60, turns(32)), 0},
		"nothing":           {nil, 0},
		"it climbs":         {every(40, func(i int) float64 { return 5 + float64(i)/2 }), 0},
		"steady anyhow":     {every(10, func(int) float64 { return 9 }), 2},
		"climbing in turns": {every(24, func(i int) float64 { return turns(4)(i) * (1 + float64(i)/24) }), 0},
	} {
		if ns, ok := Turn(tc.obs); ns != tc.want*secondNs || ok != (tc.want > 0) {
			t.Errorf("%s: %d s, %v", name, ns/secondNs, ok)
		}
	}
}

// TestJoined: windows as long as asked for, one after the other, whose steps are those of the
// windows that they were made of.
func TestJoined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := rapid.SliceOfN(rapid.Float64Range(0.1, 100), 0, 40).Draw(t, "rates")
		ns := rapid.Int64Range(0, 9).Draw(t, "seconds") * secondNs
		obs := every(len(rates), func(i int) float64 { return rates[i] })
		joined := Joined(obs, ns)
		var was, is float64
		for _, o := range joined {
			if o.EndNs-o.StartNs < ns-secondNs/2 {
				t.Fatalf("%d ns long", o.EndNs-o.StartNs)
			}
			is += o.Rate * float64(o.EndNs-o.StartNs)
		}
		if n := len(joined); n > 0 {
			for _, o := range obs {
				if o.EndNs <= joined[n-1].EndNs {
					was += o.Rate * float64(o.EndNs-o.StartNs)
				}
			}
			if left := obs[len(obs)-1].EndNs - joined[n-1].EndNs; left >= max(ns, 1) {
				t.Fatalf("%d ns are left over", left)
			}
		} else if len(obs) > 0 && int64(len(obs))*secondNs >= ns {
			t.Fatalf("%d windows made none", len(obs))
		}
		if math.Abs(was-is) > 1e-6*max(was, 1) {
			t.Fatalf("%g steps became %g", was, is)
		}
	})
	pause := append(every(2, func(int) float64 { return 9 }), Obs{StartNs: 60 * secondNs, EndNs: 61 * secondNs, Rate: 9})
	if joined := Joined(pause, 3*secondNs); joined != nil {
		t.Errorf("joined over a pause: %v", joined)
	}
}
