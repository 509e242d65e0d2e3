package verdict

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
)

// TestSharedDevices: what is said of a job whose device others use too, by MIG, in turns or under
// MPS. The readings are as tuner/observe makes them of these, constructed from NVIDIA's documentation.
func TestSharedDevices(t *testing.T) {
	const on = 100
	slice := observe.Device{UUID: "MIG-a", Readings: 4, Activities: 2, SM: 0.9, DRAM: 0.1, PIDs: []int32{on}}
	full := observe.Device{UUID: "GPU-0", Readings: 4, Samples: 10, Duty: 0.99, PIDs: []int32{on}}
	shared := full
	shared.Holders = []string{"other"}
	told := shared
	told.SMReadings, told.Own, told.Others = 2, 0.1, 0.8
	waits := func(r *observe.Reading) {
		r.Breakdown.Ns[policies.PartCompute], r.Breakdown.Ns[policies.PartDevice], r.SyncNs = 2e8, 18e8, 18e8
	}
	spins := func(r *observe.Reading) { // in a full launch queue, or it computes
		r.Breakdown.Ns[policies.PartCompute], r.Breakdown.Ns[policies.PartDevice] = 2e9, 0
	}
	for name, tc := range map[string]struct {
		device observe.Device
		edit   func(*observe.Reading)
		works  []string // other containers that launched meanwhile
		want   policies.Cause
	}{
		"MIG: it waits for its slice":                    {slice, waits, nil, policies.CauseDevice},
		"MIG: it spins, and no duty tells for what":      {slice, spins, nil, policies.CauseHost},
		"in turns: it waits, another launches":           {shared, waits, []string{"other"}, policies.CauseShared},
		"in turns: it waits, the driver tells the other": {told, waits, nil, policies.CauseShared},
		"in turns: it waits, the other only holds":       {shared, waits, nil, policies.CauseDevice},
		"in turns: it spins, the duty may be another's":  {shared, spins, []string{"other"}, policies.CauseHost},
		"MPS: the only client waits":                     {full, waits, nil, policies.CauseDevice},
		"MPS: the only client spins in a full queue":     {full, spins, nil, policies.CauseDevice},
		"MPS: one of two clients waits":                  {shared, waits, []string{"other"}, policies.CauseShared},
		"MPS: one of two spins, the duty may be either's": {shared, spins, []string{"other"},
			policies.CauseHost},
	} {
		r := reading(func(r *observe.Reading, _ func(policies.Part, float64)) {
			r.Loaders, r.Launches, r.SharedWith = 0, 3000, tc.works
			r.Window.Devices = []observe.Device{tc.device}
		})
		tc.edit(&r)
		if v := Judge(policies.DefaultConstants(), r); v.Class != policies.ClassCompute || v.Cause != tc.want {
			t.Errorf("%s: %s/%s, want compute/%s: %s", name, v.Class, v.Cause, tc.want, v.Why)
		}
	}
}
