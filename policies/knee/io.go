package knee

import (
	"fmt"
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// othersOnDisk is the share of a disk's traffic by others, from which on a weight
// can move anything.
const othersOnDisk = 0.1

// io moves a job's reads before those of neighbours on the same disks.
func (k Policy) io(node policies.Node, j policies.Job) []policies.Change {
	now, ok := j.Now[runtime.KnobIOWeight].Int()
	original, okOriginal := j.Original[runtime.KnobIOWeight].Int()
	d := j.Disk
	if !ok || !okOriginal || !j.Enrolment.Allows(runtime.KnobIOWeight) || j.Rate.PerSecond <= 0 ||
		j.Verdict.Cause != policies.CauseStorage && j.Verdict.Cause != policies.CauseCache || d.Own <= 0 || d.Others < othersOnDisk*(d.Own+d.Others) {
		return nil
	}
	to := math.Round(min(float64(now)*k.p.WeightStep, float64(original)*k.p.WeightMax, node.MaxIOWeight))
	// At best the others' traffic stands no longer before its own.
	lost := min(0.9, j.Breakdown.Share(policies.PartInputStorage)*d.Others/(d.Own+d.Others))
	gain := lost / (1 - lost)
	if int64(to) <= now || gain < k.p.MinGain {
		return nil
	}
	return []policies.Change{{Key: j.Key, Name: j.Name, Knob: runtime.KnobIOWeight, From: j.Now[runtime.KnobIOWeight], To: runtime.IntValue(int64(to)),
		Gain: gain, RateAfter: j.Rate.PerSecond * (1 + gain),
		Reason: fmt.Sprintf("it waits for a disk %.0f %% of its time, on which others transfer %.1f MiB/s beside its %.1f", 100*j.Breakdown.Share(policies.PartInputStorage), d.Others/mib, d.Own/mib)}}
}
