package core

import (
	"testing"

	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/runtime"
)

// TestHungryBesideASpinner: a neighbour that takes all that is idle keeps nobody from a
// quota that its weight would fill: the spinner is entitled to its share, not to the rest.
func TestHungryBesideASpinner(t *testing.T) {
	n := newNode(2)
	n.weighted = true
	hungry := n.sized("hungry", 1.2, 10, 0.33)
	n.sized("l1", 0.31, 20, 0.33)
	n.sized("l2", 0.31, 20, 0.33)
	n.addSpinner("stranger", 2)
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	run(c, n, 60, nil)
	quota, _ := hungry.c.Now[runtime.KnobCPUQuota].CPUs()
	if quota < 0.65 || hungry.lastCPUsUsed < 0.65 {
		t.Errorf("a quota of %.2f, %.2f CPUs used: its weight is worth 0.69 (%s)", quota, hungry.lastCPUsUsed, c.jobs[hungry.c.Key()].whyNot)
	}
}

// TestRaiseShrinksToWhatTheGuardAllows: beside a floor that weights do not tell of, a
// raise is made as far as it leaves the floor alone, and into what is idle.
func TestRaiseShrinksToWhatTheGuardAllows(t *testing.T) {
	n := newNode(2)
	n.weighted = true
	hungry := n.sized("hungry", 1.2, 10, 0.3)
	n.addSpinner("floor", 1.3).c.Enrolment.CPU.Min = 1.3
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	run(c, n, 60, nil)
	quota, _ := hungry.c.Now[runtime.KnobCPUQuota].CPUs()
	if quota < 0.6 || quota > 0.745 {
		t.Errorf("a quota of %.2f: 0.70 CPUs are idle beside the floor, which may lose 3 %% (%s)", quota, c.jobs[hungry.c.Key()].whyNot)
	}
}

// TestWeightShrinksToWhatTheGuardAllows: a job whose floor is above what its weight is
// worth, beside a spinner that takes all it can, is raised to its floor and no further:
// four times the weight would take what the spinner has a right to.
func TestWeightShrinksToWhatTheGuardAllows(t *testing.T) {
	for _, own := range []int64{256, 482} { // worth 0.4 and 0.64 of 2 CPUs beside 1024
		n := newNode(2)
		n.weighted = true
		low := n.sized("low", 1.5, 10, 0)
		low.c.Enrolment.CPU.Min = 0.8
		low.c.Now[runtime.KnobCPUWeight] = runtime.IntValue(own)
		n.addSpinner("spinner", 2).c.Now[runtime.KnobCPUWeight] = "1024"
		c := New(Defaults(), knee.New(knee.Defaults()), "t")
		run(c, n, 60, nil)
		weight, _ := low.c.Now[runtime.KnobCPUWeight].Int()
		if weight < 650 || weight > 740 {
			t.Errorf("from %d a weight of %d, %.2f CPUs used: its floor of 0.8 is worth 683 beside 1024, which may lose 3 %% (%s)", own, weight, low.lastCPUsUsed, c.jobs[low.c.Key()].whyNot)
		}
	}
}
