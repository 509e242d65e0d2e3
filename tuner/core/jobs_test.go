package core

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/window"
)

// TestTicksPerStepStayLearnt: once a pattern is confirmed the unit of a rate does
// not change any more.
func TestTicksPerStepStayLearnt(t *testing.T) {
	c := New(Defaults(), nil, "test")
	j := &job{}
	r := window.Reading{Tick: window.SourceSyncs, PerStep: 4, Rate: policies.Rate{Source: window.SourceSyncs}}
	for i := range 12 {
		c.learnPattern(j, r)
		if want := i >= confirmPattern-1; (j.perStep[window.SourceSyncs] == 4) != want {
			t.Fatalf("after %d windows: %v", i+1, j.perStep)
		}
		if j.perStep != nil {
			r.Rate.Source = window.SourceSyncs + " ÷ 4"
		}
	}
	if len(j.perStep) != 1 {
		t.Errorf("%v", j.perStep)
	}
}

// TestStepsAreTakenBack: a source that nothing confirms any more is a proxy again.
func TestStepsAreTakenBack(t *testing.T) {
	j := &job{source: "torch.backward"}
	say := func(steps bool, agreement int) {
		j.confirm(window.Reading{Rate: policies.Rate{Source: "torch.backward", Steps: steps}, Agreement: agreement})
	}
	say(true, 1)
	for range 10 {
		say(false, 0) // nobody to compare with: it stands
	}
	if !j.confirmed {
		t.Fatal("taken back though nothing spoke against it")
	}
	for range confirmPattern {
		say(false, -1)
	}
	if j.confirmed {
		t.Error("still steps, though other sources are there and none agrees")
	}
}
