package core

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/view"
	"pgregory.net/rapid"
)

// world is what a core decides about: it ticks, and does what was decided.
type world interface {
	tick() Input
	apply(Decision) []Result
}

// run steps the core so many seconds and returns all records.
func run(c *Core, n world, seconds int, each func(i int, d Decision)) []view.Record {
	var records []view.Record
	var results []Result
	for i := range seconds {
		in := n.tick()
		in.Results = results
		d := c.Step(in)
		for _, o := range d.Apply { // nobody says which of the two would be written last
			for _, ch := range o.Changes {
				if slices.ContainsFunc(d.Rollback, func(r Order) bool {
					return slices.ContainsFunc(r.Changes, func(was policies.Change) bool { return was.Key == ch.Key && was.Knob == ch.Knob })
				}) {
					panic(fmt.Sprintf("tick %d: %s of %s is changed and taken back at once: %+v", i, ch.Knob, ch.Key, d))
				}
			}
		}
		results = n.apply(d)
		records = append(records, d.Records...)
		if each != nil {
			each(i, d)
		}
	}
	return records
}

func outcomes(records []view.Record) (out []view.Outcome) {
	for _, r := range records {
		if r.Kind == view.RecordTrial {
			out = append(out, r.Outcome)
		}
	}
	return out
}

func TestStarvedJobIsFoundFixedAndProved(t *testing.T) {
	n := newNode(4)
	j := n.addJob("train", 0.4, tune())
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	applied := -1
	records := run(c, n, 60, func(i int, d Decision) {
		if len(d.Apply) > 0 && applied < 0 {
			applied = i
		}
	})
	if applied < 0 || applied > 8 {
		t.Fatalf("applied at tick %d, want within 8 s; records %v", applied, records)
	}
	if got := outcomes(records); len(got) != 1 || got[0] != view.OutcomeKept {
		t.Fatalf("trials %v, want one kept; records %+v", got, records)
	}
	quota, _ := j.c.Now[runtime.KnobCPUQuota].CPUs()
	if quota < j.knee() || quota > 1.2*j.knee() {
		t.Errorf("granted %.2f CPUs for a knee of %.2f", quota, j.knee())
	}
	var trial view.Trial
	var s view.Snapshot
	c.Show(&s)
	trial = s.Containers[0].Trials[0]
	if miss := math.Abs(trial.After/trial.Predicted - 1); miss > 0.1 {
		t.Errorf("predicted %.2f, came %.2f: off by %.0f %%", trial.Predicted, trial.After, 100*miss)
	}
	if v := s.Containers[0]; !v.HasGain || v.Gain < 1 {
		t.Errorf("gain %v %.2f, want more than double", v.HasGain, v.Gain)
	}
	if first := records[0]; first.Kind != view.RecordVerdict {
		t.Errorf("first record %+v, want the verdict", first)
	}
}

func TestVerdictOfStarvedJob(t *testing.T) {
	n := newNode(4)
	n.addJob("train", 0.4, policies.Enrolment{Mode: policies.ModeObserve, Knobs: []string{"cpu"}, WhyNot: "observe"})
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	records := run(c, n, 20, nil)
	var s view.Snapshot
	c.Show(&s)
	v := s.Containers[0]
	if v.Verdict.Class != policies.ClassInput || v.Verdict.Cause != policies.CauseThrottled {
		t.Errorf("verdict %+v, want input throttled", v.Verdict)
	}
	var sum int64
	for _, ns := range v.Breakdown.Ns {
		sum += ns
	}
	if sum != v.Breakdown.WallNs {
		t.Errorf("parts sum to %d of %d ns", sum, v.Breakdown.WallNs)
	}
	would := 0
	for _, r := range records {
		if r.Kind == view.RecordWould {
			would++
		}
	}
	if would != 1 {
		t.Errorf("%d would-have records, want one: %+v", would, records)
	}
	if len(n.jobs[0].c.Original) != 0 {
		t.Error("observe mode wrote")
	}
}

func TestNoQuotaIsNeverImposed(t *testing.T) {
	n := newNode(2)
	n.addJob("train", 0, tune())
	n.addSpinner("noise", 2)
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	run(c, n, 120, func(i int, d Decision) {
		for _, o := range d.Apply {
			for _, ch := range o.Changes {
				if ch.Knob == runtime.KnobCPUQuota {
					t.Fatalf("tick %d imposes a quota: %+v", i, ch)
				}
			}
		}
	})
}

func TestFailedChangeWaits(t *testing.T) {
	n := newNode(4)
	j := n.addJob("train", 0.4, tune())
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	applies := 0
	cheap := j.loaderCPU
	run(c, n, 400, func(i int, d Decision) {
		applies += len(d.Apply)
		switch { // what the quota gives, dearer loaders eat
		case len(d.Apply) > 0:
			j.loaderCPU = 4 * cheap
		case len(d.Rollback) > 0:
			j.loaderCPU = cheap
		}
	})
	if j.c.Now[runtime.KnobCPUQuota] != "40000 100000" {
		t.Errorf("quota %s, want the original", j.c.Now[runtime.KnobCPUQuota])
	}
	if applies != 2 {
		t.Errorf("%d plans, want one that is excused, as the job does other work, and one that fails and then waits; quota %s", applies, j.c.Now[runtime.KnobCPUQuota])
	}
}

func TestContainerThatDiesInATrialEndsIt(t *testing.T) {
	n := newNode(4)
	n.addJob("train", 0.4, tune())
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	run(c, n, 60, func(i int, d Decision) {
		if len(d.Apply) > 0 {
			n.jobs = nil
		}
	})
	if len(c.trials) != 0 || len(c.jobs) != 0 {
		t.Errorf("%d trials and %d jobs outlive their container", len(c.trials), len(c.jobs))
	}
}

func TestNeighbourThatLosesItsDueRollsBack(t *testing.T) {
	n := newNode(1)
	n.addJob("train", 0.2, tune())
	other := n.addSpinner("noise", 0.6)
	// The neighbour's weight says it owns most of the machine; this node shares evenly.
	other.c.Now[runtime.KnobCPUWeight] = "9216"
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	records := run(c, n, 60, nil)
	for _, o := range outcomes(records) {
		if o == view.OutcomeKept {
			t.Fatalf("kept a gain that a neighbour paid for: %+v", records)
		}
	}
	if len(outcomes(records)) == 0 {
		t.Fatalf("no trial: %+v", records)
	}
}

// TestGuardHoldsOnRandomNodes: whatever the nodes, no plan goes below a floor or
// an original, above a ceiling or the node, on a knob that is not allowed, on a
// container that is not tuned, and never two trials at once on shared CPUs.
func TestGuardHoldsOnRandomNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNode(rapid.IntRange(1, 8).Draw(t, "cpus"))
		for i := range rapid.IntRange(1, 4).Draw(t, "jobs") {
			e := tune()
			e.Mode = rapid.SampledFrom([]policies.Mode{policies.ModeOff, policies.ModeObserve, policies.ModeTune, policies.ModeTune}).Draw(t, "mode")
			e.Knobs = rapid.SampledFrom([][]string{{"cpu"}, {"memory"}, nil}).Draw(t, "knobs")
			e.CPU.Max = rapid.SampledFrom([]float64{0, 0.5, 1, 3}).Draw(t, "max")
			j := n.addJob(fmt.Sprint("job", i), rapid.Float64Range(0.05, 3).Draw(t, "quota"), e)
			j.trainerCPU = rapid.Float64Range(0.001, 0.1).Draw(t, "Ct")
			j.loaderCPU = rapid.Float64Range(0.001, 0.4).Draw(t, "Cl")
			j.device = rapid.Float64Range(0.001, 0.1).Draw(t, "D")
		}
		if rapid.Bool().Draw(t, "spinner") {
			n.addSpinner("noise", rapid.Float64Range(0.1, 8).Draw(t, "spin"))
		}
		originals := map[string]float64{}
		for _, j := range n.jobs {
			originals[j.c.Key()], _ = j.c.Now[runtime.KnobCPUQuota].CPUs()
		}
		cfg := Defaults()
		cfg.ReserveCPUs = rapid.SampledFrom([]float64{0, 0.1, 0.5}).Draw(t, "reserve")
		c := New(cfg, knee.New(knee.Defaults()), "t")
		run(c, n, rapid.IntRange(10, 90).Draw(t, "seconds"), func(i int, d Decision) {
			if len(c.trials) > 1 {
				t.Fatalf("tick %d: %d trials at once", i, len(c.trials))
			}
			for _, o := range d.Apply {
				for _, ch := range o.Changes {
					check(t, c, n, originals, o, ch)
				}
			}
		})
	})
}

func check(t *rapid.T, c *Core, n *node, originals map[string]float64, o Order, ch policies.Change) {
	e := c.jobs[ch.Key].c.Enrolment
	if e.Mode == policies.ModeOff || e.Mode == policies.ModeObserve && !o.DryRun || !e.Allows(ch.Knob) {
		t.Fatalf("%+v is not allowed by %+v", ch, e)
	}
	if ch.Knob != runtime.KnobCPUQuota {
		return
	}
	to, ok := ch.To.CPUs()
	if !ok || to < originals[ch.Key]-1e-9 {
		t.Fatalf("%+v goes below the original %.2f", ch, originals[ch.Key])
	}
	if ceiling := max(originals[ch.Key], float64(n.cpus)-c.cfg.ReserveCPUs); to > ceiling+0.01 {
		t.Fatalf("%+v goes above the node's %.2f", ch, ceiling)
	}
	if e.CPU.Max > 0 && to > max(e.CPU.Max, originals[ch.Key])+0.01 {
		t.Fatalf("%+v goes above the owner's %.2f", ch, e.CPU.Max)
	}
}

// TestNeighboursThatMovedCallForABA: when others make room in the middle of a
// trial, the change is taken back and measured without before it may stay.
func TestNeighboursThatMovedCallForABA(t *testing.T) {
	n := newNode(2)
	j := n.addJob("train", 0.4, tune())
	other := n.addSpinner("noise", 1.2)
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	var quotas []string
	records := run(c, n, 90, func(i int, d Decision) {
		if len(d.Apply) > 0 {
			other.spin = 0.1
		}
		if q := string(j.c.Now[runtime.KnobCPUQuota]); len(quotas) == 0 || quotas[len(quotas)-1] != q {
			quotas = append(quotas, q)
		}
	})
	if got := outcomes(records); len(got) != 1 || got[0] != view.OutcomeKept {
		t.Fatalf("trials %v, want one kept: %+v", got, records)
	}
	if len(quotas) != 4 || quotas[0] != quotas[2] || quotas[1] != quotas[3] {
		t.Errorf("quotas %q, want A, B, A, B", quotas)
	}
}

// TestNeighboursPushedAsideMadeNoRoom: what the plan's own job takes from a neighbour is not
// the neighbour's doing, and needs no measurement without the plan.
func TestNeighboursPushedAsideMadeNoRoom(t *testing.T) {
	for _, psi := range []bool{true, false} {
		n := newNode(2)
		j := n.addJob("train", 0.4, tune())
		other := n.addSpinner("noise", 2)
		other.noPSI = !psi
		c := New(Defaults(), knee.New(knee.Defaults()), "t")
		back := 0
		records := run(c, n, 60, func(_ int, d Decision) { back += len(d.Rollback) })
		if quota, _ := j.c.Now[runtime.KnobCPUQuota].CPUs(); quota < 0.9 {
			t.Fatalf("PSI %v: a quota of %.2f: %+v", psi, quota, records)
		}
		if (back > 0) == psi {
			t.Errorf("PSI %v: taken back %d times to be measured without", psi, back)
		}
	}
}

// TestNeighboursThatMovedDoNotEarnAPlanItsPlace: a write that does nothing is
// not kept because the neighbour left.
func TestNeighboursThatMovedDoNotEarnAPlanItsPlace(t *testing.T) {
	n := newNode(2)
	j := n.addJob("train", 0.6, tune())
	other := n.addSpinner("noise", 1.7)
	other.c.Now[runtime.KnobCPUWeight] = "100" // entitled to little: what it loses is no harm
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	var results []Result
	var records []view.Record
	for range 120 {
		in := n.tick()
		in.Results = results
		d := c.Step(in)
		records = append(records, d.Records...)
		results = nil
		for _, o := range d.Apply {
			j.trainerCPU, other.spin = 0.010, 0 // the job's own luck, and the neighbour's leave
			results = append(results, Result{Kind: ResultApply, Plan: o.Plan, OK: true})
		}
		for _, o := range d.Rollback {
			results = append(results, Result{Kind: ResultRollback, Plan: o.Plan, OK: true})
		}
	}
	for _, o := range outcomes(records) {
		if o == view.OutcomeKept {
			t.Fatalf("kept on somebody else's account: %+v", records)
		}
	}
	if len(outcomes(records)) == 0 {
		t.Fatal("no trial")
	}
}

// TestSomebodyElsesKnobEndsATrialWithoutBlame: what a rate does after an owner's write
// is not the plan's doing. It goes back, and the next one does not wait.
func TestSomebodyElsesKnobEndsATrialWithoutBlame(t *testing.T) {
	n := newNode(4)
	j := n.addJob("train", 0.4, tune())
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	var applied []int
	wrote := 0
	records := run(c, n, 120, func(i int, d Decision) {
		if len(d.Apply) > 0 {
			applied = append(applied, i)
		}
		if len(applied) == 1 && i == applied[0]+2 {
			now := j.c.Now.Clone()
			now[runtime.KnobCPUWeight] = "2048"
			j.c.Now, wrote = now, i
		}
	})
	if got := outcomes(records); len(got) != 2 || got[0] != view.OutcomeAborted || got[1] != view.OutcomeKept {
		t.Errorf("outcomes %v, want aborted, then kept", got)
	}
	if len(applied) != 2 || applied[1]-wrote > 12 {
		t.Errorf("plans at %v s, the owner's write at %d s: the second waits", applied, wrote)
	}
	if j.c.Now[runtime.KnobCPUWeight] != "2048" {
		t.Errorf("weight %s, want the owner's", j.c.Now[runtime.KnobCPUWeight])
	}
}
