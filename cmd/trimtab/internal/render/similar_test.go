package render

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/advice"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

func TestExplainNamesTheNearestKnownJob(t *testing.T) {
	c := state.Container{Name: "train", Similar: &state.Similar{Taken: []string{"its first allocation, CPU 0.30→1.03"},
		Similar: policies.Similar{Name: "be\x1bfore", Jobs: 3, Distance: 0.04, Compared: 1, Confidence: 0.87, Knee: 1}}}
	text := Explain(c, Clock{})
	for _, want := range []string{"Known jobs like it: be?fore, distance 0.04, confidence 87 %", "containers this rests on         3", "its first allocation, CPU 0.30→1.03"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if text := Explain(c, Clock{}); !strings.Contains(text, "no more speed for them beyond    1.0 CPUs") {
		t.Errorf("no knee in\n%s", text)
	}
	c.Bursts = 2
	if text := Explain(c, Clock{}); strings.Contains(text, "no more speed") {
		t.Errorf("a knee for a job that works in bursts:\n%s", text)
	}
	c.Similar = nil
	if text := Explain(c, Clock{}); strings.Contains(text, "Known jobs") {
		t.Errorf("a job that nothing is like:\n%s", text)
	}
}

// TestExplainTellsOfTheLastRuns: what they ended with, what was given, and an alarm; whatever a driver or
// a book calls itself.
func TestExplainTellsOfTheLastRuns(t *testing.T) {
	hostile := "\x1b[2J<b>\u202e🦊" + strings.Repeat("x", 4096)
	c := state.Container{Name: "train", LastRuns: &profiles.Shown{Job: "h", Entry: 7, Runs: 8, CPUs: 3.2, Memory: 2 << 30, PerSecond: 41.2, Low: 40, High: 42.5, Source: "torch.backward",
		Took: []string{"a quota of 3.20 CPUs"}, Slower: 0.15, SlowerWhy: "15 % below its last 8 runs, since the driver changed (" + hostile + ", before 535)"}}
	text := Explain(c, Clock{})
	for _, want := range []string{"the same job ran before (profile 7)", "runs remembered                  8", "3.2", "≈41.2/s (torch.backward), between 40.0 and 42.5", "a quota of 3.20 CPUs", "15 % below its last 8 runs, since the driver changed"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%.1500s", want, text)
		}
	}
	if strings.ContainsAny(text+PS([]state.Container{c}, true), "\x1b\u202e") {
		t.Error("an escape reaches the terminal")
	}
	if cells := CellsOf(c); cells.Rate != "usual 41.2/s" || !strings.HasPrefix(cells.Reason, "15 % below") {
		t.Errorf("%+v", cells)
	}
	c.LastRuns = &profiles.Shown{Job: "h"}
	if text := Explain(c, Clock{}); strings.Contains(text, "ran before") {
		t.Errorf("a job that never ran:\n%s", text)
	}
}

// TestBottleneckBeforeSpeed: the fastest device is advised only to a job that it would
// make faster.
func TestBottleneckBeforeSpeed(t *testing.T) {
	c := state.Container{Name: "train", Devices: []state.DeviceSpeed{{Model: "H100", PerSecond: 9, Ratio: 1.8}, {Model: "A100", PerSecond: 7, Ratio: 1.4}, {Model: "V100", PerSecond: 4, Ratio: 0.8}}}
	if best, ok := advice.BestDevice(c); !ok || best.Model != "H100" || !strings.Contains(Explain(c, Clock{}), "it should see H100 next") {
		t.Errorf("%+v %v", best, ok)
	}
	for i := range c.Devices {
		c.Devices[i].HostBound = true
	}
	if best, ok := advice.BestDevice(c); ok || strings.Contains(Explain(c, Clock{}), "should see") {
		t.Errorf("a host-bound job is sent to %+v", best)
	}
	// An interval decides: one that reaches below the rate here is no advice, however fast the median.
	c.Devices = []state.DeviceSpeed{{Model: "H1\x1b[2J00", PerSecond: 9, Low: 4, High: 20, Ratio: 1.8}, {Model: "A100", PerSecond: 7, Low: 6, High: 8, Ratio: 1.4, Jobs: 3}}
	text := Explain(c, Clock{})
	if best, ok := advice.BestDevice(c); !ok || best.Model != "A100" || !strings.Contains(text, "it should see A100 next") ||
		!strings.Contains(text, "+80 % (-20 % … +300 %), by data sheets alone") || !strings.Contains(text, "+40 % (+20 % … +60 %), by 3 jobs") || strings.Contains(text, "\x1b") {
		t.Errorf("%+v %v\n%s", best, ok, text)
	}
	c.Devices = []state.DeviceSpeed{{Model: "A100", Ratio: 1.05}}
	if _, ok := advice.BestDevice(c); ok {
		t.Error("a gain of 5 % is not worth a restart")
	}
}
