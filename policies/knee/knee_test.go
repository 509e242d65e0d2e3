package knee

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// starved is DESIGN.md's example: C_t = 20 ms, D = 20 ms, C_l = 40 ms, four
// loaders; c* = 1.5, and 25 steps/s there.
func starved(quota float64) policies.Job {
	cost := policies.Cost{TrainerCPU: 0.020, Device: 0.020, LoaderCPU: 0.040, Batch: 0.040, Loaders: 4, Ticks: 50}
	rate := 1 / cost.Step(quota)
	now := runtime.Values{runtime.KnobCPUQuota: runtime.QuotaFromCPUs(quota, 100_000), runtime.KnobCPUWeight: "1024"}
	b := policies.Breakdown{WallNs: 100}
	b.Ns[policies.PartInputThrottled] = 40
	b.Ns[policies.PartCompute] = 60
	return policies.Job{Key: "a", Name: "a", Now: now, Original: now, Breakdown: b, Rate: policies.Rate{PerSecond: rate}, Cost: cost, CostOK: true,
		Correction: 1, Entitlement: 1, Verdict: policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseThrottled, Confidence: 1}}
}

var eightCPUs = policies.Node{CPUs: 8, MaxWeight: 262144}

func only(t *testing.T, p policies.Proposal) policies.Change {
	t.Helper()
	if len(p.Plans) != 1 || len(p.Plans[0].Changes) != 1 {
		t.Fatalf("proposal %+v, want one change", p)
	}
	return p.Plans[0].Changes[0]
}

func TestJumpsToTheKnee(t *testing.T) {
	ch := only(t, New(Defaults()).Propose(eightCPUs, []policies.Job{starved(0.5)}))
	to, _ := ch.To.CPUs()
	if want := 1.5; math.Abs(to-want) > 0.011 {
		t.Errorf("to %.3f CPUs, want %.3f", to, want)
	}
	if math.Abs(ch.RateAfter-25) > 1e-9 || math.Abs(ch.Gain-2) > 1e-9 {
		t.Errorf("predicts %.2f/s, %+.2f; want 25/s and three times the rate", ch.RateAfter, ch.Gain)
	}
}

// TestMarginAboveTheKnee: a job that hardly waits for its quota shows what a step costs as it
// is, and gets a margin on it.
func TestMarginAboveTheKnee(t *testing.T) {
	j := starved(1.2)
	j.Breakdown = policies.Breakdown{WallNs: 100}
	j.Breakdown.Ns[policies.PartInputThrottled], j.Breakdown.Ns[policies.PartCompute] = 20, 80
	to, _ := only(t, New(Defaults()).Propose(eightCPUs, []policies.Job{j})).To.CPUs()
	if want := 1.5 * Defaults().Margin; math.Abs(to-want) > 0.011 {
		t.Errorf("to %.3f CPUs, want %.3f", to, want)
	}
}

// TestAStarvedJobWaitsForLessWithQuota: of what neighbours keep a starved trainer waiting it
// is granted, and promised, a step with two thirds of it; of what is hardly starved, with all.
func TestAStarvedJobWaitsForLessWithQuota(t *testing.T) {
	for _, tc := range []struct{ throttled, wait float64 }{{0.5, 0.010}, {0.2, 0.015}} {
		j := starved(0.5)
		j.Cost.Queue = 0.015
		wall := float64(j.Breakdown.WallNs)
		j.Breakdown.Ns[policies.PartThrottled], j.Breakdown.Ns[policies.PartInputThrottled] = int64(tc.throttled*wall), 0
		ch := only(t, New(Defaults()).Propose(eightCPUs, []policies.Job{j}))
		step, margin := j.Cost.TrainerCPU+j.Cost.Device+tc.wait, 1.03
		if tc.throttled > 0.3 {
			margin = 1
		}
		if to, _ := ch.To.CPUs(); math.Abs(to-margin*j.Cost.CPU()/step) > 0.011 {
			t.Errorf("%.0f %% lost: to %.3f CPUs, want %.3f", 100*tc.throttled, to, margin*j.Cost.CPU()/step)
		}
		if math.Abs(ch.RateAfter-1/step) > 1e-9 {
			t.Errorf("%.0f %% lost: predicts %.2f/s, want %.2f", 100*tc.throttled, ch.RateAfter, 1/step)
		}
	}
}

// TestTurnsArePredictedByTurns: what a job that is busy half of its time gains is what its
// busy half does; with a quota above the mean's knee it gains what it lacks there.
func TestTurnsArePredictedByTurns(t *testing.T) {
	for _, tc := range []struct{ now, gain float64 }{
		{0.5, 1/((0.5/1.5+1)/2) - 1},
		{1.2, 1/((1.2/1.5+1)/2) - 1},
	} {
		j := starved(tc.now)
		j.Cost.LoaderCPU /= 2
		j.Peak, j.Needs = 1.5, []float64{1.5, 0.4, 1.5, 0.4}
		ch := only(t, New(Defaults()).Propose(eightCPUs, []policies.Job{j}))
		if to, _ := ch.To.CPUs(); math.Abs(to-1.5) > 0.011 || math.Abs(ch.Gain-tc.gain) > 1e-9 || math.Abs(ch.RateAfter-(1+tc.gain)*j.Rate.PerSecond) > 1e-9 {
			t.Errorf("from %.1f: %+v, want 1.5 CPUs and a gain of %.3f", tc.now, ch, tc.gain)
		}
	}
}

// TestPromisesNoMoreThanTheNodeHas: beside neighbours that leave it one CPU the
// job gets a quota that does not bind there, and is predicted what one CPU buys.
func TestPromisesNoMoreThanTheNodeHas(t *testing.T) {
	j := starved(0.5)
	j.Obtainable = 1
	ch := only(t, New(Defaults()).Propose(eightCPUs, []policies.Job{j}))
	if to, _ := ch.To.CPUs(); math.Abs(to-1.1) > 1e-9 {
		t.Errorf("to %.3f CPUs, want 1.1", to)
	}
	if want := 1 / j.Cost.Step(1); ch.RateAfter > want || ch.RateAfter < 0.99*want {
		t.Errorf("predicts %.2f/s, want %.2f/s", ch.RateAfter, want)
	}
}

// TestSharesWithItsOwnLoaders: where others leave less than the trainer and its loaders
// want at once, a step is longer than its own length; with room it is not.
func TestSharesWithItsOwnLoaders(t *testing.T) {
	alone := 1 / starved(0.5).Cost.Floor()
	for _, c := range []struct{ obtainable, want float64 }{{1.5, 0.886}, {1.65, 0.923}, {1.9, 0.980}, {2.5, 1}, {0, 1}} {
		j := starved(0.5)
		j.Obtainable = c.obtainable
		if got := only(t, New(Defaults()).Propose(eightCPUs, []policies.Job{j})).RateAfter / alone; math.Abs(got-c.want) > 0.001 {
			t.Errorf("obtains %.2f CPUs of a knee of 1.5: predicts %.3f of the rate alone, want %.3f", c.obtainable, got, c.want)
		}
	}
}

// TestSharedStepsAsMeasured holds the formula against free runs of the demo's job beside
// one busy process on two CPUs: its cost as trimtab read it, and the steps that it printed.
func TestSharedStepsAsMeasured(t *testing.T) {
	for _, c := range []struct{ trainer, loaders, wait, queue, step float64 }{
		{40.0, 110.9, 112.6, 15.9, 191.5}, {27.7, 102.6, 115.8, 9.3, 172.8}, {30.9, 130.7, 168.3, 15.6, 230.1},
		{28.6, 107.5, 164.6, 13.7, 221.9}, {30.2, 103.9, 91.7, 10.3, 155.8}, {27.4, 96.5, 91.8, 9.3, 148.8}, // ms
	} {
		j := policies.Job{Cost: policies.Cost{TrainerCPU: c.trainer, LoaderCPU: c.loaders, Device: c.wait, Queue: c.queue}, Obtainable: 1}
		if got := shared(policies.Node{CPUs: 2}, j); math.Abs(got/c.step-1) > 0.03 {
			t.Errorf("%+v: %.1f ms, off by %+.1f %%", c, got, 100*(got/c.step-1))
		}
		j.Obtainable = 0
		if got := shared(policies.Node{CPUs: 2}, j); got != 0 {
			t.Errorf("%+v: with both CPUs for itself %.1f ms, want nothing to say", c, got)
		}
	}
}

func TestLeavesAlone(t *testing.T) {
	unlimited := starved(0.5)
	unlimited.Now = runtime.Values{runtime.KnobCPUQuota: "max 100000", runtime.KnobCPUWeight: "1024"}
	unsure := starved(0.5)
	unsure.Verdict.Confidence = 0.4
	thin := starved(0.5)
	thin.CostOK = false
	enough := starved(1.7)
	enough.Breakdown = policies.Breakdown{WallNs: 100}
	for name, j := range map[string]policies.Job{"without a quota": unlimited, "at low confidence": unsure, "without a cost": thin, "with enough": enough} {
		if got := New(Defaults()).Propose(eightCPUs, []policies.Job{j}).Plans; len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestTakesBackOnlyWhatTrimtabGave(t *testing.T) {
	j := starved(4)
	j.Breakdown = policies.Breakdown{WallNs: 100}
	j.Settled = true
	if got := New(Defaults()).Propose(eightCPUs, []policies.Job{j}).Plans; len(got) != 0 {
		t.Errorf("takes what the owner gave: %+v", got)
	}
	j.Original = runtime.Values{runtime.KnobCPUQuota: "50000 100000", runtime.KnobCPUWeight: "1024"}
	ch := only(t, New(Defaults()).Propose(eightCPUs, []policies.Job{j}))
	if to, _ := ch.To.CPUs(); !ch.Take || to < 1.5 || to > 1.7 {
		t.Errorf("%+v, want a take to the knee", ch)
	}
	j.Settled = false
	if got := New(Defaults()).Propose(eightCPUs, []policies.Job{j}).Plans; len(got) != 0 {
		t.Errorf("takes before the job has settled: %+v", got)
	}
}

func contended() policies.Job {
	j := starved(0.5)
	j.Now = runtime.Values{runtime.KnobCPUQuota: "max 100000", runtime.KnobCPUWeight: "1024"}
	j.Original = j.Now
	j.Verdict.Cause = policies.CauseContended
	j.Breakdown = policies.Breakdown{WallNs: 100}
	j.Breakdown.Ns[policies.PartInputContended] = 40
	j.Entitlement = 2
	return j
}

func TestContendedJobGetsWeightWithinItsEntitlement(t *testing.T) {
	ch := only(t, New(Defaults()).Propose(eightCPUs, []policies.Job{contended()}))
	if ch.Knob != runtime.KnobCPUWeight || ch.To != "4096" {
		t.Errorf("%+v", ch)
	}
	greedy := contended()
	greedy.Entitlement = 1 // it needs 1.5
	if got := New(Defaults()).Propose(eightCPUs, []policies.Job{greedy}).Plans; len(got) != 0 {
		t.Errorf("takes what neighbours are entitled to: %+v", got)
	}
	most := contended()
	most.Now = runtime.Values{runtime.KnobCPUQuota: "max 100000", runtime.KnobCPUWeight: "16384"}
	if got := New(Defaults()).Propose(eightCPUs, []policies.Job{most}).Plans; len(got) != 0 {
		t.Errorf("climbs without end: %+v", got)
	}
}

// TestModelHolds: at the knee the step is as short as it gets, below it longer,
// and no prediction is below what the job has.
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
		j := starved(0.5)
		j.Cost = c
		if got := predict(j, rapid.Float64Range(0.01, 10).Draw(t, "cpus")); got < j.Rate.PerSecond {
			t.Fatalf("predicts %.3f below the %.3f that it has", got, j.Rate.PerSecond)
		}
	})
}
