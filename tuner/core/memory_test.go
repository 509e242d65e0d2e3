package core

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/view"
)

const mib = 1 << 20

func allowMemory() policies.Enrolment {
	e := tune()
	e.Knobs = []string{"cpu", "memory"}
	return e
}

// limited puts a job on a host of v1 under a memory limit, with as much swap again.
func (n *node) limited(name string, limitMiB, heldMiB int64, e policies.Enrolment) *simJob {
	n.memTotal, n.memAvail = 16<<30, 12<<30
	j := n.addJob(name, 0, e)
	j.c.Cgroup = runtime.Cgroup{Mode: runtime.CgroupHybrid, V1: map[string]string{"memory": "/sys/fs/cgroup/memory/" + name}}
	j.c.Now[runtime.KnobMemoryLimit] = runtime.IntValue(limitMiB * mib)
	j.c.Now[runtime.KnobMemorySwap] = runtime.IntValue(2 * limitMiB * mib)
	j.hold(heldMiB)
	return j
}

// hold makes so much of its memory anonymous, with a little page cache beside.
func (j *simJob) hold(heldMiB int64) {
	j.cgroup.Anon, j.cgroup.MemoryBytes = uint64(heldMiB*mib), uint64((heldMiB+20)*mib)
}

func (j *simJob) limit() int64 {
	n, _ := j.c.Now[runtime.KnobMemoryLimit].Int()
	return n
}

// TestGrowingJobIsProtected: a job that grows into its limit is given more in time,
// again and again, up to what its owner allows; no rate is waited for.
func TestGrowingJobIsProtected(t *testing.T) {
	n := newNode(4)
	e := allowMemory()
	e.Memory.Max = 3000 * mib
	j := n.limited("leak", 700, 300, e)
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	held, raised := int64(300), 0
	records := run(c, n, 150, func(i int, d Decision) {
		if limit := j.limit(); held*mib >= limit && limit < 2990*mib {
			t.Fatalf("tick %d: %d MiB are held under a limit of %d MiB: killed", i, held, limit/mib)
		}
		for _, o := range d.Apply {
			raised++
			if len(o.Changes) != 2 || o.Changes[1].Knob != runtime.KnobMemorySwap {
				t.Fatalf("%+v, want the limit and the swap that counts it", o.Changes)
			}
		}
		if held < 2900 {
			held += 16
		}
		j.hold(held)
	})
	if raised < 2 || j.limit() > 3000*mib {
		t.Errorf("raised %d times, to %d MiB", raised, j.limit()/mib)
	}
	for _, o := range outcomes(records) {
		if o != view.OutcomeKept {
			t.Errorf("trials %v, want all kept", outcomes(records))
		}
	}
	if told := len(c.jobs[j.c.Key()].trials); told != raised {
		t.Errorf("%d trials are told of %d raises", told, raised)
	}
	for _, r := range records {
		if r.Kind == view.RecordTrial && !strings.Contains(r.Text, "MiB kept: it protects") {
			t.Errorf("it is told as %q", r.Text)
		}
	}
}

// TestProtectionWaitsForNoOpenTrial: while a quota is on trial, memory that runs out is given.
func TestProtectionWaitsForNoOpenTrial(t *testing.T) {
	n := newNode(4)
	j := n.limited("leak", 700, 200, allowMemory())
	j.c.Now[runtime.KnobCPUQuota] = "40000 100000"
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	held, both := int64(200), false
	run(c, n, 40, func(_ int, d Decision) {
		both = both || len(c.trials) == 2
		if len(c.trials) > 0 { // the quota's is open: now it grows
			held += 40
		}
		j.hold(held)
		if held*mib >= j.limit() {
			t.Fatal("it was not protected in time")
		}
	})
	if !both {
		t.Error("the two trials were never open together: nothing was tested")
	}
}

// script proposes what a test wants, whenever it is asked.
type script struct {
	propose func(j policies.Job) []policies.Change
}

func (script) Name() string { return "script" }

func (s script) Propose(_ policies.Node, jobs []policies.Job) policies.Proposal {
	var out policies.Proposal
	for _, j := range jobs {
		if ch := s.propose(j); len(ch) > 0 {
			out.Plans = append(out.Plans, policies.Plan{Policy: "script", Changes: ch})
		}
	}
	return out
}

func limitTo(j policies.Job, toMiB int64, take bool, w policies.Witness) policies.Change {
	return policies.Change{Key: j.Key, Name: j.Name, Knob: runtime.KnobMemoryLimit, From: j.Now[runtime.KnobMemoryLimit], To: runtime.IntValue(toMiB * mib),
		Take: take, Witness: w, Gain: 1, RateAfter: 2 * j.Rate.PerSecond, Reason: "the test wants it"}
}

// TestTakenMemoryEscapes: what was taken goes back within the tick in which it
// bites, on trial and after it was kept.
func TestTakenMemoryEscapes(t *testing.T) {
	for _, when := range []string{"on trial", "kept"} {
		for sign, bite := range map[string]func(j *simJob){
			"refaults": func(j *simJob) { j.cgroup.RefaultFile += 4000 },
			"pressure": func(j *simJob) { j.cgroup.Memory.SomeUs += 300_000; j.cgroup.Memory.FullUs += 100_000 },
			"a kill":   func(j *simJob) { j.cgroup.OOMKills++ },
			"growth":   func(j *simJob) { j.hold(690) },
			"a leap":   func(j *simJob) { j.hold(600) },
		} {
			t.Run(when+"/"+sign, func(t *testing.T) {
				n := newNode(4)
				j := n.limited("given", 1000, 300, allowMemory())
				j.c.Original = runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(500 * mib), runtime.KnobMemorySwap: runtime.IntValue(1000 * mib)}
				c := New(Defaults(), script{func(pj policies.Job) []policies.Change {
					if pj.MemoryUse.Limit != 1000*mib {
						return nil
					}
					return []policies.Change{limitTo(pj, 700, true, policies.WitnessHarm)}
				}}, "t")
				taken, bitten, back := -1, -1, -1
				applies := 0
				records := run(c, n, 90, func(i int, d Decision) {
					applies += len(d.Apply)
					if len(d.Apply) > 0 && taken < 0 {
						taken = i
					}
					if len(d.Rollback) > 0 && back < 0 {
						back = i
					}
					due := taken >= 0 && i >= taken+5
					if when == "kept" {
						due = len(c.standing) > 0
					}
					if due && bitten < 0 {
						bitten = i
						bite(j)
					}
				})
				if taken < 0 || bitten < 0 || back != bitten+1 {
					t.Fatalf("taken at tick %d, bit after %d, back at %d; want it back in the next: %+v", taken, bitten, back, records)
				}
				if j.limit() != 1000*mib {
					t.Errorf("limit %d MiB, want 1000 back", j.limit()/mib)
				}
				if swap := j.c.Now[runtime.KnobMemorySwap]; swap != runtime.IntValue(2000*mib) {
					t.Errorf("swap %s, want what stood before", swap)
				}
				if applies != 1 {
					t.Errorf("taken %d times: what failed is not tried again at once", applies)
				}
			})
		}
	}
}

// TestWhatGoesBackIsNotChangedBeside: growth into a limit that was lowered is the sign to
// take it back and to protect the job at once. Only the first is done: what would be raised is
// on its way out.
func TestWhatGoesBackIsNotChangedBeside(t *testing.T) {
	n := newNode(4)
	e := allowMemory()
	e.Memory.Max = 3000 * mib
	j := n.limited("given", 1000, 300, e)
	j.c.Original = runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(500 * mib), runtime.KnobMemorySwap: runtime.IntValue(1000 * mib)}
	c := New(Defaults(), script{func(pj policies.Job) []policies.Change {
		switch pj.MemoryUse.Limit {
		case 1000 * mib:
			return []policies.Change{limitTo(pj, 700, true, policies.WitnessHarm)}
		case 700 * mib:
			return []policies.Change{limitTo(pj, 900, false, policies.WitnessHarm)}
		}
		return nil
	}}, "t")
	held, urgent := int64(300), false
	run(c, n, 60, func(_ int, d Decision) {
		if j.limit() == 700*mib && held < 690 {
			held += 20
			j.hold(held)
		}
		if len(d.Rollback) > 0 {
			urgent = urgent || c.jobs[j.c.Key()].urgent
			if len(d.Apply) > 0 {
				t.Errorf("taken back and changed in one tick: %+v", d)
			}
		}
	})
	if !urgent {
		t.Error("it was not to be protected when its memory went back: nothing was tested")
	}
}

// TestHarmlessTakeStands: what nothing misses is kept, and watched.
func TestHarmlessTakeStands(t *testing.T) {
	n := newNode(4)
	j := n.limited("given", 1000, 300, allowMemory())
	j.c.Original = runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(500 * mib)}
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	records := run(c, n, 180, nil)
	if !c.TookMemory() {
		t.Error("it need not be looked at each tick")
	}
	if got := outcomes(records); len(got) != 1 || got[0] != view.OutcomeKept || len(c.standing) != 1 {
		t.Fatalf("trials %v, %d watched: %+v", got, len(c.standing), records)
	}
	if j.limit() != 500*mib {
		t.Errorf("limit %d MiB, want the owner's 500: it uses 320", j.limit()/mib)
	}
}

// TestRaisedLimitIsJudgedOnceFilled: pages must come back before a raised limit can
// show in the rate; until then nothing is judged.
func TestRaisedLimitIsJudgedOnceFilled(t *testing.T) {
	for name, fills := range map[string]bool{"it fills": true, "it never does": false} {
		t.Run(name, func(t *testing.T) {
			n := newNode(4)
			j := n.limited("cache", 320, 200, allowMemory())
			c := New(Defaults(), script{func(pj policies.Job) []policies.Change {
				if pj.MemoryUse.Limit != 320*mib {
					return nil
				}
				return []policies.Change{limitTo(pj, 900, false, "")}
			}}, "t")
			slow, fast := 3*j.device, j.device
			j.device = slow
			raised := -1
			records := run(c, n, 240, func(i int, d Decision) {
				if len(d.Apply) > 0 && raised < 0 {
					raised = i
				}
				if filled := fills && raised >= 0 && i > raised+25; !filled {
					j.cgroup.RefaultFile += 20_000
				} else {
					j.device = fast
				}
			})
			got := outcomes(records)
			if fills && (len(got) != 1 || got[0] != view.OutcomeKept || j.limit() != 900*mib) {
				t.Errorf("trials %v, limit %d MiB: %+v", got, j.limit()/mib, records)
			}
			if !fills && (len(got) == 0 || got[0] == view.OutcomeKept || j.limit() != 320*mib) {
				t.Errorf("trials %v, limit %d MiB: kept without a gain", got, j.limit()/mib)
			}
		})
	}
}

// TestGrowthIsSeenBeforeTheFirstStep: a job that loads its data before its first step,
// and so has no window yet, is protected as well.
func TestGrowthIsSeenBeforeTheFirstStep(t *testing.T) {
	n := newNode(4)
	j := n.limited("loads", 700, 300, allowMemory())
	j.device = 1000 // seconds until its first step
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	raised := -1
	run(c, n, 18, func(i int, d Decision) {
		if len(d.Apply) > 0 && raised < 0 {
			raised = i
			if c.jobs[j.c.Key()].windows > 0 {
				t.Error("it had a window: nothing was tested")
			}
		}
		j.hold(300 + 30*int64(i))
	})
	if raised < 0 {
		t.Error("not protected")
	}
}

// TestObservedGrowthIsToldOnce: in observe mode the same advice is not given each tick.
func TestObservedGrowthIsToldOnce(t *testing.T) {
	n := newNode(4)
	e := allowMemory()
	e.Mode, e.WhyNot = policies.ModeObserve, "observe"
	j := n.limited("leak", 2000, 1500, e)
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	held, would := int64(1500), 0
	for _, r := range run(c, n, 30, func(int, Decision) { held += 16; j.hold(held) }) {
		if r.Kind == view.RecordWould {
			would++
		}
	}
	if would != 1 {
		t.Errorf("%d would-have records, want one", would)
	}
}

// TestGuardHoldsMemory: whatever a policy proposes, no limit is imposed or goes below
// the owner's, but for a best-effort container; none goes below what is held with
// its margin, none above the owner's or the host's bound; v1's swap stays above it.
func TestGuardHoldsMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNode(4)
		e := allowMemory()
		e.BestEffort = rapid.Bool().Draw(t, "best-effort")
		e.Memory.Min = rapid.SampledFrom([]float64{0, 200 * mib, 900 * mib}).Draw(t, "min")
		e.Memory.Max = rapid.SampledFrom([]float64{0, 1500 * mib, 5000 * mib}).Draw(t, "max")
		heldMiB := rapid.Int64Range(10, 900).Draw(t, "held")
		j := n.limited("job", 1000, heldMiB, e)
		n.memAvail = uint64(rapid.SampledFrom([]int64{100, 2000, 12000}).Draw(t, "available") * mib)
		if rapid.Bool().Draw(t, "no limit") {
			j.c.Now[runtime.KnobMemoryLimit], j.c.Now[runtime.KnobMemorySwap] = runtime.ValueMax, runtime.ValueMax
		}
		original := j.c.Now[runtime.KnobMemoryLimit]
		cfg := Defaults()
		cfg.ReserveMemoryShare, cfg.CoolDownNs = 0.1, second
		wants := rapid.Int64Range(1, 20000)
		c := New(cfg, script{func(pj policies.Job) []policies.Change {
			to := wants.Draw(t, "to")
			now, _ := pj.Now[runtime.KnobMemoryLimit].Int()
			take := to*mib < now || pj.Now[runtime.KnobMemoryLimit] == runtime.ValueMax
			return []policies.Change{limitTo(pj, to, take, policies.WitnessHarm)}
		}}, "t")
		run(c, n, 40, func(_ int, d Decision) {
			for _, o := range d.Apply {
				for _, ch := range o.Changes {
					checkMemory(t, c, j, original, o, ch)
				}
			}
		})
	})
}

func checkMemory(t *rapid.T, c *Core, j *simJob, original runtime.Value, o Order, ch policies.Change) {
	e, use := j.c.Enrolment, c.memoryUse(c.jobs[j.c.Key()])
	to, err := bytesOf(ch.To)
	if err != nil {
		t.Fatalf("%+v: %v", ch, err)
	}
	if ch.Knob == runtime.KnobMemorySwap {
		if limit, _ := bytesOf(o.Changes[0].To); to < limit {
			t.Fatalf("swap %.0f MiB counts a limit of %.0f MiB", to/mib, limit/mib)
		}
		return
	}
	owner, _ := bytesOf(original)
	from, _ := bytesOf(ch.From)
	node := c.node // as it was decided on: what was given since is off its free memory
	node.MemoryFree = float64(c.last.Host.MemAvail) - node.ReserveMemory
	switch {
	case !e.BestEffort && to < owner:
		t.Fatalf("%.0f MiB imposed on an owner of %.0f MiB", to/mib, owner/mib)
	case to < from && to < use.Floor():
		t.Fatalf("%.0f MiB while %.0f MiB are held", to/mib, use.Held/mib)
	case to < from && e.Memory.Min > 0 && to < e.Memory.Min:
		t.Fatalf("%.0f MiB below the owner's %.0f", to/mib, e.Memory.Min/mib)
	case to > from && to > max(owner, node.Ceiling(e, use)):
		t.Fatalf("%.0f MiB above the ceiling of %.0f", to/mib, node.Ceiling(e, use)/mib)
	case to > from && e.Memory.Max > 0 && to > max(owner, e.Memory.Max):
		t.Fatalf("%.0f MiB above the owner's %.0f", to/mib, e.Memory.Max/mib)
	}
}

// TestGrowthIsSteady: one jump is no growth, a ramp is.
func TestGrowthIsSteady(t *testing.T) {
	every := func(seconds int64, held ...float64) *job {
		j := &job{}
		for i, h := range held {
			j.memory = append(j.memory, memoryTick{startNs: int64(i) * seconds * second, endNs: int64(i+1) * seconds * second, held: h})
		}
		return j
	}
	series := func(held ...float64) *job { return every(1, held...) }
	for name, c := range map[string]struct {
		j    *job
		want float64
	}{
		"nothing read": {series(), 0},
		"too short":    {series(1, 2), 0},
		"a ramp":       {series(10, 20, 30, 40, 50), 10},
		"one jump":     {series(10, 10, 10, 10, 50), 0},
		"it stopped":   {series(10, 50, 50, 50, 50), 0},
		"it falls":     {series(50, 40, 30, 20, 10), 0},
		"slow ticks":   {every(4, 10, 20, 30, 40), 2.5},
		"long past":    {series(10, 20, 30, 30, 30, 30, 30, 30), 0},
	} {
		if got := c.j.growth(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %.2f, want %.2f", name, got, c.want)
		}
	}
}
