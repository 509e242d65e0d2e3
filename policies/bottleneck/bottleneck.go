// Package bottleneck is the loop of the first paper (NEARCHUS, Tariq et al., NOMS
// 2024) in our own words: wait until a job's use and speed stand still, find what
// bounds it, grow that resource by one step, go on while the step's marginal gain
// holds, and give back what does not pay. It climbs where policies/knee jumps: it
// needs no model of a step's cost, and takes a trial for each step instead.
//
// It keeps no state. What it remembers of earlier steps are the trials that the
// core hands in with each job (policies.Tried).
package bottleneck

import (
	"fmt"
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// Name is the policy's name in config and metrics.
const Name = "bottleneck"

// Params tune the policy.
type Params struct {
	// Step multiplies the resource that bounds the job. The paper adds a fixed unit; half
	// as much again keeps the number of trials small, each of which takes half a minute.
	Step float64
	// Lost is the share of wall time lost to a resource from which on it is a bottleneck.
	Lost float64
	// Marginal is the least gain in rate per gain in resource for which growth goes on:
	// 1 is a job that speeds up as much as it is given.
	Marginal float64
	// Spare is how far above its use a grown quota must stand before some of it goes back.
	Spare float64
	// WeightMax bounds the weight over the original.
	WeightMax float64
	// MinConfidence is the least confidence of a verdict to act on.
	MinConfidence float64
}

// Defaults returns the parameters to start from.
func Defaults() Params {
	return Params{Step: 1.5, Lost: 0.05, Marginal: 0.25, Spare: 1.5, WeightMax: 16, MinConfidence: 0.5}
}

// Policy implements policies.Policy.
type Policy struct{ p Params }

// New returns the policy.
func New(p Params) Policy { return Policy{p} }

// Name implements policies.Policy.
func (Policy) Name() string { return Name }

// Propose implements policies.Policy: at most one step of one resource for each job.
func (b Policy) Propose(node policies.Node, jobs []policies.Job) policies.Proposal {
	var out policies.Proposal
	for _, j := range jobs {
		if !j.Steady || j.Rate.PerSecond <= 0 || j.Verdict.Confidence < b.p.MinConfidence || neverActs(j.Verdict.Class) {
			continue
		}
		if ch, ok := b.step(node, j); ok {
			out.Plans = append(out.Plans, policies.Plan{Policy: Name, Changes: []policies.Change{ch}})
		}
	}
	return out
}

// neverActs: classes that DESIGN.md's table never acts on.
func neverActs(c policies.Class) bool {
	return c == policies.ClassIdle || c == policies.ClassInteractive || c == policies.ClassUnknown
}

// step is the next thing to do for a job: grow what bounds it, else give back.
func (b Policy) step(node policies.Node, j policies.Job) (policies.Change, bool) {
	if ch, ok := b.memory(node, j); ok {
		return ch, true
	}
	if _, limited := j.Now[runtime.KnobCPUQuota].CPUs(); limited {
		if ch, ok := b.growQuota(node, j); ok {
			return ch, true
		}
		if ch, ok := b.returnQuota(j); ok {
			return ch, true
		}
	}
	return b.growWeight(node, j)
}

// pays reports whether growing a knob on from what stands is worth another step:
// the latest step there was kept and gained enough for its size.
func (b Policy) pays(j policies.Job, knob runtime.Knob, stands float64) bool {
	t, ok := latest(j, knob)
	if !ok {
		return true
	}
	if !t.Kept {
		return number(t.From) != stands // refused here; elsewhere it is another question
	}
	return t.Take && number(t.To) != stands || !t.Take && b.marginal(t) >= b.p.Marginal
}

// marginal is the gain in rate that a kept step brought, per gain in resource.
func (b Policy) marginal(t policies.Tried) float64 {
	from, to := number(t.From), number(t.To)
	if from <= 0 || to <= from || t.Ratio <= 0 {
		return 0
	}
	return (t.Ratio - 1) / (to/from - 1)
}

// latest is the last step of this policy's on a knob that was judged.
func latest(j policies.Job, knob runtime.Knob) (policies.Tried, bool) {
	for _, t := range j.Tried {
		if t.Policy == Name && t.Knob == knob {
			return t, true
		}
	}
	return policies.Tried{}, false
}

// number is a knob's value as one number: CPUs of a quota, the number itself otherwise.
func number(v runtime.Value) float64 {
	if cpus, ok := v.CPUs(); ok {
		return cpus
	}
	n, _ := v.Int()
	return float64(n)
}

// lostQuota and lostQueue are what lack of quota, and work of others, cost the job.
func lostQuota(b policies.Breakdown) float64 {
	return b.Share(policies.PartThrottled) + b.Share(policies.PartInputThrottled)
}

func lostQueue(b policies.Breakdown) float64 {
	return b.Share(policies.PartContended) + b.Share(policies.PartInputContended)
}

// growQuota gives one step where lack of quota is the bottleneck.
func (b Policy) growQuota(node policies.Node, j policies.Job) (policies.Change, bool) {
	now, _ := j.Now[runtime.KnobCPUQuota].CPUs()
	lost := lostQuota(j.Breakdown)
	if lost < b.p.Lost || !b.pays(j, runtime.KnobCPUQuota, now) {
		return policies.Change{}, false
	}
	ceiling := node.CPUs - node.Reserve
	if j.Enrolment.CPU.Max > 0 {
		ceiling = min(ceiling, j.Enrolment.CPU.Max)
	}
	to := hundredths(min(now*b.p.Step, ceiling))
	if to <= now {
		return policies.Change{}, false
	}
	return b.quota(j, to, gain(lost, to/now), fmt.Sprintf("it is out of quota %.0f %% of its time; one step from %.2f CPUs", 100*lost, now))
}

// gain predicts a step's worth: what it was short of, at most as much as it is given more.
func gain(lost, times float64) float64 {
	return min(times-1, lost/max(1-lost, 0.05))
}

// returnQuota gives back what trimtab gave and does not pay: the last step, where it
// gained too little, or what stands far above the job's use.
func (b Policy) returnQuota(j policies.Job) (policies.Change, bool) {
	now, _ := j.Now[runtime.KnobCPUQuota].CPUs()
	original, limited := j.Original[runtime.KnobCPUQuota].CPUs()
	if !j.Settled || !limited || now <= original {
		return policies.Change{}, false
	}
	t, ok := latest(j, runtime.KnobCPUQuota)
	if ok && !t.Kept && t.Take && number(t.From) == now {
		return policies.Change{}, false // it was tried, and cost speed
	}
	to, why := 0.0, ""
	switch {
	case ok && t.Kept && !t.Take && number(t.To) == now && b.marginal(t) < b.p.Marginal:
		to, why = number(t.From), fmt.Sprintf("the step to %.2f CPUs brought %+.0f %%, too little for its size", now, 100*(t.Ratio-1))
	case j.UsedCPUs*b.p.Spare < now && lostQuota(j.Breakdown) < b.p.Lost:
		to, why = j.UsedCPUs*(1+b.p.Spare)/2, fmt.Sprintf("it uses %.2f of %.2f CPUs", j.UsedCPUs, now)
	default:
		return policies.Change{}, false
	}
	if to = hundredths(max(to, original)); to >= now {
		return policies.Change{}, false
	}
	ch, ok := b.quota(j, to, 0, why)
	ch.Take = true
	return ch, ok
}

func (b Policy) quota(j policies.Job, to, gain float64, why string) (policies.Change, bool) {
	_, period, err := runtime.ParseQuota(j.Now[runtime.KnobCPUQuota])
	if err != nil {
		return policies.Change{}, false
	}
	return policies.Change{Key: j.Key, Name: j.Name, Knob: runtime.KnobCPUQuota, From: j.Now[runtime.KnobCPUQuota], To: runtime.QuotaFromCPUs(to, period),
		Gain: gain, RateAfter: j.Rate.PerSecond * (1 + gain), Reason: why}, true
}

// weightStep: a weight is a share of what is contended, not an amount; it takes a
// larger step than a quota to move as much.
const weightStep = 4

// growWeight gives one step of weight where work of others is the bottleneck and the
// job uses less than it is entitled to.
func (b Policy) growWeight(node policies.Node, j policies.Job) (policies.Change, bool) {
	now, ok := j.Now[runtime.KnobCPUWeight].Int()
	original, okOriginal := j.Original[runtime.KnobCPUWeight].Int()
	lost := lostQueue(j.Breakdown)
	if !ok || !okOriginal || lost < b.p.Lost || j.UsedCPUs >= j.Entitlement || !b.pays(j, runtime.KnobCPUWeight, float64(now)) {
		return policies.Change{}, false
	}
	to := int64(math.Round(min(float64(now)*weightStep, float64(original)*b.p.WeightMax, node.MaxWeight)))
	if to <= now {
		return policies.Change{}, false
	}
	g := gain(lost, b.p.Step)
	return policies.Change{Key: j.Key, Name: j.Name, Knob: runtime.KnobCPUWeight, From: j.Now[runtime.KnobCPUWeight], To: runtime.IntValue(to),
		Gain: g, RateAfter: j.Rate.PerSecond * (1 + g),
		Reason: fmt.Sprintf("it queues %.0f %% of its time behind other work, and uses %.2f of the %.2f CPUs it is entitled to", 100*lost, j.UsedCPUs, j.Entitlement)}, true
}

// hundredths rounds CPUs up to what systemd can set.
func hundredths(cpus float64) float64 { return math.Ceil(cpus*100-1e-9) / 100 }
