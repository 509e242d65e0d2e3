package trial

import (
	"math"
	"testing"
)

func steps(n int, every int64, rate float64) (out []Obs) {
	for i := range int64(n) {
		out = append(out, Obs{StartNs: i * every, EndNs: (i + 1) * every, Rate: rate})
	}
	return out
}

func TestTogether(t *testing.T) {
	fast, slow := steps(40, 500_000_000, 30), steps(10, 2_000_000_000, 4)
	got := Together([][]Obs{fast, slow}, []float64{20, 5})
	if len(got) != 10 {
		t.Fatalf("%d windows, want those of the slow one", len(got))
	}
	for _, o := range got {
		if math.Abs(o.Rate-(1.5+0.8)/2) > 1e-9 {
			t.Errorf("%+v, want the mean of 1.5 and 0.8", o)
		}
	}
	if got := Together([][]Obs{fast[:8], slow}, []float64{20, 5}); len(got) != 8 {
		t.Errorf("%d windows, and the fast one was seen in 8", len(got))
	}
	if got := Together([][]Obs{fast, slow}, []float64{20, 0}); len(got) != 40 || math.Abs(got[0].Rate-1.5) > 1e-9 {
		t.Errorf("one without a reference counts: %+v", got[:1])
	}
	if got := Together([][]Obs{fast[:12], slow[2:4]}, []float64{20, 5}); len(got) != 1 || got[0].StartNs != slow[2].StartNs {
		t.Errorf("%+v; both were seen from 4 to 6 s", got)
	}
	if got := Together([][]Obs{fast, nil}, []float64{20, 5}); len(got) != 0 {
		t.Errorf("%+v of a job that was not seen", got)
	}
	if got := Together(nil, nil); got != nil {
		t.Errorf("%+v of nobody", got)
	}
}
