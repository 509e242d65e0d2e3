package control

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestWatchedOnlyIsToldBesideOthers: while others come and go for a CPU it is told what is
// idle as a loan, and what it could have by its weight as a trial: each once, and no loan of
// what nobody has idle.
func TestWatchedOnlyIsToldBesideOthers(t *testing.T) {
	n := newNode(2)
	j := n.addProgram("train", 0.4, 3, 1e6)
	j.c.Enrolment.Mode, j.c.Enrolment.WhyNot = policies.ModeObserve, "no label"
	other := n.addSpinner("other", 3)
	told, c := map[string]int{}, started()
	run(c, n, 120, func(i int, d Decision) {
		if other.spin = 3; i/10%2 == 1 {
			other.spin = 0.01
		}
		for _, r := range d.Records {
			if r.Kind != state.RecordWould {
				continue
			}
			told[r.Policy]++
			if r.Policy == lender && c.node.Idle < c.k().ActiveCPUs {
				t.Errorf("second %d: a loan is told while %.2f CPUs are idle", i, c.node.Idle)
			}
		}
	})
	if told[lender] == 0 || told[lender] > 2 || told["knee"] > 2 {
		t.Errorf("told: %v", told)
	}
}
