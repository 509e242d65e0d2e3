package verdict

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
)

// TestStaging: the trainer's own copies, in shares of the window, where the device tells its duty.
func TestStaging(t *testing.T) {
	made := func(edit func(*observe.Reading)) *observe.Reading {
		r := &observe.Reading{Root: 7, Trainer: observe.Thread{TID: 8}, Window: &observe.Window{StartNs: 1e9, EndNs: 3e9,
			Devices: []observe.Device{{PIDs: []int32{7}, Samples: 10, Duty: 0.6}},
			Processes: []observe.Process{{TGID: 3, Threads: []observe.CallThread{{TID: 8, Staged: 1000, StagedNs: 2e9, StagedKiB: 1}}},
				{TGID: 7, Threads: []observe.CallThread{{TID: 7, Staged: 1000, StagedNs: 2e9, StagedKiB: 1}, {TID: 8, Staged: 100, StagedNs: 5e8, StagedKiB: 100 << 11}}}}}}
		if edit != nil {
			edit(r)
		}
		return r
	}
	for name, tt := range map[string]struct {
		edit func(*observe.Reading)
		want policies.Staging
	}{
		"the trainer's":               {nil, policies.Staging{Calls: 100, CallSeconds: 5e-3, MiBSeconds: 2.5e-3, Share: 0.25, Idle: 0.4}},
		"in one that is longer":       {func(r *observe.Reading) { r.Window.Processes[1].Threads[1].StagedNs = 4e9 }, policies.Staging{Calls: 100, CallSeconds: 0.04, MiBSeconds: 0.02, Share: 1, Idle: 0.4}},
		"nothing read":                {func(r *observe.Reading) { r.Window = nil }, policies.Staging{}},
		"which thread trains unknown": {func(r *observe.Reading) { r.Aggregated = true }, policies.Staging{}},
		"no duty":                     {func(r *observe.Reading) { r.Window.Devices[0].Samples = 0 }, policies.Staging{}},
		"another process":             {func(r *observe.Reading) { r.Root = 9 }, policies.Staging{}},
		"a thread that copies none":   {func(r *observe.Reading) { r.Trainer.TID = 9 }, policies.Staging{}},
		"none came":                   {func(r *observe.Reading) { r.Window.Processes[1].Threads[1].Staged = 0 }, policies.Staging{}},
	} {
		if diff := cmp.Diff(tt.want, StagingOf(made(tt.edit)), cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
