package budget

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/probes"
)

const limit = 0.005

func limits(string) float64 { return limit }

// job is a container whose hooks are hit at constant rates, while attached.
type job struct {
	rate  map[string]float64 // hits/s of a full attachment
	share map[string]float64
	hits  map[string]float64
	at    float64 // s
}

func newJob(rate map[string]float64) *job {
	j := &job{rate: rate, share: map[string]float64{}, hits: map[string]float64{}}
	for h := range rate {
		j.share[h] = 1
	}
	return j
}

const hitNs = 4500

// step lets seconds pass and returns what the hooks cost meanwhile: one that is
// thinned is attached at the beginning of each ten seconds.
func (j *job) step(seconds float64) (cost float64) {
	for h, r := range j.rate {
		from, to := math.Mod(j.at, 10), math.Mod(j.at, 10)+seconds
		on := max(0, min(to, 10*j.share[h])-min(from, 10*j.share[h]))
		n := r * on
		j.hits[h] += n
		cost += n * hitNs / 1e9 / seconds
	}
	j.at += seconds
	return cost
}

func (j *job) spends() []probes.Spend {
	var out []probes.Spend
	for h, n := range j.hits {
		out = append(out, probes.Spend{Container: "c", Hook: h, Hits: uint64(n), HitNs: hitNs})
	}
	return out
}

// run returns the mean cost of all steps.
func run(k *Controller, j *job, steps int) (cost float64) {
	for range steps {
		cost += j.step(5) / float64(steps)
		for _, o := range k.Step(k.lastNs+5e9, j.spends(), limits) {
			j.share[o.Hook] = o.Share
		}
	}
	return cost
}

func TestCheapHooksStayDearOnesTakeTurns(t *testing.T) {
	k, j := New(), newJob(map[string]float64{"cuda.launch": 10_000, "cuda.sync": 100, "kernel.switch": 200})
	run(k, j, 4)
	cost := run(k, j, 20)
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
	if run(k, j, 60); j.share["cuda.launch"] != 1 {
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
		for _, o := range k.Step(k.lastNs+5e9, j.spends(), limits) {
			j.share[o.Hook] = o.Share
			changes++
		}
	}
	if changes > 1 {
		t.Errorf("%d changes for a rate that moves by 4 %%", changes)
	}
}

// TestBudgetHoldsInTheLongRun: whatever the rates, over minutes the hooks that can
// give way cost what is left for them; those that were given up are tried again, and
// that is all that exceeds.
func TestBudgetHoldsInTheLongRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := map[string]float64{}
		for _, h := range []string{"cuda.launch", "cuda.copy", "whole"} {
			rates[h] = rapid.Float64Range(0, 50_000).Draw(t, h)
		}
		k, j := New(), newJob(rates)
		run(k, j, 6)
		retries := 0.0 // the least turn of each in seventy seconds, and one of all of a whole one
		for h, r := range rates {
			turn := 1.0
			if h == "whole" {
				turn = 10
			}
			retries += r * hitNs / 1e9 * turn / 60
		}
		if cost := run(k, j, 120); cost > limit*1.1+retries {
			t.Fatalf("costs %.5f with %v of %v; retries may cost %.5f", cost, j.share, rates, retries)
		}
	})
}

func TestWholeHookTakesNoTurns(t *testing.T) {
	k, j := New(), newJob(map[string]float64{"whole": 10_000, "cheap": 10})
	for range 60 {
		run(k, j, 1)
		if s := j.share["whole"]; s != 0 && s != 1 {
			t.Fatalf("share %.2f", s)
		}
	}
	if j.share["cheap"] != 1 {
		t.Errorf("the cheap one is at %.2f", j.share["cheap"])
	}
}

func TestForgetsContainersThatEnded(t *testing.T) {
	k, j := New(), newJob(map[string]float64{"a": 10})
	run(k, j, 2)
	k.Step(k.lastNs+5e9, nil, limits)
	if len(k.hooks) != 0 || k.Spent("c") != 0 {
		t.Errorf("%v", k.hooks)
	}
}
