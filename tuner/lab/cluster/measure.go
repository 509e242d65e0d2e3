package cluster

import (
	"fmt"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// ticksPerUnit makes a rate of a curve's 1.0: ten steps a second.
const ticksPerUnit = 10

// trainerShare of a step's CPU is the trainer's, the rest its loaders': tables do
// not tell them apart, and the sums that policies make do not either.
const trainerShare = 0.1

// measure is what trimtab's middle would make of a job in its present state, by
// the one-jump model: a step's CPU is what it has over its rate; its floor is
// the step with CPUs in plenty on its present memory. A floor that starving hides
// is not hidden here: trimtab reads it from device waits.
func (d *tuned) measure(now float64, s Server, r *Running, spare float64) policies.Job {
	h := d.held[r.ID]
	quota, memory := s.share(r.GPUs)
	rate := d.read(r.on(r.Have, r.MemoryGB) * ticksPerUnit)
	cost := d.cost(r)
	held := min(h.quota, r.want(r.MemoryGB))
	most := r.on(s.CPUs*float64(r.GPUs), r.MemoryGB)
	throttled := 1 - r.on(held, r.MemoryGB)/most
	contended := 1 - throttled - r.on(r.Have, r.MemoryGB)/most
	b := policies.Breakdown{WallNs: 1e9}
	b.Ns[policies.PartInputThrottled] = int64(1e9 * throttled)
	b.Ns[policies.PartInputContended] = int64(1e9 * max(0, contended))
	b.Ns[policies.PartCompute] = int64(1e9 * min(cost.TrainerCPU*rate, 1-throttled-max(0, contended)))
	b.Ns[policies.PartDevice] = b.WallNs - b.Ns[policies.PartInputThrottled] - b.Ns[policies.PartInputContended] - b.Ns[policies.PartCompute]
	stands := values(h.quota, h.memoryGB, h.weight)
	return policies.Job{
		Key: key(r.ID), Name: key(r.ID),
		Enrolment: policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"cpu", "memory"}, Importance: 5},
		Now:       stands, Original: values(quota, memory, ownWeight(r.Job)),
		Verdict: verdict(throttled, contended), Breakdown: b,
		Rate:   policies.Rate{PerSecond: rate, Source: "steps", Steps: true, Ticks: 100},
		Cost:   cost,
		CostOK: true, UsedCPUs: r.Have, Correction: h.correction,
		Settled: now >= h.changedS+d.times.Settled-1e-6, Entitlement: quota, Obtainable: max(quota, r.Have+spare),
		CPU: cost.Curve("steps", s.CPUs, 2*d.times.Noise), GPUs: float64(r.GPUs),
		Steady: true, Tried: h.tried,
	}
}

func (d *tuned) cost(r *Running) policies.Cost {
	cpu := d.read(r.Have / (r.on(r.Have, r.MemoryGB) * ticksPerUnit))
	floor := d.read(1 / (r.on(r.Curve.CPUs[len(r.Curve.CPUs)-1]*float64(r.GPUs), r.MemoryGB) * ticksPerUnit))
	trainer := min(trainerShare*cpu, floor/2)
	return policies.Cost{TrainerCPU: trainer, LoaderCPU: cpu - trainer, Device: floor - trainer, Ticks: 100}
}

func verdict(throttled, contended float64) policies.Verdict {
	v := policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseDevice, Severity: 1 - throttled - contended, Confidence: 1}
	if max(throttled, contended) < 0.05 {
		return v
	}
	v.Class, v.Cause, v.Severity = policies.ClassInput, policies.CauseThrottled, throttled
	if contended > throttled {
		v.Cause, v.Severity = policies.CauseContended, contended
	}
	return v
}

func values(cpus, memoryGB float64, weight int64) runtime.Values {
	return runtime.Values{
		runtime.KnobCPUQuota:    runtime.QuotaFromCPUs(cpus, runtime.DefaultPeriodUs),
		runtime.KnobMemoryLimit: runtime.IntValue(int64(memoryGB * 1e9)),
		runtime.KnobCPUWeight:   runtime.Value(fmt.Sprint(weight)),
	}
}
