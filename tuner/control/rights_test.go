package control

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/trimtab/trimtab/policies"
)

// TestNobodyIsShortForLong: on nodes of all kinds, where neighbours wake and sleep and the host's own
// processes come and go, nobody has less than the owners' values give it for longer than five seconds.
func TestNobodyIsShortForLong(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := newNode(2 + r.IntN(5))
		n.weighted = seed%4 != 0
		var own []float64
		for i := range 1 + r.IntN(3) {
			own = append(own, 0.3+r.Float64())
			n.addProgram(fmt.Sprint("borrower", i), own[i], 1+r.Float64()*float64(n.cpus), 1e6)
		}
		first := len(own)
		for i := range 1 + r.IntN(2) {
			own = append(own, 0.5+1.5*r.Float64())
			o := n.addProgram(fmt.Sprint("neighbour", i), own[first+i], 0.01, 1e6)
			o.c.Enrolment, o.c.Watched = policies.Enrolment{Mode: policies.ModeOff, WhyNot: "no label"}, false
		}
		c := started()
		run(c, n, 30, nil)
		short := make([]int, len(own)) // seconds in a row
		run(c, n, 120, func(i int, _ Decision) {
			var claims []policies.Claim
			for k, j := range n.jobs {
				claims = append(claims, policies.Claim{Quota: own[k], Weight: 1024, Active: true, Demand: min(own[k], j.spin)})
			}
			due, _ := policies.Rights(float64(n.cpus)-n.host, claims)
			for k, j := range n.jobs {
				if short[k]++; j.lastCPUsUsed >= 0.93*min(due[k], j.spin) {
					short[k] = 0
				}
				if short[k] > 5 {
					t.Fatalf("node %d, second %d: %s has %.2f of %.2f CPUs for %d s, at %v", seed, i, j.c.Name, j.lastCPUsUsed, due[k], short[k], j.c.Now)
				}
			}
			if r.IntN(15) == 0 {
				n.host = r.Float64() * float64(n.cpus) / 2
			}
			if o := n.jobs[first+r.IntN(len(own)-first)]; r.IntN(15) == 0 {
				o.spin = 2.01 - o.spin
			}
		})
	}
}
