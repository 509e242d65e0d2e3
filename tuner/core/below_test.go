package core

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/view"
)

func bestEffort() policies.Enrolment {
	e := allowMemory()
	e.BestEffort = true
	return e
}

// onV2 gives a job v2's knobs of memory.
func (j *simJob) onV2() {
	j.c.Cgroup = runtime.Cgroup{Mode: runtime.CgroupV2}
	delete(j.c.Now, runtime.KnobMemorySwap)
	j.c.Now[runtime.KnobMemoryHigh] = runtime.ValueMax
}

func (j *simJob) press() { j.cgroup.Memory.SomeUs += 300_000; j.cgroup.Memory.FullUs += 100_000 }

// TestWhatBitesGoesBackToTheOwners: several takes one after another; the watch of the
// last alone would give back its own step, and leave the ones before unwatched.
func TestWhatBitesGoesBackToTheOwners(t *testing.T) {
	steps := func(limits ...int64) func(policies.Job) []policies.Change {
		return func(pj policies.Job) []policies.Change {
			for i := range len(limits) - 1 {
				if pj.MemoryUse.Limit == float64(limits[i]*mib) {
					return []policies.Change{limitTo(pj, limits[i+1], true, policies.WitnessHarm)}
				}
			}
			return nil
		}
	}
	highThenLimit := func(pj policies.Job) []policies.Change {
		limit, high := limitTo(pj, 800, true, policies.WitnessHarm), limitTo(pj, 800, true, policies.WitnessHarm)
		high.Knob, high.From = runtime.KnobMemoryHigh, pj.Now[runtime.KnobMemoryHigh]
		switch {
		case high.From == runtime.ValueMax && pj.MemoryUse.Limit == 1000*mib:
			return []policies.Change{high}
		case high.From != runtime.ValueMax:
			high.To, high.Take = runtime.ValueMax, false
			return []policies.Change{limit, high}
		}
		return nil
	}
	for name, c := range map[string]struct {
		propose func(policies.Job) []policies.Change
		v2      bool
		want    int64 // MiB, once it bites
	}{
		"two steps":                    {steps(1000, 900, 810), false, 1000},
		"memory.high, then the limit":  {highThenLimit, true, 1000},
		"what trimtab gave, in steps":  {steps(2000, 1600, 1200), false, 1600},
		"from above the owner's to it": {steps(1500, 1000), false, 1500},
	} {
		for _, when := range []string{"on trial", "kept"} {
			t.Run(name+"/"+when, func(t *testing.T) {
				n := newNode(4)
				j := n.limited("job", 1000, 300, bestEffort())
				if c.v2 {
					j.onV2()
				}
				if given := map[int64]int64{1600: 2000, 1500: 1500}[c.want]; given > 0 {
					j.c.Original = runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(1000 * mib), runtime.KnobMemorySwap: runtime.IntValue(2000 * mib)}
					j.c.Now[runtime.KnobMemoryLimit], j.c.Now[runtime.KnobMemorySwap] = runtime.IntValue(given*mib), runtime.IntValue(2*given*mib)
				}
				kept, due, bitten, back := 0, 2, -1, -1
				var stands runtime.Values // once it is back
				if c.want == 1500 {
					due = 1
				}
				co := New(Defaults(), script{c.propose}, "t")
				run(co, n, 150, func(i int, d Decision) {
					for _, r := range d.Records {
						if r.Kind == view.RecordTrial && r.Outcome == view.OutcomeKept {
							kept++
						}
					}
					open := len(co.trials) > 0 && i > 3
					if now := when == "kept" && kept == due || when == "on trial" && kept == due-1 && open; now && bitten < 0 {
						bitten = i + 2
					}
					if bitten >= 0 && i >= bitten && back < 0 {
						j.press()
					}
					if len(d.Rollback) > 0 && back < 0 {
						back, stands = i, j.c.Now
					}
				})
				if back < 0 || back != bitten+1 {
					t.Fatalf("bit after tick %d, back at %d: want it in the next", bitten, back)
				}
				if got := stands[runtime.KnobMemoryLimit]; got != runtime.IntValue(c.want*mib) {
					t.Errorf("limit %s, want %d MiB", got, c.want)
				}
				if high := stands[runtime.KnobMemoryHigh]; c.v2 && high != runtime.ValueMax {
					t.Errorf("memory.high %s, want the owner's", high)
				}
			})
		}
	}
}

// TestWhatStandsBelowTheOwnersIsWatched: by a daemon that did not set it, too, and while paused.
func TestWhatStandsBelowTheOwnersIsWatched(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(j *simJob)
		want bool // back
	}{
		"it bites":              {func(*simJob) {}, true},
		"yielded":               {func(j *simJob) { j.c.Yielded = []runtime.Knob{runtime.KnobMemoryLimit, runtime.KnobMemorySwap} }, false},
		"held":                  {func(j *simJob) { j.c.Held = true }, false},
		"a write is under way":  {func(j *simJob) { j.c.Busy = true }, false},
		"above its owner's":     {func(j *simJob) { j.c.Original[runtime.KnobMemoryLimit] = runtime.IntValue(500 * mib) }, false},
		"where there was none":  {func(j *simJob) { j.c.Original[runtime.KnobMemoryLimit] = runtime.ValueMax }, true},
		"memory.high, not more": {func(j *simJob) { j.onV2(); j.below(runtime.KnobMemoryHigh, "max") }, true},
	} {
		for _, frozen := range []string{"", "paused"} {
			t.Run(name+"/"+frozen, func(t *testing.T) {
				n := newNode(4)
				j := n.limited("job", 900, 300, bestEffort())
				j.c.Original = runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(1000 * mib)}
				c.edit(j)
				was := j.c.Now.Clone()
				co, back := New(Defaults(), script{func(policies.Job) []policies.Change { return nil }}, "t"), 0
				took := false
				for i := range 12 {
					in := n.tick()
					in.Frozen = frozen
					d := co.Step(in)
					n.apply(d)
					took = took || co.TookMemory()
					if back += len(d.Rollback); back > 0 && i <= 6 {
						t.Fatalf("back at tick %d: nothing bit: %+v", i, d.Records)
					}
					if i >= 6 {
						j.press()
					}
				}
				if took != c.want || co.TookMemory() && c.want {
					t.Errorf("looked at each tick: %v, at the end %v", took, co.TookMemory())
				}
				if c.want != (back == 1) || !c.want && back > 0 {
					t.Fatalf("%d ways back", back)
				}
				for k, original := range j.c.Original {
					if c.want {
						t.Errorf("%s stands at %s, the owner's is %s", k, j.c.Now[k], original)
					}
				}
				if !c.want && j.limit() != 900*mib {
					t.Errorf("%v, was %v", j.c.Now, was)
				}
			})
		}
	}
}

// below sets a knob to 900 MiB under its owner's value, alone.
func (j *simJob) below(k runtime.Knob, original runtime.Value) {
	j.c.Original = runtime.Values{k: original}
	j.c.Now[k] = runtime.IntValue(900 * mib)
}

// TestTakeEscapesWhilePaused: a pause stops what is new, not the way back of what bites.
func TestTakeEscapesWhilePaused(t *testing.T) {
	for _, kept := range []bool{false, true} {
		n := newNode(4)
		j := n.limited("given", 1000, 300, allowMemory())
		j.c.Original = runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(500 * mib), runtime.KnobMemorySwap: runtime.IntValue(1000 * mib)}
		c := New(Defaults(), script{func(pj policies.Job) []policies.Change {
			if pj.MemoryUse.Limit != 1000*mib {
				return nil
			}
			return []policies.Change{limitTo(pj, 700, true, policies.WitnessHarm)}
		}}, "t")
		var results []Result
		paused, back := -1, false
		for i := range 90 {
			in := n.tick()
			in.Results = results
			if paused < 0 && j.limit() == 700*mib && (!kept || len(c.standing) > 0) && i > 10 {
				paused = i
			}
			if paused >= 0 {
				in.Frozen = "paused"
			}
			d := c.Step(in)
			results = n.apply(d)
			if len(d.Apply) > 0 && paused >= 0 {
				t.Fatal("changed while paused")
			}
			back = back || len(d.Rollback) > 0
			if paused >= 0 && i > paused+2 && !back {
				j.press()
			}
		}
		if !back || j.limit() != 1000*mib {
			t.Errorf("kept %v, paused at tick %d: limit %d MiB, want it back at 1000", kept, paused, j.limit()/mib)
		}
	}
}

// TestGrowthBelowTheOwnersIsProtected: what the owner allows is the job's own, on a
// host that has nothing left too.
func TestGrowthBelowTheOwnersIsProtected(t *testing.T) {
	c := New(Defaults(), script{}, "t")
	j := &job{c: Container{Enrolment: bestEffort(), Watched: true, Now: runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(900 * mib)},
		Original: runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(1000 * mib)}}}
	for i := range int64(6) {
		j.memory = append(j.memory, memoryTick{startNs: i * second, endNs: (i + 1) * second, held: float64((700 + 30*i) * mib), current: float64((720 + 30*i) * mib)})
	}
	c.node.Memory, c.node.MemoryFree, c.node.DecisionSeconds = 16<<30, -1<<30, 30
	if !c.urgent(j) {
		t.Error("not urgent: the owner's 1000 MiB are its own")
	}
	j.c.Original = nil
	if c.urgent(j) {
		t.Error("urgent, and nothing can be given")
	}
}

// TestFailedCacheRaiseDoesNotStandInTheWayOfProtection: they raise the same knob for
// reasons that say nothing of each other.
func TestFailedCacheRaiseDoesNotStandInTheWayOfProtection(t *testing.T) {
	c := New(Defaults(), script{}, "t")
	e := allowMemory()
	j := &job{c: Container{Enrolment: e, Watched: true, Now: runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(500 * mib)}}}
	j.memory = []memoryTick{{endNs: second, held: 400 * mib, current: 480 * mib}}
	c.jobs["x"] = j
	c.node.Memory, c.node.MemoryFree = 16<<30, 8<<30
	cache := policies.Change{Key: "x", Knob: runtime.KnobMemoryLimit, From: j.c.Now[runtime.KnobMemoryLimit], To: runtime.IntValue(900 * mib)}
	protect := cache
	protect.Witness = policies.WitnessHarm
	j.failMove(c, cache)
	if _, why := c.bound(j, cache); why == "" {
		t.Error("what failed is tried again at once")
	}
	if _, why := c.bound(j, protect); why != "" {
		t.Errorf("the raise that saves it is refused: %s", why)
	}
}
