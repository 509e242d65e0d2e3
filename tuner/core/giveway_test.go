package core

import (
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/view"
)

// TestASmallGainGivesWay: a trial of little, which takes long, ends for a plan that promises
// far more; one that promises as much, or has been promised too little for, is waited for.
func TestASmallGainGivesWay(t *testing.T) {
	for name, tc := range map[string]struct {
		small, large float64 // gains promised
		ends         bool
	}{
		"far more":       {0.05, 1.5, true},
		"twice as much":  {0.3, 0.6, false},
		"no clear gain":  {0.02, 0.2, false},
		"thrice as much": {0.1, 0.31, true},
	} {
		n := newNode(4)
		first, second := n.addJob("first", 0, tune()), n.addJob("second", 0.4, tune())
		wants := false // the second
		c := New(Defaults(), script{func(j policies.Job) []policies.Change {
			change := func(knob runtime.Knob, to runtime.Value, gain float64) []policies.Change {
				return []policies.Change{{Key: j.Key, Name: j.Name, Knob: knob, From: j.Now[knob], To: to, Gain: gain, RateAfter: (1 + gain) * j.Rate.PerSecond, Reason: "the test wants it"}}
			}
			if j.Key == first.c.Key() {
				return change(runtime.KnobCPUWeight, "2048", tc.small)
			}
			if wants {
				return change(runtime.KnobCPUQuota, runtime.QuotaFromCPUs(1.5, quotaPeriod), tc.large)
			}
			return nil
		}}, "t")
		opened, given := -1, -1
		records := run(c, n, 60, func(i int, d Decision) {
			for _, o := range d.Apply {
				if o.touches(first.c.Key()) && opened < 0 {
					opened, wants = i, true
				}
				if o.touches(second.c.Key()) && given < 0 {
					given = i
				}
			}
			if i == opened+6 && first.c.Now[runtime.KnobCPUWeight] == "2048" == tc.ends {
				t.Errorf("%s: a weight of %s six seconds after", name, first.c.Now[runtime.KnobCPUWeight])
			}
		})
		ended := slices.ContainsFunc(records, func(r view.Record) bool {
			return r.Kind == view.RecordTrial && r.Outcome == view.OutcomeAborted && strings.Contains(r.Text, "waits for it")
		})
		if opened < 0 || ended != tc.ends || tc.ends && (given < 0 || given > opened+5) {
			t.Errorf("%s: opened at %d, given at %d, ended %v: %+v", name, opened, given, ended, records)
		}
	}
}
