package control

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/observe"
	"github.com/trimtab/trimtab/tuner/profiles"
)

// TestKnownJobsAreDividedFromTheFirstTick: what a known job would use if it were alone is known before
// anything of it is read, and so is what it is given of the node beside another.
func TestKnownJobsAreDividedFromTheFirstTick(t *testing.T) {
	b := profiles.NewStore()
	begin := func(life uint64) (*node, *Controller) {
		n := newNode(4)
		n.nowNs += int64(life) * 10000 * second
		for _, size := range []float64{3, 1} {
			j := n.sized(string(rune('a'+len(n.jobs))), size, 10, 0)
			j.c.ID.StartTick, j.c.Start = life, startedAs(j.c.Name+".py")
		}
		c := started()
		c.Remember(b)
		return n, c
	}
	n, c := begin(1)
	run(c, n, 150, nil)
	n.jobs = nil
	run(c, n, 1, nil)
	n, c = begin(2)
	run(c, n, 1, nil)
	for _, j := range n.jobs {
		s := c.containers[j.c.Key()]
		if got := c.demand(s); got < j.knee()*0.8 || got > j.knee()*1.25 {
			t.Errorf("%s: %.2f CPUs are asked for, knee %.2f", j.c.Name, got, j.knee())
		}
	}
}

// TestOnlyWhatLastRunsToldIsTaken: a raise that the quota itself asks for, above what was enough before, is
// none that its last runs told of; nor is one of memory that comes of what is read again.
func TestOnlyWhatLastRunsToldIsTaken(t *testing.T) {
	b := profiles.NewStore()
	program := func(quota, cpus float64) func(*node) *simJob {
		return func(n *node) *simJob { return n.addProgram("job", quota, cpus, 1e6) }
	}
	n, _ := runOf(1, program(0.5, 1), "job.sh")
	finished(b, n, 90)
	n, j := runOf(2, program(1.5, 4), "job.sh")
	c := started()
	c.Remember(b)
	run(c, n, 20, nil)
	if v := shownAs(t, c, j).LastRuns; j.quota() < 4 || v.CPUs == 0 || len(v.Took) > 0 {
		t.Errorf("%.2f CPUs: %+v", j.quota(), v)
	}

	b = profiles.NewStore()
	kind := func(n *node) *simJob { return n.limited("cache", 400, 100, allowMemory()).reads(1200*mib, 100*mib) }
	n, _ = runOf(1, kind, "cache.py")
	finished(b, n, 180)
	n, j = runOf(2, kind, "cache.py")
	j.files.bytes = 100 * mib
	n.memAvail = 6 * gib // of which 6.4 are kept
	c = started()
	c.Remember(b)
	run(c, n, 65, nil)
	n.memAvail = 48 * gib
	run(c, n, 20, func(int, Decision) {
		if j.limit() != 400*mib {
			t.Errorf("a minute after its start it is given %d MiB for what it may need", j.limit()/mib)
		}
	})
	j.files.bytes = 1200 * mib
	run(c, n, 60, nil)
	if v := shownAs(t, c, j).LastRuns; j.limit() < 1200*mib || v.Memory == 0 || len(v.Took) > 0 {
		t.Errorf("%d MiB: %+v", j.limit()/mib, v)
	}
}

// TestRestartIsNoStart: what the daemon before lent, and what settled, is not raised by what earlier runs
// needed.
func TestRestartIsNoStart(t *testing.T) {
	b := profiles.NewStore()
	program := func(cpus float64) func(*node) *simJob {
		return func(n *node) *simJob { return n.addProgram("job", 0.5, cpus, 1e6) }
	}
	n, _ := runOf(1, program(4), "job.sh")
	finished(b, n, 90)
	n, j := runOf(2, program(1), "job.sh")
	c := started() // it knows nothing
	run(c, n, 60, nil)
	settled := j.quota()
	if settled < 1 || settled > 1.5 {
		t.Fatalf("settled to %.2f CPUs", settled)
	}
	c = started()
	c.Remember(b)
	run(c, n, 60, func(i int, _ Decision) {
		if j.quota() > settled*1.3 {
			t.Fatalf("tick %d: %.2f CPUs, settled to %.2f before", i, j.quota(), settled)
		}
	})

	kind := func(files float64) func(*node) *simJob {
		return func(n *node) *simJob { return n.limited("cache", 400, 100, allowMemory()).reads(files, 200*mib) }
	}
	b = profiles.NewStore()
	n, _ = runOf(1, kind(3*gib), "cache.py")
	finished(b, n, 180)
	n, j = runOf(2, kind(1200*mib), "cache.py")
	c = started()
	run(c, n, 120, nil)
	limit := j.limit()
	c = started()
	c.Remember(b)
	run(c, n, 60, func(i int, _ Decision) {
		if j.limit() > limit {
			t.Fatalf("tick %d: %d MiB, settled to %d before", i, j.limit()/mib, limit/mib)
		}
	})
}

// TestPaceIsOfItsOwnAlone: readings of a trial, or under a quota that stops it, are none of its pace; and
// with a raised quota it begins anew.
func TestPaceIsOfItsOwnAlone(t *testing.T) {
	steps := func(n int, rate float64, before func(*Controller, *containerState)) profiles.Pace {
		b := profiles.NewStore()
		node, j := runOf(1, training(0), "train.py")
		c := started()
		c.Remember(b)
		run(c, node, 1, nil)
		s := c.containers[j.c.Key()]
		s.obs.Rates.Source = "torch.backward"
		feed := func(n int, rate float64) {
			for i := range n {
				c.slower(s, &observe.RateSample{StartNs: int64(i) * second, EndNs: int64(i+1) * second, Rate: rate}, &Decision{})
			}
		}
		feed(100, 5)
		before(c, s)
		feed(n, rate)
		node.jobs, node.nowNs = nil, node.nowNs+30*second
		run(c, node, 1, nil) // it ends
		return b.All()[0].Ends.All()[0].Pace
	}
	nothing := steps(0, 0, func(*Controller, *containerState) {})
	if nothing.Blocks == 0 {
		t.Fatal("no pace at all")
	}
	for name, before := range map[string]func(*Controller, *containerState){
		"a trial": func(_ *Controller, s *containerState) { s.plan = "trial" },
		"a quota that stops it": func(c *Controller, s *containerState) {
			s.obs.Uses = []observe.Use{{EndNs: 1, Lost: 0.5, Throttled: true}, {EndNs: 2, Lost: 0.5, Throttled: true}}
		},
	} {
		if got := steps(200, 2, before); got != nothing {
			t.Errorf("%s: %+v, before %+v", name, got, nothing)
		}
	}
	raised := steps(200, 8, func(c *Controller, s *containerState) {
		c.lentWritten(pendingOrder{Order: Order{Changes: []policies.Change{{Key: s.key, Knob: runtime.KnobCPUQuota, From: runtime.QuotaFromCPUs(1, 100000), To: runtime.QuotaFromCPUs(2, 100000)}}}})
	})
	if math.Abs(float64(raised.Rate)-8) > 0.1 {
		t.Errorf("with a raised quota %+v, which is of 8 steps a second", raised)
	}
}

// TestFirstStepsAreAllSeen: the first steps tell of a run only where none came before them unseen: under a
// quota that stopped it, or while it was not watched.
func TestFirstStepsAreAllSeen(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(*Controller, *node, *simJob, *containerState, func(int))
		told   bool
	}{
		"from its start": {func(*Controller, *node, *simJob, *containerState, func(int)) {}, true},
		"under a quota that stops it": {func(_ *Controller, _ *node, _ *simJob, s *containerState, feed func(int)) {
			was := s.obs.Uses
			s.obs.Uses = []observe.Use{{EndNs: 1, Lost: 0.5, Throttled: true}, {EndNs: 2, Lost: 0.5, Throttled: true}}
			feed(3)
			s.obs.Uses = was
		}, false},
		"not watched": {func(c *Controller, n *node, j *simJob, _ *containerState, _ func(int)) {
			j.c.Watched = false
			run(c, n, 1, nil)
			j.c.Watched = true
			run(c, n, 1, nil)
		}, false},
	} {
		b := profiles.NewStore()
		n, j := runOf(1, training(0), "train.py")
		j.c.Start.Fresh = true
		c := started()
		c.Remember(b)
		run(c, n, 1, nil)
		s := c.containers[j.c.Key()]
		s.obs.Rates.Source = "torch.backward"
		at := int64(0)
		feed := func(n int) {
			for range n {
				c.slower(s, &observe.RateSample{StartNs: at * second, EndNs: (at + 1) * second, Rate: 5}, &Decision{})
				at++
			}
		}
		tc.before(c, n, j, s, feed)
		feed(100)
		n.jobs, n.nowNs = nil, n.nowNs+30*second
		run(c, n, 1, nil)
		if p := b.All()[0].Ends.All()[0].Pace; (p.First > 0) != tc.told {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
