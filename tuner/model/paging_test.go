package model

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
)

const mib = 1 << 20

// loses is a reading of a job that loses a share of its time under a limit; enough is one
// that reads nothing again with so many MiB in use.
func loses(limit, rate, share float64) Seen {
	return Seen{X: limit * mib, Rate: rate, Source: "torch.backward", Paging: policies.Paging{Base: (1 - share) / rate, Lost: share / rate, Limit: limit * mib, Set: 10 * limit * mib}}
}

func enough(used, rate float64) Seen {
	return Seen{X: used * mib, Rate: rate, Source: "torch.backward", Paging: policies.Paging{Base: 1 / rate, Limit: used * mib, Set: used * mib, Enough: true}}
}

func rateAt(l Learner, mibs float64) float64 {
	rate, _, _ := l.Curve(64 << 30).At(mibs * mib)
	return rate
}

// TestMemoryCorrectsItsGuess: before it was tried, the raise is predicted by the time lost;
// what it brought takes the place of that, however far off that was, and so does how much
// was enough.
func TestMemoryCorrectsItsGuess(t *testing.T) {
	var l Learner
	for range 5 {
		l.Learn(loses(320, 17, 0.15))
	}
	if got := rateAt(l, 3200) / rateAt(l, 320); math.Abs(got-1/0.85) > 0.03 {
		t.Errorf("times %.2f with all that is missing, want %.2f", got, 1/0.85)
	}
	for range 5 {
		if got := l.Learn(enough(680, 98)); got != Taken {
			t.Fatal(got)
		}
	}
	for at, want := range map[float64]float64{320: 17, 680: 98, 8000: 98} {
		if got := rateAt(l, at); math.Abs(got/want-1) > 0.1 {
			t.Errorf("%.0f MiB: %.1f/s, want %.0f", at, got, want)
		}
	}
	if x, ok := l.Curve(64 << 30).Reach(0.985 * rateAt(l, 8000)); !ok || math.Abs(x/(680*mib)-1) > 0.1 || !l.Paging.Enough {
		t.Errorf("enough is %.0f MiB, %v: want 680", x/mib, ok)
	}
	// A limit in vain: no faster with thrice as much, and it reads again as before.
	var vain Learner
	for range 10 {
		vain.Learn(loses(320, 17, 0.15))
		vain.Learn(loses(960, 17, 0.15))
	}
	if before, after := rateAt(vain, 320), rateAt(vain, 960); after > 1.05*before {
		t.Errorf("%.2f/s to %.2f/s is predicted of what brought nothing", before, after)
	}
}

// TestEnoughIsLearntAnew: a job that reads again with what was enough for it needs more.
func TestEnoughIsLearntAnew(t *testing.T) {
	var l Learner
	for range 5 {
		l.Learn(enough(680, 98))
	}
	l.Learn(loses(800, 60, 0.3))
	if l.Paging.Enough || l.Paging.Set < 900*mib {
		t.Errorf("%+v, want a guess beyond 800 MiB", l.Paging)
	}
}

// TestAnyMemoryReadingsGiveACurve: it ascends, its bounds hold what was read, it promises no
// less than was measured with less memory, and it stores and loads.
func TestAnyMemoryReadingsGiveACurve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Learner
		wild := rapid.OneOf(rapid.Float64Range(1, 1e5), rapid.Float64Range(300, 700), rapid.SampledFrom([]float64{0, -1, math.NaN(), math.Inf(1), 1e-300, 1e300}))
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			at, rate := wild.Draw(t, "at"), wild.Draw(t, "rate")
			s := enough(at, rate)
			if rapid.Bool().Draw(t, "loses") {
				s = loses(at, rate, rapid.Float64Range(0, 1).Draw(t, "share"))
			}
			l.Learn(s)
			c := l.Curve(1 << 45)
			if err := ascends(c); err != nil {
				t.Fatal(err)
			}
			if !l.ByMemory() {
				continue
			}
			for _, cell := range l.Cells {
				if got, low, high := c.At(cell.X); got < math.Exp(cell.Log)*(1-1e-9) || low > math.Exp(cell.Log)*(1+1e-9) || high < got*(1-1e-9) {
					t.Fatalf("with %.0f MiB %v/s were read, and the curve says %v, from %v to %v", cell.X/mib, math.Exp(cell.Log), got, low, high)
				}
				if more := rapid.Float64Range(1, 100).Draw(t, "more") * cell.X; cell.X <= 1<<45 {
					if got, _, _ := c.At(more); got < math.Exp(cell.Log)*(1-1e-9) {
						t.Fatalf("with %.0f MiB %v/s were read, and %v are promised of %.0f", cell.X/mib, math.Exp(cell.Log), got, more/mib)
					}
				}
			}
		}
		if l.Source == "" {
			return
		}
		outlives(t, l)
	})
}

func TestPoisonByMemory(t *testing.T) {
	learnt := func() (l Learner) {
		for range 10 {
			l.Learn(loses(320, 20, 0.5))
			l.Learn(enough(680, 40))
		}
		return l
	}
	for name, bad := range map[string]struct {
		s    Seen
		says Answer
	}{
		"hang":                         {enough(680, 0), NoRate},
		"restart":                      {enough(680, math.NaN()), NoRate},
		"another source":               {Seen{X: 680 * mib, Rate: 40, Source: "log", Paging: enough(680, 40).Paging}, Foreign},
		"other work with as much":      {enough(680, 4), Unlikely},
		"much slower with more":        {enough(2000, 4), Unlikely},
		"much faster with less":        {loses(200, 400, 0.5), Unlikely},
		"far faster with as much":      {loses(320, 400, 0.5), Unlikely},
		"slow on purpose, with plenty": {loses(5000, 2, 0.9), Unlikely},
	} {
		l := learnt()
		before := l.Curve(64 << 30)
		for k := range witnesses - 1 {
			if got := l.Learn(bad.s); got != bad.says {
				t.Errorf("%s, reading %d: %s", name, k, got)
			}
		}
		if diff := cmp.Diff(before, l.Curve(64<<30)); diff != "" {
			t.Errorf("%s: what was refused moved the curve: %s", name, diff)
		}
		switch got := l.Learn(bad.s); {
		case bad.says == NoRate && got != NoRate:
			t.Errorf("%s: %s", name, got)
		case bad.says != NoRate && (got != NewPhase || math.Abs(rateAt(l, bad.s.X/mib)/bad.s.Rate-1) > 0.2):
			t.Errorf("%s, thrice: %s, and %.1f/s of %.1f", name, got, rateAt(l, bad.s.X/mib), bad.s.Rate)
		}
	}
}
