package control

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestLoanBesideTrials: of a quota of 3 CPUs above its owner's of 1, what a trial gave is no loan,
// whether it was kept or is open.
func TestLoanBesideTrials(t *testing.T) {
	for name, tc := range map[string]struct {
		proven, from float64 // from: of the open trial; 0: none is open
		lent, tried  float64
	}{
		"a loan alone":                     {0, 0, 2, 0},
		"above a kept trial":               {2, 0, 1, 1},
		"a kept trial alone":               {3, 0, 0, 0},
		"below an open trial":              {0, 1.5, 0.5, 1.5},
		"between a kept and an open trial": {1.25, 2, 0.75, 1.25},
		"an open trial alone":              {0, 1, 0, 0},
	} {
		c, s := started(), newContainer("x")
		s.c.Now, s.c.Original = runtime.Values{runtime.KnobCPUQuota: "300000 100000"}, runtime.Values{runtime.KnobCPUQuota: "100000 100000"}
		s.loan.proven = tc.proven
		c.containers[s.key], c.all = s, []*containerState{s}
		if tc.from > 0 {
			s.plan = "p"
			c.trials["p"] = &openTrial{order: Order{Plan: "p", Changes: []policies.Change{{Key: s.key, Knob: runtime.KnobCPUQuota,
				From: runtime.QuotaFromCPUs(tc.from, runtime.DefaultPeriodUs), To: "300000 100000"}}}}
		}
		l := c.showLoan(s)
		if tc.lent == 0 {
			if l != nil {
				t.Errorf("%s: %+v", name, l)
			}
			continue
		}
		if l == nil {
			t.Errorf("%s: no loan", name)
			continue
		}
		want := state.Loan{Own: 1, CPUs: tc.lent, Trial: tc.tried}
		if math.Abs(l.CPUs-want.CPUs) > 1e-9 || math.Abs(l.Trial-want.Trial) > 1e-9 || l.Own != 1 || math.Abs(l.Stands()-3) > 1e-9 {
			t.Errorf("%s: %+v, want %+v", name, *l, want)
		}
	}
}
