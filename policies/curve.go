package policies

import (
	"sort"
)

// Objective is what an allocation of the whole node is to make large.
type Objective string

// The objectives. A job's normalised rate is its rate over the best it could reach.
const (
	ObjectiveSum    Objective = "sum"     // of normalised rates, weighted by importance; the default
	ObjectiveMaxMin Objective = "max-min" // the smallest normalised rate first
)

// Objectives lists them, the default first.
func Objectives() []Objective { return []Objective{ObjectiveSum, ObjectiveMaxMin} }

// Point is one place of a Curve.
type Point struct {
	X    float64 `json:"x"`    // CPUs, or bytes
	Rate float64 `json:"rate"` // expected there, per second
	Low  float64 `json:"low"`  // bounds of the expectation, Low ≤ Rate ≤ High
	High float64 `json:"high"`
	// Weight is how many readings' worth of evidence stands behind the point; 0 is the
	// model's word alone.
	Weight float64 `json:"weight,omitempty"`
}

// Curve is a job's rate by the amount of one resource: ascending in X, never
// descending in Rate, Low or High. Between points it is straight, which for CPUs is
// what the one-jump model says; below the first it runs to nothing at zero, beyond
// the last it is flat. The zero Curve says that nothing is known.
type Curve struct {
	Source string  `json:"source,omitempty"` // of the rate: curves of different sources do not compare
	Points []Point `json:"points,omitempty"`
}

// Known reports whether the curve says anything.
func (c Curve) Known() bool { return len(c.Points) > 0 && c.Best() > 0 }

// Best is the rate with plenty; 0 if nothing is known.
func (c Curve) Best() float64 {
	if len(c.Points) == 0 {
		return 0
	}
	return c.Points[len(c.Points)-1].Rate
}

// At returns the rate expected of so much, and its bounds.
func (c Curve) At(x float64) (rate, low, high float64) {
	if len(c.Points) == 0 || !(x > 0) { // NaN as well
		return 0, 0, 0
	}
	i := sort.Search(len(c.Points), func(i int) bool { return c.Points[i].X >= x })
	if i == len(c.Points) {
		p := c.Points[i-1]
		return p.Rate, p.Low, p.High
	}
	b := c.Points[i]
	var a Point
	if i > 0 {
		a = c.Points[i-1]
	}
	if b.X <= a.X {
		return b.Rate, b.Low, b.High
	}
	f := (x - a.X) / (b.X - a.X)
	between := func(u, v float64) float64 { return u + f*(v-u) }
	return between(a.Rate, b.Rate), between(a.Low, b.Low), between(a.High, b.High)
}

// Reach returns the least amount that is expected to give a rate; ok is false if
// none does.
func (c Curve) Reach(rate float64) (x float64, ok bool) {
	var a Point
	for _, b := range c.Points {
		if b.Rate >= rate {
			if b.Rate <= a.Rate {
				return b.X, true
			}
			return a.X + max(0, rate-a.Rate)/(b.Rate-a.Rate)*(b.X-a.X), true
		}
		a = b
	}
	return 0, false
}
