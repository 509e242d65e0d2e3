package similarity

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"pgregory.net/rapid"
)

// noThen proposes for whatever it is shown, so that a test sees what it was shown.
type noThen struct{}

func (noThen) Name() string { return "then" }

func (noThen) Propose(_ policies.Node, jobs []policies.Job) (out policies.Proposal) {
	for _, j := range jobs {
		out.Plans = append(out.Plans, policies.Plan{Policy: "then", Changes: []policies.Change{{Key: j.Key}}})
	}
	return out
}

// starved is a job in a quota of 0.3 CPUs, known to need 1.2.
func starved() policies.Job {
	b := policies.Breakdown{WallNs: 100}
	b.Ns[policies.PartInputThrottled], b.Ns[policies.PartCompute], b.Ns[policies.PartDevice] = 60, 20, 20
	cost := policies.Cost{TrainerCPU: 0.02, LoaderCPU: 0.052, Device: 0.04, Batch: 0.05, Loaders: 2, Ticks: 50}
	return policies.Job{
		Key: "a", Name: "a", Early: true, Enrolment: policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"cpu"}},
		Now:     runtime.Values{runtime.KnobCPUQuota: "30000 100000"},
		Verdict: policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseThrottled, Confidence: 0.8}, Breakdown: b,
		Rate:    policies.Rate{PerSecond: 4, Source: "torch.backward"},
		Similar: &policies.Similar{Name: "before", Jobs: 3, Distance: 0.05, Compared: 1, Confidence: 0.8, Knee: cost.Knee(), Cost: cost, Correction: 1},
	}
}

func propose(j policies.Job) policies.Proposal {
	return New(Defaults(), noThen{}).Propose(policies.Node{CPUs: 4, Reserve: 0.4}, []policies.Job{j})
}

func TestFirstAllocation(t *testing.T) {
	j := starved()
	got := propose(j)
	if len(got.Plans) != 1 || got.Plans[0].Policy != Name {
		t.Fatalf("%+v, want one plan of its own", got)
	}
	ch := got.Plans[0].Changes[0]
	if to, _ := ch.To.CPUs(); to < j.Similar.Knee || to > 1.05*j.Similar.Knee {
		t.Errorf("to %s for a knee of %.2f", ch.To, j.Similar.Knee)
	}
	if !strings.Contains(ch.Reason, "from 3 similar jobs, nearest before") {
		t.Errorf("reason %q", ch.Reason)
	}
	if ch.Gain < 2 || ch.Gain > 4 { // 0.3 CPUs of 1.2: the model says fourfold
		t.Errorf("gain %.2f", ch.Gain)
	}
}

// TestFirstMemory: a known job that reads again what its limit evicts is given what was enough
// for its like, with its quota in one plan; each of the edits takes the reason away.
func TestFirstMemory(t *testing.T) {
	node := policies.Node{CPUs: 4, Reserve: 0.4, Memory: 16 << 30, MemoryFree: 4 << 30}
	short := func() policies.Job {
		j := starved()
		j.Enrolment.Knobs = []string{"cpu", "memory"}
		j.Now[runtime.KnobMemoryLimit] = runtime.IntValue(320 << 20)
		j.MemoryUse = policies.MemoryUse{Read: true, Current: 320 << 20, Limit: 320 << 20, Reread: 10 << 20, DiskRead: 10 << 20}
		j.Paging = policies.Paging{Base: 0.05, Lost: 0.2, Limit: 320 << 20, Set: 700 << 20, Enough: true}
		j.Memory = policies.Curve{Points: []policies.Point{{X: 320 << 20, Rate: 4}, {X: 700 << 20, Rate: 20}}}
		return j
	}
	got := New(Defaults(), noThen{}).Propose(node, []policies.Job{short()})
	if len(got.Plans) != 1 || len(got.Plans[0].Changes) != 2 {
		t.Fatalf("%+v, want quota and memory in one plan", got)
	}
	ch := got.Plans[0].Changes[1]
	if to, _ := ch.To.Int(); to != 770<<20 || ch.Gain != 4 || !strings.Contains(ch.Reason, "700 MiB were enough for them") {
		t.Errorf("%+v, want 700 MiB and a tenth", ch)
	}
	for name, edit := range map[string]func(*policies.Job){
		"nobody is like it":     func(j *policies.Job) { j.Similar = nil },
		"memory is not allowed": func(j *policies.Job) { j.Enrolment.Knobs = []string{"cpu"} },
		"it reads nothing":      func(j *policies.Job) { j.MemoryUse.Reread = 0 },
		"first touches":         func(j *policies.Job) { j.MemoryUse.DiskRead = 1 << 30 },
		"a guess":               func(j *policies.Job) { j.Paging.Enough = false },
		"it has enough":         func(j *policies.Job) { j.Paging.Set = 300 << 20 },
		"its like gained none":  func(j *policies.Job) { j.Memory.Points[1].Rate = 4.1 },
		"no limit":              func(j *policies.Job) { j.MemoryUse.Limit = 0 },
		"its owner's ceiling":   func(j *policies.Job) { j.Enrolment.Memory.Max = 320 << 20 },
	} {
		j := short()
		edit(&j)
		for _, p := range New(Defaults(), noThen{}).Propose(node, []policies.Job{j}).Plans {
			for _, ch := range p.Changes {
				if ch.Knob == runtime.KnobMemoryLimit {
					t.Errorf("%s: %+v", name, ch)
				}
			}
		}
	}
}

// TestLikenessAloneMovesNothing: each of these takes the reason away, or leaves the
// job to its own measurement.
func TestLikenessAloneMovesNothing(t *testing.T) {
	for name, edit := range map[string]func(*policies.Job){
		"nobody is like it":         func(j *policies.Job) { j.Similar = nil },
		"hardly like":               func(j *policies.Job) { j.Similar.Confidence = 0.4 },
		"no quota":                  func(j *policies.Job) { j.Now[runtime.KnobCPUQuota] = "max 100000" },
		"no time lost":              func(j *policies.Job) { j.Breakdown.Ns[policies.PartInputThrottled] = 0 },
		"has what they needed":      func(j *policies.Job) { j.Now[runtime.KnobCPUQuota] = "200000 100000" },
		"idle":                      func(j *policies.Job) { j.Verdict.Class = policies.ClassIdle },
		"unknown":                   func(j *policies.Job) { j.Verdict.Class = policies.ClassUnknown },
		"no rate":                   func(j *policies.Job) { j.Rate.PerSecond = 0 },
		"the node has no more":      func(j *policies.Job) { j.Obtainable = 0.27 },
		"its owner's ceiling holds": func(j *policies.Job) { j.Enrolment.CPU.Max = 0.3 },
	} {
		j := starved()
		edit(&j)
		if got := propose(j); len(got.Plans) != 0 {
			t.Errorf("%s: %+v", name, got.Plans)
		}
	}
}

func TestMeasuredJobsAreTheOthers(t *testing.T) {
	j := starved()
	j.Early = false
	if got := propose(j); len(got.Plans) != 1 || got.Plans[0].Policy != "then" {
		t.Errorf("%+v, want the plan of the policy that takes over", got.Plans)
	}
}

// TestNeverBeyondBounds: whatever a store says, the proposal stays within the host
// and the job's own ceiling, and only ever gives.
func TestNeverBeyondBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := starved()
		j.Similar.Knee = rapid.Float64Range(0, 1e6).Draw(t, "knee")
		j.Similar.Correction = rapid.Float64Range(0, 10).Draw(t, "correction")
		j.Similar.Cost.LoaderCPU = rapid.Float64Range(0, 100).Draw(t, "loader")
		j.Enrolment.CPU.Max = rapid.Float64Range(0, 8).Draw(t, "max")
		for _, p := range propose(j).Plans {
			to, ok := p.Changes[0].To.CPUs()
			if !ok || to > 3.6+0.01 || to <= 0.3 || j.Enrolment.CPU.Max > 0 && to > j.Enrolment.CPU.Max+0.01 || p.Changes[0].Take {
				t.Fatalf("%+v with a ceiling of %.2f", p.Changes[0], j.Enrolment.CPU.Max)
			}
		}
	})
}
