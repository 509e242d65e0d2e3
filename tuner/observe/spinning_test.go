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

// TestCollectivesInGraphs: a graph calls none of the collectives in it. A process that called some
// before, and launches graphs, exchanges, however long ago that was.
func TestCollectivesInGraphs(t *testing.T) {
	const nowNs = 3600 * second
	nccl := func(calls uint64, lastNs int64) *probes.NCCL {
		p := probes.NCCLProcess{TGID: trainer, Ranks: 2, LastNs: lastNs}
		p.Calls[0] = calls
		return &probes.NCCL{Processes: []probes.NCCLProcess{p}}
	}
	for name, tc := range map[string]struct {
		graphs    uint64
		prev, cur *probes.NCCL
		want      bool
	}{
		"captured an hour ago":        {100, nccl(8, second), nccl(8, second), true},
		"it launches no graph":        {0, nccl(8, second), nccl(8, second), false},
		"it never called any":         {100, nccl(0, 0), nccl(0, 0), false},
		"some are called, and tell":   {100, nccl(8, second), nccl(9, nowNs), false},
		"another process's, not this": {100, &probes.NCCL{}, &probes.NCCL{}, false},
	} {
		got := addCollectives([]Process{{TGID: trainer, Graphs: tc.graphs}, {TGID: trainer + 1, Graphs: 5}}, tc.prev, tc.cur, nowNs)
		if got[0].TGID != trainer || got[0].Exchanged != tc.want || got[0].Graphs != tc.graphs {
			t.Errorf("%s: %+v, want exchanged %v", name, got[0], tc.want)
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
