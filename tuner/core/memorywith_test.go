package core

import (
	"math"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/view"
)

// lacking puts a job that lacks quota beside one that reads again what its limit evicted, on
// a host with enough of both, and a policy that asks for quota up to 1.5 CPUs and for a
// limit of 900 MiB. Where lacksBoth, one job lacks both.
func lacking(lacksBoth bool) (n *node, short, cache *simJob, asks script) {
	n = newNode(4)
	cache = n.limited("cache", 320, 200, allowMemory())
	short = cache
	if !lacksBoth {
		short = n.addJob("short", 0, tune())
	}
	short.c.Now[runtime.KnobCPUQuota] = runtime.QuotaFromCPUs(0.4, quotaPeriod)
	return n, short, cache, script{func(j policies.Job) (out []policies.Change) {
		if q, limited := j.Now[runtime.KnobCPUQuota].CPUs(); limited && q < 1 {
			out = append(out, policies.Change{Key: j.Key, Name: j.Name, Knob: runtime.KnobCPUQuota, From: j.Now[runtime.KnobCPUQuota], To: runtime.QuotaFromCPUs(1.5, quotaPeriod),
				Gain: 1.5, RateAfter: 2.5 * j.Rate.PerSecond, Reason: "the test wants it"})
		}
		if j.MemoryUse.Limit == 320*mib {
			out = append(out, limitTo(j, 900, false, ""))
		}
		return out
	}}
}

// TestQuotaAndMemoryAreOnePlan: what one job, or two, lack of CPU and of memory is given at
// once, and judged once the pages have come back.
func TestQuotaAndMemoryAreOnePlan(t *testing.T) {
	for name, both := range map[string]bool{"two jobs": false, "one job": true} {
		n, short, cache, asks := lacking(both)
		c := New(Defaults(), asks, "t")
		given, kept := -1, -1
		var first Order
		records := run(c, n, 60, func(i int, d Decision) {
			if len(d.Apply) > 0 && given < 0 {
				given, first = i, d.Apply[0]
			}
			if kept < 0 && given >= 0 && len(c.trials) == 0 {
				kept = i
			}
			if given < 0 || i < given+20 {
				cache.cgroup.RefaultFile += 20_000
			} else {
				cache.device = 0.01
			}
		})
		has := func(k runtime.Knob) bool {
			return slices.ContainsFunc(first.Changes, func(ch policies.Change) bool { return ch.Knob == k })
		}
		if !has(runtime.KnobCPUQuota) || !has(runtime.KnobMemoryLimit) {
			t.Fatalf("%s: first %+v", name, first.Changes)
		}
		if kept < given+20 {
			t.Errorf("%s: judged in tick %d, and the pages were back %d after it was given in %d", name, kept, 20, given)
		}
		if q, _ := short.c.Now[runtime.KnobCPUQuota].CPUs(); q < 1 || cache.limit() != 900*mib || slices.Contains(outcomes(records), view.OutcomeInconclusive) {
			t.Errorf("%s: %.2f CPUs and %d MiB: %+v", name, q, cache.limit()/mib, records)
		}
		if got := c.jobs[cache.c.Key()].correction; got != 1 && both {
			t.Errorf("%s: what memory brought corrects the CPU model by %.2f", name, got)
		}
		if got, modelled := c.predicted(first, cache.c.Key()); both && (modelled || math.Abs(got/first.Changes[0].RateAfter-2) > 1e-9) {
			t.Errorf("%s: %.1f/s are predicted of %+v", name, got, first.Changes)
		}
	}
}

// TestMemoryInVainGoesBack: a limit that was raised beside a quota, and ends no reading
// again, goes back however much the quota brought; the quota is then given without it.
func TestMemoryInVainGoesBack(t *testing.T) {
	for name, both := range map[string]bool{"two jobs": false, "one job": true} {
		n, short, cache, asks := lacking(both)
		c := New(Defaults(), asks, "t")
		raises := 0
		records := run(c, n, 200, func(_ int, d Decision) {
			cache.cgroup.RefaultFile += 20_000
			for _, o := range d.Apply {
				if slices.ContainsFunc(o.Changes, givesMemory) {
					raises++
				}
			}
		})
		q, _ := short.c.Now[runtime.KnobCPUQuota].CPUs()
		if raises != 1 || cache.limit() != 320*mib || q < 1 {
			t.Errorf("%s: raised %d times; %d MiB and %.2f CPUs, want the 320 and more than 1: %+v", name, raises, cache.limit()/mib, q, records)
		}
	}
}

// TestWhatMemoryMayNotBeKeepsNoQuotaWaiting: of a plan of both, the guard takes out what
// may not be, and leaves the rest.
func TestWhatMemoryMayNotBeKeepsNoQuotaWaiting(t *testing.T) {
	n, short, cache, asks := lacking(true)
	cache.c.Enrolment.Knobs = []string{"cpu"}
	c := New(Defaults(), asks, "t")
	run(c, n, 40, nil)
	if q, _ := short.c.Now[runtime.KnobCPUQuota].CPUs(); q < 1 || cache.limit() != 320*mib {
		t.Errorf("%.2f CPUs and %d MiB", q, cache.limit()/mib)
	}
}

// TestMemoryBesideAClearGainNeedsNoSteadyRate: what hardly gains by itself goes with what its
// container clearly gains by, however uneven its rate is.
func TestMemoryBesideAClearGainNeedsNoSteadyRate(t *testing.T) {
	n, _, cache, _ := lacking(true)
	c := New(Defaults(), script{func(policies.Job) []policies.Change { return nil }}, "t")
	run(c, n, 8, nil)
	j := c.jobs[cache.c.Key()]
	for i := range j.obs {
		j.obs[i].Rate *= float64(1 + i*4/len(j.obs)%2*4) // over no turn either
	}
	quota := policies.Change{Key: j.key, Knob: runtime.KnobCPUQuota, From: j.c.Now[runtime.KnobCPUQuota], To: runtime.QuotaFromCPUs(1.5, quotaPeriod), Gain: 1}
	limit := policies.Change{Key: j.key, Knob: runtime.KnobMemoryLimit, From: j.c.Now[runtime.KnobMemoryLimit], To: runtime.IntValue(900 * mib), Gain: 0.1}
	if p := c.passing(policies.Plan{Changes: []policies.Change{limit}}); len(p.Changes) != 0 {
		t.Errorf("alone: %+v; its rate is steady: nothing is tested", p.Changes)
	}
	both := c.passing(policies.Plan{Changes: []policies.Change{quota, limit}})
	if len(both.Changes) != 2 {
		t.Fatalf("%+v: %s", both.Changes, j.whyNot)
	}
	swap := policies.Change{Key: j.key, Knob: runtime.KnobMemorySwap, From: j.c.Now[runtime.KnobMemorySwap]}
	both.Changes = append(both.Changes, swap)
	if why := c.wait(both); why != "" {
		t.Errorf("all of it waits: %s", why)
	}
}
