package verdict

import (
	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
)

// StagingOf is what the trainer's asynchronous copies to its device took. A device that tells no duty
// may have no time to save, so that nothing is told then.
func StagingOf(r *observe.Reading) policies.Staging {
	if r.Window == nil || r.Aggregated {
		return policies.Staging{}
	}
	busy, known := duty(*r)
	t, wall := r.Window.Calls(r.Root).CallsOf(r.Trainer.TID), float64(r.Window.EndNs-r.Window.StartNs)
	if !known || t.Staged == 0 || t.StagedKiB == 0 || !(wall > 0) {
		return policies.Staging{}
	}
	seconds := float64(t.StagedNs) / 1e9
	return policies.Staging{Calls: t.Staged, CallSeconds: seconds / float64(t.Staged), MiBSeconds: 1024 * seconds / float64(t.StagedKiB),
		Share: min(1, float64(t.StagedNs)/wall), Idle: min(1, max(0, 1-busy))}
}
