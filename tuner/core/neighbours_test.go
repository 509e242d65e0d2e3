package core

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
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
		"one long one before":    {append([]trial.Obs{{StartNs: applied - 5*second, EndNs: applied - second, Rate: 10}}, obs(10, 10, 10, 10, 10, 10, 10, 10)[4:]...), true},
		"faster than before":     {obs(8, 8, 8, 8, 10, 10, 10, 10), true},
		"slower within a margin": {obs(10, 10, 10, 10, 10, 9.8, 9.8, 9.8), true},
	} {
		if got := c.keepsRate(&job{pace: tc.pace}, applied); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestAQuotaThatWentDownIsNoHarm: a neighbour whose quota went back meanwhile uses less by
// that, and not by the plan; what it loses beyond that is harm all the same.
func TestAQuotaThatWentDownIsNoHarm(t *testing.T) {
	const applied = 100 * second
	for name, tc := range map[string]struct {
		quota     runtime.Value
		changedNs int64
		after     float64
		harmed    bool
	}{
		"went back":              {"40000 100000", applied + second, 0.38, false},
		"went back, and more":    {"40000 100000", applied + second, 0.30, true},
		"stood already":          {"40000 100000", applied - 10*second, 0.38, true},
		"none":                   {"max 100000", applied + second, 0.38, true},
		"went up, and used less": {"90000 100000", applied + second, 0.38, true},
	} {
		c := New(Defaults(), nil, "t")
		j := &job{entitled: 0.8, changedNs: tc.changedNs}
		j.c.Now = runtime.Values{runtime.KnobCPUQuota: tc.quota}
		for i := range 10 {
			j.usage = append(j.usage, usage{endNs: applied + int64(i+2)*second, cpus: tc.after})
		}
		c.jobs["n"] = j
		c.last.UnixNs, c.last.Host.AtNs = applied+12*second, applied+12*second
		o := &openTrial{appliedNs: applied, usedBefore: map[string]float64{"n": 0.74}, waitedBefore: map[string]float64{}}
		if who, how := c.harmed(o); (who != nil) != tc.harmed {
			t.Errorf("%s: %q", name, how)
		}
	}
}

// TestRoomIsMadeSinceThePlan: what a neighbour left before the rate was read is no room that it
// made while the plan was on trial; nor is what it uses by turns.
func TestRoomIsMadeSinceThePlan(t *testing.T) {
	const now = 100 * second
	for name, tc := range map[string]struct {
		used func(i int) float64 // CPUs, by second, the plan after the twentieth
		room bool
	}{
		"left long before":  {func(i int) float64 { return map[bool]float64{true: 0.8, false: 0.2}[i < 15] }, false},
		"left since":        {func(i int) float64 { return map[bool]float64{true: 0.8, false: 0.2}[i < 21] }, true},
		"in its turn then":  {func(i int) float64 { return map[bool]float64{true: 0.8, false: 0.2}[i/5%2 == 1] }, false},
		"as much as before": {func(int) float64 { return 0.5 }, false},
	} {
		c := New(Defaults(), nil, "t")
		c.node.CPUs = 2
		n, j := &job{key: "n"}, &job{key: "j", failed: map[runtime.Knob][]condition{}}
		c.jobs["n"], c.jobs["j"] = n, j
		for i := range 20 {
			n.usage = append(n.usage, usage{endNs: now + int64(i-19)*second, cpus: tc.used(i)})
		}
		for i := range 4 {
			j.obs = append(j.obs, trial.Obs{StartNs: now + int64(i-4)*second, EndNs: now + int64(i-3)*second, Rate: 10})
		}
		c.last.Host.AtNs = now
		o := c.open(Order{Plan: "p", Changes: []policies.Change{{Key: "j", Knob: runtime.KnobCPUQuota}}}, j)
		o.appliedNs = now
		for i := 20; i < 30; i++ {
			n.usage = append(n.usage, usage{endNs: now + int64(i-19)*second, cpus: tc.used(i)})
		}
		c.last.Host.AtNs = now + 10*second
		if c.movedInFavour(o) != tc.room {
			t.Errorf("%s: %v", name, !tc.room)
		}
	}
}

// TestWhatWasUsedForOtherWorkIsNotMissed: a neighbour whose steps became cheaper just before a
// plan uses less under it than in the ten seconds before, and has lost nothing.
func TestWhatWasUsedForOtherWorkIsNotMissed(t *testing.T) {
	const now = 100 * second
	for name, tc := range map[string]struct {
		changed int // seconds before now
		want    float64
	}{
		"long ago":       {60, 0.3},
		"within the ten": {6, 0.3},
		"just now":       {1, 0.3/3 + 0.9*2/3}, // three seconds at the least
		"never":          {0, 0},
	} {
		j := &job{}
		for i := range 60 {
			cpus := 0.9
			if 60-i <= tc.changed {
				cpus = 0.3
			}
			j.usage = append(j.usage, usage{endNs: now + int64(i-59)*second, cpus: cpus})
		}
		if tc.changed > 0 {
			j.otherSinceNs = now - int64(tc.changed)*second
		} else {
			tc.want = 0.9
		}
		if got, _ := j.usedLately(now); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%s: %.3f CPUs, want %.3f", name, got, tc.want)
		}
	}
}
