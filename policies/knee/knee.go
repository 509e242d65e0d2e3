// Package knee is the default policy: it jumps to the CPU at which a job's step
// stops getting shorter, instead of climbing there. Where a quota stands it moves
// the quota; where work of others stands before the job's, it moves the weight.
// It changes nothing that the evidence does not call for.
package knee

import (
	"fmt"
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// Name is the policy's name in config and metrics.
const Name = "knee"

// Params tune the policy.
type Params struct {
	// Margin is granted above the predicted knee: a quota of the knee itself gave 94 % of
	// the rate [measured by the benchmark].
	Margin float64
	// Starved is the share of wall time lost to lack of quota from which on nothing is
	// granted above the knee: steps that are throttled so often are dearer, by 2 to 20 % of
	// their CPU time [measured by the demo], so that a c* read there holds a margin already.
	Starved float64
	// WaitKept is the part of its wait behind neighbours that so starved a job keeps once it
	// has quota: a trainer that was stopped queues anew, with its loaders and behind whoever
	// runs. Runs of the demo without a quota waited for half to two thirds of it [measured].
	WaitKept float64
	// MinGain is the least predicted gain worth a trial.
	MinGain float64
	// TakeAbove is how far above the target a quota must stand before some is taken back.
	TakeAbove float64
	// WeightStep multiplies the weight of a contended job, WeightMax bounds it over the original.
	WeightStep, WeightMax float64
	// MinConfidence is the least confidence of a verdict to act on.
	MinConfidence float64
	// Above multiplies what a job can obtain beside others: a quota there no longer binds,
	// and one beyond promises what the node does not have.
	Above float64
	// HideUnused is for how many seconds a job must have left a device alone before it is
	// hidden: an evaluation, a restart or a person who thinks is over by then. ShowFree is
	// for how many nobody must have used a hidden one before it is shown again: those that
	// it was hidden for may restart too. Both chosen, not measured.
	HideUnused, ShowFree float64
}

// Defaults returns the parameters to start from.
func Defaults() Params {
	return Params{Margin: 1.03, Starved: 0.3, WaitKept: 2.0 / 3, MinGain: 0.05, TakeAbove: 1.25, WeightStep: 4, WeightMax: 16, MinConfidence: 0.5, Above: 1.1, HideUnused: 600, ShowFree: 300}
}

// Policy implements policies.Policy.
type Policy struct{ p Params }

// New returns the policy.
func New(p Params) Policy { return Policy{p} }

// Name implements policies.Policy.
func (Policy) Name() string { return Name }

// Propose implements policies.Policy: one plan for each job that would gain.
func (k Policy) Propose(node policies.Node, jobs []policies.Job) policies.Proposal {
	var out policies.Proposal
	for _, j := range jobs {
		changes := k.one(node, j)
		if len(changes) > 0 {
			out.Plans = append(out.Plans, policies.Plan{Policy: Name, Changes: changes})
		} else if text := memoryAdvice(j); text != "" {
			out.Advice = append(out.Advice, policies.Advice{Key: j.Key, Text: text})
		}
		if j.Verdict.Cause == policies.CauseWorkers || j.Verdict.Cause == policies.CauseStorage || j.Verdict.Cause == policies.CauseRemote {
			out.Advice = append(out.Advice, policies.Advice{Key: j.Key, Text: j.Verdict.Relief})
		}
		if text := k.lowAdvice(node, j); text != "" {
			out.Advice = append(out.Advice, policies.Advice{Key: j.Key, Text: text})
		}
		sight, text := k.sight(j)
		if sight != nil {
			out.Sights = append(out.Sights, *sight)
		} else if text != "" {
			out.Advice = append(out.Advice, policies.Advice{Key: j.Key, Text: text})
		}
	}
	return out
}

// one is the first change, in this order, that a job would gain by: what keeps it
// alive, what its cause calls for, and last what it does not need. More CPU and more
// memory go together.
func (k Policy) one(node policies.Node, j policies.Job) []policies.Change {
	if changes := k.protect(node, j); len(changes) > 0 || j.Urgent {
		return changes
	}
	if j.Verdict.Confidence < k.p.MinConfidence || neverActs(j.Verdict.Class) {
		return nil
	}
	memory, cpu := k.cache(node, j), k.cpu(node, j)
	allowed := len(cpu) > 0 && j.Enrolment.Allows(cpu[0].Knob)
	if allowed && !cpu[0].Take && cpu[0].Knob != runtime.KnobCPUBurst {
		if len(memory) == 0 {
			memory = k.dearer(node, j)
		}
		return append(cpu, memory...) // one jump: what is read again costs CPU as well
	}
	if len(memory) > 0 {
		return memory
	}
	if allowed {
		return cpu
	}
	for _, propose := range []func(policies.Node, policies.Job) []policies.Change{k.evicted, k.low, k.io, k.nearby, k.spare} {
		if changes := propose(node, j); len(changes) > 0 {
			return changes
		}
	}
	return cpu // the guard says why it may not be
}

// cpu moves the quota where one stands, and else the weight.
func (k Policy) cpu(node policies.Node, j policies.Job) []policies.Change {
	if !j.CostOK {
		return nil
	}
	if _, limited := j.Now[runtime.KnobCPUQuota].CPUs(); limited {
		if changes := k.quota(node, j); len(changes) > 0 {
			return changes
		}
		if changes := k.burst(j); len(changes) > 0 {
			return changes
		}
	}
	return k.weight(node, j)
}

// neverActs: classes that DESIGN.md's table never acts on, whatever the numbers say.
// A balanced job may still hold more than it needs, of what trimtab gave.
func neverActs(c policies.Class) bool {
	return c == policies.ClassIdle || c == policies.ClassInteractive || c == policies.ClassUnknown
}

// lost is the share of wall time that lack of quota costs the job.
func lost(b policies.Breakdown) float64 {
	return b.Share(policies.PartThrottled) + b.Share(policies.PartInputThrottled)
}

// quota jumps to the knee, up if the job is short of quota, down if trimtab
// gave more than the knee needs.
func (k Policy) quota(node policies.Node, j policies.Job) []policies.Change {
	now, _ := j.Now[runtime.KnobCPUQuota].CPUs()
	_, period, err := runtime.ParseQuota(j.Now[runtime.KnobCPUQuota])
	if err != nil {
		return nil
	}
	ceiling := node.CPUs - node.Reserve
	if j.Enrolment.CPU.Max > 0 {
		ceiling = min(ceiling, j.Enrolment.CPU.Max)
	}
	margin, peak := k.p.Margin, j.Peak
	if lost(j.Breakdown) >= k.p.Starved {
		all := j.Cost.Knee()
		margin, j.Cost.Queue = 1, j.Cost.Queue*k.p.WaitKept
		peak *= j.Cost.Knee() / all
	}
	step, knee := max(j.Cost.Floor(), shared(node, j)), j.Cost.Knee()
	if knee <= obtainable(j) {
		knee = j.Cost.CPU() / step // no more than it can use at the rate that the others let it reach
	}
	busy := peak > knee
	knee = max(knee, peak)
	target := roundUp(min(knee*margin, ceiling, obtainable(j)*k.p.Above))
	change := policies.Change{Key: j.Key, Name: j.Name, Knob: runtime.KnobCPUQuota, From: j.Now[runtime.KnobCPUQuota]}
	change.RateAfter = max(j.Rate.PerSecond, min(predict(j, target), j.Correction/step))
	if busy && len(j.Needs) > 0 {
		change.RateAfter = j.Rate.PerSecond * max(1, inTurns(j.Needs, min(target, obtainable(j)))/inTurns(j.Needs, now))
	}
	change.Gain = change.RateAfter/j.Rate.PerSecond - 1
	switch {
	case target > now && lost(j.Breakdown) >= 0.05 && change.Gain >= k.p.MinGain:
		change.Reason = fmt.Sprintf("one step costs %.0f ms of CPU and cannot be shorter than %.0f ms: %.2f CPUs are where more buy nothing; it has %.2f",
			1e3*j.Cost.CPU(), 1e3*step, knee, now)
		if busy {
			change.Reason = fmt.Sprintf("it needs %.2f CPUs in its busiest seconds and has %.2f; in the mean it would need %.2f", knee, now, j.Cost.Knee())
		}
		if obtainable(j) < knee {
			change.Reason += fmt.Sprintf(", and can obtain %.2f beside what others use", j.Obtainable)
		}
	case now > k.p.TakeAbove*target && j.Settled:
		original, limited := j.Original[runtime.KnobCPUQuota].CPUs()
		if !limited || now <= original {
			return nil // only what trimtab gave is taken back (law 5)
		}
		target = max(target, original)
		change.Take, change.Gain, change.RateAfter = true, 0, j.Rate.PerSecond
		change.Reason = fmt.Sprintf("%.2f CPUs are where more buy nothing; it has %.2f, of which trimtab gave %.2f", knee, now, now-original)
	default:
		return nil
	}
	change.To = runtime.QuotaFromCPUs(target, period)
	return []policies.Change{change}
}

// obtainable is j.Obtainable; 0 there means that nobody is in its way.
func obtainable(j policies.Job) float64 {
	if j.Obtainable > 0 {
		return j.Obtainable
	}
	return math.Inf(1)
}

// predict is the job's rate with a quota of so many CPUs: the model's, on no more
// than it can obtain, never less than what it has.
func predict(j policies.Job, cpus float64) float64 {
	step := j.Cost.Step(min(cpus, obtainable(j)))
	if step <= 0 || j.Rate.PerSecond <= 0 {
		return 0
	}
	return max(j.Rate.PerSecond, j.Correction/step)
}

// inTurns is the rate, as a share of that with CPUs in plenty, of a job that needs so many
// by each of equally long windows: in each it runs at what it has of what it needs. That its
// shortest step is the same in all of them is assumed.
func inTurns(needs []float64, cpus float64) float64 {
	var sum float64
	for _, need := range needs {
		sum += min(1, cpus/need)
	}
	return sum / float64(max(1, len(needs)))
}

// shared is seconds per tick of a trainer that shares the CPUs it can obtain with its
// own loaders and helpers, with quota in plenty; 0 where there is room for all of them.
// While it wants a CPU, ℓ = (C_l+C_o)/step of theirs want one as well, and 1+ℓ threads on
// A < 1+ℓ CPUs run at A/(1+ℓ) of their speed: the step is the root of
//
//	step = C_t·(1+ℓ)/A + D + Q
//
// While the job starves it hardly shows. On two CPUs beside one busy process six free
// runs of the demo's job took 15 to 23 ms a step more than C_t+D+Q, of 149 to 230 ms; this
// says 14 to 23 [measured].
func shared(node policies.Node, j policies.Job) float64 {
	c, can := j.Cost, min(obtainable(j), node.CPUs)
	helpers := c.LoaderCPU + c.OtherCPU
	if can <= 0 || helpers <= 0 {
		return 0
	}
	half := (c.TrainerCPU/can + c.Device + c.Queue) / 2
	step := half + math.Sqrt(half*half+c.TrainerCPU*helpers/can)
	if 1+helpers/step <= can {
		return 0
	}
	return max(step, c.CPU()/can)
}

// shortOf is the part of its entitlement that its weight is worth at the most where a job
// that needs more than that is raised to it: its floor is above its weight's fair share.
const shortOf = 0.95

// weight moves a job before the work of others, where that takes nothing they
// have a right to: its need lies within its own entitlement, or its weight is worth less
// than that. How far, the guard says.
func (k Policy) weight(node policies.Node, j policies.Job) []policies.Change {
	b := j.Breakdown
	contended := b.Share(policies.PartContended) + b.Share(policies.PartInputContended)
	short := obtainable(j) <= shortOf*j.Entitlement
	now, ok := j.Now[runtime.KnobCPUWeight].Int()
	original, okOriginal := j.Original[runtime.KnobCPUWeight].Int()
	if !ok || !okOriginal || contended < 0.05 || !causeIsContention(j) || need(j) > j.Entitlement && !short {
		return nil
	}
	to := math.Round(min(float64(now)*k.p.WeightStep, float64(original)*k.p.WeightMax, node.MaxWeight))
	raised := j
	if short {
		raised.Obtainable = j.Entitlement
	}
	may := min(need(j), j.Entitlement)
	after := predict(raised, may)
	change := policies.Change{Key: j.Key, Name: j.Name, Knob: runtime.KnobCPUWeight, From: j.Now[runtime.KnobCPUWeight], To: runtime.IntValue(int64(to)),
		Gain: after/j.Rate.PerSecond - 1, RateAfter: after,
		Reason: fmt.Sprintf("it queues %.0f %% of its time behind other work, and needs %.2f of the %.2f CPUs it is entitled to", 100*contended, may, j.Entitlement)}
	if int64(to) <= now || change.Gain < k.p.MinGain {
		return nil
	}
	return []policies.Change{change}
}

// need is the CPUs that the job could use as things stand: its knee, or the
// quota that stands below it.
func need(j policies.Job) float64 {
	if quota, limited := j.Now[runtime.KnobCPUQuota].CPUs(); limited {
		return min(j.Cost.Knee(), quota)
	}
	return j.Cost.Knee()
}

func causeIsContention(j policies.Job) bool {
	return j.Verdict.Cause == policies.CauseContended || j.Verdict.Cause == policies.CauseHost
}

// roundUp rounds CPUs up to a hundredth, systemd's granularity.
func roundUp(cpus float64) float64 { return math.Ceil(cpus*100-1e-9) / 100 }
