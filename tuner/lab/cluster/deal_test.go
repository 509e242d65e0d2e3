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
