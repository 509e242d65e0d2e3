package budget

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/probes"
)

const limit = 0.005

func fixed(hook string) bool { return hook == "kernel.switch" }

// job is a container whose hooks are hit at constant rates, while attached.
type job struct {
	rate  map[string]float64 // hits/s of a full attachment
	share map[string]float64
	hits  map[string]float64
}

func newJob(rate map[string]float64) *job {
	j := &job{rate: rate, share: map[string]float64{}, hits: map[string]float64{}}
	for h := range rate {
		j.share[h] = 1
	}
	return j
}

const hitNs = 4500

// step lets seconds pass and returns what the hooks cost meanwhile.
func (j *job) step(seconds float64) (cost float64) {
	for h, r := range j.rate {
		n := r * seconds * j.share[h]
		j.hits[h] += n
		cost += n * hitNs / 1e9 / seconds
	}
	return cost
}

func (j *job) spends() []probes.Spend {
	var out []probes.Spend
	for h, n := range j.hits {
		out = append(out, probes.Spend{Container: "c", Hook: h, Hits: uint64(n), HitNs: hitNs})
	}
	return out
}

func run(k *Keeper, j *job, steps int) (cost float64) {
	for range steps {
		cost = j.step(5)
		for _, o := range k.Step(k.lastNs+5e9, j.spends(), fixed, limit) {
			j.share[o.Hook] = o.Share
		}
	}
	return cost
}

func TestCheapHooksStayDearOnesTakeTurns(t *testing.T) {
	k, j := New(), newJob(map[string]float64{"cuda.launch": 10_000, "cuda.sync": 100, "kernel.switch": 200})
	cost := run(k, j, 10)
	if cost > limit {
		t.Errorf("costs %.4f of a CPU, allowed are %.4f", cost, limit)
	}
	if j.share["cuda.sync"] != 1 || j.share["kernel.switch"] != 1 {
		t.Errorf("the dearest alone gives way: %v", j.share)
	}
	if got := j.share["cuda.launch"]; got < minShare || got > 0.15 {
		t.Errorf("launches are counted %.2f of the time, want what the rest of the budget pays for", got)
	}
}

func TestHopelessHookIsDetachedAndTriedAgain(t *testing.T) {
	k, j := New(), newJob(map[string]float64{"cuda.launch": 200_000, "cuda.sync": 10})
	if run(k, j, 3); j.share["cuda.launch"] != 0 {
		t.Fatalf("share %.3f of a hook that costs 90 %% of a CPU", j.share["cuda.launch"])
	}
	j.rate["cuda.launch"] = 100 // the job calmed down
	if run(k, j, 30); j.share["cuda.launch"] != 1 {
		t.Errorf("share %.2f of a hook that is cheap now", j.share["cuda.launch"])
	}
}

func TestSharesDoNotFlutter(t *testing.T) {
	k, j := New(), newJob(map[string]float64{"cuda.launch": 10_000})
	run(k, j, 5)
	changes := 0
	for i := range 50 {
		j.rate["cuda.launch"] = 10_000 + 200*float64(i%3)
		j.step(5)
		for _, o := range k.Step(k.lastNs+5e9, j.spends(), fixed, limit) {
			j.share[o.Hook] = o.Share
			changes++
		}
	}
	if changes > 1 {
		t.Errorf("%d changes for a rate that moves by 4 %%", changes)
	}
}

// TestBudgetHolds: whatever the rates, two readings after they settle the hooks
// that can give way keep within what the others leave.
func TestBudgetHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := map[string]float64{}
		for _, h := range []string{"a", "b", "c", "d"} {
			rates[h] = rapid.Float64Range(0, 100_000).Draw(t, h)
		}
		k, j := New(), newJob(rates)
		run(k, j, 3)
		for range 8 { // short of the minute after which a detached hook is tried
			if cost := run(k, j, 1); cost > limit*1.001 {
				t.Fatalf("costs %.5f with %v of %v", cost, j.share, rates)
			}
		}
	})
}

func TestForgetsContainersThatEnded(t *testing.T) {
	k, j := New(), newJob(map[string]float64{"a": 10})
	run(k, j, 2)
	k.Step(k.lastNs+5e9, nil, fixed, limit)
	if len(k.hooks) != 0 || k.Spent("c") != 0 {
		t.Errorf("%v", k.hooks)
	}
}
