package control

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/runtime"
)

// besideANeighbour has run for a while: a borrower that wants little yet, and a neighbour at work.
func besideANeighbour() (c *Controller, n *node, j, other *simJob) {
	n = newNode(4)
	j, other = n.addProgram("borrower", 0.4, 0.3, 1e6), n.addProgram("neighbour", 0, 1, 1e6)
	c = started()
	run(c, n, 40, nil)
	return c, n, j, other
}

// TestInterferenceCallsTheLoanIn: a neighbour that gets less done for each second of CPU time
// while a loan stands, and recovers without it, is remembered; one that does not is not.
func TestInterferenceCallsTheLoanIn(t *testing.T) {
	for _, harmed := range []bool{true, false} {
		c, n, j, other := besideANeighbour()
		j.spin = 2
		raises := 0
		last := 0.4
		run(c, n, 300, func(int, Decision) {
			other.yield = 1e6
			if harmed && j.lastCPUsUsed > 0.5 {
				other.yield = 0.8e6 // caches and memory bandwidth are shared
			}
			if j.quota() > last*1.1 {
				raises++
			}
			last = j.quota()
		})
		if v := shownAs(t, c, j); harmed && (j.quota() > 0.5 || raises > 6 || !strings.Contains(v.WhyNot, "bear no larger loan")) { // half as much each time
			t.Errorf("%.2f CPUs stand after %d raises: %+v", j.quota(), raises, v.WhyNot)
		}
		if !harmed && j.quota() < 1.5 {
			t.Errorf("%.2f CPUs stand though nobody is harmed", j.quota())
		}
	}
}

// TestBorrowersDoNotBlameEachOther: two that are lent to at once get less done for each second of
// CPU time as they have more of them. Each has more than is its own.
func TestBorrowersDoNotBlameEachOther(t *testing.T) {
	n := newNode(8)
	all := []*simJob{n.addProgram("a", 1, 0.9, 1e6), n.addProgram("b", 1, 0.9, 1e6)}
	c := started()
	run(c, n, 40, nil)
	run(c, n, 120, func(i int, _ Decision) {
		for k, j := range all {
			if i == 4*k {
				j.spin = 3
			}
			if j.yield = 1e6; j.lastCPUsUsed > 1.2 {
				j.yield = 0.9e6
			}
			if j.c.Now[runtime.KnobCPUQuota] == "100000 100000" && n.nowNs > 1060*second {
				t.Fatalf("nothing is lent to %s: %s", j.c.Name, shownAs(t, c, j).WhyNot)
			}
		}
	})
}

// TestWatchedThroughAPause: a loan that harms goes once somebody may write, and not before.
func TestWatchedThroughAPause(t *testing.T) {
	c, n, j, other := besideANeighbour()
	j.spin = 2
	lent := -1
	for i := range 60 {
		if other.yield = 1e6; j.lastCPUsUsed > 0.5 {
			other.yield = 0.8e6
		}
		in := n.tick()
		in.Results, n.results = n.results, nil
		if lent >= 0 && i > lent+1 && i < lent+25 {
			in.Frozen = "paused"
		}
		n.results = n.apply(c.Step(in))
		if lent < 0 && j.quota() > 0.5 {
			lent = i
		}
		for _, w := range c.watches {
			if w.goneNs != 0 && j.quota() > 1 {
				t.Fatalf("the loan stands %d s after it came, and passes for gone", i-lent)
			}
		}
		if lent >= 0 && i >= lent+30 && j.quota() > 1 { // a part may come back: as much as it bears
			t.Fatalf("%.2f CPUs stand %d s after a pause", j.quota(), i-lent-25)
		}
	}
	if lent < 0 {
		t.Fatal("nothing was lent")
	}
}

// TestWhatANeighbourBearsEndsWithItsJob: a loan harmed the job next to it. Another one in that container, which a loan
// does not harm, is not held against the borrower.
func TestWhatANeighbourBearsEndsWithItsJob(t *testing.T) {
	c, n, j, other := besideANeighbour()
	j.spin = 2
	s := c.containers[j.c.Key()]
	bears := func() float64 {
		cpus, _ := c.most(slices.Index(c.all, s))
		return cpus
	}
	harmed := func(int, Decision) {
		if other.yield = 1e6; j.lastCPUsUsed > 0.5 {
			other.yield = 0.8e6
		}
	}
	for i := 0; ; i++ {
		if !math.IsInf(bears(), 1) {
			break
		}
		if run(c, n, 1, harmed); i == 300 {
			t.Fatal("the loan harms nobody")
		}
	}
	other.anew(n)
	other.yield = 1e6
	run(c, n, 20, nil)
	if most := bears(); !math.IsInf(most, 1) {
		t.Errorf("the job before it bore %.2f CPUs", most)
	}
	for _, w := range c.watches {
		if w.givenNs < s.obs.ChangedNs() && w.neighbour == other.c.Key() {
			t.Errorf("its work is held against that of the job before it: %+v", w)
		}
	}
	run(c, n, 100, nil)
	if j.quota() < 1.5 {
		t.Errorf("%.2f CPUs stand though nobody is harmed", j.quota())
	}
}
