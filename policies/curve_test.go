package policies

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestCurveAt(t *testing.T) {
	c := Curve{Points: []Point{{X: 1, Rate: 10, Low: 8, High: 12}, {X: 2, Rate: 16, Low: 16, High: 16}}}
	for _, tc := range []struct{ x, rate, low, high float64 }{
		{0, 0, 0, 0}, {-1, 0, 0, 0}, {math.NaN(), 0, 0, 0}, {0.5, 5, 4, 6}, {1, 10, 8, 12}, {1.5, 13, 12, 14}, {2, 16, 16, 16}, {9, 16, 16, 16}, {math.Inf(1), 16, 16, 16},
	} {
		if rate, low, high := c.At(tc.x); rate != tc.rate || low != tc.low || high != tc.high {
			t.Errorf("At(%v) = %v, %v, %v; want %v, %v, %v", tc.x, rate, low, high, tc.rate, tc.low, tc.high)
		}
	}
	if rate, low, high := (Curve{}).At(1); rate != 0 || low != 0 || high != 0 || (Curve{}).Known() {
		t.Errorf("an unknown curve says %v, %v, %v", rate, low, high)
	}
	if x, ok := c.Reach(13); !ok || x != 1.5 {
		t.Errorf("13/s is reached at %v, %v; want 1.5", x, ok)
	}
	if x, ok := c.Reach(17); ok {
		t.Errorf("17/s is reached at %v", x)
	}
}

// TestCurveOfACost: the curve of the one-jump model is the model, at every amount.
func TestCurveOfACost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secs := rapid.Float64Range(1e-4, 1)
		cost := Cost{TrainerCPU: secs.Draw(t, "Ct"), LoaderCPU: secs.Draw(t, "Cl"), Device: secs.Draw(t, "D"), Batch: secs.Draw(t, "w"), Loaders: rapid.IntRange(0, 8).Draw(t, "W")}
		cpus := rapid.Float64Range(0.1, 64).Draw(t, "cpus")
		c := cost.Curve("torch.backward", cpus, 0.2)
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		x := rapid.Float64Range(0.01, 1).Draw(t, "x") * cpus
		if rate, low, high := c.At(x); math.Abs(rate*cost.Step(x)-1) > 1e-9 || low > rate || high < rate {
			t.Fatalf("at %v CPUs %v (%v to %v), the model says %v", x, rate, low, high, 1/cost.Step(x))
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var back Curve
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, back); diff != "" {
			t.Fatal(diff)
		}
	})
	if c := (Cost{}).Curve("", 8, 0.2); c.Known() {
		t.Errorf("a cost of nothing gives %+v", c)
	}
}

func TestCurveThatCannotBe(t *testing.T) {
	good := Point{X: 1, Rate: 2, Low: 1, High: 3}
	for name, points := range map[string][]Point{
		"not a number": {{X: math.NaN()}}, "endless": {{X: 1, High: math.Inf(1)}}, "below zero": {{X: -1}}, "outside its bounds": {{X: 1, Rate: 4, Low: 1, High: 3}},
		"not ascending": {good, good}, "falling": {good, {X: 2, Rate: 1, Low: 1, High: 3}}, "too long": make([]Point, 2000),
	} {
		if (Curve{Points: points}).Validate() == nil {
			t.Errorf("%s passes", name)
		}
	}
}
