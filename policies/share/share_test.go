package share

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// job wants all CPUs below a knee, and its rate by CPUs is known: straight up to the knee.
func job(i int, weight int64, right, used, knee float64) policies.Job {
	now := runtime.Values{runtime.KnobCPUWeight: runtime.IntValue(weight), runtime.KnobCPUQuota: "max 100000"}
	return policies.Job{Key: fmt.Sprint(i), Name: fmt.Sprint(i), May: true, Now: now, Original: now, Rate: policies.Rate{PerSecond: 10}, CostOK: true, Correction: 1,
		Enrolment: policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"cpu"}},
		Curve:     policies.Curve{Source: "x", Points: []policies.Point{{X: knee, Rate: 10, Low: 10, High: 10}, {X: 64, Rate: 10, Low: 10, High: 10}}},
		CPU:       policies.CPUUse{Used: used, Entitlement: right, Parent: "/docker"}}
}

func propose(node policies.Node, jobs ...policies.Job) []policies.Plan {
	return New(policies.DefaultConstants()).Propose(node, jobs).Plans
}

// twoSizes: four CPUs; two jobs that can use nine, a donor that leaves what they compete for,
// and two that are served with 1.3. Each has a right to 0.8.
func twoSizes() []policies.Job {
	return []policies.Job{job(1, 1024, 0.8, 0.97, 9), job(2, 1024, 0.8, 0.97, 9), job(3, 1024, 0.8, 0.1, 0.1), job(4, 1024, 0.8, 0.97, 1.3), job(5, 1024, 0.8, 0.97, 1.3)}
}

var four = policies.Node{CPUs: 4, MaxWeight: 262144}

func TestSurplusGoesToWhoMakesMostOfIt(t *testing.T) {
	for _, objective := range policies.Objectives() {
		node := four
		node.Objective = objective
		plans := propose(node, twoSizes()...)
		if len(plans) != 1 || plans[0].Kind != policies.KindTrial || len(plans[0].Changes) != 4 {
			t.Fatalf("%s: %+v, want one trial of four weights", objective, plans)
		}
		var sum int64
		for _, ch := range plans[0].Changes {
			w, _ := ch.To.Int()
			sum += w
			small := ch.Key == "4" || ch.Key == "5"
			if gets := w > 1024; gets != (small == (objective == policies.ObjectiveSum)) {
				t.Errorf("%s: job %s gets a weight of %d", objective, ch.Key, w)
			}
		}
		if math.Abs(float64(sum)-4096) > 4 {
			t.Errorf("%s: weights sum to %d, and the owners' to 4096", objective, sum)
		}
	}
}

// TestWeightsAreTheKernels: owners' weights near the kernel's largest leave room for a plan all the same,
// and their sum stays.
func TestWeightsAreTheKernels(t *testing.T) {
	for _, objective := range policies.Objectives() {
		node := policies.Node{CPUs: 4, MaxWeight: 10000, Objective: objective}
		jobs := twoSizes()
		for i := range jobs {
			jobs[i].Now = runtime.Values{runtime.KnobCPUWeight: "8600", runtime.KnobCPUQuota: "max 100000"}
			jobs[i].Original = jobs[i].Now
		}
		plans := propose(node, jobs...)
		if len(plans) != 1 {
			t.Fatalf("%s: %+v, want one trial", objective, plans)
		}
		var sum int64
		for _, ch := range plans[0].Changes {
			w, _ := ch.To.Int()
			if sum += w; float64(w) > node.MaxWeight {
				t.Errorf("%s: job %s gets a weight of %d", objective, ch.Key, w)
			}
		}
		if math.Abs(float64(sum)-34400) > 4 {
			t.Errorf("%s: weights sum to %d, and the owners' to 34400", objective, sum)
		}
	}
}

func TestImportanceDecidesBetweenEquals(t *testing.T) {
	jobs := []policies.Job{job(1, 1024, 0.67, 0.9, 3), job(2, 1024, 0.67, 0.9, 3), job(3, 1024, 0.67, 0.2, 0.2)}
	node := policies.Node{CPUs: 2, MaxWeight: 10000}
	if plans := propose(node, jobs...); len(plans) > 0 {
		t.Errorf("equals are told apart: %+v", plans)
	}
	jobs[1].Enrolment.Importance = 10
	plans := propose(node, jobs...)
	if len(plans) != 1 || len(plans[0].Changes) != 2 || !plans[0].Changes[0].Take || plans[0].Changes[1].Take {
		t.Fatalf("%+v", plans)
	}
	for _, out := range []int{1000, 10} { // what a label may not say counts as the most that it may
		jobs[1].Enrolment.Importance = out
		if got := propose(node, jobs...)[0].Changes[1].To; got != plans[0].Changes[1].To {
			t.Errorf("importance %d: a weight of %s, want %s", out, got, plans[0].Changes[1].To)
		}
	}
}

func TestLeavesAlone(t *testing.T) {
	unknown := job(2, 1024, 2, 3, 7)
	unknown.Curve = policies.Curve{}
	elsewhere := job(2, 1024, 2, 3, 7)
	elsewhere.CPU.Parent = "/other"
	for name, jobs := range map[string][]policies.Job{
		"nobody":                        {},
		"one that competes":             {job(1, 1024, 2, 3, 2.5), job(3, 1024, 2, 1, 1)},
		"a curve that is not known":     {job(1, 1024, 4, 4, 7), unknown},
		"groups that do not compare":    {job(1, 1024, 4, 4, 7), elsewhere},
		"alike":                         {job(1, 1024, 4, 4, 7), job(2, 1024, 4, 4, 7)},
		"enough for all that they need": {job(1, 1024, 4, 3, 3), job(2, 1024, 4, 4, 4)},
	} {
		if plans := propose(policies.Node{CPUs: 8, MaxWeight: 262144}, jobs...); len(plans) > 0 {
			t.Errorf("%s: %+v", name, plans)
		}
	}
}

// TestNobodyFallsBelowTheirRight: whatever is dealt, each gets its right, what it needs, or
// what it had; and the weights of those that compete are worth together what the owners gave.
func TestNobodyFallsBelowTheirRight(t *testing.T) {
	sized := func(weights []int64, knees ...float64) (jobs []policies.Job) {
		for i, knee := range knees {
			jobs = append(jobs, job(i, weights[i%len(weights)], 0, 1, knee))
		}
		return jobs
	}
	for name, c := range map[string]struct { // all of them are dealt anew
		cpus      float64
		objective policies.Objective
		jobs      []policies.Job
	}{
		"two sizes and a donor":            {4, policies.ObjectiveSum, sized([]int64{1024}, 9, 9, 0.1, 1.3, 1.3)},
		"two sizes and a donor, the worst": {4, policies.ObjectiveMaxMin, sized([]int64{1024}, 9, 9, 0.1, 1.3, 1.3)},
		"weights that differ":              {4, policies.ObjectiveSum, sized([]int64{2048, 1024}, 9, 9, 0.1, 1.3, 1.3)},
		"twice as many CPUs":               {8, policies.ObjectiveSum, sized([]int64{1024}, 18, 18, 0.1, 2.6, 2.6)},
		"small weights":                    {4, policies.ObjectiveSum, sized([]int64{64}, 9, 9, 0.1, 1.3, 1.3)},
	} {
		if !rightsKept(t, c.cpus, c.objective, c.jobs) {
			t.Fatalf("%s: nothing is dealt anew", name)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		cpus := rapid.Float64Range(2, 64).Draw(t, "cpus")
		objective := rapid.SampledFrom(policies.Objectives()).Draw(t, "objective")
		var jobs []policies.Job
		for i := range rapid.IntRange(2, 6).Draw(t, "jobs") {
			jobs = append(jobs, job(i, rapid.Int64Range(64, 4096).Draw(t, "weight"), 0, 1, rapid.Float64Range(0.2, 40).Draw(t, "knee")))
		}
		rightsKept(t, cpus, objective, jobs)
	})
}

// rightsKept holds a node's plan to the laws; false: it has none.
func rightsKept(t rapid.TB, cpus float64, objective policies.Objective, jobs []policies.Job) bool {
	k := policies.DefaultConstants()
	node := policies.Node{CPUs: cpus, MaxWeight: 262144, Objective: objective}
	var claims []policies.Claim
	for i := range jobs {
		jobs[i].CPU.Used = min(jobs[i].Demand(cpus), cpus)
		claims = append(claims, policies.Claim{Weight: weightOf(jobs[i]), Demand: jobs[i].Demand(cpus), Active: true})
	}
	rights, _ := policies.Rights(cpus, claims)
	for i := range jobs {
		jobs[i].CPU.Entitlement = rights[i]
	}
	before := policies.Shares(cpus, claims)
	plans := New(k).Propose(node, jobs).Plans
	if len(plans) == 0 {
		return false
	}
	var was, is float64
	for _, ch := range plans[0].Changes {
		for i := range jobs {
			if jobs[i].Key == ch.Key {
				was += claims[i].Weight
				n, _ := ch.To.Int()
				claims[i].Weight = float64(n)
				is += claims[i].Weight
			}
		}
	}
	if is > was+float64(len(jobs)) { // each is rounded
		t.Fatalf("weights of %.0f become %.0f: others are worth less", was, is)
	}
	for i, got := range policies.Shares(cpus, claims) {
		if least := min(before[i], rights[i], claims[i].Demand) * (1 - k.RightMargin); got < least {
			t.Fatalf("job %d gets %.3f CPUs, and has a right to %.3f, needs %.3f, had %.3f", i, got, rights[i], claims[i].Demand, before[i])
		}
	}
	return true
}

func weightOf(j policies.Job) float64 {
	n, _ := j.Now[runtime.KnobCPUWeight].Int()
	return float64(n)
}

func BenchmarkPropose(b *testing.B) {
	var jobs []policies.Job
	for i := range 1000 {
		knee := 0.5
		if i < 300 {
			knee = 2 + float64(i%5)
		}
		jobs = append(jobs, job(i, 1024, 0.128, 0.1, knee))
	}
	node := policies.Node{CPUs: 128, MaxWeight: 262144}
	p := New(policies.DefaultConstants())
	for b.Loop() {
		p.Propose(node, jobs)
	}
}
