package verdict

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/observe"
)

// TestCostBeforeAFullDevice: what a trainer computes while its device works without a pause shortens no
// step, so that what it used is enough. Where that is not sure the cost stays what was measured.
func TestCostBeforeAFullDevice(t *testing.T) {
	type R = observe.Reading
	device := func(r *R) *observe.Device { return &r.Window.Devices[0] }
	// Steps of 40 ms, of which the trainer is on a CPU for ran, and the rest of the time out of quota.
	at := func(ran float64, edit func(*R)) policies.Cost {
		r := reading(func(r *R, share func(policies.Part, float64)) {
			share(policies.PartCompute, ran)
			share(policies.PartThrottled, 1-ran)
			r.LoaderUse, r.Launches, r.Rate.PerSecond, r.Window.Cgroup.CPUNs = observe.LoaderUse{}, 1000, 25, uint64(ran*2e9)
			r.Cost = policies.Cost{TrainerCPU: ran * 0.04, Ticks: 50}
			r.Trainer.Ns[probes.StateRun] = uint64(ran * 2e9)
			r.Window.Devices = []observe.Device{{Samples: 10, Duty: 0.99, PIDs: []int32{100}, Activities: 2, SM: 0.9}}
		})
		edit(&r)
		return Cost(policies.DefaultConstants(), r)
	}
	// Of what it ran so much is in waits, which CUDA's calls tell.
	waits := func(n, ns, spun uint64) func(*R) {
		return func(r *R) {
			r.Trainer.TID = 100
			r.Window.Processes = []observe.Process{{TGID: 100, Threads: []observe.CallThread{{TID: 100, Syncs: n, SyncNs: ns, SyncRunNs: spun}}}}
			spin := float64(spun) / 1e9 / r.Cost.Ticks
			r.Cost.TrainerCPU, r.Cost.Spin, r.Cost.Device = r.Cost.TrainerCPU-spin, spin, spin
		}
	}
	for name, tt := range map[string]struct {
		ran  float64
		edit func(*R)
		knee float64
	}{
		"it spins in a full queue all the time":                  {1, func(*R) {}, 1},
		"its quota lets it for a tenth, and the device works on": {0.1, func(*R) {}, 0.1},
		"others stand before it, and the device works on":        {0.1, func(r *R) { r.Cost.Queue = 0.036 }, 0.1},
		"another thread of it computes too":                      {0.1, func(r *R) { r.Cost.OtherCPU, r.Window.Cgroup.CPUNs = 0.004, 4e8 }, 0.2},
		"its ticks are told to come more often than they do":     {0.1, func(r *R) { r.Rate.PerSecond = 4e4 }, 0.1},
		"the device has pauses":                                  {0.1, func(r *R) { device(r).Duty, device(r).SM = 0.85, 0.8 }, 1},
		"another works on the device too":                        {0.1, func(r *R) { device(r).Holders = []string{"other"} }, 1},
		"it waits for a device on which another works too": {0.1, func(r *R) {
			r.Breakdown.Ns[policies.PartThrottled], r.Breakdown.Ns[policies.PartDevice], r.Cost.Device = 0, 18e8, 0.016
			device(r).Holders = []string{"other"}
		}, 0.2},
		"what it works on is not known":                           {0.1, func(r *R) { device(r).SM = 0.05 }, 1},
		"loaders are out of quota: it lives on what they made":    {0.1, func(r *R) { r.Loaders, r.LoaderShort = 2, 0.8 }, 1},
		"no steps are seen":                                       {0.1, func(r *R) { r.Aggregated = true }, 1},
		"its cost was not measured":                               {0.1, func(r *R) { r.CostOK = false }, 1},
		"loaders have CPU enough, and one needs 80 ms for a step": {0.5, func(r *R) { r.Loaders, r.Cost.Loaders, r.Cost.Batch = 1, 1, 0.08 }, 0.25},
		"it spins in waits of 2 s":                                {1, waits(1, 19e8, 19e8), 0.05},
		"it spins in waits of 950 ms, a little too short for it":  {1, waits(2, 19e8, 19e8), 1},
		"it sleeps in such waits":                                 {0.1, waits(1, 18e8, 0), 0.1},
		"it spins in one that lasts for longer than was looked":   {1, waits(0, 2e9, 2e9), 0.02}, // what is told apart at all
	} {
		c := at(tt.ran, tt.edit)
		if got := c.Knee(); math.Abs(got-tt.knee) > 0.01*tt.knee {
			t.Errorf("%s: %.3f CPUs are enough, want %.3f: %+v", name, got, tt.knee, c)
		}
	}
	c := at(1, func(*R) {})
	if math.Abs(c.TrainerCPU-0.0004) > 1e-9 || math.Abs(c.Spin-0.0396) > 1e-9 || math.Abs(c.Device-0.0396) > 1e-9 || math.Abs(c.CPU()-0.04) > 1e-9 {
		t.Errorf("of 40 ms the device pauses for 0.4, and the rest is spun: %+v", c)
	}
}
