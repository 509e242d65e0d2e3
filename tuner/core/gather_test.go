package core

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/runtime"
)

// TestWhoIsShortAWindowLaterIsInThePlan: two starved jobs of which one began a window
// later are given what they lack at once, also where they lack it by turns; one that may
// not be changed, or lacks nothing, keeps nobody waiting.
func TestWhoIsShortAWindowLaterIsInThePlan(t *testing.T) {
	for name, tc := range map[string]struct {
		quota  float64
		allow  policies.Enrolment
		turns  bool
		orders int // changes of the first plan
	}{
		"starved":          {0.4, tune(), false, 2},
		"starved by turns": {0.4, tune(), true, 2},
		"observed":         {0.4, policies.Enrolment{Mode: policies.ModeObserve, Knobs: []string{"cpu"}}, false, 1},
		"not starved":      {3, tune(), false, 1},
	} {
		n := newNode(8)
		first := n.addJob("first", 0.4, tune())
		var second *simJob
		c := New(Defaults(), knee.New(knee.Defaults()), "t")
		var orders []Order
		at := 0
		run(c, n, 30, func(i int, d Decision) {
			if i == 1 {
				second = n.addJob("second", tc.quota, tc.allow)
			}
			if tc.turns && second != nil {
				first.loaderCPU, second.loaderCPU = 0.004, 0.050
				if i%4 < 2 {
					first.loaderCPU, second.loaderCPU = 0.050, 0.004
				}
			}
			for _, o := range d.Apply {
				if !o.DryRun {
					if len(orders) == 0 {
						at = i
					}
					orders = append(orders, o)
				}
			}
		})
		if len(orders) == 0 || len(orders[0].Changes) != tc.orders {
			t.Fatalf("%s: %+v, want %d changes in the first plan", name, orders, tc.orders)
		}
		t.Logf("%s: at %d s", name, at)
		for _, ch := range orders[0].Changes {
			if ch.Knob != runtime.KnobCPUQuota {
				t.Errorf("%s: %+v", name, ch)
			}
		}
	}
}
