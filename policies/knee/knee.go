// Package knee is the policy for what is scarce. A job that queues behind others is moved
// towards the CPUs that its step can use (its knee), within what it has a right to. One that its
// quota stops, on a machine where nothing is idle, is moved towards what others use beyond
// theirs. Both take from somebody, so they are tried, and kept only if proven.
package knee

import (
	"fmt"
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// Name is the policy's name in config and metrics.
const Name = "knee"

// Policy implements policies.Policy.
type Policy struct{ k *policies.Constants }

// New returns the policy.
func New(k *policies.Constants) Policy { return Policy{k} }

// Name implements policies.Policy.
func (Policy) Name() string { return Name }

// Propose implements policies.Policy.
func (p Policy) Propose(node policies.Node, jobs []policies.Job) policies.Proposal {
	var out policies.Proposal
	for _, j := range jobs {
		if !j.May || j.Urgent {
			continue
		}
		ch, ok := p.weight(node, j)
		if !ok {
			ch, ok = p.quota(node, j)
		}
		if ok {
			out.Plans = append(out.Plans, policies.Plan{Policy: Name, Changes: []policies.Change{ch}})
		}
		visibility, text := p.visibility(j)
		if visibility != nil {
			out.GPUVisibility = append(out.GPUVisibility, *visibility)
		}
		if text != "" {
			out.Advice = append(out.Advice, policies.Advice{Key: j.Key, Text: text})
		}
	}
	return out
}

// sure: the verdict is certain enough to act on, and of a class that is acted on at all.
func (p Policy) sure(v policies.Verdict) bool {
	switch v.Class {
	case policies.ClassIdle, policies.ClassInteractive, policies.ClassUnknown, "":
		return false
	}
	return v.Confidence >= p.k.MinConfidence
}

// weight moves a job before the work of others where that takes nothing they have a right to:
// what it needs lies within its own entitlement, or its weight is worth less than that.
func (p Policy) weight(node policies.Node, j policies.Job) (ch policies.Change, ok bool) {
	b := j.Breakdown
	contended := b.Share(policies.PartContended) + b.Share(policies.PartInputContended)
	contention := j.Verdict.Cause == policies.CauseContended || j.Verdict.Cause == policies.CauseHost
	short := j.CPU.Obtainable > 0 && j.CPU.Obtainable < j.CPU.Entitlement*(1-p.k.RightMargin)
	now, okNow := j.Now[runtime.KnobCPUWeight].Int()
	own, okOwn := j.Original[runtime.KnobCPUWeight].Int()
	j.Cost.Queue = 0 // what a weight is to end
	need := need(j)
	if p.k.InFull(j.CPU.Used, j.CPU.Entitlement) {
		return ch, false // it queues, and has all that is its own: a weight would take what is others'
	}
	if !okNow || !okOwn || !j.CostOK || !p.sure(j.Verdict) || !contention || contended < p.k.Notable || j.Rate.PerSecond <= 0 || need > j.CPU.Entitlement && !short {
		return ch, false
	}
	raised := j
	to := math.Round(min(float64(now)*p.k.WeightStep, float64(own)*p.k.WeightMax, node.MaxWeight))
	if short { // as far as what it is entitled to: more would be taken from what others are
		raised.CPU.Obtainable = j.CPU.Entitlement
		others := float64(now) * (node.CPUs/j.CPU.Obtainable - 1)
		if rest := node.CPUs - j.CPU.Entitlement; rest > 0 {
			to = min(to, math.Floor(others*j.CPU.Entitlement/rest))
		}
	}
	may := min(need, j.CPU.Entitlement)
	after := predict(raised, may)
	ch = policies.Change{Key: j.Key, Name: j.Name, Knob: runtime.KnobCPUWeight, From: j.Now[runtime.KnobCPUWeight], To: runtime.IntValue(int64(to)),
		Gain: after/j.Rate.PerSecond - 1, RateAfter: after,
		Reason: fmt.Sprintf("it queues %.0f %% of its time behind other work, and needs %.2f of the %.2f CPUs it is entitled to", 100*contended, may, j.CPU.Entitlement)}
	return ch, int64(to) > now && ch.Gain >= p.k.PlanMinGain
}

// quota raises what stops a job where there is nothing idle to be lent: by its weight it could
// have more than it may, of what others use beyond what they have a right to.
func (p Policy) quota(node policies.Node, j policies.Job) (ch policies.Change, ok bool) {
	now, limited := j.Now[runtime.KnobCPUQuota].CPUs()
	_, periodUs, err := runtime.ParseQuota(j.Now[runtime.KnobCPUQuota])
	ceiling := node.CPUs - node.Reserve
	if j.Enrolment.CPU.Max > 0 {
		ceiling = min(ceiling, j.Enrolment.CPU.Max)
	}
	if !limited || err != nil || !j.CPU.Throttled || j.Enrolment.Loans == policies.LoansOff || node.Idle-node.Reserve >= p.k.ActiveCPUs || ceiling <= now*(1+p.k.MinStep) {
		return ch, false
	}
	could := min(ceiling, j.CPU.Obtainable)
	if j.CostOK && j.CPU.Bursts == 0 { // else its means tell no knee
		ceiling = min(ceiling, max(j.Cost.Knee(), now)*(1+p.k.SettleMargin))
		could = min(could, j.Cost.Knee())
	}
	ch = policies.Change{Key: j.Key, Name: j.Name, Knob: runtime.KnobCPUQuota, From: j.Now[runtime.KnobCPUQuota], To: runtime.QuotaFromCPUs(ceiling, periodUs),
		Gain: could/now - 1, Reason: fmt.Sprintf("its quota of %.2f CPUs stops it for %.0f %% of the time that it wants a CPU; none is idle, and by its weight it could have %.2f", now, 100*j.CPU.Lost, could)}
	ch.RateAfter = j.Rate.PerSecond * (1 + ch.Gain)
	return ch, ch.Gain >= p.k.PlanMinGain
}

// predict is the job's rate on so many CPUs: the model's, on no more than it can obtain, never
// less than what it has.
func predict(j policies.Job, cpus float64) float64 {
	if j.CPU.Obtainable > 0 {
		cpus = min(cpus, j.CPU.Obtainable)
	}
	step := j.Cost.Step(cpus)
	if step <= 0 {
		return j.Rate.PerSecond
	}
	return max(j.Rate.PerSecond, j.Correction/step)
}

// need is the CPUs that the job could use as things stand: its knee, or the quota below it.
func need(j policies.Job) float64 {
	if quota, limited := j.Now[runtime.KnobCPUQuota].CPUs(); limited {
		return min(j.Cost.Knee(), quota)
	}
	return j.Cost.Knee()
}
