package control

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestARhythmIsNoRateOfSteps: how often threads wait, and for what, may agree with another such rhythm.
// Neither a rate nor a trial's figures are steps then: nobody counted one.
func TestARhythmIsNoRateOfSteps(t *testing.T) {
	for source, want := range map[string]bool{"torch.backward": true, "torch.backward ÷ 4": true, observe.SourceSyncs: true,
		observe.SourceDevice: false, observe.SourceTimer: false, observe.SourcePeers: false, observe.SourceHandOffs: false} {
		s := newContainer("a")
		s.obs.Latest.Rate = policies.Rate{PerSecond: 5, Source: source, Steps: true}
		s.obs.Rates = observe.Series{Source: source, Confirmed: true, Samples: []observe.RateSample{{EndNs: 1e9, Rate: 5}}, Shown: []observe.RateSample{{EndNs: 1e9, Rate: 5}}}
		if r, why := new(Controller).showRate(s); r.Steps != want || (why == "") != want {
			t.Errorf("%s: steps %v, %q", source, r.Steps, why)
		}
		if got := s.progressSince(policies.DefaultConstants(), 0).unit; (got == state.UnitSteps) != want {
			t.Errorf("%s: a trial is told in %q", source, got)
		}
	}
}
