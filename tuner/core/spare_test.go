package core

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/view"
)

// TestWhoLosesByAQuotaIsSpared: a neighbour that loses what it is entitled to while another
// job has its quota is made heavier by the next plan, beside that quota, where its owner allows
// that. Where not, or where that does not help it, the quota goes back and is not tried again.
func TestWhoLosesByAQuotaIsSpared(t *testing.T) {
	for name, tc := range map[string]struct {
		mode  policies.Mode
		helps bool // the weight
		kept  bool
		plans int
	}{
		"tuned":            {policies.ModeTune, true, true, 2},
		"weight no help":   {policies.ModeTune, false, false, 2},
		"observed":         {policies.ModeObserve, true, false, 1},
		"off, not watched": {policies.ModeOff, true, false, 1},
	} {
		n := newNode(4)
		starved := n.addJob("starved", 0.4, tune())
		e := tune()
		e.Mode = tc.mode
		other := n.addJob("other", 0, e)
		other.noPSI = true // its CPU use alone tells
		c := New(Defaults(), knee.New(knee.Defaults()), "t")
		plans := 0
		records := run(c, n, 90, func(_ int, d Decision) {
			quota, _ := starved.c.Now[runtime.KnobCPUQuota].CPUs()
			if other.device = 0.040; quota > 0.5 && (!tc.helps || other.c.Now[runtime.KnobCPUWeight] == "1024") {
				other.device = 0.120 // as if its threads queued
			}
			for _, o := range d.Apply {
				if o.touches(starved.c.Key()) {
					plans++
				}
			}
		})
		quota, _ := starved.c.Now[runtime.KnobCPUQuota].CPUs()
		weight := other.c.Now[runtime.KnobCPUWeight]
		if (quota > 1) != tc.kept || (weight == "4096") != tc.kept || plans != tc.plans {
			t.Errorf("%s: a quota of %.2f beside a weight of %s after %d plans: %+v", name, quota, weight, plans, records)
		}
		lost := 0
		for _, r := range records {
			if r.Kind == view.RecordTrial && r.Key == starved.c.Key() && strings.Contains(r.Text, "other lost CPU it is entitled to") {
				lost++
			}
		}
		if want := tc.plans; !tc.kept && lost != want || tc.kept && lost != want-1 {
			t.Errorf("%s: %d trials ended by its loss of %d plans", name, lost, tc.plans)
		}
	}
}

// TestAQuotaThatFailsBesideAHeavierNeighbourRests: a quota that made a neighbour lose is tried
// once more with that neighbour's weight; where that shows no gain it has failed, like any.
func TestAQuotaThatFailsBesideAHeavierNeighbourRests(t *testing.T) {
	n := newNode(4)
	n.weighted = true
	n.sized("loser", 1.445, 16.9, 1).c.Enrolment.Importance = 1
	n.sized("first", 1.685, 16.4, 0.3).c.Enrolment.Importance = 10
	n.sized("free", 2, 20, 0)
	taker := n.sized("taker", 1.815, 13.1, 0.6)
	taker.c.Enrolment.Importance = 10
	n.addSpinner("noise", 0.149)
	cfg := Defaults()
	cfg.Objective, cfg.ChangesPerMinute = policies.ObjectiveMaxMin, 3
	lost, failed := 0, 0
	for _, r := range run(New(cfg, knee.New(knee.Defaults()), "t"), n, 900, nil) {
		if r.Kind != view.RecordTrial || r.Key != taker.c.Key() {
			continue
		}
		if strings.Contains(r.Text, "lost CPU it is entitled to") {
			lost++
		} else if r.Outcome == view.OutcomeInconclusive {
			failed++
		}
	}
	if lost == 0 {
		t.Error("nobody lost: nothing was tested")
	}
	if lost+failed > 3 {
		t.Errorf("%d trials failed, of which %d made somebody lose", lost+failed, lost)
	}
}
