package control

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/observe"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

// startedAs is what a container is known by that was started with these words.
func startedAs(words ...string) *profiles.Start {
	return &profiles.Start{Host: "aGVyZWhl", Kernel: "6.1", Identity: identity.Of(identity.Start{ImageDigest: "sha256:1", Image: "train", Command: words}, bytes.Repeat([]byte{7}, identity.KeyBytes))}
}

// runOf is one more container of the same job, on a node of its own.
func runOf(n int, kind func(*node) *simJob, words ...string) (*node, *simJob) {
	node := newNode(8)
	node.nowNs += int64(n) * 10000 * second
	j := kind(node)
	j.c.ID.StartTick = uint64(n)
	j.c.Start = startedAs(words...)
	return node, j
}

func training(quota float64) func(*node) *simJob {
	return func(n *node) *simJob { return n.addJob("train", quota, tune()) }
}

// finished runs a container for some seconds and ends it.
func finished(b *profiles.Store, n *node, seconds int) {
	c := started()
	c.Remember(b)
	run(c, n, seconds, nil)
	n.jobs = nil
	run(c, n, 1, nil)
}

// TestKnownJobHasItsSettledCPUAtOnce: what the first run settles to after seconds of measuring, the
// second has within three seconds of its start, before a step of it is counted. So has one whose
// steps nobody counts.
func TestKnownJobHasItsSettledCPUAtOnce(t *testing.T) {
	for name, kind := range map[string]func(*node) *simJob{
		"steps are counted":     training(0.4),
		"steps are not counted": func(n *node) *simJob { return n.addProgram("boost", 0.4, 2, 1e6) },
		// It never settles: it would use more than the node has.
		"it wants all that may be lent": func(n *node) *simJob { return n.addProgram("forest", 0.4, 12, 1e6) },
		// It settles to what it has: less frees next to nothing.
		"it uses nearly all": func(n *node) *simJob { return n.addProgram("forest", 0.4, 7.6, 1e6) },
	} {
		t.Run(name, func(t *testing.T) {
			b := profiles.NewStore()
			n, first := runOf(1, kind, "train.py", "--seed", "1")
			finished(b, n, 55)
			settled := first.quota()
			n, j := runOf(2, kind, "train.py", "--seed", "2")
			c := started()
			c.Remember(b)
			at := -1
			run(c, n, 3, func(i int, _ Decision) {
				if at < 0 && j.quota() > 0.4 {
					at = i
				}
			})
			if at < 0 || at > 2 || j.quota() < settled*0.9 || j.quota() > settled*1.1 {
				t.Fatalf("at tick %d %.2f CPUs, settled at %.2f before: %+v", at, j.quota(), settled, shownAs(t, c, j).LastRuns)
			}
			most := 0.0
			run(c, n, 60, func(int, Decision) { most = max(most, j.quota()) })
			if most > settled*1.25 || j.quota() < settled*0.8 {
				t.Errorf("settled at %.2f CPUs, had %.2f at the most, %.2f at the end", settled, most, j.quota())
			}
			v := shownAs(t, c, j).LastRuns
			if v == nil || v.Runs != 1 || len(v.Took) != 1 || v.Doubt != "" || v.CPUs == 0 {
				t.Errorf("shown as %+v", v)
			}
		})
	}
}

// TestJobKnownOnAnotherHost: a host that never ran a job, and has the book of one that did, gives it what it
// settled to there, within three seconds; and what it makes of that, it learns itself.
func TestJobKnownOnAnotherHost(t *testing.T) {
	there := profiles.NewStore()
	n, first := runOf(1, training(0.4), "train.py", "--seed", "1")
	finished(there, n, 55)
	settled := first.quota()
	n, j := runOf(2, training(0.4), "train.py", "--seed", "2")
	j.c.Start.Host = "b3RoZXJz"
	here, now := profiles.NewStore(), n.nowNs
	here.SetForeign(profiles.Prepare(nil, profiles.Book{Host: "gpu-7", MadeUnixNs: now, Known: there.All()}, now).Known, now)
	c := started()
	c.Remember(here)
	run(c, n, 3, nil)
	if j.quota() < settled*0.9 || j.quota() > settled*1.1 {
		t.Fatalf("%.2f CPUs after 3 s, settled at %.2f there: %+v", j.quota(), settled, shownAs(t, c, j).LastRuns)
	}
	run(c, n, 60, nil)
	n.jobs = nil
	run(c, n, 1, nil)
	if all := here.All(); !slices.ContainsFunc(all, func(k profiles.Known) bool { return k.Host == "" && k.Ends.Len() == 1 }) {
		t.Errorf("after a run of its own it knows %+v", all)
	}
}

// TestABurstIsNotWhatItNeeds: a job is lent all that may be at its first throttling, so it has it for as long as it
// wants it. What it had for most of its time is what its next run is given.
func TestABurstIsNotWhatItNeeds(t *testing.T) {
	for name, tc := range map[string]struct {
		burst, rest int // seconds that it wants 12 CPUs, then 2
		most        float64
	}{"burst": {60, 300, 2.5}, "most of its time": {200, 100, 8}} {
		t.Run(name, func(t *testing.T) {
			b := profiles.NewStore()
			n, first := runOf(1, func(n *node) *simJob { return n.addProgram("job", 0.4, 12, 1e6) }, "job.sh")
			c := started()
			c.Remember(b)
			run(c, n, tc.burst, nil)
			first.spin, first.threads = 2, first.threads[:2]
			run(c, n, tc.rest, nil)
			n.jobs = nil
			run(c, n, 1, nil)
			n, j := runOf(2, func(n *node) *simJob { return n.addProgram("job", 0.4, 12, 1e6) }, "job.sh")
			c = started()
			c.Remember(b)
			run(c, n, 2, nil)
			if got := shownAs(t, c, j).LastRuns.CPUs; got < tc.most*0.75 || got > tc.most {
				t.Errorf("%.2f CPUs are taken over, want at most %.2f", got, tc.most)
			}
		})
	}
}

// TestSettledBeforeAnotherProcess: a program that prepares its data and starts another one is remembered with
// what it settled to, though what was learned of the first process is forgotten.
func TestSettledBeforeAnotherProcess(t *testing.T) {
	b := profiles.NewStore()
	n, j := runOf(1, training(0.4), "train.sh")
	c := started()
	c.Remember(b)
	run(c, n, 18, nil) // settled, and not kept yet
	if s := c.containers[j.c.Key()]; s.state != StateSettled || s.loan.settledNs == 0 {
		t.Fatalf("%s, %.2f CPUs", s.state, j.quota())
	} else {
		c.anotherJob(s, &Decision{})
	}
	settled := j.quota()
	run(c, n, 10, nil)
	n.jobs = nil
	run(c, n, 1, nil)
	n, j = runOf(2, training(0.4), "train.sh")
	c = started()
	c.Remember(b)
	run(c, n, 2, nil)
	if got := shownAs(t, c, j).LastRuns.CPUs; got < settled*0.99 || got > settled*1.01 {
		t.Errorf("%.2f CPUs are taken over, settled at %.2f", got, settled)
	}
}

// TestWrongRecallGoesWithinSeconds: an identity that lies, or a job that changed. What was too much
// goes back, what was too little is lent, each within 20 s; and the next run is not misled.
func TestWrongRecallGoesWithinSeconds(t *testing.T) {
	for name, tc := range map[string]struct{ before, after float64 }{"too much": {6, 1}, "too little": {1, 6}} {
		t.Run(name, func(t *testing.T) {
			program := func(cpus float64) func(*node) *simJob {
				return func(n *node) *simJob { return n.addProgram("job", 0.5, cpus, 1e6) }
			}
			b := profiles.NewStore()
			n, _ := runOf(1, program(tc.before), "job.sh")
			finished(b, n, 90)
			n, j := runOf(2, program(tc.after), "job.sh")
			c := started()
			c.Remember(b)
			right := -1
			run(c, n, 40, func(i int, _ Decision) {
				switch ok := j.quota() >= tc.after && j.quota() < tc.after*1.5; {
				case ok && right < 0:
					right = i
				case !ok && i > 20:
					right = -1
				}
			})
			if right < 0 || right > 20 {
				t.Errorf("right at tick %d: %.2f CPUs for %.0f", right, j.quota(), tc.after)
			}
			run(c, n, 60, nil)
			n.jobs = nil
			run(c, n, 1, nil)
			// Two jobs behind one identity: its ends are apart, so nothing is acted on.
			n, j = runOf(3, program(tc.after), "job.sh")
			c = started()
			c.Remember(b)
			run(c, n, 2, nil)
			if v := shownAs(t, c, j).LastRuns; v.Doubt == "" || v.CPUs != 0 || len(v.Took) > 0 {
				t.Errorf("shown as %+v", v)
			}
		})
	}
}

// TestOneJobBehindMany: a time in its arguments, a seed, a folder of its own. Runs that differ by a
// number that matters are told apart by it.
func TestOneJobBehindMany(t *testing.T) {
	b := profiles.NewStore()
	for i := range 3 {
		n, _ := runOf(i+1, training(0.4), "train.py", "--out", fmt.Sprintf("/runs/2026-11-%02dT10:11:12Z", i+1), "--seed", fmt.Sprint(i))
		finished(b, n, 60)
	}
	if b.Len() != 1 {
		t.Errorf("%d known jobs", b.Len())
	}
	for i, workers := range []float64{1, 6, 1, 6} {
		n, _ := runOf(10+i, func(n *node) *simJob { return n.addProgram("many", 0.5, workers, 1e6) }, "many.py", "--workers", fmt.Sprint(workers))
		finished(b, n, 90)
	}
	for _, workers := range []float64{1, 6} {
		n, j := runOf(20, func(n *node) *simJob { return n.addProgram("many", 0.5, workers, 1e6) }, "many.py", "--workers", fmt.Sprint(workers))
		c := started()
		c.Remember(b)
		run(c, n, 3, nil)
		if q := j.quota(); q < workers || q > workers*1.3 {
			t.Errorf("%.0f workers have %.2f CPUs: %+v", workers, q, shownAs(t, c, j).LastRuns)
		}
	}
}

// TestLoansOffTakesNothing: what its owner allows goes before what is known.
func TestLoansOffTakesNothing(t *testing.T) {
	b := profiles.NewStore()
	n, _ := runOf(1, training(0.4), "train.py")
	finished(b, n, 90)
	for name, f := range map[string]func(*Container){
		"loans are off": func(c *Container) { c.Enrolment.Loans = policies.LoansOff },
		"only observed": func(c *Container) { c.Enrolment.Mode = policies.ModeObserve },
		"held":          func(c *Container) { c.Held = true },
		"bounded":       func(c *Container) { c.Enrolment.CPU.Max = 0.4 },
	} {
		n, j := runOf(2, training(0.4), "train.py")
		f(&j.c)
		c := started()
		c.Remember(b)
		run(c, n, 5, func(_ int, d Decision) {
			for _, o := range d.Apply {
				if !o.DryRun {
					t.Errorf("%s: %+v", name, o)
				}
			}
		})
		if j.quota() != 0.4 {
			t.Errorf("%s: %.2f CPUs", name, j.quota())
		}
	}
}

// TestKnownMemoryAtOnce: the limit with which its last run read nothing again.
func TestKnownMemoryAtOnce(t *testing.T) {
	kind := func(n *node) *simJob {
		return n.limited("cache", 400, 100, allowMemory()).reads(1200*mib, 100*mib)
	}
	b := profiles.NewStore()
	n, _ := runOf(1, kind, "cache.py")
	finished(b, n, 180)
	n, j := runOf(2, kind, "cache.py")
	c := started()
	c.Remember(b)
	at := -1
	run(c, n, 60, func(i int, _ Decision) {
		if at < 0 && j.limit() > 1200*mib {
			at = i
		}
	})
	if at < 0 || at > 3 {
		t.Errorf("at tick %d, limit %d MiB: %+v", at, j.limit()/mib, shownAs(t, c, j).LastRuns)
	}
	if v := shownAs(t, c, j); j.files.cached < j.files.bytes-1 {
		t.Errorf("it still reads again at the end: limit %d MiB, %+v", j.limit()/mib, v.LastRuns)
	}
}

// TestUselessMemoryGoesBack: what its last runs needed is too little now. Where more is free it is lent;
// where no more is, what is of no use goes back.
func TestUselessMemoryGoesBack(t *testing.T) {
	kind := func(files float64) func(*node) *simJob {
		return func(n *node) *simJob {
			return n.limited("cache", 400, 100, allowMemory()).reads(files, 200*mib)
		}
	}
	for name, free := range map[string]bool{"more is free": true, "no more is free": false} {
		t.Run(name, func(t *testing.T) {
			b := profiles.NewStore()
			n, _ := runOf(1, kind(1200*mib), "cache.py")
			finished(b, n, 180)
			n, j := runOf(2, kind(3*gib), "cache.py")
			c := started()
			c.Remember(b)
			run(c, n, 3, nil)
			if j.limit() < 1200*mib || shownAs(t, c, j).LastRuns.Took == nil {
				t.Fatalf("%d MiB, %+v", j.limit()/mib, shownAs(t, c, j).LastRuns)
			}
			run(c, n, 120, func(int, Decision) {
				if !free && j.files.cached+100*mib > 0.99*float64(j.limit()) {
					n.memAvail = 6600 * mib // of which 6554 are kept
				}
			})
			switch need := int64(3172 * mib); {
			case free && (j.limit() < need || j.limit() > need*5/4):
				t.Errorf("%d MiB", j.limit()/mib)
			case !free && j.limit() != 400*mib:
				t.Errorf("%d MiB of 400 stand, and are of no use", j.limit()/mib)
			}
		})
	}
}

// TestSlowerThanUsual: the ninth run is slower by a sixth, since the driver changed. It is told once, with
// what changed, and the runs before are as usual.
func TestSlowerThanUsual(t *testing.T) {
	b := profiles.NewStore()
	for i := range 9 {
		n, j := runOf(i+1, training(0), "train.py", "--seed", fmt.Sprint(i))
		j.c.Start.Driver = "535.1"
		if i == 8 {
			j.c.Start.Driver = "550.2"
			j.device *= 1.2
		}
		c := started()
		c.Remember(b)
		var told []state.Record
		for _, r := range run(c, n, 120, nil) {
			if r.Kind == state.RecordSlower {
				told = append(told, r)
			}
		}
		v := shownAs(t, c, j).LastRuns
		if i < 8 && (len(told) > 0 || v.Slower > 0) {
			t.Fatalf("run %d: %+v, %+v", i, told, v)
		}
		if i == 8 {
			if len(told) != 1 || !strings.HasSuffix(told[0].Text, "% below its last 8 runs, since the driver changed (550.2, before 535.1)") || v.Slower < 0.08 || v.Slower > 0.25 {
				t.Errorf("%+v, %+v", told, v)
			}
			if v.PerSecond < 12 || v.Low <= 0 || v.High < v.PerSecond {
				t.Errorf("expected %.2f (%.2f to %.2f)", v.PerSecond, v.Low, v.High)
			}
		}
		n.jobs = nil
		run(c, n, 1, nil)
	}
}

// TestCurvesAreThereFromTheFirstTick: jobs that compete for a node are divided by what they learned in
// their last runs, before a step of them is counted; weights stay trials, and so need their baseline.
func TestCurvesAreThereFromTheFirstTick(t *testing.T) {
	b := profiles.NewStore()
	begin := func(life uint64) (*node, *Controller) {
		n := newNode(4)
		n.nowNs += int64(life) * 10000 * second
		for _, size := range []float64{3.9, 3.9, 1.3, 1.3, 0.1} {
			j := n.sized(string(rune('a'+len(n.jobs))), size, 10, 0)
			j.c.ID.StartTick, j.c.Start = life, startedAs(j.c.Name+".py", fmt.Sprint("--size=", size))
		}
		c := started()
		c.Remember(b)
		return n, c
	}
	n, c := begin(1)
	run(c, n, 150, nil)
	all := n.jobs
	n.jobs = nil
	run(c, n, 1, nil)
	n, c = begin(2)
	run(c, n, 1, nil)
	for i, j := range n.jobs[:4] {
		curve := shownAs(t, c, j).ByCPUs
		if !curve.Known() {
			t.Fatalf("%s: no curve at the first tick: %+v", j.c.Name, shownAs(t, c, j).LastRuns)
		}
		if knee, ok := curve.Reach(0.95 * curve.Best()); !ok || knee < all[i].knee()*0.8 || knee > all[i].knee()*1.25 {
			t.Errorf("%s: 95 %% of its best at %.2f CPUs, knee %.2f", j.c.Name, knee, all[i].knee())
		}
	}
}

// TestProfilesLearnWhatWasMeasured: what a full device hides of the trainer's work is no work that the job needs here, and
// may be the longer part on a faster device. So plans and people have the one cost, profiles and curves the other.
func TestProfilesLearnWhatWasMeasured(t *testing.T) {
	n := newNode(4)
	j := n.addJob("train", 0, tune())
	c := started()
	run(c, n, 40, nil)
	s := c.containers[j.c.Key()]
	r := s.obs.Latest
	w := *r.Window
	w.Devices = []observe.Device{{Samples: 10, Duty: 1, SM: 1, Activities: 10, PIDs: []int32{r.Root}}}
	r.Window = &w
	s.obs.Latest = r
	measured := r.Cost
	if measured.TrainerCPU <= 0 {
		t.Fatalf("its trainer computes nothing: %+v", measured)
	}
	var d Decision
	c.closed(s, &s.obs.Latest, &d)
	if got := s.obs.Latest.Cost; got != measured {
		t.Errorf("profiles learn %+v, measured was %+v", got, measured)
	}
	if got := c.job(Input{}, s, &d).Cost; got.TrainerCPU >= measured.TrainerCPU || got.Spin <= measured.Spin {
		t.Errorf("policies plan by %+v beside a full device; measured was %+v", got, measured)
	}
}
