package bottleneck

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

var node = policies.Node{CPUs: 8, Reserve: 0.8, MaxWeight: 262144}

// starved loses so much of its time to its quota.
func starved(cpus, lost float64) policies.Job {
	now := runtime.Values{runtime.KnobCPUQuota: runtime.QuotaFromCPUs(cpus, 100_000), runtime.KnobCPUWeight: "1024"}
	b := policies.Breakdown{WallNs: 1000}
	b.Ns[policies.PartInputThrottled] = int64(1000 * lost)
	b.Ns[policies.PartCompute] = 1000 - b.Ns[policies.PartInputThrottled]
	return policies.Job{Key: "a", Name: "a", Now: now, Original: now, Breakdown: b, Rate: policies.Rate{PerSecond: 10}, UsedCPUs: cpus, Steady: true, Entitlement: 1,
		Verdict: policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseThrottled, Confidence: 1}}
}

func propose(j policies.Job) []policies.Plan {
	return New(Defaults()).Propose(node, []policies.Job{j}).Plans
}

func only(t *testing.T, j policies.Job) policies.Change {
	t.Helper()
	plans := propose(j)
	if len(plans) != 1 || len(plans[0].Changes) != 1 || plans[0].Policy != Name {
		t.Fatalf("plans %+v, want one change", plans)
	}
	return plans[0].Changes[0]
}

func tried(knob runtime.Knob, from, to runtime.Value, kept bool, ratio float64) policies.Tried {
	return policies.Tried{Policy: Name, Knob: knob, From: from, To: to, Kept: kept, Ratio: ratio}
}

func TestGrowsWhatBoundsTheJob(t *testing.T) {
	ch := only(t, starved(0.5, 0.4))
	if to, _ := ch.To.CPUs(); ch.Knob != runtime.KnobCPUQuota || to != 0.75 || ch.Take {
		t.Errorf("%+v, want half as much again", ch)
	}
	if math.Abs(ch.Gain-0.5) > 1e-9 || math.Abs(ch.RateAfter-15) > 1e-9 {
		t.Errorf("predicts %+.2f, %.1f/s; it can gain no more than it is given", ch.Gain, ch.RateAfter)
	}
	if ch = only(t, starved(0.5, 0.2)); math.Abs(ch.Gain-0.25) > 1e-9 {
		t.Errorf("predicts %+.2f; it can gain no more than it lost", ch.Gain)
	}
}

func TestWaits(t *testing.T) {
	moving, unsure, unknown, enough, ceiling, foreign := starved(0.5, 0.4), starved(0.5, 0.4), starved(0.5, 0.4), starved(0.5, 0.04), starved(7.2, 0.4), starved(0.5, 0.4)
	moving.Steady = false
	unsure.Verdict.Confidence = 0.4
	unknown.Verdict.Class = policies.ClassUnknown
	foreign.Now = runtime.Values{runtime.KnobCPUQuota: "max 100000", runtime.KnobCPUWeight: "1024"}
	for name, j := range map[string]policies.Job{"not steady": moving, "not sure": unsure, "unknown": unknown, "nothing lost": enough, "at its ceiling": ceiling, "no quota": foreign} {
		if got := propose(j); len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestGoesOnWhileTheMarginalGainHolds(t *testing.T) {
	j := starved(0.75, 0.3)
	j.Original = runtime.Values{runtime.KnobCPUQuota: "50000 100000", runtime.KnobCPUWeight: "1024"}
	j.Tried = []policies.Tried{tried(runtime.KnobCPUQuota, "50000 100000", "75000 100000", true, 1.40)}
	if to, _ := only(t, j).To.CPUs(); to != 1.13 {
		t.Errorf("to %.2f CPUs, want another step", to)
	}
	j.Tried[0].Ratio = 1.08 // a sixth of what it was given
	if got := propose(j); len(got) != 0 {
		t.Errorf("goes on without gain: %+v", got)
	}
	j.Settled = true
	if ch := only(t, j); !ch.Take || ch.To != "50000 100000" {
		t.Errorf("%+v, want the step back", ch)
	}
	j.Tried = append([]policies.Tried{{Policy: Name, Knob: runtime.KnobCPUQuota, From: "75000 100000", To: "50000 100000", Take: true}}, j.Tried...)
	if got := propose(j); len(got) != 0 {
		t.Errorf("takes again what cost speed: %+v", got)
	}
}

func TestStepThatWasRefusedIsNotRepeated(t *testing.T) {
	j := starved(0.5, 0.4)
	j.Tried = []policies.Tried{tried(runtime.KnobCPUQuota, "50000 100000", "75000 100000", false, 1.01)}
	if got := propose(j); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	j.Tried[0].Policy = "knee"
	only(t, j) // another policy's failures are not its own
}

func TestGivesBackWhatIsNotUsed(t *testing.T) {
	j := starved(1.5, 0)
	j.Original = runtime.Values{runtime.KnobCPUQuota: "50000 100000", runtime.KnobCPUWeight: "1024"}
	j.UsedCPUs, j.Settled = 0.6, true
	if ch := only(t, j); !ch.Take || ch.To != "75000 100000" {
		t.Errorf("%+v, want 0.75 CPUs", ch)
	}
	j.Original = j.Now
	if got := propose(j); len(got) != 0 {
		t.Errorf("takes what the owner gave: %+v", got)
	}
}

func TestWeightWithinEntitlement(t *testing.T) {
	j := starved(0.5, 0)
	j.Now = runtime.Values{runtime.KnobCPUQuota: "max 100000", runtime.KnobCPUWeight: "1024"}
	j.Original, j.Verdict.Cause = j.Now, policies.CauseContended
	j.Breakdown.Ns[policies.PartInputContended], j.Breakdown.Ns[policies.PartCompute] = 400, 600
	if ch := only(t, j); ch.Knob != runtime.KnobCPUWeight || ch.To != "4096" {
		t.Errorf("%+v", ch)
	}
	j.UsedCPUs = 1.2
	if got := propose(j); len(got) != 0 {
		t.Errorf("takes what others are entitled to: %+v", got)
	}
}

func TestMemoryStepByStep(t *testing.T) {
	j := starved(1, 0)
	j.Enrolment.Knobs = []string{"cpu", "memory"}
	j.Now[runtime.KnobMemoryLimit] = runtime.IntValue(320 * mib)
	j.Original = j.Now
	j.Verdict = policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseCache, Severity: 0.5, Confidence: 1}
	j.MemoryUse = policies.MemoryUse{Read: true, Limit: 320 * mib, Held: 150 * mib}
	big := node
	big.Memory, big.MemoryFree = 64<<30, 20<<30
	step := func(j policies.Job) []policies.Plan { return New(Defaults()).Propose(big, []policies.Job{j}).Plans }
	plans := step(j)
	if len(plans) != 1 || plans[0].Changes[0].To != runtime.IntValue(480*mib) || plans[0].Changes[0].Gain != 1 {
		t.Fatalf("%+v, want 480 MiB and twice the rate", plans)
	}
	j.Enrolment.Knobs = []string{"cpu"}
	if got := step(j); len(got) != 0 {
		t.Errorf("%+v where memory is not allowed", got)
	}
	j.Enrolment.Knobs = []string{"memory"}
	j.Now, j.MemoryUse.Limit, j.Settled = j.Now.Clone(), 480*mib, true
	j.Now[runtime.KnobMemoryLimit] = runtime.IntValue(480 * mib)
	j.Tried = []policies.Tried{tried(runtime.KnobMemoryLimit, runtime.IntValue(320*mib), runtime.IntValue(480*mib), true, 1.04)}
	if got := step(j); len(got) != 1 || !got[0].Changes[0].Take || got[0].Changes[0].To != runtime.IntValue(320*mib) {
		t.Errorf("%+v, want the step back", got)
	}
	j.MemoryUse.Held = 300 * mib
	if got := step(j); len(got) != 0 {
		t.Errorf("%+v below what it holds", got)
	}
}

// TestClimbEnds: on any job of the one-jump model the climb ends, within one step
// of the knee, never below the owner's quota, and does not start again.
func TestClimbEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secs := rapid.Float64Range(0.001, 0.1)
		cost := policies.Cost{TrainerCPU: secs.Draw(t, "Ct"), LoaderCPU: secs.Draw(t, "Cl"), Device: secs.Draw(t, "D")}
		original := hundredths(rapid.Float64Range(0.1, 2).Draw(t, "quota"))
		j := starved(original, 0)
		quota, changes := original, 0
		for range 100 {
			step := cost.Step(quota)
			lost := 1 - cost.Floor()/step
			now := starved(quota, lost)
			now.Original, now.Tried, now.Settled = j.Original, j.Tried, true
			now.UsedCPUs = cost.CPU() / step
			now.Rate.PerSecond = 1 / step
			plans := propose(now)
			if len(plans) == 0 {
				// A last step to the ceiling of a few percent is not worth a trial.
				if quota < min(cost.Knee()/Defaults().Step, (node.CPUs-node.Reserve)/1.06)-0.02 && lost > 0.35 {
					t.Fatalf("ended at %.2f CPUs, the knee is %.2f, lost %.2f", quota, cost.Knee(), lost)
				}
				return
			}
			changes++
			ch := plans[0].Changes[0]
			to, _ := ch.To.CPUs()
			if to < original || to > node.CPUs-node.Reserve+1e-9 {
				t.Fatalf("%.2f CPUs: original %.2f", to, original)
			}
			ratio := step / cost.Step(to)
			kept := ratio >= 1.03 || ch.Take && ratio >= 0.98
			j.Tried = append([]policies.Tried{{Policy: Name, Knob: ch.Knob, From: ch.From, To: ch.To, Take: ch.Take, Kept: kept, Ratio: ratio}}, j.Tried...)
			if kept {
				quota = to
			}
		}
		t.Fatalf("%d changes, and no end", changes)
	})
}
