package observe

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// TestWaitingOfWhoTrains: where it is known which thread trains, what that one waits for a CPU
// counts. Two ranks whose helpers wait half of the time, one at least of them, lose no half.
func TestWaitingOfWhoTrains(t *testing.T) {
	k := policies.DefaultConstants()
	for _, tt := range []struct {
		name  string
		ticks uint64
		want  float64
	}{
		{"steps are counted", 10, 0.1},
		{"nobody counts them", 0, 0.5},
	} {
		w := oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 600 * ms, probes.StateQueued: 100 * ms, probes.StateTimer: 300 * ms}))
		w.HasCgroup, w.Cgroup.HasPSI, w.Cgroup.CPUSome = true, true, 0.5
		if tt.ticks > 0 {
			w.Ticks = []Tick{{Source: "torch.backward", TGID: trainer, Count: tt.ticks, FromNs: 1, LastNs: w.EndNs}}
		}
		var s State
		s.addUse(k, w, Read(k, w, nil))
		if got := s.Uses[0].Waiting; math.Abs(got-tt.want) > 0.02 {
			t.Errorf("%s: it waits %.2f of its time, want %.2f", tt.name, got, tt.want)
		}
	}
}

// TestPeakIsTheMostOverSeconds: one second at four CPUs is no five at four, and what was is not
// forgotten when less is used.
func TestPeakIsTheMostOverSeconds(t *testing.T) {
	k := policies.DefaultConstants()
	var s State
	for i, cpus := range []int64{1, 1, 1, 1, 1, 4, 1, 1, 1, 1, 0} {
		from := 7e9 + int64(i)*1e9
		s.addUse(k, &Window{StartNs: from, EndNs: from + 1e9, HasCgroup: true, Cgroup: Cgroup{CPUNs: uint64(cpus * 1e9)}}, Reading{})
	}
	if math.Abs(s.PeakCPUs-1.6) > 1e-9 || s.PeakNs != 7e9 {
		t.Errorf("a peak of %.2f CPUs since %d, want 1.6 since 7e9", s.PeakCPUs, s.PeakNs)
	}
}
