package verdict

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
)

// TestWhatADeviceIsBusyWith: which of its parts bounds a device-bound job, where it tells.
func TestWhatADeviceIsBusyWith(t *testing.T) {
	for want, d := range map[string]observe.Device{
		"its device works 98 % of the time":                                                                   {Samples: 10, Duty: 0.98},
		"its device works 98 % of the time, and its SMs 95 %: they bound it":                                  {Samples: 10, Duty: 0.98, Activities: 2, SM: 0.95, DRAM: 0.07},
		"its device works 98 % of the time, and its SMs 87 %":                                                 {Samples: 10, Duty: 0.98, Activities: 2, SM: 0.87, DRAM: 0.07, Tensor: 0.48},
		"its device works 98 % of the time, its SMs 87 %, its tensor cores 60 %: they bound it":               {Samples: 10, Duty: 0.98, Activities: 2, SM: 0.87, DRAM: 0.07, Tensor: 0.6},
		"its device works 98 % of the time, and its memory 52 %: bandwidth bounds it":                         {Samples: 10, Duty: 0.98, Activities: 2, SM: 0.95, DRAM: 0.52, Tensor: 0.6},
		"it waits 60 % of its time for its device, which works, and its SMs 68 %":                             {Samples: 10, Duty: 0.7, Activities: 2, SM: 0.68, Tensor: 0.6},
		"its device works 99 % of the time, and its memory 90 %: bandwidth bounds it":                         {Samples: 10, Duty: 0.99, Activities: 2, SM: 0.99, DRAM: 0.9},
		"its device works 95 % of the time, and its SMs 20 %: small kernels or batches leave most of it idle": {Samples: 10, Duty: 0.95, Activities: 2, SM: 0.2, DRAM: 0.1},
		"it waits 60 % of its time for its device, which works":                                               {Samples: 10, Duty: 0.7},
		"it waits 60 % of its time for its device, which works, and its SMs 45 %":                             {Samples: 10, Duty: 0.5, Activities: 2, SM: 0.45},
		"it waits 60 % of its time for its device, which works, and its SMs 45 %, its memory 3 %":             {Activities: 2, SM: 0.45, DRAM: 0.03},
	} {
		d.PIDs = []int32{100}
		w := &observe.Window{EndNs: 2e9, HasKernel: true, HostCPUs: 4, HasCgroup: true, Cgroup: observe.Cgroup{CPUNs: 1e9}, Devices: []observe.Device{d}}
		r := observe.Reading{Window: w, Root: 100, Ranks: 1, Rate: policies.Rate{Ticks: 20, Source: "torch.backward"}}
		r.Breakdown = policies.Breakdown{WallNs: 2e9}
		r.Breakdown.Ns[policies.PartDevice], r.Breakdown.Ns[policies.PartCompute] = 12e8, 8e8
		r.SyncNs, r.Launches = 12e8, 1000
		if v := Judge(policies.DefaultConstants(), r); v.Why != want || v.Cause != policies.CauseDevice {
			t.Errorf("%s: %q, want %q", v.Cause, v.Why, want)
		}
	}
}

// TestLaunchBoundIsTold: where launching is what the trainer does, and its device is idle for most of
// the time. A trainer that does other work between its launches, one whose device has no time to
// spare, and one that is short of CPU are told as before.
func TestLaunchBoundIsTold(t *testing.T) {
	const said = "launch-bound: 37000 launches/s, the device works 13 % of the time"
	for name, tt := range map[string]struct {
		edit func(*observe.Reading, func(policies.Part, float64))
		want bool
	}{
		"37000 a second":                    {func(*observe.Reading, func(policies.Part, float64)) {}, true},
		"each takes just what is the most":  {func(r *observe.Reading, _ func(policies.Part, float64)) { r.LaunchRate = 7001 }, true},
		"each takes more":                   {func(r *observe.Reading, _ func(policies.Part, float64)) { r.LaunchRate = 6999 }, false},
		"none is counted":                   {func(r *observe.Reading, _ func(policies.Part, float64)) { r.LaunchRate = 0 }, false},
		"the device works for half of it":   {func(r *observe.Reading, _ func(policies.Part, float64)) { r.Window.Devices[0].Duty = 0.5 }, false},
		"what the device does is not known": {func(r *observe.Reading, _ func(policies.Part, float64)) { r.Window.Devices = nil }, false},
		"its quota stops it": {func(r *observe.Reading, s func(policies.Part, float64)) {
			s(policies.PartThrottled, 0.2)
			r.Loaders = 0
		}, false},
		"others stand before it": {func(r *observe.Reading, s func(policies.Part, float64)) {
			s(policies.PartContended, 0.2)
			r.Loaders = 0
		}, false},
	} {
		r := reading(func(r *observe.Reading, s func(policies.Part, float64)) {
			s(policies.PartCompute, 0.7)
			r.LaunchRate, r.Window.Devices = 37000, []observe.Device{{Samples: 10, Duty: 0.13, PIDs: []int32{100}}}
			tt.edit(r, s)
		})
		v := Judge(policies.DefaultConstants(), r)
		if v.Class != policies.ClassCompute || v.Cause != policies.CauseHost {
			t.Errorf("%s: %s/%s", name, v.Class, v.Cause)
		}
		words := strings.HasPrefix(v.Why, "launch-bound: ")
		if words != tt.want || words != (v.Relief == ReliefLaunches) || tt.want && r.LaunchRate == 37000 && v.Why != said {
			t.Errorf("%s: %q, relief %q; told as such: want %v", name, v.Why, v.Relief, tt.want)
		}
	}
}
