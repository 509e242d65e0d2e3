package core

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/trial"
	"github.com/trimtab/trimtab/tuner/window"
)

// paced makes a job's observations, each of a second, or of two steps where those
// take longer.
func paced(rates ...float64) *job {
	j := &job{}
	at := int64(0)
	for _, r := range rates {
		end := at + int64(1e9*max(1, math.Ceil(2/r)))
		j.obs = append(j.obs, trial.Obs{StartNs: at, EndNs: end, Rate: r})
		at = end
	}
	return j
}

// The rate shown follows a change of pace within two observations, in both
// directions, and is no noisier than the mean where there is none.
func TestRateShownFollowsAChangeOfPace(t *testing.T) {
	for _, tc := range []struct {
		name  string
		rates []float64
		want  float64 // 0: the mean of the latest five
	}{
		{"steady", []float64{20, 21, 19, 20, 20.5}, 0},
		{"one odd observation", []float64{20, 20, 20, 20, 1}, 0},
		{"an odd one before", []float64{20, 20, 1, 20, 20}, 0},
		{"slower", []float64{20, 20, 20, 1, 1.02}, 1.01},
		{"slower for a while", []float64{20, 20, 1, 1, 1}, 1},
		{"faster", []float64{2, 2, 2, 20, 20.4}, 20.2},
		{"to and fro", []float64{10, 30, 20, 20, 20}, 0},
		{"noise", []float64{20, 26, 15, 24, 18}, 0},
		{"few", []float64{20, 1}, 0},
	} {
		j := paced(tc.rates...)
		want := tc.want
		if want == 0 {
			want = j.rateNow()
		}
		if got := j.rateShown(); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %.3f, want %.3f", tc.name, got, want)
		}
	}
}

// One long stretch without a step is a pause, and no evidence; a second one in a row
// is the job's new pace.
func TestTwoPausesAreANewPace(t *testing.T) {
	c, j := New(Defaults(), nil, ""), &job{reading: window.Reading{}}
	at := int64(1e9)
	observe := func(seconds float64, steps uint64) {
		last := at
		for n := 1.; n <= seconds; n++ { // from tick to tick; the steps come at the end
			w := &window.Window{StartNs: last, EndNs: last + int64(n*1e9), HasKernel: true,
				Threads: []window.Thread{{TID: 1, TGID: 1, WallNs: int64(n * 1e9), Ns: [probes.NumStates]uint64{uint64(n * 1e9)}}},
				Ticks:   []window.Tick{{Source: "torch.backward", TGID: 1, FromNs: last, LastNs: last}}}
			if n == seconds {
				w.Ticks[0].Count, w.Ticks[0].LastNs = steps, w.EndNs
			}
			at = w.EndNs
			c.observe("", j, w)
		}
	}
	for range 5 {
		observe(1, 20)
	}
	observe(6, 2)
	if n := len(j.obs); n != 5 {
		t.Fatalf("%d observations, want the pause left out", n)
	}
	observe(1, 20)
	if n := len(j.obs); n != 6 {
		t.Fatalf("%d observations, want the one after the pause, and not the pause", n)
	}
	observe(6, 2)
	observe(6, 2)
	if got := j.rateShown(); math.Abs(got-1./3) > 1e-9 {
		t.Errorf("rate %.3f after two stretches of two steps in 6 s, want a third", got)
	}
}
