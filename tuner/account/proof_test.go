package account

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// kept is a trial that raised the quota, and made it at least low times as fast.
func kept(plan string, from, to runtime.Value, low float64) state.Trial {
	return state.Trial{Plan: plan, Outcome: state.OutcomeKept, Ratio: low + 0.3, Low: low,
		Changes: []policies.Change{{Knob: runtime.KnobCPUQuota, From: from, To: to}}}
}

// stand sets the quota that stands, of an owner's of 2 CPUs.
func (h *host) stand(v runtime.Value) {
	h.c.Original = runtime.Values{runtime.KnobCPUQuota: "200000 100000"}
	h.c.Now = runtime.Values{runtime.KnobCPUQuota: v}
	h.c.Changed = nil
	if v != "200000 100000" {
		h.c.Changed = []runtime.Knob{runtime.KnobCPUQuota}
	}
}

// Before a trial that at the least doubles the rate: nothing. After it half of the time in use is
// saved: of 10 s of the device 5, of 15 CPU seconds 7.5. A second proof multiplies: 1 − 1/(2 × 1.25).
func TestSaved(t *testing.T) {
	h := newHost()
	h.c.Verdict = throttled
	h.run(10)
	h.stand("300000 100000")
	h.c.Trial = &state.Trial{Plan: "p1"}
	h.run(5)
	h.c.Trial = nil
	h.c.Trials = []state.Trial{kept("p1", "200000 100000", "300000 100000", 2)}
	h.run(10)
	about := Cause(policies.PartInputThrottled)
	saved := func(step string, gpu, cpu int64) {
		t.Helper()
		if got := h.sums(); got.GPU[about][Saved] != gpu || got.CPU[about][Saved] != cpu || got.GPU.Sum(Saved) != gpu {
			t.Errorf("%s: saved %d and %d ms, want %d and %d", step, got.GPU[about][Saved], got.CPU[about][Saved], gpu, cpu)
		}
	}
	saved("proved", 5000, 7500)
	if got := h.sums(); got.GPU[about][Proven] != 10_000 || got.GPU[about][Tried] != 0 {
		t.Errorf("proven %d ms, in trials that were taken back %d", got.GPU[about][Proven], got.GPU[about][Tried])
	}
	h.stand("350000 100000") // lent on top of it
	h.run(10)
	saved("more", 10_000, 15_000)
	h.c.Trials = append([]state.Trial{kept("p2", "300000 100000", "400000 100000", 1.25)}, h.c.Trials...)
	h.stand("400000 100000")
	h.run(10)
	if got := h.sums().GPU.Sum(Saved); got != 16_000 {
		t.Errorf("two proofs: %d ms, want 10000 + 6000", got)
	}
	h.stand("300000 100000") // the second was taken back
	h.run(10)
	if got := h.sums().GPU.Sum(Saved); got != 21_000 {
		t.Errorf("the first alone: %d ms, want 16000 + 5000", got)
	}
	h.stand("250000 100000") // trimtab lowered it to what the job can use
	h.run(10)
	if got := h.sums().GPU.Sum(Saved); got != 21_000 {
		t.Errorf("lower, and nothing tells that it is enough: %d ms, want no more than 21000", got)
	}
	h.c.Breakdown = policies.Breakdown{WallNs: 100}
	h.c.Breakdown.Ns[policies.PartThrottled] = 4
	h.run(10)
	if got := h.sums().GPU.Sum(Saved); got != 26_000 {
		t.Errorf("lower, and it does not bind: %d ms, want 21000 + 5000", got)
	}
	h.c.Breakdown.Ns[policies.PartThrottled] = 5
	h.run(10)
	if got := h.sums().GPU.Sum(Saved); got != 26_000 {
		t.Errorf("lower, and it binds: %d ms, want no more than 26000", got)
	}
	h.stand("300000 100000")
	h.idle = 1
	h.run(10)
	if got := h.sums().GPU.Sum(Saved); got != 26_000 {
		t.Errorf("an idle device: %d ms, want no more than 26000", got)
	}
	h.idle = 0
	h.stand("200000 100000") // restored
	h.run(10)
	if got := h.sums().GPU.Sum(Saved); got != 26_000 {
		t.Errorf("restored: %d ms, want no more than 26000", got)
	}
}

// 2 to 4 CPUs were proved, of which 1 was called in, and then 3 to 5: what the first gave beyond 3
// is in the second, so that alone counts. That the quota does not bind today tells nothing of 3 CPUs.
func TestProofsThatOverlapDoNotMultiply(t *testing.T) {
	h := newHost()
	h.stand("500000 100000")
	h.c.Trials = []state.Trial{kept("p2", "300000 100000", "500000 100000", 1.25), kept("p1", "200000 100000", "400000 100000", 1.5)}
	h.c.Breakdown = policies.Breakdown{WallNs: 100}
	h.run(10)
	if got := h.sums().GPU.Sum(Saved); got != 2000 {
		t.Errorf("saved %d ms, want 2000: 10 s × (1 − 1/1.25)", got)
	}
}

func TestWhatProvesNothing(t *testing.T) {
	take := kept("take", "200000 100000", "300000 100000", 2)
	take.Changes[0].Take = true
	for name, trial := range map[string]state.Trial{
		"no bound":      kept("x", "200000 100000", "300000 100000", 0),
		"bound below 1": kept("x", "200000 100000", "300000 100000", 0.97),
		"unproven":      {Plan: "x", Outcome: state.OutcomeUnproven, Low: 2, Changes: take.Changes},
		"it was taken":  take,
		"another value": kept("x", "200000 100000", "900000 100000", 2),
	} {
		h := newHost()
		h.stand("300000 100000")
		h.c.Trials = []state.Trial{trial}
		h.run(10)
		if got := h.sums().GPU.Sum(Saved); got != 0 {
			t.Errorf("%s: %d ms saved", name, got)
		}
	}
}

// A plan made two jobs 1.4 times as fast in the mean, 1.25 times at the least; each ran 10 s since.
// One that counts its own steps is credited with no more than they tell.
func TestSavedByAPlanOfSeveral(t *testing.T) {
	for name, tc := range map[string]struct {
		together int
		rate     float64 // its own, in the trial, of 10 before
		saved    int64
	}{
		"a plan of its own":    {0, 11, 2000},
		"as fast as the mean":  {2, 14, 2000},
		"faster than the mean": {2, 20, 2000},
		"less than the mean":   {2, 12.8, 1250}, // 1.28 x 1.25 / 1.4 = 1 / 0.875
		"nothing gained":       {2, 10, 0},
		"slower":               {2, 8, 0},
		"steps not counted":    {2, 0, 2000},
	} {
		h := newHost()
		h.c.Verdict = throttled
		if tc.rate > 0 {
			h.c.Rate = policies.Rate{PerSecond: 10, Source: "steps"}
		}
		h.stand("300000 100000")
		h.run(1)
		of := kept("p", "200000 100000", "300000 100000", 1.25)
		of.Ratio, of.Together = 1.4, tc.together
		h.c.Trial, h.c.Rate.PerSecond = &state.Trial{Plan: "p", Together: tc.together}, tc.rate
		h.run(5)
		h.c.Trial, h.c.Trials = nil, []state.Trial{of}
		h.run(10)
		if got := h.sums().GPU.Sum(Saved); got != tc.saved {
			t.Errorf("%s: %d ms are saved, want %d", name, got, tc.saved)
		}
	}
}

// What was kept before a restart counts while it stands, told by its record.
func TestRecall(t *testing.T) {
	rec := state.Record{Kind: state.RecordTrial, Outcome: state.OutcomeKept, Key: "docker-a", Plan: "old-1", Knob: runtime.KnobCPUQuota, From: "200000 100000", To: "300000 100000", Low: 2}
	taken := rec
	taken.From, taken.To = rec.To, rec.From
	for name, late := range map[string]bool{"before it is seen": false, "while it runs": true} {
		h := &host{b: NewBook(), now: noon}
		if late {
			h = newHost()
		}
		h.b.Recall(rec)
		h.b.Recall(taken)
		if !late {
			b := h.b
			h = newHost()
			h.b = b
			h.tick(0)
		}
		h.stand("300000 100000")
		h.run(10)
		if got := h.sums().GPU[Unknown][Saved]; got != 5000 {
			t.Errorf("%s: %d ms saved, want 5000", name, got)
		}
	}
}

// Lists of CPUs and GPUs have no more and less, so that a take cannot be told from a gift.
func TestRecallOfLists(t *testing.T) {
	for _, knob := range []runtime.Knob{runtime.KnobCpuset, runtime.KnobGPU} {
		h := newHost()
		h.b.Recall(state.Record{Kind: state.RecordTrial, Outcome: state.OutcomeKept, Key: "docker-a", Plan: "old-1", Knob: knob, From: "4-7", To: "0-1", Low: 2})
		h.c.Now, h.c.Changed = runtime.Values{knob: "0-1"}, []runtime.Knob{knob}
		h.run(10)
		if got := h.sums().GPU.Sum(Saved); got != 0 {
			t.Errorf("%s: %d ms saved", knob, got)
		}
	}
}
