package observe

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// TestReadingThatTheHypervisorDidWhileItTookTheCPU: a disk that is served out of the guest's
// CPU time turns sleep into what looks like work. The first two rows are the same job.
func TestReadingThatTheHypervisorDidWhileItTookTheCPU(t *testing.T) {
	// A trainer that reads for itself, with nothing else on a machine of two CPUs.
	inline := func(run, slept, readNs uint64, steal, idle float64) *Window {
		w := oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: run, probes.StateBlockIO: slept}))
		w.HostCPUs, w.StealShare, w.HostIdle = 2, steal, idle
		w.Block = probes.Block{Reads: 9000, ReadBytes: 36 << 20, ReadNs: readNs}
		return w
	}
	for _, tt := range []struct {
		name          string
		w             *Window
		storage, work float64
	}{
		{"nothing stolen", inline(400*ms, 500*ms, 600*ms, 0, 1.6), 0.5, 0.4},
		{"15 % of the machine stolen", inline(700*ms, 200*ms, 600*ms, 0.15, 1.3), 0.5, 0.4},
		{"more stolen than the reads took", inline(700*ms, 200*ms, 250*ms, 0.3, 1.3), 0.25, 0.65},
		{"stolen mostly from others", inline(700*ms, 200*ms, 600*ms, 0.3, 0), 0.41, 0.49},
		{"reads that nobody slept for", inline(700*ms, 0, 600*ms, 0.15, 1.3), 0, 0.7},
		{"reads ahead, for which one hardly sleeps", inline(700*ms, 10*ms, 600*ms, 0.15, 1.3), 0.04, 0.67},
		{"stolen, and the reads are accounted for", inline(700*ms, 200*ms, 200*ms, 0.15, 1.3), 0.2, 0.7},
	} {
		b := Read(policies.DefaultConstants(), tt.w, nil).Breakdown
		if s, c := b.Share(policies.PartInputStorage), b.Share(policies.PartCompute); math.Abs(s-tt.storage) > 1e-6 || math.Abs(c-tt.work) > 1e-6 {
			t.Errorf("%s: storage %.3f and compute %.3f, want %.3f and %.3f", tt.name, s, c, tt.storage, tt.work)
		}
	}
}

// TestNeitherSpinningNorWritingIsReading: what a trainer spins for its device stays the
// device's, and what it writes meanwhile is no input.
func TestNeitherSpinningNorWritingIsReading(t *testing.T) {
	spins := onDevice(oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 800 * ms, probes.StateBlockIO: 100 * ms})), 700*ms, 700*ms)
	spins.HostCPUs, spins.StealShare, spins.HostIdle = 2, 0.3, 1.2
	spins.Block = probes.Block{Reads: 9000, ReadNs: 600 * ms}
	b := Read(policies.DefaultConstants(), spins, nil).Breakdown
	if d, s := b.Share(policies.PartDevice), b.Share(policies.PartInputStorage); d < 0.7-1e-6 || math.Abs(s-0.2) > 1e-6 {
		t.Errorf("device %.3f and storage %.3f, want 0.7 and 0.2: %v", d, s, b)
	}
	writes := oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 500 * ms, probes.StateBlockIO: 400 * ms}))
	writes.HostCPUs, writes.StealShare, writes.HostIdle = 2, 0.3, 1.2
	writes.Block = probes.Block{Reads: 100, ReadNs: 150 * ms, WriteNs: 450 * ms} // a quarter reads
	b = Read(policies.DefaultConstants(), writes, nil).Breakdown
	if s, o := b.Share(policies.PartInputStorage), b.Share(policies.PartOther); math.Abs(s-0.15) > 1e-6 || o < 0.3 {
		t.Errorf("storage %.3f, want the 0.15 that it read; other %.3f, want the 0.3 that it wrote: %v", s, o, b)
	}
}

// TestLoadersUnderExcessStealWhileTheyReadAreNotBusy: what a trainer waits for follows.
func TestLoadersUnderExcessStealWhileTheyReadAreNotBusy(t *testing.T) {
	job := func(run, slept uint64, steal float64) policies.Breakdown {
		w := dataLoaderJob(times{probes.StateRun: run, probes.StateBlockIO: slept})
		w.HostCPUs, w.StealShare = 4, steal
		w.HostIdle = 4 - float64(200*ms+2*run)/1e9
		w.Block.ReadNs = 1400 * ms
		return Read(policies.DefaultConstants(), w, nil).Breakdown
	}
	quiet, excessSteal := job(300*ms, 600*ms, 0), job(700*ms, 200*ms, 0.2)
	for _, part := range []policies.Part{policies.PartInputStorage, policies.PartInputWorkers} {
		if q, r := quiet.Share(part), excessSteal.Share(part); math.Abs(q-r) > 1e-6 {
			t.Errorf("%v: %.3f of the trainer's time where nothing is stolen, %.3f where a fifth is", part, q, r)
		}
	}
	if excessSteal.Share(policies.PartInputStorage) <= excessSteal.Share(policies.PartInputWorkers) {
		t.Errorf("loaders that read are said to be busy: %v", excessSteal)
	}
}
