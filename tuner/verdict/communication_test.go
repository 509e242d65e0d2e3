package verdict

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/observe"
)

// TestLatePeerOfOneThatNeverBlocks: the trainer spins in a launch, for the queue is full, and its
// device in a collective. The device's figures are an H100's (docs/gpu.md), the rest is constructed.
func TestLatePeerOfOneThatNeverBlocks(t *testing.T) {
	spins := observe.Device{Samples: 10, Duty: 0.98, Activities: 2, SM: 0.13, DRAM: 0.01, PIDs: []int32{100}}
	for name, tc := range map[string]struct {
		edit func(r *observe.Reading, d *observe.Device)
		want policies.Class
	}{
		"it spins in launches":                 {func(*observe.Reading, *observe.Device) {}, policies.ClassCommunication},
		"its loaders are behind a little too":  {func(r *observe.Reading, _ *observe.Device) { r.Breakdown.Ns[policies.PartInputWorkers] = 2e8 }, policies.ClassCommunication},
		"what the network did is not read":     {func(r *observe.Reading, _ *observe.Device) { r.Window.Network = observe.Network{} }, policies.ClassUnknown},
		"its SMs work":                         {func(_ *observe.Reading, d *observe.Device) { d.SM = 0.9 }, policies.ClassCompute},
		"its SMs are not told":                 {func(_ *observe.Reading, d *observe.Device) { d.Activities = 0 }, policies.ClassCompute},
		"its device has gaps":                  {func(_ *observe.Reading, d *observe.Device) { d.Duty = 0.8 }, policies.ClassCompute},
		"it never exchanges":                   {func(r *observe.Reading, _ *observe.Device) { r.Exchanges = false }, policies.ClassCompute},
		"it is its communicator's only rank":   {func(r *observe.Reading, _ *observe.Device) { r.Window.Processes[0].Ranks = 1 }, policies.ClassCompute},
		"another container is on the device":   {func(_ *observe.Reading, d *observe.Device) { d.Holders = []string{"other"} }, policies.ClassCompute},
		"the device is another process's":      {func(_ *observe.Reading, d *observe.Device) { d.PIDs = []int32{200} }, policies.ClassCompute},
		"it is out of quota most of its time":  {func(r *observe.Reading, _ *observe.Device) { r.Breakdown.Ns[policies.PartThrottled] = 18e8 }, policies.ClassCompute},
		"a wait for its loaders is most of it": {func(r *observe.Reading, _ *observe.Device) { r.Breakdown.Ns[policies.PartInputWorkers] = 18e8 }, policies.ClassInput},
	} {
		d := spins
		r := reading(func(r *observe.Reading, share func(policies.Part, float64)) {
			share(policies.PartCompute, 0.99)
			r.Launches, r.Collectives, r.Exchanges = 3000, 30, true
			r.Window.Network.Ns = 2e9
			r.Window.Processes = []observe.Process{{TGID: 100, Calls: 30, Ranks: 2}}
		})
		tc.edit(&r, &d)
		r.Window.Devices = []observe.Device{d}
		v := Judge(policies.DefaultConstants(), r)
		if v.Class != tc.want {
			t.Errorf("%s: %s/%s, want %s: %s", name, v.Class, v.Cause, tc.want, v.Why)
		}
		if v.Class == policies.ClassCommunication && (v.Cause != policies.CauseStraggler || !strings.Contains(v.Why, "85 %")) {
			t.Errorf("%s: %s, because %s: want a straggler, and that the device waits 85 %% of the time", name, v.Cause, v.Why)
		}
	}
}

// A straggler is told by the rank that its launcher gave it, and by its process where that is not known.
func TestStragglerHasAName(t *testing.T) {
	for want, facts := range map[string][]probes.Process{
		"rank 5, process 300": {{TGID: 200, Ranked: true, Rank: 4}, {TGID: 300, Ranked: true, Rank: 5}},
		"process 300":         {{TGID: 300}},
	} {
		v := Judge(policies.DefaultConstants(), reading(func(r *observe.Reading, share func(policies.Part, float64)) {
			share(policies.PartCommunication, 0.3)
			r.Peers = []observe.Peer{{Root: 200, Own: 0.2}, {Root: 300, Own: 0.9}}
			r.Window.Facts = facts
		}))
		if v.Cause != policies.CauseStraggler || !strings.HasSuffix(v.Relief, ", "+want) || !strings.HasSuffix(v.Why, ": "+want) {
			t.Errorf("%s/%s: %s; %s; want %s", v.Class, v.Cause, v.Relief, v.Why, want)
		}
	}
}
