package render

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/state"
)

func TestExplainSaysWhatAContainerGetsOfTheHost(t *testing.T) {
	c := state.Container{Name: "train", Entitled: 0.67, Allocation: &state.Allocation{Need: 1.3, CPUs: 1.08, Rate: 0.83, Why: "others leave\x1b it some"}}
	got := Explain(c, Clock{})
	for _, want := range []string{"Its part of this host: others leave", "entitled to", "0.67", "1.3", "1.08, for 83 % of its best rate"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing from:\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Error("a name reaches the terminal as it is")
	}
	if c.Allocation = nil; strings.Contains(Explain(c, Clock{}), "Its part") {
		t.Error("a container that is not tuned has a part")
	}
}

// TestAKneeBesideOthersIsToldAsSuch: the knee of a job that queues holds while it queues.
func TestAKneeBesideOthersIsToldAsSuch(t *testing.T) {
	alone := policies.Cost{TrainerCPU: 0.1, Device: 0.1, Ticks: 50}
	beside := alone
	beside.Queue = 0.3
	for cost, want := range map[policies.Cost]string{
		alone:  "no more speed beyond 0.5 CPUs",
		beside: "no more speed beyond 0.2 CPUs while it queues behind others as now",
	} {
		if got := beyond(state.Container{Cost: cost}); got != want {
			t.Errorf("%+v: %q, want %q", cost, got, want)
		}
	}
}
