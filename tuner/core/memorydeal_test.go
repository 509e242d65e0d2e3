package core

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/runtime"
)

// TestScarceMemoryIsDealtAmongThoseThatGrow: two jobs grow into their limits on a host
// with little left. Each is given time by the pace at which it grows; by the order of
// keys the first would be given all.
func TestScarceMemoryIsDealtAmongThoseThatGrow(t *testing.T) {
	n := newNode(4)
	slow, fast := n.limited("a-slow", 500, 400, allowMemory()), n.limited("b-fast", 500, 300, allowMemory())
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	n.memAvail = uint64(c.cfg.ReserveMemoryShare*float64(n.memTotal)) + 300<<20
	given := map[string]float64{} // MiB beyond what it used, by the first tick's plans
	run(c, n, 12, func(i int, d Decision) {
		for _, o := range d.Apply {
			if to, err := bytesOf(o.Changes[0].To); err == nil && len(given) < 2 && (len(given) == 0 || len(d.Apply) == 2) {
				given[o.Changes[0].Name] = (to - c.memoryUse(c.jobs[o.Changes[0].Key]).Current) / mib
			}
		}
		slow.hold(400 + 6*int64(i))
		fast.hold(300 + 12*int64(i))
	})
	a, b := given["a-slow"], given["b-fast"]
	if a < 80 || b < 1.8*a || b > 2.2*a || a+b > 301 {
		t.Errorf("%.0f and %.0f MiB of the 300 that are free, for one that grows twice as fast; limits %d and %d", a, b, slow.limit()/mib, fast.limit()/mib)
	}
}

// TestMemoryIsGivenWhereItPaysMost: of two jobs that read again what their limits evicted,
// the one that gains most for its bytes is helped first, whatever their names; the
// other is told why it waits, or has what is left.
func TestMemoryIsGivenWhereItPaysMost(t *testing.T) {
	for _, most := range []string{"a", "b"} {
		n := newNode(4)
		for _, name := range []string{"a", "b"} {
			n.limited(name, 500, 300, allowMemory())
		}
		c := New(Defaults(), script{func(j policies.Job) []policies.Change {
			if j.MemoryUse.Limit > 500*mib {
				return nil
			}
			ch := limitTo(j, 1500, false, "")
			if ch.Gain = 0.2; j.Name == most {
				ch.Gain = 1
			}
			ch.RateAfter = j.Rate.PerSecond * (1 + ch.Gain)
			return []policies.Change{ch}
		}}, "t")
		first := ""
		run(c, n, 40, func(_ int, d Decision) {
			if len(d.Apply) > 0 && first == "" {
				first = d.Apply[0].Changes[0].Name
			}
		})
		if first != most {
			t.Errorf("%q is helped first, and %q gains most", first, most)
		}
	}
}

// TestObservedContainersAreDealtNoMemory: what would be done to a container that is only
// watched takes nothing from those that are tuned.
func TestObservedContainersAreDealtNoMemory(t *testing.T) {
	n := newNode(4)
	watched := allowMemory()
	watched.Mode = policies.ModeObserve
	n.limited("a", 500, 300, watched)
	b := n.limited("b", 500, 300, allowMemory())
	c := New(Defaults(), script{func(j policies.Job) []policies.Change {
		if j.MemoryUse.Limit > 500*mib {
			return nil
		}
		return []policies.Change{limitTo(j, 1500, false, policies.WitnessHarm)}
	}}, "t")
	n.memAvail = uint64(c.cfg.ReserveMemoryShare*float64(n.memTotal)) + 1300<<20
	run(c, n, 40, nil)
	if b.limit() != 1500*mib {
		t.Errorf("%d MiB, want the 1500 that it asked for and that are free", b.limit()/mib)
	}
}

// TestAPlanOfBothCostsItsLargerShare: what a job is to be given of CPU and memory in one plan
// counts in the deal of either as the larger of its shares of the node.
func TestAPlanOfBothCostsItsLargerShare(t *testing.T) {
	n, _, _, _ := lacking(true)
	c := New(Defaults(), script{func(policies.Job) []policies.Change { return nil }}, "t")
	run(c, n, 5, nil)
	j := c.jobs[c.keys()[0]]
	from := j.c.Now[runtime.KnobCPUQuota]
	quota := policies.Change{Key: j.key, Knob: runtime.KnobCPUQuota, From: from, To: runtime.QuotaFromCPUs(1.4, quotaPeriod), Gain: 1}
	limit := policies.Change{Key: j.key, Knob: runtime.KnobMemoryLimit, From: j.c.Now[runtime.KnobMemoryLimit], To: runtime.IntValue(8412 * mib), Gain: 0.5}
	r, ok := c.raise(policies.Plan{Changes: []policies.Change{quota, limit}})
	if !ok || math.Abs(r.Beside-c.node.Memory/4) > 1 || r.Gain != 2 || r.Bytes != 8192*mib {
		t.Errorf("%+v, %v: want 8 GiB beside a CPU of 4, and three times the rate", r, ok)
	}
	if got := c.shareOfMemory(limit); math.Abs(got-0.5) > 1e-9 {
		t.Errorf("%.3f of the node's 16 GiB", got)
	}
	if r, ok := c.raise(policies.Plan{Changes: []policies.Change{limit}}); !ok || r.Beside != 0 || r.Gain != 0.5 {
		t.Errorf("memory alone: %+v, %v", r, ok)
	}
}
