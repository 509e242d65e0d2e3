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
	contended := max(0, 1-throttled-r.on(r.Have, r.MemoryGB)/most)
	evicted := min(1-throttled-contended, 1-r.on(r.Have, r.MemoryGB)/r.on(r.Have, s.MemoryGB*float64(r.GPUs)))
	b := policies.Breakdown{WallNs: 1e9}
	b.Ns[policies.PartInputThrottled] = int64(1e9 * throttled)
	b.Ns[policies.PartInputContended] = int64(1e9 * contended)
	b.Ns[policies.PartInputStorage] = int64(1e9 * evicted)
	b.Ns[policies.PartCompute] = int64(1e9 * min(cost.TrainerCPU*rate, 1-throttled-contended-evicted))
	b.Ns[policies.PartDevice] = b.WallNs
	for part := range policies.NumParts {
		if part != policies.PartDevice {
			b.Ns[policies.PartDevice] -= b.Ns[part]
		}
	}
	stands := values(h.quota, h.memoryGB, h.weight)
	return policies.Job{
		Key: key(r.ID), Name: key(r.ID),
		Enrolment: policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"cpu", "memory"}, Importance: 5},
		Now:       stands, Original: values(quota, memory, ownWeight(r.Job)),
		Verdict: verdict(throttled, contended, evicted), Breakdown: b, MemoryUse: memoryUse(r, h),
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

// epochS is how often what does not fit is read again. Tables do not tell; a raise of a
// limit as large as these goes by the bounds of one raise, whatever it is.
const epochS = 60

// memoryUse: all of a limit is used, by page cache down to the least that the table has,
// and what is missing of it is read again in each epoch.
func memoryUse(r *Running, h *held) policies.MemoryUse {
	n := float64(r.GPUs)
	again := max(0, n*r.Curve.Cached()-r.MemoryGB) * 1e9 / epochS
	return policies.MemoryUse{Read: true, Current: r.MemoryGB * 1e9, Held: min(r.MemoryGB, n*r.Curve.MemoryGB[0]) * 1e9, Limit: h.memoryGB * 1e9, Reread: again, DiskRead: again}
}

func verdict(throttled, contended, evicted float64) policies.Verdict {
	worst := max(throttled, contended, evicted)
	v := policies.Verdict{Class: policies.ClassInput, Severity: worst, Confidence: 1}
	switch {
	case worst < 0.05:
		v.Class, v.Cause, v.Severity = policies.ClassCompute, policies.CauseDevice, 1-throttled-contended-evicted
	case contended == worst:
		v.Cause = policies.CauseContended
	case throttled == worst:
		v.Cause = policies.CauseThrottled
	default:
		v.Cause = policies.CauseCache
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
