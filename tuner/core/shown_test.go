package core

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
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
		j.pace = j.obs
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
		if got := meanRate(j.shown()); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %.3f, want %.3f", tc.name, got, want)
		}
	}
}

// The rate shown is true of the time it names: a pause is no part of it, and of what
// came since a pause too little is not shown yet.
func TestRateShownNamesItsTime(t *testing.T) {
	const s = int64(1e9)
	at := func(from, to float64, rate float64) trial.Obs { // events 0.1 s before the slices' ends
		return trial.Obs{StartNs: int64(from * 1e9), EndNs: int64(to * 1e9), Rate: rate, FromNs: int64(from*1e9) - s/10, ToNs: int64(to*1e9) - s/10}
	}
	before := []trial.Obs{at(1, 2, 4), at(2, 3, 4), at(3, 4, 4), at(4, 5, 4)}
	for _, tc := range []struct {
		name     string
		obs      []trial.Obs
		from, to float64
		events   float64
	}{
		{"steady", before, 0.9, 4.9, 16},
		{"one since a pause", append(before[:4:4], at(9, 10, 4)), 0.9, 4.9, 16},
		{"ten events since", append(before[:4:4], at(9, 10, 4), at(10, 11, 6)), 8.9, 10.9, 10},
		{"three since", append(before[:4:4], at(9, 10, 2), at(10, 11, 2), at(11, 12, 2)), 8.9, 11.9, 6},
		{"an event that was long", append(before[:3:3], trial.Obs{StartNs: 4 * s, EndNs: 6 * s, Rate: 4, FromNs: 39 * s / 10, ToNs: 59 * s / 10}), 0.9, 5.9, 20},
		{"counts without times", []trial.Obs{{StartNs: s, EndNs: 2 * s, Rate: 4}, {StartNs: 2 * s, EndNs: 4 * s, Rate: 7}}, 1, 4, 18},
	} {
		j := &job{pace: tc.obs}
		r := j.ofShown(policies.Rate{Source: "x"})
		if r.FromNs != int64(tc.from*1e9) || r.ToNs != int64(tc.to*1e9) || math.Abs(r.Ticks-tc.events) > 1e-6 ||
			math.Abs(r.PerSecond-tc.events/(tc.to-tc.from)) > 1e-6 || r.Source != "x" {
			t.Errorf("%s: %+v, want %g events from %g to %g s", tc.name, r, tc.events, tc.from, tc.to)
		}
	}
	if r := (&job{obs: before}).ofNow(policies.Rate{FromNs: 1, ToNs: 2}); r.PerSecond != 4 || r.ToNs != 0 {
		t.Errorf("%+v names a time", r)
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
	if got := meanRate(j.shown()); math.Abs(got-1./3) > 1e-9 {
		t.Errorf("rate %.3f after two stretches of two steps in 6 s, want a third", got)
	}
}
