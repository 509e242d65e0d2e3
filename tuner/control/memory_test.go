package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

func allowMemory() policies.Enrolment {
	e := tune()
	e.Knobs = []string{"cpu", "memory"}
	return e
}

// limited puts a job on a host of v1 under a memory limit, with as much swap again.
func (n *node) limited(name string, limitMiB, heldMiB int64, e policies.Enrolment) *simJob {
	n.memTotal, n.memAvail = 64*gib, 48*gib
	j := n.addJob(name, 0, e)
	j.c.Cgroup = runtime.Cgroup{Mode: runtime.CgroupHybrid, V1: map[string]string{"memory": "/sys/fs/cgroup/memory/" + name}}
	j.c.Now[runtime.KnobMemoryLimit] = runtime.IntValue(limitMiB * mib)
	j.c.Now[runtime.KnobMemorySwap] = runtime.IntValue(2 * limitMiB * mib)
	j.hold(heldMiB)
	return j
}

// hold makes so much of its memory anonymous, with a little page cache beside.
func (j *simJob) hold(heldMiB int64) {
	j.cgroup.Anon, j.cgroup.MemoryBytes, j.cgroup.MemoryLimit = uint64(heldMiB*mib), uint64((heldMiB+20)*mib), j.limit()
}

// reads makes it read so many bytes round and round, 4 MiB a step, from a disk of so much a second.
func (j *simJob) reads(bytes, disk float64) *simJob {
	j.files = &fileSet{bytes: bytes, perStep: 16 * mib, disk: disk}
	j.cgroup.MemoryBytes = j.cgroup.Anon
	return j
}

// TestFilesThatDoNotFit: memory that nobody uses is lent up to the working set within one
// epoch, whether that takes seconds or minutes, and settles to what is enough, with a margin.
func TestFilesThatDoNotFit(t *testing.T) {
	for _, tt := range []struct {
		name               string
		limitMiB, filesMiB int64
		disk               float64
	}{
		{"1.2 GiB of files under 400 MiB, epochs of 12 s", 400, 1200, 100 * mib},
		{"12 GiB under 2 GiB, epochs of three minutes", 2048, 12 * 1024, 66 * mib},
		{"20 GiB under 1 GiB, epochs of ten minutes", 1024, 20 * 1024, 34 * mib},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(4)
			j := n.limited("cache", tt.limitMiB, 100, allowMemory()).reads(float64(tt.filesMiB*mib), tt.disk)
			epoch := int(float64(tt.filesMiB*mib) / tt.disk)
			c := started()
			raised, full, settled := -1, -1, -1
			records := run(c, n, 4*epoch+120, func(i int, _ Decision) {
				switch {
				case raised < 0 && j.limit() > tt.limitMiB*mib:
					raised = i
				case full < 0 && j.files.cached >= j.files.bytes-1:
					full = i
				}
				if full >= 0 && settled < 0 && j.limit() < 2*(tt.filesMiB+100)*mib {
					settled = i
				}
			})
			if raised < 0 || raised > epoch+20 { // the first epoch reads everything for the first time
				t.Fatalf("raised at second %d of epochs of %d s: %+v", raised, epoch, shownAs(t, c, j))
			}
			if full < 0 || full > raised+epoch+5 {
				t.Errorf("all is cached at second %d, raised at %d: more than an epoch of %d s", full, raised, epoch)
			}
			if settled < 0 || settled > full+30 {
				t.Errorf("settled at second %d, all was cached at %d", settled, full)
			}
			need := float64((tt.filesMiB + 100) * mib)
			if limit := float64(j.limit()); limit < need || limit > need*1.1+65*mib {
				t.Errorf("%.0f MiB stand; %.0f are used", limit/mib, need/mib)
			}
			if j.lastRate < 0.9/j.ideal() {
				t.Errorf("%.1f steps/s, %.1f are possible", j.lastRate, 1/j.ideal())
			}
			for _, r := range records {
				if r.Kind == state.RecordTrial && !strings.Contains(r.Text, "kept") {
					t.Errorf("a loan was judged: %+v", r)
				}
			}
			if v := shownAs(t, c, j); !v.HasGain || v.Gain < 0.5 {
				t.Errorf("gain %v %.2f: it is what the job gained", v.HasGain, v.Gain)
			}
		})
	}
}

// TestMoreFilesThanMemory: of files that no memory of the host can hold, a part is of no use: it
// goes back, and is not lent again and again.
func TestMoreFilesThanMemory(t *testing.T) {
	n := newNode(4)
	j := n.limited("huge", 1024, 100, allowMemory()).reads(60*gib, 200*mib)
	c := started()
	raises, last := 0, j.limit()
	run(c, n, 3000, func(int, Decision) {
		if j.limit() > last {
			raises++
		}
		last = j.limit()
	})
	if j.limit() != 1024*mib || raises == 0 || raises > 8 {
		t.Errorf("%d MiB stand after %d raises", j.limit()/mib, raises)
	}
}

// TestMemoryGoesBackUnderPressure: when the host runs short, before anybody stalls.
func TestMemoryGoesBackUnderPressure(t *testing.T) {
	n := newNode(4)
	j := n.limited("cache", 400, 100, allowMemory()).reads(1200*mib, 100*mib)
	c := started()
	run(c, n, 60, nil)
	if j.limit() < 1300*mib {
		t.Fatalf("lent %d MiB", j.limit()/mib)
	}
	n.memAvail = 2 * gib // of a reserve of 6.4
	back, writes := -1, 0
	run(c, n, 60, func(i int, d Decision) {
		writes += len(d.Apply) + len(d.Rollback)
		if back < 0 && j.limit() == 400*mib {
			back = i
		}
	})
	if back < 0 || back > 6 || writes != 1 {
		t.Errorf("back at second %d after %d writes: %d MiB", back, writes, j.limit()/mib)
	}
	if swap := j.c.Now[runtime.KnobMemorySwap]; swap != runtime.IntValue(800*mib) {
		t.Errorf("swap %s", swap)
	}
	n.memAvail = 48 * gib
	run(c, n, 60, nil)
	if j.limit() < 1300*mib {
		t.Errorf("%d MiB stand once the host has memory again: %+v", j.limit()/mib, shownAs(t, c, j).WhyNot)
	}
}

// TestHostIsShortNowAndThen: a neighbour that takes the host's memory each few seconds and lets
// it go is not followed to and fro.
func TestHostIsShortNowAndThen(t *testing.T) {
	for _, every := range []int{1, 3, 10} {
		n := newNode(4)
		j := n.limited("cache", 400, 100, allowMemory()).reads(1200*mib, 100*mib)
		c := started()
		run(c, n, 60, nil)
		writes := 0
		run(c, n, 300, func(i int, d Decision) {
			writes += len(d.Apply) + len(d.Rollback)
			n.memAvail = []uint64{2 * gib, 48 * gib}[i/every%2]
		})
		if writes > 14 {
			t.Errorf("every %d s: %d writes in 300 s", every, writes)
		}
		n.memAvail = 48 * gib
		if run(c, n, 120, nil); j.limit() < 1300*mib {
			t.Errorf("every %d s: %d MiB stand once the neighbour has gone", every, j.limit()/mib)
		}
	}
}

// TestRefusedReturnHindersNoRecall: memory that the kernel does not let go is asked for later each
// time, and CPUs that a neighbour has a right to are called in meanwhile.
func TestRefusedReturnHindersNoRecall(t *testing.T) {
	n := newNode(2)
	n.weighted = false
	j := n.limited("given", 2000, 500, allowMemory())
	j.c.Now[runtime.KnobCPUQuota] = "40000 100000"
	j.c.Original = runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(500 * mib), runtime.KnobMemorySwap: runtime.IntValue(1000 * mib)}
	other := n.addSpinner("neighbour", 0.01)
	other.c.Now[runtime.KnobCPUQuota] = "180000 100000"
	n.memAvail = 2 * gib // of a reserve of 6.4
	c := started()
	asked := 0
	for i := range 120 {
		if i == 60 {
			other.spin = 2
		}
		in := n.tick()
		in.Results, n.results = n.results, nil
		var rest Decision
		for _, o := range c.Step(in).Apply {
			if o.Changes[0].Knob != runtime.KnobMemoryLimit {
				rest.Apply = append(rest.Apply, o)
				continue
			}
			asked++
			n.results = append(n.results, Result{Kind: ResultApply, Plan: o.Plan, Key: o.Changes[0].Key, Refused: true, Text: "1 GiB of it cannot be moved"})
		}
		n.results = append(n.results, n.apply(rest)...)
		if i == 59 && j.quota() < 1 {
			t.Fatalf("%.2f CPUs are lent", j.quota())
		}
		if i > 66 && other.lastCPUsUsed < 1.55 {
			t.Fatalf("the neighbour gets %.2f of its 1.60 CPUs %d s after it woke", other.lastCPUsUsed, i-60)
		}
	}
	if asked < 2 || asked > 7 {
		t.Errorf("asked %d times in 120 s", asked)
	}
}

// TestGrewThenReads: a raise that protected a job from its growth does not speak against one for the
// files that it reads a minute later.
func TestGrewThenReads(t *testing.T) {
	for _, seconds := range []int{70, 200} { // it reads soon after it was raised, or long after
		n := newNode(4)
		j := n.limited("grows", 700, 300, allowMemory())
		c := started()
		held := int64(300)
		run(c, n, seconds, func(int, Decision) {
			held = min(held+10, 900)
			j.hold(held)
		})
		if limit := j.limit(); limit < 920*mib || seconds > 100 && limit > 1100*mib {
			t.Fatalf("%d MiB stand for one that holds 900", limit/mib)
		}
		j.reads(1200*mib, 100*mib)
		run(c, n, 120, nil)
		if limit := j.limit(); limit < 2100*mib || limit > 2400*mib {
			t.Errorf("after %d s: %d MiB stand for 2,100: %s", seconds, limit/mib, shownAs(t, c, j).WhyNot)
		}
	}
}

// TestADipIsNoReturn: a job frees much for a moment and takes it again, as between two epochs.
// Its limit must not have gone below that meanwhile, or it is killed.
func TestADipIsNoReturn(t *testing.T) {
	n := newNode(4)
	j := n.limited("epochs", 700, 300, allowMemory())
	c := started()
	held := int64(300)
	run(c, n, 300, func(i int, _ Decision) {
		held = min(held+10, 900)
		if j.hold(held); i > 150 && i%40 < 2 {
			j.hold(300)
		}
		if i > 150 && j.limit() <= 900*mib {
			t.Fatalf("tick %d: %d MiB stand for one that holds 900 but for a moment", i, j.limit()/mib)
		}
	})
}

// TestALowerCeilingBinds: what a rule allows no more goes back of what was lent before.
func TestALowerCeilingBinds(t *testing.T) {
	n := newNode(4)
	memory, cpu := n.limited("grows", 700, 300, allowMemory()), n.addProgram("busy", 0.4, 4, 1e6)
	c := started()
	held := int64(300)
	run(c, n, 100, func(int, Decision) {
		held = min(held+10, 900)
		memory.hold(held)
	})
	if memory.limit() < 920*mib || cpu.quota() < 2 {
		t.Fatalf("%d MiB and %.2f CPUs were lent", memory.limit()/mib, cpu.quota())
	}
	memory.hold(700)
	memory.c.Enrolment.Memory.Max, cpu.c.Enrolment.CPU.Max = 850*mib, 1
	writes := 0
	run(c, n, 90, func(_ int, d Decision) {
		memory.cgroup.RefaultFile += 4000 // it misses what it had, and gets no more all the same
		memory.cgroup.EventsMax++
		if memory.limit() < 850*mib {
			t.Fatalf("%d MiB stand", memory.limit()/mib)
		}
		for _, o := range append(d.Apply, d.Rollback...) {
			if slices.ContainsFunc(o.Changes, func(ch policies.Change) bool { return ch.Knob == runtime.KnobMemoryLimit }) {
				writes++
			}
		}
	})
	if writes > 3 {
		t.Errorf("its limit was written %d times", writes)
	}
	if memory.limit() > 850*mib || cpu.quota() > 1 {
		t.Errorf("%d MiB and %.2f CPUs stand, of 850 and 1 that may be lent", memory.limit()/mib, cpu.quota())
	}
}

// TestGrowingJobIsProtected: a job that grows into its limit is given more in time, again and
// again, up to what its owner allows; no rate is waited for.
func TestGrowingJobIsProtected(t *testing.T) {
	n := newNode(4)
	e := allowMemory()
	e.Memory.Max = 3000 * mib
	j := n.limited("leak", 700, 300, e)
	c := started()
	held, raised := int64(300), 0
	run(c, n, 150, func(i int, d Decision) {
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
	if raised < 2 || raised > 4 || j.limit() > 3000*mib {
		t.Errorf("raised %d times, to %d MiB", raised, j.limit()/mib)
	}
}

// TestGrowthIsSeenBeforeTheFirstStep: a job that loads its data before its first step is
// protected as well, and in whatever mode its loans are.
func TestGrowthIsSeenBeforeTheFirstStep(t *testing.T) {
	for _, mode := range []policies.LoanMode{policies.LoansFree, policies.LoansProven} {
		n := newNode(4)
		e := allowMemory()
		e.Loans = mode
		j := n.limited("loads", 700, 300, e)
		j.device = 1000 // seconds until its first step
		raised := -1
		run(started(), n, 18, func(i int, d Decision) {
			if len(d.Apply) > 0 && raised < 0 {
				raised = i
			}
			j.hold(300 + 30*int64(i))
		})
		if raised < 0 {
			t.Errorf("%s: not protected", mode)
		}
	}
}

// TestMemoryIsDealtOnce: two that grow at once are not given the same memory twice.
func TestMemoryIsDealtOnce(t *testing.T) {
	n := newNode(4)
	a, b := n.limited("a", 700, 300, allowMemory()), n.limited("b", 700, 300, allowMemory())
	n.memAvail = (6554 + 1300) * mib // of the reserve, and beyond it
	held, stood := int64(300), [2]int64{}
	run(started(), n, 60, func(i int, _ Decision) {
		if i == 30 { // one of whom nothing has been read: what it has of its loan is not known
			unread := n.limited("unread", 700, 300, allowMemory())
			unread.c.Original, unread.c.Now[runtime.KnobMemoryLimit] = unread.c.Now.Clone(), runtime.IntValue(20_000*mib)
			unread.hold(19_900)
		}
		if i == 31 && (a.limit() < stood[0] || b.limit() < stood[1]) {
			t.Errorf("called in because of one of whom nothing was read")
		}
		stood = [2]int64{a.limit(), b.limit()}
		held = min(held+20, 1500)
		n.memAvail = uint64(6554+1300-2*(max(held, 700)-700)) * mib
		a.hold(held)
		b.hold(held)
		if sum := a.limit() + b.limit(); sum > (1400+1300+40)*mib {
			t.Fatalf("limits of %d MiB: 1,400 were their own, and 1,300 were free", sum/mib)
		}
	})
	if a.limit() == 700*mib || b.limit() == 700*mib {
		t.Errorf("%d and %d MiB", a.limit()/mib, b.limit()/mib)
	}
}

// TestTakenMemoryGoesBackAtOnce: what was taken back of a loan, and is missed, stands again
// within the tick, also while all is paused.
func TestTakenMemoryGoesBackAtOnce(t *testing.T) {
	for sign, bite := range map[string]func(j *simJob){
		"refaults": func(j *simJob) { j.cgroup.RefaultFile += 4000; j.cgroup.EventsMax++ },
		"pressure": func(j *simJob) { j.cgroup.Memory.SomeUs += 300_000; j.cgroup.Memory.FullUs += 100_000 },
		"a kill":   func(j *simJob) { j.cgroup.OOMKills++ },
		"growth":   func(j *simJob) { j.hold(690) },
		"a leap":   func(j *simJob) { j.hold(600) },
	} {
		for _, paused := range []bool{false, true} {
			t.Run(fmt.Sprint(sign, ", paused ", paused), func(t *testing.T) {
				n := newNode(4)
				j := n.limited("given", 2000, 500, allowMemory())
				j.c.Original = runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(500 * mib), runtime.KnobMemorySwap: runtime.IntValue(1000 * mib)}
				c := started()
				taken, bitten, back := -1, -1, -1
				for i := range 60 {
					in := n.tick()
					in.Results, n.results = n.results, nil
					if paused && taken >= 0 && i > taken+1 {
						in.Frozen = "paused"
					}
					d := c.Step(in)
					n.results = n.apply(d)
					switch {
					case taken < 0 && j.limit() < 2000*mib:
						taken = i
					case taken >= 0 && bitten < 0 && i >= taken+5:
						bitten = i
						bite(j)
					case bitten >= 0 && back < 0 && len(d.Rollback) > 0:
						back = i
					}
				}
				if taken < 0 || back != bitten+1 {
					t.Fatalf("taken at tick %d, bit after %d, back at %d; want it back in the next", taken, bitten, back)
				}
				if j.limit() != 2000*mib || j.c.Now[runtime.KnobMemorySwap] != runtime.IntValue(3500*mib) && j.c.Now[runtime.KnobMemorySwap] != runtime.IntValue(4000*mib) {
					t.Errorf("limit %d MiB, swap %s", j.limit()/mib, j.c.Now[runtime.KnobMemorySwap])
				}
			})
		}
	}
}

// TestWhatWasMissedStays: a limit that was too low is not tried again a moment later, however much was read again under it.
func TestWhatWasMissedStays(t *testing.T) {
	n := newNode(4)
	j := n.limited("given", 2000, 100, allowMemory())
	j.c.Original = runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(200 * mib), runtime.KnobMemorySwap: runtime.IntValue(400 * mib)}
	taken, lowered, last := -1, 0, j.limit()
	run(started(), n, 200, func(i int, _ Decision) {
		if j.limit() < last {
			taken, lowered = i, lowered+1
		}
		if last = j.limit(); taken >= 0 && i == taken+5 {
			j.cgroup.RefaultFile += 400 * mib / 4096
			j.cgroup.EventsMax++
		}
	})
	if lowered != 1 || j.limit() != 2000*mib {
		t.Errorf("lowered %d times; %d MiB stand", lowered, j.limit()/mib)
	}
}

// TestForeignReclaimIsNotTheLimits: a host that evicts what is cold, as DAMON's or a daemon's reclaim
// does, makes a job read again under any limit. One that it never hit is not blamed, and stays lowered.
func TestForeignReclaimIsNotTheLimits(t *testing.T) {
	n := newNode(4)
	j := n.limited("given", 2000, 500, allowMemory())
	j.c.Original = runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(500 * mib), runtime.KnobMemorySwap: runtime.IntValue(1000 * mib)}
	c := started()
	lowered := false
	run(c, n, 60, func(_ int, d Decision) {
		if lowered = lowered || j.limit() < 2000*mib; lowered {
			j.cgroup.RefaultFile += 1000
		}
		if len(d.Rollback) > 0 {
			t.Fatalf("back to %d MiB: %s", j.limit()/mib, d.Rollback[0].Why)
		}
	})
	if !lowered {
		t.Fatal("nothing was taken")
	}
}

// TestObservedGrowthIsToldOnce: of a container that is only observed the same is not told each tick.
func TestObservedGrowthIsToldOnce(t *testing.T) {
	n := newNode(4)
	e := allowMemory()
	e.Mode, e.WhyNot = policies.ModeObserve, "observe"
	j := n.limited("leak", 2000, 1500, e)
	held, would := int64(1500), 0
	for _, r := range run(started(), n, 30, func(int, Decision) { held += 16; j.hold(held) }) {
		if r.Kind == state.RecordWould {
			would++
		}
	}
	if would != 1 {
		t.Errorf("%d would-have records, want one", would)
	}
}
