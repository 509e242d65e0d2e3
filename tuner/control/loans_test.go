package control

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/guard"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestFreeCPUIsLentWithinThreeSeconds: whatever is counted of the job, from when its quota
// first stops it.
func TestFreeCPUIsLentWithinThreeSeconds(t *testing.T) {
	for name, add := range map[string]func(n *node) *simJob{
		"a job whose steps are counted":   func(n *node) *simJob { return n.addJob("train", 0.4, tune()) },
		"a program whose steps are not":   func(n *node) *simJob { return n.addProgram("boost", 0.4, 2, 1e6) },
		"one of which no witness is left": func(n *node) *simJob { return n.addProgram("spin", 0.4, 2, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(4)
			j := add(n)
			c := started()
			lent := -1
			records := run(c, n, 30, func(i int, d Decision) {
				if j.quota() > 0.4 && lent < 0 {
					lent = i
				}
				for _, o := range d.Apply {
					if o.Changes[0].Gain < 0 {
						t.Errorf("a loan is expected to bring %.2f", o.Changes[0].Gain)
					}
				}
			})
			if lent < 0 || lent > 3 { // the first tick reads nothing, two more tell
				t.Errorf("lent at tick %d", lent)
			}
			if len(outcomes(records)) > 0 {
				t.Errorf("a loan was tried: %+v", records)
			}
			if v := shownAs(t, c, j); v.Loan == nil || v.Loan.Own != 0.4 {
				t.Errorf("shown as %+v", v.Loan)
			}
		})
	}
}

// TestNeighbourHasItsRightWithinFiveSeconds: whoever it is, and whether it was there before. A
// kernel that deals by weight gives it at once; one that does not, once the loan is called in,
// whether or not anybody can read who waits.
func TestNeighbourHasItsRightWithinFiveSeconds(t *testing.T) {
	for _, kernel := range []string{"by weight", "evenly", "evenly, without PSI"} {
		for _, quota := range []float64{1.8, 0} {
			for _, enrolled := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, quota %v, enrolled %v", kernel, quota, enrolled), func(t *testing.T) {
					n := newNode(2)
					n.weighted = kernel == "by weight"
					n.addProgram("borrower", 0.4, 2, 1e6)
					other := n.addProgram("neighbour", quota, 0.01, 1e6)
					if !enrolled {
						other.c.Enrolment, other.c.Watched = policies.Enrolment{Mode: policies.ModeOff, WhyNot: "no label"}, false
					}
					for _, j := range n.jobs {
						j.noPSI = kernel == "evenly, without PSI"
					}
					c := started()
					run(c, n, 30, nil)
					other.spin = 2
					for range 2 {
						other.threads = append(other.threads, other.threads[0])
						other.threads[len(other.threads)-1].TID += 7
					}
					right := 1.6 // by the owners' values: what 0.4 CPUs leave
					if quota == 0 {
						right = 1 // its share by weight: what quotas leave beyond it may be proved to be worth more
					}
					var got []float64
					run(c, n, 60, func(_ int, _ Decision) { got = append(got, other.lastCPUsUsed) })
					for i := 5; i+5 <= len(got); i++ {
						sum := 0.0
						for _, cpus := range got[i : i+5] {
							sum += cpus
						}
						if sum/5 < 0.97*right {
							t.Fatalf("%.2f CPUs in the 5 s from second %d on, of the %.2f it has a right to: %.2f", sum/5, i, right, got)
						}
					}
					other.spin = 0.01
					back := -1
					run(c, n, 60, func(i int, _ Decision) {
						if back < 0 && n.jobs[0].lastCPUsUsed > 1.8 {
							back = i
						}
					})
					if back < 0 {
						t.Errorf("the borrower is lent nothing any more: %+v", shownAs(t, c, n.jobs[0]).WhyNot)
					}
				})
			}
		}
	}
}

// TestWhatTakesFromAll: processes outside of all containers, an engine that starts one among them,
// take CPUs from a borrower and its neighbour. For a moment nothing is written; for longer both
// have what the owners' values give them, and the neighbour has its right back once they end.
func TestWhatTakesFromAll(t *testing.T) {
	for name, seconds := range map[string]int{"for a moment": 2, "for longer": 30} {
		t.Run(name, func(t *testing.T) {
			n := newNode(2)
			n.addProgram("borrower", 0.4, 2, 1e6)
			other := n.addJob("neighbour", 1.8, policies.Enrolment{Mode: policies.ModeOff, WhyNot: "no label"})
			other.spin, other.c.Watched = 0.01, false
			c := started()
			run(c, n, 30, nil)
			other.spin, n.host = 2, 0.5
			var own, others []float64
			run(c, n, 60, func(i int, d Decision) {
				if n.host = 0; i+1 < seconds {
					n.host = 0.5
				}
				if seconds < 3 && len(d.Apply) > 0 {
					t.Errorf("second %d: %+v", i, d.Apply)
				}
				own, others = append(own, n.jobs[0].lastCPUsUsed), append(others, other.lastCPUsUsed)
			})
			if got := mean(own[5:max(seconds, 6)]); seconds > 5 && got < 0.97*0.4 {
				t.Errorf("the borrower has %.2f CPUs of its own 0.4 while they run: %.2f", got, own)
			}
			if got := mean(others[5:max(seconds, 6)]); seconds > 5 && got < 0.97*1.1 {
				t.Errorf("the neighbour has %.2f CPUs of the 1.1 that are left while they run: %.2f", got, others)
			}
			for i := seconds + 6; i+5 <= len(others); i++ {
				if got := mean(others[i : i+5]); got < 0.97*1.6 {
					t.Fatalf("the neighbour has %.2f CPUs of 1.6 in the 5 s from second %d on: %.2f", got, i, others)
				}
			}
		})
	}
}

func mean(of []float64) (m float64) {
	for _, x := range of {
		m += x / float64(len(of))
	}
	return m
}

// TestNeighbourThatNeedsMoreThanItsCurveSays: what was learned of its quiet time is no reason to
// try what it has a right to on somebody else.
func TestNeighbourThatNeedsMoreThanItsCurveSays(t *testing.T) {
	n := newNode(2)
	n.weighted = false
	n.addProgram("borrower", 0.4, 2, 1e6)
	other := n.addJob("neighbour", 1.8, policies.Enrolment{Mode: policies.ModeObserve, WhyNot: "no label"})
	other.trainerCPU, other.loaderCPU, other.device = 0.002, 0.004, 0.1
	c := started()
	run(c, n, 60, nil)
	if curve := c.containers[other.c.Key()].learned.curve; !curve.Known() {
		t.Fatal("no curve was learned: nothing is tested")
	}
	other.spin, other.ticks = 2, probes.Ticks{} // its steps are not seen any more
	run(c, n, 60, func(i int, d Decision) {
		for _, o := range d.Apply {
			if i > 5 && o.Kind == policies.KindTrial && !o.DryRun {
				t.Fatalf("second %d: a trial takes of what the neighbour has a right to: %+v", i, o.Changes)
			}
		}
		if i > 5 && other.lastCPUsUsed < 0.97*1.6 {
			t.Fatalf("second %d: it has %.2f CPUs", i, other.lastCPUsUsed)
		}
	})
}

// TestNeighbourThatComesAndGoes: each second, and nothing swings: a write of a loan is
// followed by none for five seconds, and by fewer the longer it lasts.
func TestNeighbourThatComesAndGoes(t *testing.T) {
	for period := 1; period <= 20; period++ {
		n := newNode(2)
		n.weighted = false
		n.addProgram("borrower", 0.4, 2, 1e6)
		other := n.addSpinner("neighbour", 2)
		other.c.Now[runtime.KnobCPUQuota] = "180000 100000"
		c := started()
		var writes []int
		run(c, n, 300, func(i int, d Decision) {
			other.spin = 0.01
			if i/period%2 == 1 {
				other.spin = 2
			}
			for _, o := range d.Apply {
				if slices.ContainsFunc(o.Changes, func(ch policies.Change) bool { return ch.Knob == runtime.KnobCPUQuota }) {
					writes = append(writes, i)
				}
			}
		})
		recalls := 0
		for k := 1; k < len(writes); k++ {
			if writes[k]-writes[k-1] < 5 {
				recalls++ // a recall may follow its loan at once: the neighbour's right comes first
			}
			if k > 1 && writes[k]-writes[k-2] < 5 {
				t.Errorf("period %d s: three writes within 5 s: %v", period, writes)
			}
		}
		if late := len(writes) - sortedBelow(writes, 200); late > 14 {
			t.Errorf("period %d s: %d writes in the last 100 s: %v", period, late, writes)
		}
	}
}

func sortedBelow(sorted []int, bound int) int {
	return len(slices.DeleteFunc(slices.Clone(sorted), func(at int) bool { return at >= bound }))
}

// TestFiveHundredStarvedAtOnce: what is idle is divided by what each has a right to, never
// beyond what there is, and all in one tick.
func TestFiveHundredStarvedAtOnce(t *testing.T) {
	n := newNode(64)
	for i := range 500 {
		n.addProgram(fmt.Sprintf("job%03d", i), 0.05, 1, 1e6)
	}
	cfg := Defaults()
	cfg.ReserveCPUs = 6.4
	c := New(cfg, builtin, "t")
	first, most := 0, 0.0
	run(c, n, 60, func(i int, d Decision) {
		sum := 0.0
		for _, j := range n.jobs {
			sum += j.quota()
		}
		most = max(most, sum)
		if first == 0 && len(d.Apply) > 0 {
			first = len(d.Apply)
		}
	})
	if first != 500 {
		t.Errorf("%d of 500 were lent to in the first tick that lent", first)
	}
	if most > 64-6.4+1 { // to a hundredth of a CPU each
		t.Errorf("quotas of %.1f CPUs of 57.6", most)
	}
	for _, j := range n.jobs {
		if j.lastCPUsUsed < 0.1 {
			t.Fatalf("%s has %.3f CPUs; a part alike is 0.115", j.c.Name, j.lastCPUsUsed)
		}
	}
}

// TestLoanModes: what may be lent, and how.
func TestLoanModes(t *testing.T) {
	n := newNode(8)
	free, proven, off := n.addJob("free", 0.4, tune()), n.addJob("proven", 0.4, tune()), n.addJob("off", 0.4, tune())
	proven.c.Enrolment.Loans, off.c.Enrolment.Loans = policies.LoansProven, policies.LoansOff
	c := started()
	records := run(c, n, 60, nil)
	if free.quota() <= 0.4 || off.quota() != 0.4 || proven.quota() <= 0.4 {
		t.Errorf("quotas %.2f, %.2f and %.2f", free.quota(), proven.quota(), off.quota())
	}
	if got := outcomes(records); len(got) != 1 || got[0] != state.OutcomeKept {
		t.Errorf("trials %v, want one kept: %+v", got, records)
	}
	// Switched off, it goes back.
	free.c.Enrolment.Loans = policies.LoansOff
	run(c, n, 30, nil)
	if free.quota() != 0.4 || free.weight() != 1024 {
		t.Errorf("%.2f CPUs at weight %.0f after loans were switched off", free.quota(), free.weight())
	}
}

// TestLabelThatAsksForMore: a bound above the host's is clamped where labels are read; what
// comes through is held here all the same.
func TestLabelThatAsksForMore(t *testing.T) {
	n := newNode(4)
	greedy := n.addProgram("greedy", 0.4, 8, 1e6)
	greedy.c.Enrolment.CPU = policies.Range{Max: 64}
	modest := n.addProgram("modest", 0.4, 8, 1e6)
	modest.c.Enrolment.CPU = policies.Range{Max: 0.8}
	cfg := Defaults()
	cfg.ReserveCPUs = 0.4
	c := New(cfg, builtin, "t")
	run(c, n, 30, func(i int, _ Decision) {
		if greedy.quota() > 3.6+1e-9 || modest.quota() > 0.8+1e-9 {
			t.Fatalf("tick %d: %.2f and %.2f CPUs", i, greedy.quota(), modest.quota())
		}
	})
}

// TestLoanLeavesTheHostSome: of the reserve, whether it is idle or not. Beside a program that has all CPUs some kernels
// run nothing else, and trimtab neither.
func TestLoanLeavesTheHostSome(t *testing.T) {
	for name, c := range map[string]struct{ reserve, tasks, most float64 }{
		"no reserve":              {0, 8, 2},
		"a small one":             {0.02, 8, 1.98},
		"the default":             {0.2, 8, 1.94},
		"a whole CPU":             {1, 8, 1},
		"as many tasks as CPUs":   {0.2, 2, 2}, // it may read its quota: with 1.94 it would start one
		"one more, half the time": {0.2, 2.5, 2},
	} {
		n := newNode(2)
		j := n.addProgram("server", 0.4, c.tasks, 1e6)
		cfg := Defaults()
		cfg.ReserveCPUs, cfg.LeftCPUShare = c.reserve, 0.03
		run(New(cfg, builtin, "t"), n, 60, func(i int, _ Decision) {
			if j.quota() > c.most+1e-9 {
				t.Fatalf("%s: tick %d: %.2f CPUs, want at most %.2f", name, i, j.quota(), c.most)
			}
		})
		if j.quota() < c.most-1e-9 {
			t.Errorf("%s: %.2f CPUs in the end, want %.2f", name, j.quota(), c.most)
		}
	}
}

// TestNothingImposed: no container without a quota gets one, and none falls below its own.
func TestNothingImposed(t *testing.T) {
	n := newNode(2)
	j := n.addJob("train", 0, tune())
	n.addSpinner("noise", 2)
	run(started(), n, 120, func(i int, d Decision) {
		for _, o := range d.Apply {
			for _, ch := range o.Changes {
				if ch.Knob == runtime.KnobCPUQuota {
					t.Fatalf("tick %d imposes a quota: %+v", i, ch)
				}
			}
		}
	})
	if j.c.Now[runtime.KnobCPUQuota] != "max 100000" {
		t.Error(j.c.Now)
	}
}

// TestFrozenLendsNothing: paused, held, disabled and opted out: no write, with the reason.
func TestFrozenLendsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(in *Input)
		says string
	}{
		"paused":        {func(in *Input) { in.Frozen = "paused" }, "paused"},
		"held":          {func(in *Input) { in.Containers[0].Held = true }, "held"},
		"off":           {func(in *Input) { in.Containers[0].Enrolment.Mode = policies.ModeOff }, "off"},
		"owed":          {func(in *Input) { in.Containers[0].Pending = "its quota" }, "a restore is pending"},
		"not reachable": {func(in *Input) { in.Containers[0].Preflight = "no device" }, "preflight: no device"},
		"paused itself": {func(in *Input) { in.Containers[0].State = runtime.StatePaused }, "container is paused"},
	} {
		n := newNode(4)
		j := n.addProgram("train", 0.4, 3, 1e6)
		ctl := started()
		for range 15 {
			in := n.tick()
			c.edit(&in)
			if d := ctl.Step(in); len(d.Apply)+len(d.Rollback) > 0 {
				t.Errorf("%s: %+v", name, d)
			}
		}
		if v := shownAs(t, ctl, j); !strings.Contains(v.WhyNot, c.says) {
			t.Errorf("%s: said %q", name, v.WhyNot)
		}
	}
}

// TestNotIdleIsSaidWhereNothingIs: CPUs become idle while a loan was just written. For some seconds
// nothing more is lent, and that is said.
func TestNotIdleIsSaidWhereNothingIs(t *testing.T) {
	n := newNode(6)
	j, noise := n.addProgram("train", 0.4, 4, 1e6), n.addSpinner("noise", 4.5)
	c, waited := started(), false
	run(c, n, 30, func(int, Decision) {
		if j.quota() > 0.4 {
			noise.spin = 1
		}
		switch no := c.containers[j.c.Key()].refused; {
		case no.Gate == guard.GateIdle && no.Value >= no.Threshold:
			t.Errorf("%.2f CPUs are idle: %s", no.Value, no.Text)
		case no.Gate == guard.GateCoolDown:
			waited = true
		}
	})
	if !waited || j.quota() < 4 {
		t.Errorf("it waited: %v; %.2f CPUs stand", waited, j.quota())
	}
}

// TestWatchedOnlyIsTold: of a container that is only observed, what would be lent is told once.
func TestWatchedOnlyIsTold(t *testing.T) {
	n := newNode(4)
	j := n.addProgram("train", 0.4, 3, 1e6)
	j.c.Enrolment.Mode, j.c.Enrolment.WhyNot = policies.ModeObserve, "no label"
	would := 0
	for _, r := range run(started(), n, 60, nil) {
		if r.Kind == state.RecordWould {
			would++
		}
	}
	if would != 1 || j.quota() != 0.4 {
		t.Errorf("told %d times, %.2f CPUs stand", would, j.quota())
	}
}

// TestRefusedWriteIsTriedLessAndLess: an engine that says no is not asked each second.
func TestRefusedWriteIsTriedLessAndLess(t *testing.T) {
	n := newNode(4)
	n.addProgram("train", 0.4, 3, 1e6)
	c := started()
	asked := 0
	for range 300 {
		in := n.tick()
		in.Results, n.results = n.results, nil
		for _, o := range c.Step(in).Apply {
			asked++
			n.results = append(n.results, Result{Kind: ResultApply, Plan: o.Plan, Key: o.Changes[0].Key, Refused: true, Text: "read-only file system"})
		}
	}
	if asked < 2 || asked > 8 {
		t.Errorf("asked %d times in 300 s", asked)
	}
	if v := shownAs(t, c, n.jobs[0]); !strings.Contains(v.WhyNot, "read-only file system") {
		t.Errorf("said %q", v.WhyNot)
	}
}

// TestRaisedWeightGoesBackWhenSomebodyIsShort: a weight that a trial dealt stands while nobody
// is short of what it has a right to.
func TestRaisedWeightGoesBackWhenSomebodyIsShort(t *testing.T) {
	for _, noPSI := range []bool{false, true} {
		raisedWeight(t, noPSI)
	}
}

func raisedWeight(t *testing.T, noPSI bool) {
	n := newNode(2)
	j := n.addJob("train", 0, tune())
	j.noPSI = noPSI
	c := started()
	run(c, n, 10, nil)
	// As a trial that was kept left it.
	j.c.Now, j.c.Original = j.c.Now.Clone(), runtime.Values{runtime.KnobCPUWeight: "1024"}
	j.c.Now[runtime.KnobCPUWeight] = "16384"
	s := c.containers[j.c.Key()]
	s.dealt = "16384"
	run(c, n, 30, nil)
	if j.weight() != 16384 {
		t.Fatalf("weight %.0f though nobody is short", j.weight())
	}
	n.addSpinner("neighbour", 2).noPSI = noPSI
	run(c, n, 8, nil)
	if j.weight() != 1024 {
		t.Errorf("without PSI %v: weight %.0f while a neighbour gets %.2f of its one CPU", noPSI, j.weight(), n.jobs[1].lastCPUsUsed)
	}
}

// TestAProgramThatReadsItsQuota starts as many threads as its quota has whole CPUs, and uses nine
// tenths of each: a loan that settles to what it used would take one thread after the other.
func TestAProgramThatReadsItsQuota(t *testing.T) {
	n := newNode(8)
	j := n.addProgram("boost", 0.4, 8, 1e6)
	c := started()
	reads := func(i int, _ Decision) {
		if i%5 == 0 { // it builds its threads anew now and then
			j.spin = 0.9 * max(1, math.Floor(j.quota()))
		}
	}
	reads(0, Decision{})
	run(c, n, 120, reads)
	writes := 0
	run(c, n, 180, func(i int, d Decision) {
		writes += len(d.Apply)
		reads(i, d)
	})
	if j.lastCPUsUsed < 6.2 || writes > 0 {
		t.Errorf("it uses %.1f CPUs of %.1f, and %d writes came after two minutes", j.lastCPUsUsed, j.quota(), writes)
	}
}
