package core

import (
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/arbiter"
	"github.com/trimtab/trimtab/tuner/trial"
	"github.com/trimtab/trimtab/tuner/trial/correction"
	"github.com/trimtab/trimtab/tuner/view"
)

// side is one container of a plan that touches several. Those that are given something
// are judged together, as the plan is one; each of those that something is taken from
// is judged alone, against what it is entitled to.
type side struct {
	key       string
	source    string
	before    []trial.Obs
	rate      float64 // before
	after     float64 // rate, settled, as of the latest look
	predicted float64
	modelled  bool // by the CPU model; else by response curves, which its correction has no part in
	take      bool
	turnNs    int64 // see openTrial
	// due is the share of its rate before that its entitlement alone would bring: it may
	// lose what it had above.
	due    float64
	worth  float64 // its part of the objective before: importance times normalised rate
	level  float64 // how well off it was: normalised rate over importance; 0: its curve is not known
	look   int
	result trial.Result
}

// takeParams are the rules for a change that takes. A lower weight takes what was used
// above an entitlement, which shows sooner than that a quota was larger than needed.
func takeParams(k runtime.Knob) trial.Params {
	p := trial.DefaultParams(true)
	if k == runtime.KnobCPUWeight {
		p.MinBefore, p.MinAfter, p.MaxAfter = 5, 5, 90
	}
	return p
}

// sides splits a plan by container; nil where it touches one alone.
func (c *Core) sides(o Order) []*side {
	var out []*side
	for _, ch := range o.Changes {
		j := c.jobs[ch.Key]
		i := slices.IndexFunc(out, func(s *side) bool { return s.key == ch.Key })
		if i < 0 {
			i = len(out)
			out = append(out, &side{key: ch.Key, source: j.source, due: c.due(j), worth: c.worth(j), level: c.level(j)})
		}
		s := out[i]
		s.take, s.turnNs, s.before, s.rate = ch.Take, 0, append([]trial.Obs(nil), j.obs...), j.rateNow() // the weight comes last, and decides
		if ns, before := turn(j, ch); ns > 0 {
			s.turnNs, s.before, s.rate = ns, before, meanRate(before)
		}
	}
	for _, s := range out {
		s.predicted, s.modelled = c.predicted(o, s.key)
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

// predicted is the rate that an order promises a container: of the changes of its CPU the
// last decides, and what more memory brings comes on top. modelled: by the CPU model alone,
// which a trial of it corrects.
func (c *Core) predicted(o Order, key string) (rate float64, modelled bool) {
	var memory policies.Change
	for _, ch := range o.Changes {
		switch {
		case ch.Key != key || ch.Knob == runtime.KnobMemorySwap:
		case givesMemory(ch):
			memory = ch
		default:
			rate, modelled = ch.RateAfter, ch.Knob.Family() == "cpu" && !c.dealt(ch)
		}
	}
	switch {
	case memory.Key == "":
		return rate, modelled
	case rate == 0:
		return memory.RateAfter, false
	}
	return rate * (1 + memory.Gain), false
}

// due is the share of its rate that a job would keep on what it is entitled to.
func (c *Core) due(j *job) float64 {
	now, _, _ := j.curve.At(j.used())
	right, _, _ := j.curve.At(min(j.used(), j.entitled))
	if !(now > 0) {
		return 1
	}
	return min(1, right/now)
}

// worth is a job's part of the objective now.
func (c *Core) worth(j *job) float64 {
	return c.grant(j.key).RateNow * arbiter.Importance(j.c.Enrolment.Importance)
}

// level is how well off a job is now, by which max-min finds the worst off.
func (c *Core) level(j *job) float64 {
	return c.grant(j.key).RateNow / arbiter.Importance(j.c.Enrolment.Importance)
}

// takesFrom reports whether the plan takes from a container.
func (t *openTrial) takesFrom(key string) bool {
	return slices.ContainsFunc(t.sides, func(s *side) bool { return s.key == key && s.take })
}

// rateBefore is a container's rate before the plan.
func (t *openTrial) rateBefore(key string) float64 {
	for _, s := range t.sides {
		if s.key == key {
			return s.rate
		}
	}
	return t.view.Before
}

// together is what those that the plan gives to gain, from their series.
func (t *openTrial) together(series func(*side) []trial.Obs) []trial.Obs {
	var all [][]trial.Obs
	var rates []float64
	for _, s := range t.sides {
		if !s.take {
			all, rates = append(all, series(s)), append(rates, s.rate)
		}
	}
	return trial.Together(all, rates)
}

// after are the observations that judge the plan, since an instant.
func (t *openTrial) after(c *Core, since int64) []trial.Obs {
	if len(t.sides) == 0 {
		return t.settled(c, c.jobs[t.subject()], since)
	}
	return t.together(func(s *side) []trial.Obs { return c.settledSide(t, s, since) })
}

func (c *Core) settledSide(t *openTrial, s *side, since int64) []trial.Obs {
	j := c.jobs[s.key]
	if j == nil || j.source != s.source {
		return nil
	}
	from := since + c.settle(t)
	switch {
	case s.take:
		from = since + c.cfg.SettleTakeNs
	case t.gaveMemoryTo(s.key):
		from = c.filledNs(t, j, since)
	}
	return j.readings(from, s.turnNs)
}

// donors judges those that something was taken from: lost names one whose rate fell
// below what its entitlement brings, proved is false while one has not been seen for
// long enough, or seems to fall below it, or the node is worse off for it by its own
// objective. That they keep the CPUs they are entitled to is looked at by harmed.
func (c *Core) donors(t *openTrial) (lost string, proved bool) {
	proved = true
	var sum, n float64
	worst, worstAfter, worse := math.Inf(1), math.Inf(1), (*side)(nil)
	takes, p := false, takeParams(runtime.KnobCPUWeight)
	for _, s := range t.sides {
		after := c.settledSide(t, s, t.appliedNs)
		if s.after = meanRate(after); s.rate > 0 && s.after > 0 {
			sum, n = sum+s.worth*s.after/s.rate, n+s.worth
			if level := s.level * s.after / s.rate; level > 0 {
				worst = min(worst, s.level)
				if level < worstAfter {
					worstAfter, worse = level, s
				}
			}
		}
		if !s.take {
			continue
		}
		takes = true
		if !s.result.Outcome.Keep() {
			due := make([]trial.Obs, len(s.before))
			for i, o := range s.before {
				o.Rate *= s.due
				due[i] = o
			}
			s.result = trial.Judge(p, due, after, s.look)
			s.look = s.result.Look
		}
		switch {
		case s.result.Outcome == trial.Inferior:
			return fmt.Sprintf("%s fell below what it is entitled to: %s", c.jobs[s.key].c.Name, s.result.Why), false
		case !s.result.Outcome.Keep() && (len(after) < p.MinAfter || s.result.Ratio < 1-p.Margin):
			proved = false
		}
	}
	switch { // by what it was made for
	case !proved || !t.earned || !takes || n == 0:
	case c.params().Objective == policies.ObjectiveMaxMin:
		if worse != nil && worstAfter < (1-p.Margin)*worst {
			return fmt.Sprintf("%s fell from %.3g to %.3g steps/s, and is worse off now than anybody was before", c.jobs[worse.key].c.Name, worse.rate, worse.after), false
		}
	case sum/n < 1:
		return fmt.Sprintf("together they lost %.1f %%", 100*(1-sum/n)), false
	}
	return "", proved
}

// learnSides corrects what is predicted of each container of a plan that was kept.
func (c *Core) learnSides(t *openTrial) {
	for _, s := range t.sides {
		if j := c.jobs[s.key]; j != nil && s.modelled {
			j.correction = correction.Correct(j.correction, s.predicted, s.after)
		}
	}
}

// blamed reports whether a container had a part in that a plan did not earn its place:
// one that was given something and gained by it clearly may be given it again alone.
func (t *openTrial) blamed(key string) bool {
	gained := 0
	blame := false
	for _, s := range t.sides {
		good := !s.take && s.rate > 0 && s.after > (1+clearGain/2)*s.rate
		if good {
			gained++
		}
		if s.key == key {
			blame = !good
		}
	}
	return blame || gained == len(t.sides) || len(t.sides) == 0
}

// abandon ends a trial whose container left it, and takes back all of the plan: no
// change stands without a judge (law 7). What has ended, was restored, or is somebody
// else's by now is left alone by the way back itself, which compares before it writes.
func (c *Core) abandon(t *openTrial, why string, d *Decision) {
	if t.appliedNs > 0 && t.phase != phaseBack {
		d.Rollback = append(d.Rollback, t.order)
	}
	c.end(t, view.OutcomeAborted, why, d)
}

// shown is the trial as one of its containers sees it.
func (t *openTrial) shown(key string) view.Trial {
	v := t.view
	for _, s := range t.sides {
		if s.key == key {
			v.Before, v.After, v.Predicted, v.Together = s.rate, s.after, s.predicted, len(t.sides)
			v.Changes = slices.DeleteFunc(slices.Clone(v.Changes), func(ch policies.Change) bool { return ch.Key != key })
		}
	}
	return v
}

// held reports whether somebody restored a container of a plan by hand.
func (c *Core) held(t *openTrial) bool {
	return slices.ContainsFunc(t.order.Changes, func(ch policies.Change) bool { return c.jobs[ch.Key] != nil && c.jobs[ch.Key].c.Held })
}
