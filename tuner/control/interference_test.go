package control

import (
	"strings"
	"testing"
)

// TestInterferenceCallsTheLoanIn: a neighbour that gets less done for each second of CPU time
// while a loan stands, and recovers without it, is remembered; one that does not is not.
func TestInterferenceCallsTheLoanIn(t *testing.T) {
	for _, harmed := range []bool{true, false} {
		n := newNode(4)
		j := n.addProgram("borrower", 0.4, 0.3, 1e6)
		other := n.addProgram("neighbour", 0, 1, 1e6)
		c := started()
		run(c, n, 40, nil)
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
