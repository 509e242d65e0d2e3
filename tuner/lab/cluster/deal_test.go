package cluster

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/runtime"
)

// step runs a divider of one server until it has nothing more to decide.
func step(d *tuned, now float64, jobs []*Running) float64 {
	for range 100 {
		again := d.Divide(now, SynergyServer(), jobs)
		if again <= now {
			break
		}
		now = again
	}
	return now
}

// on puts jobs on a server, one GPU count for each model.
func on(t *testing.T, gpus []int, models ...string) (jobs []*Running) {
	t.Helper()
	for i, m := range models {
		jobs = append(jobs, &Running{Job: &Job{ID: i, GPUs: gpus[i], WorkS: 1e6, Curve: named(t, m)}, LeftS: 1e6})
	}
	return jobs
}

// TestDealsWeightsAndGivesThemBack: two ResNet-18, of one and three GPUs, share what
// BERT leaves. The one GPU makes more of a CPU than a third of three do, so it is dealt
// weight. Then AlexNet comes in BERT's place and leaves nothing: nobody may get less
// than its share for the deal.
func TestDealsWeightsAndGivesThemBack(t *testing.T) {
	jobs := on(t, []int{1, 3, 4}, "ResNet-18", "ResNet-18", "BERT")
	d := Tuned(knee.New(knee.Defaults()), exact()).New(nil).(*tuned)
	now := step(d, 0, jobs)
	a, b := d.held[0].weight, d.held[1].weight
	if a <= 100 || b >= 300 || a+b < 399 || a+b > 401 || d.held[2].weight != 400 {
		t.Fatalf("weights %d, %d and %d, want more for the first, less for the second, 400 together, and BERT's 400", a, b, d.held[2].weight)
	}
	jobs[2] = &Running{Job: &Job{ID: 3, GPUs: 4, WorkS: 1e6, Curve: named(t, "AlexNet")}, StartS: now, LeftS: 1e6}
	step(d, now, jobs)
	for _, r := range jobs {
		if share, _ := SynergyServer().share(r.GPUs); r.Have < 0.97*share {
			t.Errorf("job %d has %.2f CPUs of its share of %.0f, weights %d and %d", r.ID, r.Have, share, d.held[0].weight, d.held[1].weight)
		}
	}
}

// TestMemoryIsRaisedWhereItGains: M5 alone is given the CPUs that its 62.5 GB let it use,
// and then more memory, where a part of its cache pays: 8 GiB, and no more where its
// quota stands in the way. By steps of the table they reach none, and go back. What stands
// gives way to owners who come, down to its own.
func TestMemoryIsRaisedWhereItGains(t *testing.T) {
	for _, parts := range []bool{true, false} {
		jobs := on(t, []int{1}, "M5 (audio)")
		jobs[0].Curve.Parts = parts
		d := Tuned(knee.New(knee.Defaults()), exact()).New(nil).(*tuned)
		now := step(d, 0, jobs)
		gb, rate := d.held[0].memoryGB, jobs[0].on(jobs[0].Have, jobs[0].MemoryGB)
		if parts && (gb < 71 || rate < 1.55) || !parts && (gb != 62.5 || rate > 1.5) || !d.held[0].failed[runtime.KnobMemoryLimit] {
			t.Fatalf("parts %v: %.1f GB, a rate of %.2f", parts, gb, rate)
		}
		jobs = append(jobs, &Running{Job: &Job{ID: 1, GPUs: 7, WorkS: 1e6, Curve: named(t, "AlexNet")}, StartS: now, LeftS: 1e6})
		step(d, now, jobs)
		if jobs[0].MemoryGB < 62.5*(1-1e-9) || jobs[1].MemoryGB < 7*62.5*(1-1e-9) || jobs[0].MemoryGB+jobs[1].MemoryGB > 500*(1+1e-9) {
			t.Errorf("parts %v: %.1f and %.1f GB of 500", parts, jobs[0].MemoryGB, jobs[1].MemoryGB)
		}
	}
}

// TestRaisesShareWhatIsFree: of two that would be raised, what is free holds one: by sum
// that of the larger gain for its bytes, by max-min that of whoever is worst off.
func TestRaisesShareWhatIsFree(t *testing.T) {
	for objective, want := range map[policies.Objective]string{policies.ObjectiveSum: key(0), policies.ObjectiveMaxMin: key(1)} {
		s := exact()
		s.Objective = objective
		jobs := on(t, []int{1, 1}, "AlexNet", "M5 (audio)")
		d := Tuned(knee.New(knee.Defaults()), s).New(nil).(*tuned)
		d.Divide(0, SynergyServer(), jobs)
		raise := func(id int, gb, gain float64) policies.Plan {
			return policies.Plan{Changes: []policies.Change{{Key: key(id), Knob: runtime.KnobMemoryLimit, To: values(1, 62.5+gb, 1)[runtime.KnobMemoryLimit], Gain: gain}}}
		}
		got := d.dealMemory(policies.Node{MemoryFree: 8e9}, jobs, []policies.Plan{raise(0, 4, 0.5), raise(1, 8, 0.6)})
		if len(got) != 1 || got[0].Changes[0].Key != want {
			t.Errorf("%s: %+v, want %s alone", objective, got, want)
		}
	}
}

// grabby takes all CPUs for the first job by quota and weight.
type grabby struct{}

func (grabby) Name() string { return "grabby" }

func (grabby) Propose(_ policies.Node, jobs []policies.Job) (p policies.Proposal) {
	for _, j := range jobs {
		if j.Key == key(0) {
			to := values(24, 1, 6400)
			p.Plans = append(p.Plans, policies.Plan{Policy: "grabby", Changes: []policies.Change{
				{Key: j.Key, Knob: runtime.KnobCPUQuota, To: to[runtime.KnobCPUQuota]}, {Key: j.Key, Knob: runtime.KnobCPUWeight, To: to[runtime.KnobCPUWeight]}}})
		}
	}
	return p
}

// TestNeighbourKeepsItsShare: AlexNet gains by CPUs that another uses of its own
// share, and the trial takes them back.
func TestNeighbourKeepsItsShare(t *testing.T) {
	jobs := on(t, []int{4, 4}, "AlexNet", "ResNet-18")
	d := Alone(grabby{}, exact()).New(nil).(*tuned)
	if again := d.Divide(DefaultTimes().Verdict, SynergyServer(), jobs); d.trial == nil || again <= DefaultTimes().Verdict || jobs[1].Have > 11 {
		t.Fatalf("no trial: the neighbour has %.2f CPUs", jobs[1].Have)
	}
	step(d, d.trial.endS, jobs)
	if jobs[1].Have != 12 || d.held[0].weight != 400 {
		t.Errorf("the neighbour has %.2f of 12 CPUs, AlexNet a weight of %d", jobs[1].Have, d.held[0].weight)
	}
}
