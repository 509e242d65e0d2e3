package knee

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

var eightCPUs = policies.Node{CPUs: 8, MaxWeight: 262144}

func policy() Policy { return New(policies.DefaultConstants()) }

// contended is an example without a quota: C_t = 20 ms, D = 20 ms, C_l = 40 ms, four
// loaders, so that c* = 1.5 and 25 steps/s are possible. It queues 40 % of its time.
func contended() policies.Job {
	cost := policies.Cost{TrainerCPU: 0.020, Device: 0.020, LoaderCPU: 0.040, Batch: 0.040, Loaders: 4, Ticks: 50}
	now := runtime.Values{runtime.KnobCPUQuota: "max 100000", runtime.KnobCPUWeight: "1024"}
	b := policies.Breakdown{WallNs: 100}
	b.Ns[policies.PartInputContended], b.Ns[policies.PartCompute] = 40, 60
	return policies.Job{Key: "a", Name: "a", May: true, Now: now, Original: now, Breakdown: b, Rate: policies.Rate{PerSecond: 1 / cost.Step(0.5)}, Cost: cost, CostOK: true,
		Correction: 1, CPU: policies.CPUUse{Entitlement: 2}, Verdict: policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseContended, Confidence: 1}}
}

func with(j policies.Job, edit func(*policies.Job)) policies.Job {
	j.Now, j.Original = j.Now.Clone(), j.Original.Clone()
	edit(&j)
	return j
}

// TestWeightWithinItsRight: a job that queues is moved before others only for what is its own.
func TestWeightWithinItsRight(t *testing.T) {
	for name, c := range map[string]struct {
		job policies.Job
		to  runtime.Value // "": nothing
	}{
		"needs less than its right":           {contended(), "4096"},
		"needs what others have a right to":   {with(contended(), func(j *policies.Job) { j.CPU.Entitlement = 1 }), ""},
		"its weight is worth less than that":  {with(contended(), func(j *policies.Job) { j.CPU.Entitlement, j.CPU.Obtainable = 1, 0.6 }), "1804"},
		"at sixteen times its owner's weight": {with(contended(), func(j *policies.Job) { j.Now[runtime.KnobCPUWeight] = "16384" }), ""},
		"at low confidence":                   {with(contended(), func(j *policies.Job) { j.Verdict.Confidence = 0.4 }), ""},
		"without a cost":                      {with(contended(), func(j *policies.Job) { j.CostOK = false }), ""},
		"without a rate":                      {with(contended(), func(j *policies.Job) { j.Rate = policies.Rate{} }), ""},
		"hardly queues":                       {with(contended(), func(j *policies.Job) { j.Breakdown.Ns[policies.PartInputContended] = 4 }), ""},
		"is stopped by its quota":             {with(contended(), func(j *policies.Job) { j.Verdict.Cause = policies.CauseThrottled }), ""},
		"nothing may be proposed of it":       {with(contended(), func(j *policies.Job) { j.May = false }), ""},
		"a class that is never acted on":      {with(contended(), func(j *policies.Job) { j.Verdict.Class = policies.ClassInteractive }), ""},
		"a trainer without loaders": {with(contended(), func(j *policies.Job) {
			j.Cost = policies.Cost{TrainerCPU: 0.060, Device: 0.010, Queue: 0.030, Ticks: 50}
			j.Rate.PerSecond, j.Verdict = 10, policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseHost, Confidence: 1}
			j.Breakdown.Ns[policies.PartInputContended], j.Breakdown.Ns[policies.PartContended] = 0, 30
		}), "4096"},
		"queues, and has all that is its own": {with(contended(), func(j *policies.Job) { j.CPU.Entitlement, j.CPU.Used = 1.5, 1.48 }), ""},
		"has all that it needs":               {with(contended(), func(j *policies.Job) { j.Rate.PerSecond = 25 }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			plans := policy().Propose(eightCPUs, []policies.Job{c.job}).Plans
			if c.to == "" {
				if len(plans) > 0 {
					t.Fatalf("%+v", plans)
				}
				return
			}
			if len(plans) != 1 || plans[0].Kind != policies.KindTrial {
				t.Fatalf("%+v, want one trial", plans)
			}
			if ch := plans[0].Changes[0]; ch.Knob != runtime.KnobCPUWeight || ch.To != c.to || ch.Take || ch.Gain < 0.05 {
				t.Errorf("%+v, want a weight of %s", ch, c.to)
			}
		})
	}
}

// TestPromisesNoMoreThanIsItsOwn: the prediction is made with what it can obtain.
func TestPromisesNoMoreThanIsItsOwn(t *testing.T) {
	j := with(contended(), func(j *policies.Job) { j.CPU.Entitlement, j.CPU.Obtainable = 1, 0.6 })
	ch := policy().Propose(eightCPUs, []policies.Job{j}).Plans[0].Changes[0]
	if want := 1 / j.Cost.Step(1); math.Abs(ch.RateAfter-want) > 1e-9 {
		t.Errorf("predicts %.2f/s of the one CPU that it has a right to, want %.2f", ch.RateAfter, want)
	}
}

// TestModelHolds: at the knee the step is as short as it gets, below it longer, and no
// prediction is below what the job has.
func TestModelHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secs := rapid.Float64Range(1e-4, 1)
		c := policies.Cost{TrainerCPU: secs.Draw(t, "Ct"), LoaderCPU: secs.Draw(t, "Cl"), OtherCPU: secs.Draw(t, "Co"), Device: secs.Draw(t, "D"),
			Batch: secs.Draw(t, "w"), Loaders: rapid.IntRange(0, 16).Draw(t, "W")}
		knee := c.Knee()
		if got := c.Step(knee * (1 + 1e-9)); math.Abs(got-c.Floor()) > 1e-9 {
			t.Fatalf("step %.6f at the knee, floor %.6f", got, c.Floor())
		}
		if c.Step(0.9*knee) <= c.Floor() {
			t.Fatalf("nothing is lost below the knee of %.3f", knee)
		}
		j := contended()
		j.Cost = c
		if got := predict(j, rapid.Float64Range(0.01, 10).Draw(t, "cpus")); got < j.Rate.PerSecond {
			t.Fatalf("predicts %.3f below the %.3f that it has", got, j.Rate.PerSecond)
		}
	})
}
