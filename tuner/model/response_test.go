package model

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
)

// cost is an example's: knee at 1.5 CPUs, 25 steps/s there.
func cost() policies.Cost {
	return policies.Cost{TrainerCPU: 0.020, Device: 0.020, LoaderCPU: 0.040, Batch: 0.040, Loaders: 4, Ticks: 50}
}

func see(x, rate float64) Seen { return Seen{X: x, Rate: rate, Source: "torch.backward", Cost: cost()} }

func TestModelIsTheCurveAtFirst(t *testing.T) {
	var l Learner
	l.Learn(see(0.5, 1/cost().Step(0.5)))
	c := l.Curve(4)
	for _, x := range []float64{0.25, 0.5, 1, 1.5, 3} {
		rate, low, high := c.At(x)
		if want := 1 / cost().Step(x); math.Abs(rate/want-1) > 0.01 {
			t.Errorf("%v CPUs: %.2f/s, the model says %.2f", x, rate, want)
		}
		if low >= rate || high <= rate {
			t.Errorf("%v CPUs: %.2f is within %.2f to %.2f for certain, after one reading", x, rate, low, high)
		}
	}
}

// TestWrongPredictionsAreCorrected: whatever the truth within a factor of two of the
// model, twenty readings at an amount bring the curve there, and narrow its bounds.
func TestWrongPredictionsAreCorrected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := cost()
		wrong := rapid.Float64Range(0.6, 1.8).Draw(t, "wrong")
		xs := []float64{rapid.Float64Range(0.3, 1).Draw(t, "x"), rapid.Float64Range(1.1, 3).Draw(t, "y")}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var l Learner
		var first float64
		for i := range 40 {
			x := xs[i%2]
			if got := l.Learn(see(x, wrong/truth.Step(x)*math.Exp(0.02*rng.NormFloat64()))); got != Taken {
				t.Fatalf("reading %d: %s", i, got)
			}
			if _, low, high := l.Curve(4).At(xs[0]); i == 0 {
				first = math.Log(high / low)
			} else if i == 39 && math.Log(high/low) > 0.4*first {
				t.Fatalf("bounds %v apart at first, %v after 40 readings", first, math.Log(high/low))
			}
		}
		for _, x := range xs {
			if rate, _, _ := l.Curve(4).At(x); math.Abs(rate*truth.Step(x)/wrong-1) > 0.06 {
				t.Fatalf("%v CPUs: %.2f/s, the truth is %.2f", x, rate, wrong/truth.Step(x))
			}
		}
	})
}

// TestAnyReadingsGiveACurve: whatever comes in, the curve is one, stores and loads,
// and never promises more than in proportion to what is given.
func TestAnyReadingsGiveACurve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Learner
		wild := rapid.OneOf(rapid.Float64Range(1e-3, 64), rapid.SampledFrom([]float64{0, -1, math.NaN(), math.Inf(1), 1e-300, 1e300}))
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			s := Seen{X: wild.Draw(t, "x"), Rate: wild.Draw(t, "rate"), Source: rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(t, "source")}
			if rapid.Bool().Draw(t, "cost") {
				s.Cost = policies.Cost{TrainerCPU: wild.Draw(t, "Ct"), LoaderCPU: wild.Draw(t, "Cl"), Device: wild.Draw(t, "D")}
			}
			l.Learn(s)
		}
		c := l.Curve(32)
		if err := ascends(c); err != nil {
			t.Fatalf("%v of %+v", err, l)
		}
		for i := 1; i < len(c.Points); i++ {
			a, b := c.Points[i-1], c.Points[i]
			if b.Rate/a.Rate > math.Pow(b.X/a.X, steepest)*(1+1e-9) {
				t.Fatalf("from %+v to %+v", a, b)
			}
		}
		if l.Source == "" {
			return
		}
		outlives(t, l)
	})
}

// settled is a learner that has seen enough at 1 CPU.
func settled() Learner {
	var l Learner
	for range 20 {
		l.Learn(see(1, 1/cost().Step(1)))
	}
	return l
}

func TestPoison(t *testing.T) {
	want, _, _ := func() (float64, float64, float64) { l := settled(); return l.Curve(4).At(1) }()
	for name, bad := range map[string]struct {
		s    Seen
		says Answer
	}{
		"hang":           {see(1, 0), NoRate},
		"restart":        {see(1, math.NaN()), NoRate},
		"a jump by 100":  {see(1, 100*want), Unlikely},
		"a fall by 100":  {see(1, want/100), Unlikely},
		"another source": {Seen{X: 1, Rate: want, Source: "log"}, Foreign},
		"other work":     {Seen{X: 1, Rate: want, Source: "torch.backward", Cost: policies.Cost{TrainerCPU: 1, Device: 1}}, Unlikely},
	} {
		l := settled()
		if got := l.Learn(bad.s); got != bad.says {
			t.Errorf("%s: %s", name, got)
		}
		if rate, _, _ := l.Curve(4).At(1); rate != want {
			t.Errorf("%s: one reading moved %.2f to %.2f", name, want, rate)
		}
		l.Learn(see(1, want))
		for range witnesses - 1 { // what was refused needs witnesses in a row
			if got := l.Learn(bad.s); got != bad.says {
				t.Errorf("%s: %s", name, got)
			}
		}
		last := l.Learn(bad.s)
		if bad.says == NoRate {
			if last != NoRate {
				t.Errorf("%s: %s", name, last)
			}
			continue
		}
		if last != NewPhase || l.Phases != 1 {
			t.Errorf("%s, thrice: %s", name, last)
		}
		rate, low, high := l.Curve(4).At(1)
		if math.Abs(rate/bad.s.Rate-1) > 0.5 && l.Cost.CPU() == 0 {
			t.Errorf("%s, thrice: %.2f/s, want about %.2f", name, rate, bad.s.Rate)
		}
		if high/low < 1.5 {
			t.Errorf("%s: after the job changed what it does it is certain of %.2f to %.2f", name, low, high)
		}
	}
}

// TestGamedRateBuysLittle: a job that goes slow on purpose until it has much looks at
// most as if all of it were CPU.
func TestGamedRateBuysLittle(t *testing.T) {
	var l Learner
	for range 30 {
		l.Learn(Seen{X: 1, Rate: 10, Source: "log"})
	}
	for range 30 {
		l.Learn(Seen{X: 2, Rate: 29, Source: "log"}) // nearly thrice for twice as much
	}
	c := l.Curve(4)
	at1, _, _ := c.At(1)
	at2, _, _ := c.At(2)
	if at2/at1 > 2.4 || at2/at1 < 1.5 {
		t.Errorf("%.2f at 1, %.2f at 2: want no more than in proportion", at1, at2)
	}
}

func TestRememberedIsHeldLessFirmly(t *testing.T) {
	l := settled()
	raw, err := json.Marshal(l.Remembered())
	if err != nil {
		t.Fatal(err)
	}
	back, err := load(raw)
	if err != nil {
		t.Fatal(err)
	}
	rate, low, high := l.Curve(4).At(1)
	again, lowAgain, highAgain := back.Curve(4).At(1)
	if math.Abs(again/rate-1) > 0.05 || highAgain/lowAgain <= high/low {
		t.Errorf("%.2f (%.2f to %.2f) became %.2f (%.2f to %.2f)", rate, low, high, again, lowAgain, highAgain)
	}
	if l.Cells[0].Weight != 20 {
		t.Error("remembering changed what it was taken from")
	}
}

func TestLoadRefuses(t *testing.T) {
	for raw, want := range map[string]string{
		`{`: "JSON", `{"version":9,"source":"a"}`: "version 9", `{"version":1}`: "source",
		`{"version":1,"source":"a","cells":[{"x":-1,"log":0,"weight":1}]}`:                                "cell",
		`{"version":1,"source":"a","cells":[{"x":1,"log":0,"weight":1},{"x":1,"log":0,"weight":1}]}`:      "cell",
		`{"version":1,"source":"a","cells":[{"x":1,"log":999,"weight":1}]}`:                               "cell",
		`{"version":1,"source":"a","cells":[{"x":1,"log":0,"weight":1e9}]}`:                               "cell",
		`{"version":1,"source":"a","cost":{"trainerCPU":-1}}`:                                             "cost",
		`{"version":1,"source":"a","cells":[` + strings.TrimSuffix(strings.Repeat(`{},`, 99), ",") + `]}`: "cells",
	} {
		if l, err := load([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", raw, l, err)
		}
	}
}

// load reads a learner as the store of known jobs does.
func load(raw []byte) (l Learner, err error) {
	if err := json.Unmarshal(raw, &l); err != nil {
		return Learner{}, err
	}
	return l, l.Validate()
}

func FuzzLoad(f *testing.F) {
	l := settled()
	raw, err := json.Marshal(l)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if l, err := load(raw); err == nil {
			if err := ascends(l.Curve(8)); err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
		}
	})
}

// outlives holds a learner against what is read of it after it was written.
func outlives(t *rapid.T, l Learner) {
	raw, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	back, err := load(raw)
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	if diff := cmp.Diff(l, back, cmpopts.IgnoreUnexported(Learner{}), cmpopts.EquateEmpty()); diff != "" {
		t.Fatal(diff)
	}
}

// ascends says what is wrong with a curve.
func ascends(c policies.Curve) error {
	var a policies.Point
	for i, b := range c.Points {
		if slices.ContainsFunc([]float64{b.X, b.Rate, b.Low, b.High, b.Weight}, func(v float64) bool { return !(v >= 0) || math.IsInf(v, 0) }) {
			return fmt.Errorf("point %d of a curve: %+v is not all finite and at least 0", i, b)
		}
		if b.Low > b.Rate || b.Rate > b.High {
			return fmt.Errorf("point %d of a curve: rate %g outside of its bounds %g to %g", i, b.Rate, b.Low, b.High)
		}
		if i > 0 && (b.X <= a.X || b.Rate < a.Rate || b.Low < a.Low || b.High < a.High) {
			return fmt.Errorf("point %d of a curve: %+v does not ascend from %+v", i, b, a)
		}
		a = b
	}
	return nil
}
