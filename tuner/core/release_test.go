package core

import (
	"fmt"
	"testing"

	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/view"
	"github.com/trimtab/trimtab/tuner/window"
)

// dealt is a node on which weights were dealt anew, and kept: four jobs compete for
// what two donors leave.
func dealt(t *testing.T) (n *node, c *Core, lowered, raised, donor *simJob) {
	t.Helper()
	n = newNode(4)
	n.weighted = true
	lowered = n.sized("big1", 3.9, 10, 0)
	n.sized("big2", 3.9, 10, 0)
	raised = n.sized("small1", 1.3, 10, 0)
	n.sized("small2", 1.3, 10, 0)
	donor = n.addSpinner("donor", 0.1)
	n.sized("donor2", 0.1, 10, 0)
	c = New(Defaults(), knee.New(knee.Defaults()), "t")
	kept := 0
	records := run(c, n, 150, nil)
	for _, o := range outcomes(records) {
		if o == view.OutcomeKept {
			kept++
		}
	}
	if kept == 0 || weightOf(lowered) >= 1024 || weightOf(raised) <= 1024 {
		t.Fatalf("no deal: weights %d and %d, %+v", weightOf(lowered), weightOf(raised), records)
	}
	return n, c, lowered, raised, donor
}

func weightOf(j *simJob) int64 {
	w, _ := j.c.Now[runtime.KnobCPUWeight].Int()
	return w
}

// backs counts the ticks in which the arbiter gives weights back.
func backs(n *node, c *Core, seconds int, each func(i int)) (count int) {
	run(c, n, seconds, func(i int, d Decision) {
		for _, o := range d.Rollback {
			if o.Policy == arbiterName && o.Why != "" {
				count++
			}
		}
		if each != nil {
			each(i)
		}
	})
	return count
}

func TestOneNoisyTickUndoesNoDeal(t *testing.T) {
	n, c, lowered, _, donor := dealt(t)
	before := weightOf(lowered)
	count := backs(n, c, 30, func(i int) {
		if i == 5 || i == 20 {
			donor.cgroup.CPU.SomeUs += 900_000
		}
	})
	if count != 0 || weightOf(lowered) != before {
		t.Errorf("given back %d times, weight %d of %d", count, weightOf(lowered), before)
	}
}

func TestUnsteadyWindowUndoesNoDeal(t *testing.T) {
	n, c, lowered, _, _ := dealt(t)
	for i := range 6 {
		for _, j := range c.jobs {
			if j.c.Name == "donor2" {
				j.unsteady = i
			}
		}
		for _, cl := range c.claims() {
			if cl.Name == "donor2" && (cl.CPU.Known() != (i < 5) || cl.Movable && i > 0) {
				t.Errorf("%d windows that cannot be planned on: %+v", i, cl)
			}
		}
	}
	if backs(n, c, 10, nil) != 0 || weightOf(lowered) >= 1024 {
		t.Errorf("weight %d", weightOf(lowered))
	}
}

// TestReleasesWaitLongerEachTime: a neighbour that wakes again and again undoes fewer
// and fewer deals.
func TestReleasesWaitLongerEachTime(t *testing.T) {
	c, j := New(Defaults(), knee.New(knee.Defaults()), "t"), &job{}
	c.last.Host.AtNs = 1000 * second
	for _, want := range []int64{20, 40, 80, 160, 320, 640, 1280, 1280} {
		j.undealt(c)
		if got := (j.dealtAgainNs - c.now()) / second; got != want {
			t.Errorf("%d s, want %d", got, want)
		}
		c.last.Host.AtNs = j.dealtAgainNs + 30*second
	}
	c.last.Host.AtNs = j.dealtAgainNs + forgottenNs + second
	if j.undealt(c); j.dealtAgainNs-c.now() != 20*second {
		t.Errorf("%d s after a long calm", (j.dealtAgainNs-c.now())/second)
	}
}

// TestRaisedWeightGoesBackWhenItsCounterpartEnds: a neighbour that nobody enrolled gets
// what owners' weights would give it.
func TestRaisedWeightGoesBackWhenItsCounterpartEnds(t *testing.T) {
	n, c, _, raised, donor := dealt(t)
	n.jobs = append(n.jobs[:0:0], raised, n.jobs[3], donor) // those that gave have ended
	raised.loaderCPU *= 4
	n.jobs[1].loaderCPU *= 4
	donor.spin = 4
	backs(n, c, 60, nil)
	if used := c.jobs[donor.c.Key()].used(); weightOf(raised) != 1024 || used < 0.97*4/3 {
		t.Errorf("weight %d, the neighbour has %.2f CPUs of its %.2f: %+v", weightOf(raised), used, 4.0/3, c.deal)
	}
}

// TestLoweredWeightCanGoBack: a red preflight leaves no lowered weight standing.
func TestLoweredWeightCanGoBack(t *testing.T) {
	for name, with := range map[string]func(j *simJob){
		"preflight": func(j *simJob) { j.c.Preflight = "the driver's library is not found" },
		"as it is":  func(*simJob) {},
	} {
		n, c, lowered, _, donor := dealt(t)
		for _, j := range n.jobs {
			with(j)
		}
		donor.c.Now[runtime.KnobCPUWeight], donor.spin = "4096", 4
		backs(n, c, 40, nil)
		if weightOf(lowered) != 1024 {
			t.Errorf("%s: weight %d stands: %+v", name, weightOf(lowered), c.deal)
		}
		for _, cl := range c.claims() {
			if name == "preflight" && cl.Movable {
				t.Errorf("%s may be moved before a green preflight", cl.Name)
			}
		}
	}
}

// TestWantsThatCannotBeSeen: without PSI and without a curve, one whose weight was
// lowered counts as one that waits; one at its owner's weight does not.
func TestWantsThatCannotBeSeen(t *testing.T) {
	n, c, lowered, _, donor := dealt(t)
	for _, j := range n.jobs {
		j.noPSI = true
	}
	for _, psi := range []bool{true, false} {
		if !psi {
			run(c, n, 12, nil)
		}
		for _, j := range c.jobs {
			j.unsteady = curveKept
		}
		for _, cl := range c.claims() {
			if cl.Key == lowered.c.Key() && psi == (cl.Waiting == 1) || cl.Key == donor.c.Key() && cl.Waiting > 0.1 {
				t.Errorf("PSI %v: %+v", psi, cl)
			}
		}
	}
}

// TestACheckpointKeepsTheRight: a job that runs no kernel for a while has as many GPUs
// as before; one that stopped using them has none.
func TestACheckpointKeepsTheRight(t *testing.T) {
	for _, tc := range []struct {
		quietS int64
		want   float64
	}{{0, 8}, {20, 8}, {119, 8}, {121, 0}} {
		w := &window.Window{EndNs: 1000 * second}
		for i := range 8 {
			w.Devices = append(w.Devices, window.Device{UUID: fmt.Sprint(i), Samples: 6, Duty: 0.5})
		}
		j := &job{launchedNs: 1000 * second}
		j.noteGPUs(w)
		if got := j.gpusUsed((1000 + tc.quietS) * second); got != tc.want {
			t.Errorf("%v GPUs after %d s, want %v", got, tc.quietS, tc.want)
		}
	}
}

// TestAContextIsNoUse: a device on which a process merely lives gives no right to CPUs,
// as far as anybody tells.
func TestAContextIsNoUse(t *testing.T) {
	j := &job{launchedNs: 1000 * second}
	j.noteGPUs(&window.Window{EndNs: 1000 * second, Devices: []window.Device{
		{UUID: "works", Samples: 6, Duty: 0.9},
		{UUID: "idle", Samples: 6},
		{UUID: "works for others", Samples: 6, Duty: 0.9, SMReadings: 2, Others: 0.9},
		{UUID: "works for both", Samples: 6, Duty: 0.9, SMReadings: 2, Own: 0.4, Others: 0.5},
		{UUID: "not told"},
	}})
	if got := j.gpusUsed(1000 * second); got != 3 {
		t.Errorf("%v GPUs used, want 3: %v", got, j.gpuNs)
	}
}
