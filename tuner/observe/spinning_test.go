package observe

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// TestSpinningInACollective: a device that works while its SMs do not, for a rank that exchanges,
// waits for another one. The figures of the first two rows are an H100's.
func TestSpinningInACollective(t *testing.T) {
	for _, tc := range []struct {
		name          string
		duty, sm      float64
		told          bool
		calls         int
		exchanged     bool
		communication float64
	}{
		{"a late peer", 0.98, 0.127, true, 35, false, 0.853},
		{"the only rank of its communicator", 0.98, 0.127, true, -1, false, 0},
		{"its own kernels", 0.98, 0.949, true, 35, false, 0},
		{"a late peer, calls not counted now", 0.98, 0.127, true, 0, true, 0.853},
		{"small kernels of one that never exchanges", 0.98, 0.127, true, 0, false, 0},
		{"SMs are not told", 0.98, 0, false, 35, false, 0},
		{"an idle device", 0, 0, true, 35, false, 0},
		{"it waits for something else most of the time", 0.1, 0.01, true, 35, false, 0.09},
	} {
		w := onDevice(oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 980 * ms})), 900*ms, 900*ms)
		w.Processes[0].Calls, w.Processes[0].Exchanged = uint64(max(tc.calls, -tc.calls)), tc.exchanged
		if tc.calls < 0 {
			w.Processes[0].Ranks = 1
		}
		d := Device{UUID: "GPU-0", Duty: tc.duty, Samples: 10, SM: tc.sm, PIDs: []int32{trainer}}
		if tc.told {
			d.Activities = 2
		}
		w.Devices = []Device{d, {UUID: "GPU-1", Duty: 1, Samples: 10, Activities: 2, SM: 0.95, PIDs: []int32{trainer + 1}}} // another rank's
		b := Read(policies.DefaultConstants(), w, nil).Breakdown
		if got := b.Share(policies.PartCommunication); math.Abs(got-tc.communication) > 1e-6 {
			t.Errorf("%s: %.3f of its time is communication, want %.3f", tc.name, got, tc.communication)
		}
	}
}

// TestWaitsAreChargedOnce: a late peer, a spinning device and a busy wire may tell of the same waits.
func TestWaitsAreChargedOnce(t *testing.T) {
	r := Reading{Breakdown: policies.Breakdown{WallNs: 1000}}
	r.Breakdown.Ns[policies.PartDevice] = 900
	for _, step := range []struct {
		share float64
		want  int64
	}{{0.5, 500}, {0.4, 500}, {0.7, 700}, {-0.1, 700}, {1, 900}} {
		r.Expose(step.share)
		if got := r.Breakdown.Ns[policies.PartCommunication]; got < step.want-1 || got > step.want || got+r.Breakdown.Ns[policies.PartDevice] != 900 {
			t.Errorf("after %.1f: %d of 900 are communication, want %d", step.share, got, step.want)
		}
	}
}
