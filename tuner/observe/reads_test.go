package observe

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// TestNeitherSpinningNorWritingIsReading: what a trainer spins for its device stays the
// device's, and what it writes meanwhile is no input.
func TestNeitherSpinningNorWritingIsReading(t *testing.T) {
	spins := onDevice(oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 800 * ms, probes.StateBlockIO: 100 * ms})), 700*ms, 700*ms)
	spins.Block = probes.Block{Reads: 9000, ReadNs: 600 * ms}
	b := Read(policies.DefaultConstants(), spins, nil).Breakdown
	if d, s := b.Share(policies.PartDevice), b.Share(policies.PartInputStorage); d < 0.7-1e-6 || math.Abs(s-0.1) > 1e-6 {
		t.Errorf("device %.3f and storage %.3f, want 0.7 and 0.1: %v", d, s, b)
	}
	writes := oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 500 * ms, probes.StateBlockIO: 400 * ms}))
	writes.Block = probes.Block{Reads: 100, ReadNs: 150 * ms, WriteNs: 450 * ms} // a quarter reads
	b = Read(policies.DefaultConstants(), writes, nil).Breakdown
	if s, o := b.Share(policies.PartInputStorage), b.Share(policies.PartOther); math.Abs(s-0.1) > 1e-6 || o < 0.3-1e-6 {
		t.Errorf("storage %.3f, want the 0.1 that it read; other %.3f, want the 0.3 that it wrote: %v", s, o, b)
	}
}
