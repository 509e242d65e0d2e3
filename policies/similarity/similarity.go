// Package similarity gives a new job its first CPU allocation from the known jobs
// most like it, before its own measurement is good; then another policy takes over,
// knee by default. What the known jobs needed is a proposal like any other: bounded
// by the guard, tried, and taken back if the job does not run faster for it.
//
// It moves the quota and the memory limit, and only up: what a job may lose, and how it
// stands with its neighbours, is for its own measurement to say.
package similarity

import (
	"fmt"
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// Name is the policy's name in config and metrics.
const Name = "similarity"

// Params tune the policy.
type Params struct {
	// Margin is granted above what the known jobs needed, and Above above what the job can
	// obtain beside others, as knee grants them.
	Margin, Above float64
	// MinGain is the least predicted gain worth a trial.
	MinGain float64
	// MinLost is the least share of its time that the job itself must be seen to lose for want
	// of quota: likeness alone moves nothing.
	MinLost float64
	// MinConfidence is the least confidence in the known jobs to act on: a distance of 0.15
	// with all attributes compared.
	MinConfidence float64
	// FreeShare of the host's free memory is the most that a first raise takes.
	FreeShare float64
}

// Defaults returns the parameters to start from.
func Defaults() Params {
	return Params{Margin: 1.03, Above: 1.1, MinGain: 0.05, MinLost: 0.05, MinConfidence: 0.5, FreeShare: 0.5}
}

// Policy implements policies.EarlyPolicy.
type Policy struct {
	p    Params
	then policies.Policy
}

// New returns the policy; then decides on jobs that are measured themselves.
func New(p Params, then policies.Policy) Policy { return Policy{p, then} }

// Name implements policies.Policy.
func (Policy) Name() string { return Name }

// EarlyConfidence implements policies.EarlyPolicy.
func (s Policy) EarlyConfidence() float64 { return s.p.MinConfidence }

// Propose implements policies.Policy.
func (s Policy) Propose(node policies.Node, jobs []policies.Job) policies.Proposal {
	own := make([]policies.Job, 0, len(jobs))
	var early []policies.Plan
	for _, j := range jobs {
		if !j.Early {
			own = append(own, j)
			continue
		}
		var changes []policies.Change
		for _, propose := range []func(policies.Node, policies.Job) (policies.Change, bool){s.first, s.room} {
			if ch, ok := propose(node, j); ok {
				changes = append(changes, ch)
			}
		}
		if len(changes) > 0 {
			early = append(early, policies.Plan{Policy: Name, Changes: changes})
		}
	}
	out := s.then.Propose(node, own)
	out.Plans = append(early, out.Plans...)
	return out
}

// room is a job's first memory limit: what was enough for jobs like it, where it reads again
// itself what its limit evicts.
func (s Policy) room(node policies.Node, j policies.Job) (policies.Change, bool) {
	like, m, set := j.Similar, j.MemoryUse, j.Paging.Set
	if like == nil || like.Confidence < s.p.MinConfidence || !j.Paging.Enough || !(m.Limit > 0) || set <= m.Limit || !m.Read || !m.Rereads() ||
		j.Rate.PerSecond <= 0 || !j.Enrolment.Allows(runtime.KnobMemoryLimit) {
		return policies.Change{}, false
	}
	to := int64(min(policies.WithRoom(set), m.Limit+s.p.FreeShare*max(0, node.MemoryFree), node.Ceiling(j.Enrolment, m))) >> 20 << 20 // whole MiB
	gain := j.Memory.Gain(m.Limit, float64(to))
	ch := policies.Change{Key: j.Key, Name: j.Name, Knob: runtime.KnobMemoryLimit, From: j.Now[runtime.KnobMemoryLimit], To: runtime.IntValue(to),
		Gain: gain, RateAfter: j.Rate.PerSecond * (1 + gain)}
	if float64(to) <= m.Limit || gain < s.p.MinGain {
		return policies.Change{}, false
	}
	ch.Reason = fmt.Sprintf("from %s, nearest %s at a distance of %.2f: %.0f MiB were enough for them; it reads %.1f MiB/s again that its limit of %.0f MiB evicted",
		jobsText(like.Jobs), like.Name, like.Distance, set/(1<<20), m.Reread/(1<<20), m.Limit/(1<<20))
	return ch, true
}

// first is a job's first allocation of CPUs.
func (s Policy) first(node policies.Node, j policies.Job) (policies.Change, bool) {
	like := j.Similar
	now, limited := j.Now[runtime.KnobCPUQuota].CPUs()
	if like == nil || like.Confidence < s.p.MinConfidence || !limited || j.Rate.PerSecond <= 0 || !shortOfQuota(j, s.p.MinLost) {
		return policies.Change{}, false
	}
	_, period, err := runtime.ParseQuota(j.Now[runtime.KnobCPUQuota])
	if err != nil {
		return policies.Change{}, false
	}
	ceiling := node.CPUs - node.Reserve
	if j.Enrolment.CPU.Max > 0 {
		ceiling = min(ceiling, j.Enrolment.CPU.Max)
	}
	if j.Obtainable > 0 {
		ceiling = min(ceiling, j.Obtainable*s.p.Above)
	}
	target := math.Ceil(min(like.Knee*s.p.Margin, ceiling)*100-1e-9) / 100 // systemd's granularity
	after := predict(j, *like, now, target)
	ch := policies.Change{Key: j.Key, Name: j.Name, Knob: runtime.KnobCPUQuota, From: j.Now[runtime.KnobCPUQuota], To: runtime.QuotaFromCPUs(target, period),
		RateAfter: after, Gain: after/j.Rate.PerSecond - 1}
	if target <= now || ch.Gain < s.p.MinGain {
		return policies.Change{}, false
	}
	ch.Reason = fmt.Sprintf("from %s, nearest %s at a distance of %.2f: more than %.2f CPUs bought them nothing; it has %.2f and loses %.0f %% of its time for want of quota",
		jobsText(like.Jobs), like.Name, like.Distance, like.Knee, now, 100*lost(j.Breakdown))
	return ch, true
}

func jobsText(n int) string {
	if n == 1 {
		return "1 similar job"
	}
	return fmt.Sprintf("%d similar jobs", n)
}

// lost is the share of wall time that lack of quota costs the job.
func lost(b policies.Breakdown) float64 {
	return b.Share(policies.PartThrottled) + b.Share(policies.PartInputThrottled)
}

// shortOfQuota holds the job's own evidence against the likeness: it is out of
// quota now, whatever others needed.
func shortOfQuota(j policies.Job, least float64) bool {
	switch j.Verdict.Class {
	case policies.ClassInput, policies.ClassCompute:
		return lost(j.Breakdown) >= least
	}
	return false
}

// predict scales the job's own rate by what the known job's curve says of the two
// allowances: the likeness is in the shape, the level is the job's own.
func predict(j policies.Job, like policies.Similar, now, target float64) float64 {
	if j.Obtainable > 0 {
		target = min(target, j.Obtainable)
	}
	before, after := like.Cost.Step(now), like.Cost.Step(target)
	if before <= 0 || after <= 0 {
		return 0
	}
	correction := like.Correction
	if correction <= 0 {
		correction = 1
	}
	return max(j.Rate.PerSecond, j.Rate.PerSecond*before/after*correction)
}
