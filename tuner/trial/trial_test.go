package trial

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func flat(startNs int64, rates ...float64) []Obs {
	out := make([]Obs, len(rates))
	for i, r := range rates {
		out[i] = Obs{StartNs: startNs + int64(i)*secondNs, EndNs: startNs + int64(i+1)*secondNs, Rate: r}
	}
	return out
}

func TestJudgeKnownCases(t *testing.T) {
	give, take := DefaultParams(false), DefaultParams(true)
	long := func(rate float64, n int) []float64 { return slices.Repeat([]float64{rate}, n) }
	for _, tc := range []struct {
		name          string
		p             Params
		before, after []float64
		want          Outcome
		why           string
	}{
		{"nothing yet", give, nil, nil, Pending, "0 of 3 windows of the baseline"},
		{"too few after", give, long(3, 3), long(9, 2), Pending, "2 of 3 windows after"},
		{"starved, then fed", give, []float64{3.1, 2.9, 3.0}, []float64{9.1, 8.8, 9.0}, Superior, "gained +19"},
		{"starved to jerks, then fed", give, []float64{3, 2, 4, 3, 3}, []float64{9, 8.5, 9.5, 9, 9, 8.8, 9}, Superior, "gained"},
		{"collapse under a give", give, long(10, 5), long(7, 3), Inferior, "at once"},
		{"collapse under a take before its first look", take, long(10, 30), long(7, 3), Inferior, "at once"},
		{"stalled", give, long(10, 5), long(0, 3), Inferior, "at once"},
		{"no effect", give, long(10, 60), long(10, 60), Inconclusive, "no gain of 3 %"},
		{"gain too small to keep", give, long(10, 60), long(10.15, 60), Inconclusive, "no gain of 3 %"},
		{"harmless take", take, long(10, 60), long(10, 13), NonInferior, "less than the 2 %"},
		{"take waits for its look", take, long(10, 60), long(10, 9), Pending, "next look at 10"},
		{"costly take", take, long(10, 60), long(9, 40), Inferior, "more than the 2 %"},
		{"never a rate", give, long(0, 5), long(3, 5), Inconclusive, "no rate before"},
		{"unreadable rates", give, long(math.NaN(), 5), long(3, 5), Pending, "0 of 3"},
		{"one stall among many is an accident", give, long(10, 60), append(long(10, 30), 1), Inconclusive, "no gain"},
		{"stalls that came with the change are not", take, long(10, 60), slices.Repeat([]float64{10, 10, 5}, 20), Inferior, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := Judge(tc.p, flat(0, tc.before...), flat(1000*secondNs, tc.after...), 0)
			if r.Outcome != tc.want || !strings.Contains(r.Why, tc.why) {
				t.Errorf("got %v (%s), want %v (… %s …); %+v", r.Outcome, r.Why, tc.want, tc.why, r)
			}
		})
	}
}

func TestNoDecisionByMaxAfterIsInconclusive(t *testing.T) {
	p := DefaultParams(false)
	w := newWander(3, 0.8, 0.10)
	before, after := w.windows(10, 10), w.windows(p.MaxAfter, 10.5)
	r := Judge(p, before, after, 0)
	if r.Outcome != Inconclusive || !strings.Contains(r.Why, "no decision in 60 windows") {
		t.Fatalf("got %v: %s", r.Outcome, r.Why)
	}
	if again := Judge(p, before, after, r.Look); again.Outcome != Inconclusive {
		t.Errorf("asked again after the last look: %v, want inconclusive", again.Outcome)
	}
}

func TestLooksSpendAlphaOnce(t *testing.T) {
	for _, take := range []bool{false, true} {
		p := DefaultParams(take)
		total, look := 0.0, 0
		for windows := 1; windows <= p.MaxAfter; windows++ {
			due, _, alpha, _ := p.schedule(windows, look)
			if due > look {
				total += alpha
				look = due
			}
		}
		if math.Abs(total-p.Alpha) > 1e-9 {
			t.Errorf("take %v: looks spend %v in all, want Alpha", take, total)
		}
		if _, _, once, last := p.schedule(p.MaxAfter, 0); math.Abs(once-p.Alpha) > 1e-9 || !last {
			t.Errorf("take %v: a single look at the end spends %v, want Alpha", take, once)
		}
	}
}

func TestBetweenLooksNothingIsSpent(t *testing.T) {
	p := DefaultParams(false)
	w := newWander(1, 0.8, 0.02)
	before, after := w.windows(10, 10), w.windows(p.MaxAfter, 10.3)
	look := 0
	for n := 1; n < p.MaxAfter; n++ {
		r := Judge(p, before, after[:n], look)
		due := slices.Contains(p.looks(), n)
		if spent := r.Look != look; spent != due {
			t.Fatalf("%d windows: look %d after %d, due %v", n, r.Look, look, due)
		}
		if !due && r.Outcome != Pending {
			t.Fatalf("%d windows: %v between looks", n, r.Outcome)
		}
		if look = r.Look; r.Outcome != Pending {
			return
		}
	}
}

func TestStudentQuantileAgainstTables(t *testing.T) {
	for _, tc := range []struct{ upper, dof, want float64 }{
		{0.025, 1, 12.7062}, {0.025, 2, 4.30265}, {0.025, 4, 2.77645}, {0.0025, 4, 5.59757},
		{0.005, 10, 3.16927}, {0.05, 30, 1.69726}, {0.0005, 60, 3.46020}, {0.025, 1000, 1.96234},
	} {
		if got := studentQuantile(tc.upper, tc.dof); math.Abs(got-tc.want) > 2e-3*tc.want {
			t.Errorf("t(%v, %v) = %v, want %v", tc.upper, tc.dof, got, tc.want)
		}
	}
}

func TestSteady(t *testing.T) {
	ramp := make([]float64, 12)
	for i := range ramp {
		ramp[i] = 10 * (1 + 0.02*float64(i))
	}
	gap := append(flat(0, 10, 10), flat(20*secondNs, 10, 10)...)
	for _, tc := range []struct {
		name string
		obs  []Obs
		want bool
	}{
		{"three alike", flat(0, 10, 10.1, 9.9), true},
		{"two", flat(0, 10, 10), false},
		{"warming up", flat(0, ramp...), false},
		{"starved and jerky", flat(0, 3, 2.8, 3.2, 3.1, 2.9), true},
		{"one checkpoint", flat(0, 10, 10, 10, 2, 10, 10, 10), true},
		{"a hole", gap, false},
		{"no rate", flat(0, 0, 0, 0), false},
		{"wild", flat(0, 3, 9, 2, 12, 3, 8, 1, 10), false},
	} {
		if got := Steady(tc.obs); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	steady := 0
	for i := range 500 {
		if Steady(newWander(uint64(i+1), 0.8, 0.02).windows(3+i%30, 20)) {
			steady++
		}
	}
	if steady < 490 {
		t.Errorf("%d of 500 stretches of measured noise are steady, want 490", steady)
	}
}

func drawObs(t *rapid.T, label string) []Obs {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Obs {
		start := rapid.Int64Range(0, 1000*secondNs).Draw(t, "start")
		rate := rapid.OneOf(rapid.Float64Range(0, 1000), rapid.Float64()).Draw(t, "rate")
		return Obs{StartNs: start, EndNs: start + rapid.Int64Range(-1, 5*secondNs).Draw(t, "length"), Rate: rate}
	}), rapid.SampledFrom([]int{0, 35}).Draw(t, "least"), 80).Draw(t, label)
}

func TestJudgeIsTotalAndConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := DefaultParams(rapid.Bool().Draw(t, "take"))
		before, after := drawObs(t, "before"), drawObs(t, "after")
		look := rapid.IntRange(-1, 30).Draw(t, "look")
		keep := slices.Clone(before)
		r := Judge(p, before, after, look)
		if !slices.EqualFunc(keep, before, func(a, b Obs) bool { return a.StartNs == b.StartNs }) {
			t.Fatal("the arguments were changed")
		}
		if _, err := json.Marshal(r); err != nil {
			t.Fatalf("not finite: %v", err)
		}
		if r.Low > r.Ratio || r.Ratio > r.High {
			t.Fatalf("ratio outside its bounds: %+v", r)
		}
		if r.Outcome.Keep() && (p.Take != (r.Outcome == NonInferior)) {
			t.Fatalf("take %v was kept as %v", p.Take, r.Outcome)
		}
		if r.Outcome == Pending && r.Why == "" {
			t.Fatal("pending without a reason")
		}
		if again := Judge(p, before, after, look); again != r {
			t.Fatalf("not deterministic: %+v, then %+v", r, again)
		}
		Steady(before)
		JudgeABA(p, before, after, before, look)
	})
}

// Rates in another unit, or windows in another order, are the same evidence.
func TestJudgeDoesNotDependOnUnitOrOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := DefaultParams(rapid.Bool().Draw(t, "take"))
		w := newWander(rapid.Uint64().Draw(t, "seed"), 0.8, 0.02)
		before := w.windows(rapid.IntRange(3, 40).Draw(t, "before"), 10)
		after := w.windows(rapid.IntRange(3, 40).Draw(t, "after"), 10*rapid.Float64Range(0.5, 2).Draw(t, "ratio"))
		want := Judge(p, before, after, 0)
		unit := rapid.SampledFrom([]float64{0.001, 0.5, 64}).Draw(t, "unit")
		scale := func(obs []Obs) []Obs {
			out := slices.Clone(obs)
			for i := range out {
				out[i].Rate *= unit
			}
			slices.Reverse(out)
			return out
		}
		got := Judge(p, scale(before), scale(after), 0)
		if got.Outcome != want.Outcome || math.Abs(got.Ratio-want.Ratio) > 1e-6 {
			t.Fatalf("%+v became %+v", want, got)
		}
	})
}

func TestBadParametersKeepNothing(t *testing.T) {
	r := Judge(Params{}, flat(0, 1, 1, 1), flat(100*secondNs, 9, 9, 9), 0)
	if r.Outcome != Inconclusive || !strings.Contains(r.Why, "MinEffect") || !strings.Contains(r.Why, "windows 0 before") {
		t.Errorf("got %v: %s", r.Outcome, r.Why)
	}
}
