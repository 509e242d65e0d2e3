package arbiter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/response"
)

// lived is a job with its true cost, and what was learnt of it.
type lived struct {
	truth   policies.Cost
	bias    float64 // how far its true rates lie from the model
	learner response.Learner
}

// TestPlansComeToRest: on random nodes, with curves learnt from noisy rates that the
// model misses, and plans carried out at each tick without any cool-down, weights are
// moved a few times and then no more; also after jobs changed what they do.
func TestPlansComeToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 7))
		node := policies.Node{CPUs: float64(rapid.IntRange(1, 16).Draw(t, "cpus")), MaxWeight: 262144}
		params := Defaults()
		params.Objective = rapid.SampledFrom(policies.Objectives()).Draw(t, "objective")
		jobs := make([]*lived, rapid.IntRange(2, 8).Draw(t, "jobs"))
		claims := make([]Claim, len(jobs))
		for i := range jobs {
			jobs[i] = &lived{truth: randomCost(t), bias: rapid.Float64Range(0.8, 1.25).Draw(t, "bias")}
			claims[i] = job(fmt.Sprint("job", i), 1)
			claims[i].CPU = policies.Curve{}
			claims[i].Beside = rapid.SampledFrom([]float64{0, 0, 2, 20}).Draw(t, "beside")
		}
		const ticks = 240
		var moves []int // ticks at which weights were moved
		for tick := range ticks {
			if tick == ticks/2 {
				jobs[0].truth = randomCost(t)
			}
			live(rng, node, jobs, claims)
			p := Decide(params, node, claims)
			if !p.Move && !p.Release {
				continue
			}
			moves = append(moves, tick)
			for i, g := range p.Grants {
				claims[i].Weight = g.Weight
			}
		}
		late := 0
		for k, at := range moves {
			if at%(ticks/2) > ticks/4 {
				late++
			}
			if k >= maxPerMinute && at-moves[k-maxPerMinute] < 60 {
				t.Fatalf("more than %d moves within a minute: %v", maxPerMinute, moves)
			}
		}
		if late > 2 {
			t.Fatalf("a minute after anything changed, weights are still moved: %v", moves)
		}
	})
}

// maxPerMinute moves of a node are what learning may cost; of 15,000 nodes none made more. The
// core itself allows no more than ChangesPerMinute, whatever is decided here.
const maxPerMinute = 7

func randomCost(t *rapid.T) policies.Cost {
	secs := rapid.Float64Range(0.002, 0.1)
	return policies.Cost{TrainerCPU: secs.Draw(t, "Ct"), Device: secs.Draw(t, "D"), LoaderCPU: 4 * secs.Draw(t, "Cl"), Batch: 0.01, Loaders: 4, Ticks: 20}
}

// live lets the jobs run for a tick at the shares that the kernel gives them, and
// learns from it.
func live(rng *rand.Rand, node policies.Node, jobs []*lived, claims []Claim) {
	truth := make([]Claim, len(claims))
	copy(truth, claims)
	for i, j := range jobs {
		truth[i].CPU = policies.Curve{}
		truth[i].Used, truth[i].Waiting = j.truth.Knee(), 0
	}
	got := Shares(node.CPUs, truth)
	for i, j := range jobs {
		rate := j.bias / j.truth.Step(got[i]) * math.Exp(0.02*rng.NormFloat64())
		cost := j.truth
		wobble := math.Exp(0.03 * rng.NormFloat64())
		cost.TrainerCPU, cost.LoaderCPU = cost.TrainerCPU*wobble, cost.LoaderCPU*wobble
		j.learner.Learn(response.Seen{X: got[i], Rate: rate, Source: "steps", Cost: cost})
		claims[i].CPU = j.learner.Curve(node.CPUs)
		claims[i].Used, claims[i].Active = got[i], true
	}
}
