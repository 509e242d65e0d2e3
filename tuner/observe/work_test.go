package observe

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/policies"
)

// worked makes a second of work for each share of it in which the quota let the job run.
func worked(open []float64, amounts func(i int, open float64) [NumWitnesses]float64) *Work {
	var w Work
	for i, o := range open {
		at := int64(i) * second
		w.readings = append(w.readings, workReading{startNs: at, endNs: at + second, open: o, amounts: amounts(i, o)})
	}
	return &w
}

// TestSoundWitnesses: what grows with work done qualifies, what is driven by time, wild or
// absent does not.
func TestSoundWitnesses(t *testing.T) {
	k := policies.DefaultConstants()
	rng := rand.New(rand.NewPCG(1, 2))
	throttled := make([]float64, 20)
	for i := range throttled {
		throttled[i] = 0.2 + 0.7*rng.Float64()
	}
	steady := slices.Repeat([]float64{0.4}, 20)
	for name, c := range map[string]struct {
		open   []float64
		amount func(open float64) float64
		sound  bool
	}{
		"grows with the time that it may run":       {throttled, func(o float64) float64 { return 1e6 * o * (0.9 + 0.2*rng.Float64()) }, true},
		"a heartbeat, however much it runs":         {throttled, func(float64) float64 { return 1000 }, false},
		"a poll that jitters":                       {throttled, func(float64) float64 { return 1000 * (0.95 + 0.1*rng.Float64()) }, false},
		"steady where the quota leaves it the same": {steady, func(o float64) float64 { return 1e6 * o * (0.9 + 0.2*rng.Float64()) }, true},
		"wild":                       {steady, func(float64) float64 { return 1e6 * rng.ExpFloat64() }, false},
		"nothing":                    {steady, func(float64) float64 { return 0 }, false},
		"less than one in a reading": {steady, func(float64) float64 { return 0.5 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := worked(c.open, func(_ int, o float64) (a [NumWitnesses]float64) { a[WitnessBytes] = c.amount(o); return a })
			if got := slices.Contains(w.Sound(k, 0, 0), WitnessBytes); got != c.sound {
				t.Errorf("sound: %v", got)
			}
			if few := w.Sound(k, 15*second, 0); few != nil {
				t.Errorf("%v qualify by 5 readings", few)
			}
		})
	}
}

// TestSoundAcrossAChange: what made the job faster makes its witnesses no worse.
func TestSoundAcrossAChange(t *testing.T) {
	k := policies.DefaultConstants()
	rng := rand.New(rand.NewPCG(1, 2))
	w := worked(slices.Repeat([]float64{1}, 30), func(i int, _ float64) (a [NumWitnesses]float64) {
		a[WitnessBytes], a[WitnessFaults] = 5e6*(0.9+0.2*rng.Float64()), 1000*rng.ExpFloat64()
		if i >= 12 {
			a[WitnessBytes] *= 2.5
		}
		return a
	})
	if got := w.Sound(k, -1, 12*second); !slices.Equal(got, []Witness{WitnessBytes}) {
		t.Errorf("%v are sound", got)
	}
	if got := w.Sound(k, -1, 0); len(got) > 0 {
		t.Errorf("%v are sound though nothing explains the jump", got)
	}
}

// TestWorkDone: the median of the witnesses over their level before, so that one that errs is
// outvoted.
func TestWorkDone(t *testing.T) {
	w := worked(slices.Repeat([]float64{1}, 20), func(i int, _ float64) (a [NumWitnesses]float64) {
		pace := 1.0
		if i >= 10 {
			pace = 3
		}
		a[WitnessBytes], a[WitnessFaults], a[WitnessHandOffs] = 5e6*pace, 300*pace, 40 // hand-offs: batched now
		return a
	})
	level := worked(slices.Repeat([]float64{1}, 10), func(int, float64) (a [NumWitnesses]float64) {
		a[WitnessBytes], a[WitnessFaults], a[WitnessHandOffs] = 5e6, 300, 40
		return a
	}).Level(-1)
	got := w.Series([]Witness{WitnessBytes, WitnessFaults, WitnessHandOffs}, level, -1)
	if len(got) != 20 || math.Abs(MeanRate(got[:10])-1) > 1e-9 || math.Abs(MeanRate(got[10:])-3) > 1e-9 {
		t.Errorf("%+v", got)
	}
	if got := w.Series(nil, level, 0); got != nil {
		t.Errorf("no witness says %+v", got)
	}
}

// TestRateUntil: few slow events that come in pairs, seen for a moment, are neither taken for the
// pace within a pair nor for nothing.
func TestRateUntil(t *testing.T) {
	var sum float64
	const n, pair, gap = 400, 0.1, 1.3 // two events in 1.4 s
	for i := range n {
		now := 3.0 + 1.4*float64(i)/n // of when the change comes
		var events []float64
		for at := 0.0; at < now; at += pair + gap {
			events = append(events, at)
			if at+pair < now {
				events = append(events, at+pair)
			}
		}
		last := events[len(events)-1]
		s := RateSample{StartNs: 0, EndNs: int64(now * 1e9), FromNs: 1, ToNs: 1 + int64(last*1e9), Rate: float64(len(events)-1) / last}
		sum += RateUntil([]RateSample{s}, int64(now*1e9)) / (2 / (pair + gap))
	}
	if mean := sum / n; math.Abs(mean-1) > 0.15 {
		t.Errorf("%.2f of the true rate in the mean", mean)
	}
	if got := RateUntil(nil, second); got != 0 {
		t.Errorf("of nothing %v", got)
	}
	long := RateSample{StartNs: 0, EndNs: 100 * second, Rate: 7}
	if got := RateUntil([]RateSample{long}, 100*second); math.Abs(got-7) > 0.01 {
		t.Errorf("of many events %v, 7 before", got)
	}
}
