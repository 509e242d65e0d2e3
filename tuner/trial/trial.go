// Package trial judges plans: from steady windows before and after a change it
// tells whether the change did what it was made for. It is pure: no clock, no
// randomness, no state; whoever calls it drops windows that are no evidence
// (checkpoints, evaluation, machines robbed by their host, the time in which a
// prefetch hides the change) and decides what an outcome leads to.
//
// The trap: rates of neighbouring windows resemble each other, so n windows
// tell as much as n/9 independent ones at a correlation of 0.8. A plain t-test
// would call noise a gain.
package trial

import (
	"fmt"
	"math"
)

const secondNs = 1e9

// Obs is the rate of one steady window.
type Obs struct {
	StartNs int64   `json:"start"` // CLOCK_MONOTONIC
	EndNs   int64   `json:"end"`
	Rate    float64 `json:"rate"` // per second, of the same source in all windows of a trial
	// The time that Rate is the mean of, CLOCK_MONOTONIC ns; 0: the window.
	FromNs int64 `json:"from,omitempty"`
	ToNs   int64 `json:"to,omitempty"`
}

// Span is the time that Rate is the mean of.
func (o Obs) Span() (fromNs, toNs int64) {
	if o.ToNs > o.FromNs {
		return o.FromNs, o.ToNs
	}
	return o.StartNs, o.EndNs
}

// Outcome is what the windows say so far.
type Outcome uint8

// Outcomes. Superior and NonInferior are reasons to keep; Inferior and
// Inconclusive to roll back; Pending to wait for more windows.
const (
	Pending      Outcome = iota
	Superior             // a give gained at least MinEffect, and no gain is excluded
	NonInferior          // a take lost less than Margin
	Inferior             // the rate fell: by any amount for a give, by more than Margin for a take
	Inconclusive         // it cannot be told, or the gain is too small to keep
)

// String returns the outcome's name.
func (o Outcome) String() string {
	names := [...]string{"pending", "superior", "non-inferior", "inferior", "inconclusive"}
	if int(o) < len(names) {
		return names[o]
	}
	return "invalid"
}

// Keep reports whether the plan earned its place.
func (o Outcome) Keep() bool { return o == Superior || o == NonInferior }

// Result is a judgement with what it rests on.
type Result struct {
	Outcome Outcome
	// Ratio is the rate after over the rate before; Low and High bound it, each with
	// the error probability of the look taken (of the next one while none is due).
	// All are zero while there is nothing to compare.
	Ratio, Low, High float64
	// EffectiveN is the number of independent windows that would tell as much as the
	// side that tells less.
	EffectiveN float64
	// Look is the look that was spent last: hand it to the next call.
	Look int
	Why  string // one sentence for people
}

// Judge compares windows before and after a change. look is the Look of the
// result before, 0 at first: so that repeated looking does not find by luck what
// is not there, evidence is weighed only at certain counts of windows, and each
// look has its share of Alpha. Judge may be called as often as wanted; between
// looks it answers Pending, or Inferior on a clear regression.
func Judge(p Params, before, after []Obs, look int) Result {
	return judge(p, [][]Obs{before}, after, look)
}

// JudgeABA compares windows with the change against windows before it and
// against windows after it was reverted: for when neighbours moved in the
// meantime. A drift can lie anywhere between the two, so the change must prove
// itself against both; Ratio is taken against the baseline in between. The windows
// with the change are complete by then, so looks are counted in reverted ones, up
// to MaxAfter of them; too few with the change are Inconclusive.
func JudgeABA(p Params, before, with, reverted []Obs, look int) Result {
	return judge(p, [][]Obs{before, reverted}, with, look)
}

func judge(p Params, baselines [][]Obs, after []Obs, look int) Result {
	if err := p.Validate(); err != nil {
		return Result{Outcome: Inconclusive, Look: look, Why: "bad parameters: " + err.Error()}
	}
	after = usable(after)
	base := make([][]Obs, len(baselines))
	for i, b := range baselines {
		base[i] = usable(b)
		if len(base[i]) < p.MinBefore {
			return Result{Look: look, Why: fmt.Sprintf("%d of %d windows of the baseline", len(base[i]), p.MinBefore)}
		}
	}
	reverted := len(base) > 1
	if reverted && len(after) < p.MinAfter {
		return Result{Outcome: Inconclusive, Look: look,
			Why: fmt.Sprintf("%d of %d windows with the change, and it is reverted", len(after), p.MinAfter)}
	}
	if len(after) < min(p.MinAfter, regressionWindows) {
		return Result{Look: look, Why: fmt.Sprintf("%d of %d windows after the change", len(after), p.MinAfter)}
	}
	reference := median(rates(base[0]))
	if reference <= 0 {
		return Result{Outcome: Inconclusive, Look: look, Why: "no rate before the change to compare with"}
	}
	c := compare(p, base, after, reference)
	if r, ended := c.regression(p, look); ended {
		return r
	}
	if reverted { // only these still come
		return c.decide(p, len(base[len(base)-1]), "reverted", look)
	}
	return c.decide(p, len(after), "after the change", look)
}

// regressionWindows are enough for a clear regression. DLRover asks for 5
// records each side; here the bound must exclude "no loss" as well.
const regressionWindows = 3

// regressionAlpha is the error probability of that bound.
const regressionAlpha = 0.005

// regression ends a trial that lost at least p.Regression. It is checked at
// each call: an error on this side keeps nothing that should not be kept.
func (c comparison) regression(p Params, look int) (Result, bool) {
	r := c.result(regressionAlpha, look)
	if r.Ratio > 1-p.Regression || r.High >= 1 {
		return Result{}, false
	}
	r.Outcome = Inferior
	r.Why = fmt.Sprintf("the rate fell by %s, at least %s: reverted at once", percent(1-r.Ratio), percent(p.Regression))
	return r, true
}

// decide takes the look that is due, if one is, by the count of windows of the
// side that still grows.
func (c comparison) decide(p Params, windows int, side string, look int) Result {
	due, next, alpha, last := p.schedule(windows, look)
	r := c.result(alpha, due)
	switch {
	case due > max(look, 0):
		r.Outcome, r.Why = p.verdict(r)
	case !last:
		r.Why = fmt.Sprintf("%d windows %s, next look at %d", windows, side, next)
	}
	if r.Outcome == Pending && last {
		r.Outcome = Inconclusive
		r.Why = fmt.Sprintf("no decision in %d windows: %s", windows, spread(r))
	}
	return r
}

// verdict turns bounds into an outcome.
func (p Params) verdict(r Result) (Outcome, string) {
	if p.Take {
		switch {
		case r.Low > 1-p.Margin:
			return NonInferior, fmt.Sprintf("lost less than the %s allowed: %s", percent(p.Margin), spread(r))
		case r.High < 1-p.Margin:
			return Inferior, fmt.Sprintf("lost more than the %s allowed: %s", percent(p.Margin), spread(r))
		}
		return Pending, "not told apart yet: " + spread(r)
	}
	switch {
	case r.Low > 1 && r.Ratio >= 1+p.MinEffect:
		return Superior, "gained " + spread(r)
	case r.High < 1:
		return Inferior, "lost: " + spread(r)
	case r.High < 1+p.MinEffect:
		return Inconclusive, fmt.Sprintf("no gain of %s or more: %s", percent(p.MinEffect), spread(r))
	}
	return Pending, "not told apart yet: " + spread(r)
}

func spread(r Result) string {
	return fmt.Sprintf("%+.1f %% (%+.1f to %+.1f)", 100*(r.Ratio-1), 100*(r.Low-1), 100*(r.High-1))
}

func percent(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }

// comparison holds the levels of all phases, on the logarithmic scale.
type comparison struct {
	base  []level
	after level
	sigma []float64 // standard deviation of one window: baselines, then after
	dof   float64
}

// compare fits all phases with one common noise.
func compare(p Params, base [][]Obs, after []Obs, reference float64) comparison {
	phases := make([][]point, 0, len(base)+1)
	for _, obs := range append(append([][]Obs{}, base...), after) {
		phases = append(phases, dropOutliers(points(obs, reference), p.PriorCV))
	}
	n := estimateNoise(p, phases...)
	levels := make([]level, len(phases))
	for i, ph := range phases {
		levels[i] = n.fit(ph)
	}
	c := comparison{base: levels[:len(base)], after: levels[len(base)]}
	c.sigma, c.dof = deviations(p.PriorCV, levels)
	return c
}

// cvPriorWindows weighs the prior deviation as so many windows would.
const cvPriorWindows = 4

// deviations returns a standard deviation for each phase: its own, drawn toward
// that of all phases and the prior, but upward only. Three windows that happen
// to agree are no proof of a calm rate, three that differ are one of a wild one.
func deviations(priorCV float64, levels []level) (sigma []float64, dof float64) {
	var rss float64
	for _, l := range levels {
		rss += l.rss
		dof += l.dof
	}
	dof = max(dof, 1)
	pooled := (rss + cvPriorWindows*priorCV*priorCV) / (dof + cvPriorWindows)
	pooled = max(pooled, rss/dof)
	for _, l := range levels {
		own := (l.rss + cvPriorWindows*pooled) / (l.dof + cvPriorWindows)
		sigma = append(sigma, math.Sqrt(max(own, pooled)))
	}
	return sigma, dof
}

// result bounds the ratio with error probability alpha on each side.
func (c comparison) result(alpha float64, look int) Result {
	t := studentQuantile(min(alpha, 0.49), c.dof)
	r := Result{Look: look, EffectiveN: c.after.effN, Low: math.Inf(1)}
	last := len(c.sigma) - 1
	for i, b := range c.base {
		se := math.Sqrt(c.sigma[i]*c.sigma[i]/b.effN + c.sigma[last]*c.sigma[last]/c.after.effN)
		r.Low = min(r.Low, bounded(c.after.mean-b.mean-t*se))
		r.High = max(r.High, bounded(c.after.mean-b.mean+t*se))
		r.EffectiveN = min(r.EffectiveN, b.effN)
	}
	r.Ratio = min(max(bounded(c.after.mean-c.baseline()), r.Low), r.High)
	return r
}

// baseline is the log rate without the change at the time of the change,
// interpolated where there are baselines on both sides of it.
func (c comparison) baseline() float64 {
	if len(c.base) < 2 || c.base[1].mid <= c.base[0].mid {
		return c.base[0].mean
	}
	w := (c.after.mid - c.base[0].mid) / (c.base[1].mid - c.base[0].mid)
	w = min(max(w, 0), 1)
	return (1-w)*c.base[0].mean + w*c.base[1].mean
}

// bounded is exp, kept finite so that a result is always valid JSON.
func bounded(logRatio float64) float64 {
	return math.Exp(min(max(logRatio, -50), 50))
}
