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
