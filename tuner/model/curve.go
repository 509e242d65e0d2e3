package model

import (
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
)

// How what is read spreads over the curve.
const (
	// priorSpread is the standard deviation, on the logarithmic scale, of a rate that the
	// model predicts where nothing was read; leastSpread that of any amount of readings.
	priorSpread = 0.25
	leastSpread = 0.02
	// priorWeight is how many readings the model's word counts for.
	priorWeight = 2.0
	// levelWeight is what it counts for as to the level of all rates, which a step's cost
	// tells less surely than their shape: ticks may be parts of steps.
	levelWeight = 0.2
	// reach is how far, on the logarithmic scale, a reading speaks for its surroundings.
	reach = 0.25
	// farShare is what a reading says of the level anywhere on the curve.
	farShare = 0.1
	// sides is the quantile of the bounds: 5 % on each side.
	sides = 1.645
	// steepest bounds what more may buy, as a power of the amount. A quota that binds makes
	// steps dearer, so a little more than proportion is real.
	steepest = 1.2
)

// Curve is what is known now, of amounts up to a limit.
func (l *Learner) Curve(limit float64) policies.Curve {
	at := l.knots(limit)
	if len(at) == 0 {
		return policies.Curve{}
	}
	points := make([]policies.Point, len(at))
	level, all := l.level()
	for i, x := range at {
		residual, weight := 0.0, 0.0
		for _, c := range l.Cells {
			d := math.Log(x/c.X) / reach
			w := c.Weight * math.Exp(-d*d/2)
			residual += w * (c.Log - l.model(c.X) - level)
			weight += w
		}
		logged := min(max(l.model(x)+level+residual/(weight+l.prior()), -50), 50)
		weight += farShare * all
		spread := sides * max(leastSpread, priorSpread/math.Sqrt(1+weight))
		points[i] = policies.Point{X: x, Rate: math.Exp(logged), Low: math.Exp(logged - spread), High: math.Exp(logged + spread), Weight: weight}
	}
	if l.ByMemory() {
		l.rise(points)
	} else {
		ascend(points)
		flatten(points)
		bound(points)
	}
	return policies.Curve{Source: l.Source, Points: points}
}

// shape is what a step's cost says of rates that were not seen.
func (l *Learner) shape() interface {
	Step(amount float64) float64
	Knee() float64
} {
	if l.ByMemory() {
		return l.Paging
	}
	return l.Cost
}

// modelled reports whether a step's cost gives the shape.
func (l *Learner) modelled() bool { return plausible(l.shape().Knee()) }

func (l *Learner) prior() float64 {
	if l.modelled() {
		return priorWeight
	}
	return 1e-6
}

// model is the logarithm of the rate by the step's cost; without one it is flat at
// what was read nearest.
func (l *Learner) model(x float64) float64 {
	if l.modelled() {
		return -math.Log(l.shape().Step(x))
	}
	nearest, best := 0.0, math.Inf(1)
	for _, c := range l.Cells {
		if d := math.Abs(math.Log(x / c.X)); d < best {
			nearest, best = c.Log, d
		}
	}
	return nearest
}

// level is how far readings lie from the model everywhere, and how many they are.
func (l *Learner) level() (level, all float64) {
	for _, c := range l.Cells {
		level += c.Weight * (c.Log - l.model(c.X))
		all += c.Weight
	}
	return level / (all + min(levelWeight, l.prior())), all
}

// knots are where the curve is computed: its readings, the model's bend, and between.
func (l *Learner) knots(limit float64) []float64 {
	if !positive(limit) {
		return nil
	}
	var at []float64
	for _, c := range l.Cells {
		at = append(at, c.X)
	}
	if l.modelled() {
		knee := l.shape().Knee()
		for i := 1; i <= 8; i++ {
			at = append(at, knee*float64(i)/8)
		}
		at = append(at, 1.25*knee, limit)
	}
	slices.Sort(at)
	apart := 1.001
	if l.ByMemory() {
		apart = 1 // its bounds are of each cell
	}
	out := at[:0]
	for _, x := range at {
		if x <= limit*(1+1e-9) && (len(out) == 0 || x > out[len(out)-1]*apart) {
			out = append(out, x)
		}
	}
	return out
}

// ascend makes rates ascend: isotonic regression, neighbours that fall are pooled by
// their weights until none does.
func ascend(points []policies.Point) {
	type pool struct {
		sum, weight float64
		n           int
	}
	var pools []pool
	for _, p := range points {
		w := p.Weight + 0.1
		pools = append(pools, pool{w * math.Log(p.Rate), w, 1})
		for k := len(pools) - 1; k > 0 && pools[k-1].sum/pools[k-1].weight > pools[k].sum/pools[k].weight; k-- {
			a, b := pools[k-1], pools[k]
			pools = append(pools[:k-1], pool{a.sum + b.sum, a.weight + b.weight, a.n + b.n})
		}
	}
	i := 0
	for _, p := range pools {
		for range p.n {
			points[i].Rate = math.Exp(p.sum / p.weight)
			i++
		}
	}
}

// flatten bounds how steep a curve may be: what rises faster than its amount is
// raised below, so that nobody looks hungrier than in proportion.
func flatten(points []policies.Point) {
	for i := len(points) - 2; i >= 0; i-- {
		a, b := &points[i], points[i+1]
		a.Rate = max(a.Rate, b.Rate*math.Pow(a.X/b.X, steepest))
	}
}

// bound makes bounds that ascend as well, and hold the rate between them.
func bound(points []policies.Point) {
	for i := range points {
		p := &points[i]
		if i > 0 {
			p.Rate = max(p.Rate, points[i-1].Rate) // to the last bit
			p.Low = max(p.Low, points[i-1].Low)
		}
	}
	for i := len(points) - 2; i >= 0; i-- {
		points[i].High = min(points[i].High, points[i+1].High)
	}
	for i := range points {
		p := &points[i]
		p.Low, p.High = min(p.Low, p.Rate), max(p.High, p.Rate)
	}
}
