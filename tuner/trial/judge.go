// Package trial judges plans that take from somebody: from readings before a change and
// under it, it tells whether the change did what it was made for. It is pure.
package trial

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
	"gonum.org/v1/gonum/stat/distuv"
)

// Outcome is what a judgement says.
type Outcome uint8

// The outcomes. Pending waits for more readings.
const (
	Pending      Outcome = iota
	Better               // it did what it was made for: keep
	Worse                // it did harm, or is useless: return, and remember as failed
	Inconclusive         // the readings do not tell: return, and do not remember as failed
	Void                 // something else changed meanwhile: return, and repeat
)

// String returns the outcome's name.
func (o Outcome) String() string {
	names := [...]string{"pending", "better", "worse", "inconclusive", "void"}
	if int(o) < len(names) {
		return names[o]
	}
	return "invalid"
}

// Block is a stretch of readings with the change, or without it.
type Block struct {
	With    bool
	Samples []observe.RateSample
}

// Result is a judgement with what it rests on.
type Result struct {
	Outcome Outcome
	// Ratio is the rate with the change over the rate without; Low and High bound it. All
	// are zero while there is nothing to compare.
	Ratio, Low, High float64
	Why              string // one sentence for people
}

// stalledShare of the median stands in for a rate of zero, which has no logarithm.
const stalledShare = 0.01

// Compare estimates the effect of a change from blocks in the order of time, with bounds
// that each err with probability alpha. ok is false where either side has fewer than two readings.
func Compare(k *policies.Constants, blocks []Block, alpha float64) (r Result, ok bool) {
	pts := points(blocks)
	var n [2]int
	for _, p := range pts {
		n[p.side()]++
	}
	if n[0] < 2 || n[1] < 2 {
		return Result{}, false
	}
	e := estimate(k, pts)
	t := distuv.StudentsT{Sigma: 1, Nu: e.dof}.Quantile(1 - min(alpha, 0.49))
	r = Result{Ratio: bounded(e.mean), Low: bounded(e.mean - t*e.sd), High: bounded(e.mean + t*e.sd)}
	return r, true
}

// points takes the readings of all blocks, less the outliers of each side.
func points(blocks []Block) []point {
	var all []float64
	for _, b := range blocks {
		for _, s := range usable(b.Samples) {
			all = append(all, s.Rate)
		}
	}
	floor := observe.Median(all) * stalledShare
	var out []point
	for _, side := range []bool{false, true} {
		var pts []point
		for _, b := range blocks {
			if b.With != side {
				continue
			}
			for _, s := range usable(b.Samples) {
				at := float64(s.StartNs)/2 + float64(s.EndNs)/2
				pts = append(pts, point{atNs: at, logged: math.Log(max(s.Rate, floor, 1e-300)), with: side})
			}
		}
		out = append(out, withoutOutliers(pts)...)
	}
	slices.SortStableFunc(out, func(a, b point) int { return cmp.Compare(a.atNs, b.atNs) })
	return out
}

// usable are readings with a readable rate, in the order of time.
func usable(samples []observe.RateSample) []observe.RateSample {
	out := make([]observe.RateSample, 0, len(samples))
	for _, s := range samples {
		if s.Rate >= 0 && !math.IsInf(s.Rate, 1) && s.EndNs > s.StartNs {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b observe.RateSample) int { return cmp.Compare(a.StartNs, b.StartNs) })
	return out
}

// Accidents: a reading far from its side's median, where they are few. More of them are how
// the job runs: dropping them could hide stalls that the change itself brought.
const (
	outlierSigmas = 3.0 // for steps, of the robust deviation
	outlierShare  = 0.10
	outlierLeast  = 5 // readings: below it a median deviation says nothing
	outlierFloor  = 0.05
)

func withoutOutliers(pts []point) []point {
	if len(pts) < outlierLeast {
		return pts
	}
	values := make([]float64, len(pts))
	for i, p := range pts {
		values[i] = p.logged
	}
	middle := observe.Median(values)
	for i, v := range values {
		values[i] = math.Abs(v - middle)
	}
	sigma := max(1.4826*observe.Median(values), outlierFloor)
	kept := make([]point, 0, len(pts))
	for _, p := range pts {
		if math.Abs(p.logged-middle) <= outlierSigmas*sigma {
			kept = append(kept, p)
		}
	}
	if len(pts)-len(kept) > max(1, int(outlierShare*float64(len(pts)))) {
		return pts
	}
	return kept
}

// bounded is exp, kept finite so that a result is always valid JSON.
func bounded(logRatio float64) float64 { return math.Exp(min(max(logRatio, -50), 50)) }

// Spread says a result in words.
func (r Result) Spread() string {
	return fmt.Sprintf("%+.1f %% (%+.1f to %+.1f)", 100*(r.Ratio-1), 100*(r.Low-1), 100*(r.High-1))
}

// Judge weighs a trial at the end of a block, or within its first one. Blocks alternate,
// beginning with the baseline. decrease: the change takes, and must not be inferior; else it
// must be superior. ended is false while the next block is worth waiting for.
//
// Looks at a growing series find by luck what is not there: each has its share of TrialAlpha.
func Judge(k *policies.Constants, decrease bool, blocks []Block, whole bool) (r Result, ended bool) {
	switches := len(blocks) - 1
	first := switches == 1
	if switches < 1 || !first && (!whole || !blocks[switches].With) {
		return Result{}, false
	}
	r, ok := Compare(k, blocks, k.TrialAlpha/float64(looks))
	switch {
	case !ok:
		return r, false
	case first: // a job's own phases may bring as much as TrialSwing: less is proven by going back and forth
		if !decrease && r.Low >= k.TrialSwing {
			return r.as(Better, "gained %s"), true
		}
		return r, false
	case !decrease && r.Low > 1 && r.Ratio >= 1+k.TrialMinGain && eachSwitch(blocks):
		return r.as(Better, "gained %s"), true
	case decrease && r.Low > 1-k.TrialMargin:
		return r.as(Better, "lost less than may be lost: %s"), true
	case !decrease && r.High < 1:
		return r.as(Worse, "lost: %s"), true
	case !decrease && r.High < 1+k.TrialMinGain:
		return r.as(Worse, "brings nothing: %s"), true
	case decrease && r.High < 1-k.TrialMargin:
		return r.as(Worse, "lost more than may be lost: %s"), true
	case switches >= maxSwitches, !r.promises(k, decrease):
		return r.as(Inconclusive, "cannot be told: %s"), true
	}
	return r, false
}

// looks at a trial: one within the first block, then one after each time that the change was
// made again. maxSwitches is the last of them.
const (
	looks       = 4
	maxSwitches = 7
)

// promises reports whether another pair of blocks may bring a proof.
func (r Result) promises(k *policies.Constants, decrease bool) bool {
	if decrease {
		return r.Ratio >= 1-k.TrialMargin
	}
	return r.Ratio >= 1+k.TrialMinGain
}

func (r Result) as(o Outcome, format string) Result {
	r.Outcome, r.Why = o, fmt.Sprintf(format, r.Spread())
	return r
}

// Regressed reports whether the first block shows a clear loss already, so that the change
// goes back at once: what the rate does then tells whose doing the loss was.
func Regressed(k *policies.Constants, blocks []Block) bool {
	r, ok := Compare(k, blocks, k.TrialAlpha/float64(looks))
	return ok && r.Ratio <= 1-k.TrialRegression && r.High < 1
}

// eachSwitch reports whether every switch moved the rate its way: a job's own step does so once.
func eachSwitch(blocks []Block) bool {
	level := func(b Block) float64 {
		var v []float64
		for _, s := range usable(b.Samples) {
			v = append(v, s.Rate)
		}
		return observe.Median(v)
	}
	for i := 1; i < len(blocks); i++ {
		up := level(blocks[i]) > level(blocks[i-1])
		if up != blocks[i].With {
			return false
		}
	}
	return true
}
