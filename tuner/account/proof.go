package account

import (
	"slices"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// Relieved are the causes that a verdict's relief would shorten, the first of them first; none
// where it names no relief. Time in them is actionable while the verdict stands.
func Relieved(v policies.Verdict) []Cause {
	causes := func(parts ...policies.Part) (out []Cause) {
		for _, p := range parts {
			out = append(out, Cause(p))
		}
		return out
	}
	if v.Relief == "" || strings.HasPrefix(v.Relief, "none") {
		return nil
	}
	switch v.Class {
	case policies.ClassMemory:
		return causes(policies.PartReclaim)
	case policies.ClassCommunication:
		return causes(policies.PartCommunication)
	}
	switch {
	case v.Cause == policies.CauseThrottled:
		return causes(policies.PartInputThrottled, policies.PartThrottled)
	case v.Cause == policies.CauseContended:
		return causes(policies.PartInputContended, policies.PartContended)
	case v.Cause == policies.CauseStorage || v.Cause == policies.CauseCache:
		return causes(policies.PartInputStorage)
	case v.Cause == policies.CauseRemote:
		return causes(policies.PartInputRemote)
	case v.Cause == policies.CauseWorkers:
		return causes(policies.PartInputWorkers, policies.PartInputOther)
	case v.Cause == policies.CauseHost && v.Relief == policies.ReliefQuota:
		return causes(policies.PartThrottled, policies.PartInputThrottled)
	case v.Cause == policies.CauseHost && (v.Relief == policies.ReliefWeight || v.Relief == policies.ReliefGrant):
		return causes(policies.PartContended, policies.PartInputContended)
	}
	return nil
}

// mainCause is what a change of a container is about.
func mainCause(v policies.Verdict) Cause {
	if all := Relieved(v); len(all) > 0 {
		return all[0]
	}
	return Unknown
}

// proof is a trial that was kept, and by how much it made a container faster at the least.
type proof struct {
	plan    string
	changes []setting
	low     float64 // bound of the rate after over before, above 1
	cause   Cause   // what bounded the container before
}

type setting struct {
	knob     runtime.Knob
	from, to runtime.Value
}

// maxProofs bounds what is remembered of a container.
const maxProofs = 16

// recallSteps is how many steps a container that was proved to be faster has to come back in.
const recallSteps = 600

// trialTime is an open trial of a container, ns in use since it began.
type trialTime struct {
	plan         string
	cause        Cause
	gpu, cpu     int64
	source       string  // of its own rate, "": not counted
	before, last float64 // its own rate as the trial began, and of late
}

// learn notes trials that were kept since the latest look.
func (m *meter) learn(c *state.Container) {
	if len(c.Trials) == 0 || c.Trials[0].Plan == m.latest {
		return
	}
	for i := len(c.Trials) - 1; i >= 0; i-- { // oldest first
		t := c.Trials[i]
		p := proof{plan: t.Plan, low: t.Low, cause: Unknown}
		if m.trial != nil && m.trial.plan == t.Plan {
			p.cause, p.low = m.trial.cause, m.trial.low(t)
		}
		for _, ch := range t.Changes {
			if !ch.Take {
				p.changes = append(p.changes, setting{ch.Knob, ch.From, ch.To})
			}
		}
		if t.Outcome == state.OutcomeKept {
			m.remember(p)
		}
	}
	m.latest = c.Trials[0].Plan
	m.trial = nil
}

// remember adds a proof, unless it is known or proves nothing.
func (m *meter) remember(p proof) {
	known := slices.ContainsFunc(m.proofs, func(o proof) bool { return o.plan == p.plan })
	if known || !(p.low > 1) || len(p.changes) == 0 {
		return
	}
	m.proofs = append(m.proofs, p)
	m.proofs = m.proofs[max(0, len(m.proofs)-maxProofs):]
}

// Recall takes a kept trial of an earlier daemon from its record; other records are left alone.
// It counts only while its change stands. What it was about is not known any more, nor, of a list
// of GPUs or CPUs, whether it gave or took.
func (b *Book) Recall(r state.Record) {
	if r.Knob == runtime.KnobGPU || r.Knob == runtime.KnobCpuset {
		return
	}
	if r.Kind != state.RecordTrial || r.Outcome != state.OutcomeKept || r.Key == "" || r.To.Quantity() < r.From.Quantity() {
		return
	}
	p := proof{plan: r.Plan, low: r.Low, cause: Unknown, changes: []setting{{r.Knob, r.From, r.To}}}
	m := b.meters[r.Key]
	switch {
	case !(p.low > 1) || m == nil && b.step > recallSteps:
		return
	case m == nil:
		b.recalled[r.Key] = append(b.recalled[r.Key], p)
	default: // before what was proved since
		m.proofs = slices.Insert(m.proofs, m.old, p)
		m.old++
	}
}

// faster is the product of the bounds of the proofs whose changes stand, and what the latest of
// them was about. A proof stands where its value does, or where a later one that stands began
// from it.
func (m *meter) faster(c *state.Container) (ratio float64, cause Cause) {
	ratio, cause = 1, Unknown
	if len(m.proofs) == 0 || len(c.Changed) == 0 {
		return ratio, cause
	}
	stands := map[runtime.Knob]runtime.Value{}
	for _, k := range c.Changed {
		stands[k] = c.Now[k]
	}
	for i := len(m.proofs) - 1; i >= 0; i-- {
		p := m.proofs[i]
		if !slices.ContainsFunc(p.changes, func(s setting) bool { v, ok := stands[s.knob]; return !ok || !s.within(v, c, v == c.Now[s.knob]) }) {
			if ratio == 1 {
				cause = p.cause
			}
			ratio *= p.low
			for _, s := range p.changes {
				stands[s.knob] = s.from
			}
		}
	}
	return ratio, cause
}

// freeShare is the share of a window for which a quota may stop a container that it does not bind.
const freeShare = 0.05

// within: the value stands, or more of what is lent on top of it. A quota that trimtab lowered
// since counts too while it does not bind: the container has all that it can use, as under the
// quota of the trial. That only the value in force can be asked, not one that a later proof began
// from: else two that overlap would both count.
func (s setting) within(stands runtime.Value, c *state.Container, inForce bool) bool {
	if s.knob.Same(s.to, stands) {
		return true
	}
	switch now := stands.Quantity(); s.knob {
	case runtime.KnobCPUQuota:
		b := c.Breakdown
		free := inForce && b.WallNs > 0 && b.Share(policies.PartThrottled)+b.Share(policies.PartInputThrottled) < freeShare
		return now > s.to.Quantity() || free && now > s.from.Quantity()
	case runtime.KnobMemoryLimit:
		return now > s.to.Quantity()
	}
	return false
}

// saved counts the time in use under proved changes: of so much the old rate would have been
// before/after, and so the rest of it is what the change was worth.
func (m *meter) saved(c *state.Container, out *Sums, gpu, cpu int64) {
	ratio, cause := m.faster(c)
	if ratio <= 1 || c.Trial != nil || c.Verdict.Class == policies.ClassIdle {
		return
	}
	worth := 1 - 1/ratio
	out.GPU[cause][Proven] += gpu
	out.GPU[cause][Saved] += times(gpu, worth)
	out.CPU[cause][Proven] += cpu
	out.CPU[cause][Saved] += times(cpu, worth)
}

// tried counts the time in a trial, once it was judged and not kept; what became later of a change that it left standing is the same to it.
func (m *meter) tried(c *state.Container, out *Sums, gpu, cpu int64) {
	if t := c.Trial; t != nil {
		if m.trial == nil || m.trial.plan != t.Plan {
			m.trial = &trialTime{plan: t.Plan, cause: mainCause(m.c.Verdict)}
			if m.c.RateWhy == "" {
				m.trial.source, m.trial.before = m.c.Rate.Source, m.c.Rate.PerSecond
			}
		}
		m.trial.gpu += gpu
		m.trial.cpu += cpu
		if c.RateWhy == "" && c.Rate.Source == m.trial.source {
			m.trial.last = c.Rate.PerSecond
		}
		return
	}
	if m.trial == nil {
		return
	}
	i := slices.IndexFunc(c.Trials, func(t state.Trial) bool { return t.Plan == m.trial.plan })
	if i < 0 {
		return
	}
	if t := c.Trials[i]; slices.Contains([]state.Outcome{state.OutcomeRolledBack, state.OutcomeInconclusive, state.OutcomeUnproven, state.OutcomeWithdrawn}, t.Outcome) {
		x, below := m.trial, m.trial.below(t)
		out.GPU[x.cause][Tried] += x.gpu
		out.GPU[x.cause][Lost] += times(x.gpu, below)
		out.CPU[x.cause][Tried] += x.cpu
		out.CPU[x.cause][Lost] += times(x.cpu, below)
	}
}

// low is the bound of a kept trial's ratio that this container is credited with. That of a plan
// which gave to several is of the mean of their ratios: of r each saves 1 - 1/r, whose mean is less
// than that of the mean ratio, and who gained nothing has saved nothing. So none is credited with
// more than its own ratio tells. The error of the mean is taken from each: errors of jobs are
// independent, so that of n together is 1/sqrt(n) of one's, and so is each one's part in that of the sum.
func (x *trialTime) low(t state.Trial) float64 {
	if t.Together <= 1 || x.source == "" || !(x.before > 0) || !(x.last > 0) || !(t.Ratio > 0) {
		return t.Low
	}
	return min(t.Low, x.last/x.before*t.Low/t.Ratio)
}

// below is by what share a container's rate in a trial was below that before: by the trial's own
// measure, which is of those that it gave to, or by the container's own rate. 0 where neither tells.
func (x *trialTime) below(t state.Trial) float64 {
	ratio := t.Ratio
	gives := slices.ContainsFunc(t.Changes, func(ch policies.Change) bool { return !ch.Take })
	switch {
	case t.Together > 0 && !gives:
		if ratio = 0; x.before > 0 && x.source != "" {
			ratio = x.last / x.before
		}
	case ratio <= 0 && t.Together == 0 && t.Before > 0:
		ratio = t.After / t.Before
	}
	if ratio <= 0 {
		return 0
	}
	return max(0, 1-ratio)
}
