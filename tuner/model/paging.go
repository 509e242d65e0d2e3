package model

import (
	"math"

	"github.com/trimtab/trimtab/policies"
)

// ByMemory reports whether the curve is one by memory.
func (l *Learner) ByMemory() bool { return l.Paging.Base > 0 }

// steep reports whether a reading cannot be one of the same work: much slower than with
// less memory, much faster than with more, or either with as much. How much faster a job is
// with more memory is no doubt: that a set fits whole ends all of the loss at once.
func (l *Learner) steep(s Seen) bool {
	for _, c := range l.Cells {
		ratio := math.Log(s.Rate) - c.Log
		if ratio < -math.Log(unlikelyRatio) && (c.X < s.X || near(c.X, s.X)) || ratio > math.Log(unlikelyRatio) && (c.X > s.X || near(c.X, s.X)) {
			return true
		}
	}
	return false
}

// paged moves what a tick costs by memory to a later reading. One with enough memory says
// what a tick costs then, and how much is enough; what was lost under a limit is the rest of
// what a tick took there. One that loses guesses at both, until enough was measured.
func paged(a, b policies.Paging) policies.Paging {
	toward := func(u, v float64) float64 { return u + costShare*(v-u) }
	whole := a.Base + a.Lost
	switch {
	case !(a.Base > 0), !b.Enough && a.Enough && b.Limit >= a.Set: // what was enough is not any more
		return b
	case b.Enough && a.Enough:
		a.Base, a.Set = toward(a.Base, b.Base), min(a.Set, b.Set)
	case b.Enough:
		a.Base, a.Set, a.Enough = b.Base, b.Set, true
	case a.Enough:
		whole, a.Limit = b.Base+b.Lost, b.Limit
	default:
		a.Base, a.Limit, a.Set = toward(a.Base, b.Base), b.Limit, b.Set
		whole = a.Base + toward(a.Lost, b.Lost)
	}
	if a.Lost = max(0, whole-a.Base); a.Set <= a.Limit {
		a.Lost, a.Limit = 0, a.Set // nothing was seen below
	}
	return a
}

// sanePaging reports whether all of it are times and amounts.
func sanePaging(p policies.Paging) bool {
	for _, v := range []float64{p.Base, p.Lost, p.Limit, p.Set} {
		if !(v >= 0 && v < 1e20) {
			return false
		}
	}
	return p.Limit <= p.Set
}

// rise makes rates, and their bounds, ascend without lowering any: more memory makes nobody
// slower, so no prediction is below what was measured with less, and bounds hold what was
// measured where they are.
func (l *Learner) rise(points []policies.Point) {
	for i := range points {
		p := &points[i]
		for _, c := range l.Cells {
			if rate := math.Exp(c.Log); c.X <= p.X {
				p.Rate = max(p.Rate, rate)
				if near(c.X, p.X) {
					p.Low, p.High = min(p.Low, rate), max(p.High, rate)
				}
			}
		}
		if i > 0 {
			p.Rate, p.High = max(p.Rate, points[i-1].Rate), max(p.High, points[i-1].High)
		}
		p.High = max(p.High, p.Rate)
	}
	for i := len(points) - 1; i >= 0; i-- {
		p := &points[i]
		if p.Low = min(p.Low, p.Rate); i < len(points)-1 {
			p.Low = min(p.Low, points[i+1].Low)
		}
	}
}
