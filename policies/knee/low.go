package knee

import (
	"fmt"
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// evictedShare of what is read from disks must have been in memory before, for its
// loss to be the neighbours' doing.
const evictedShare = 0.3

// low protects the working set of a job without a limit, whose pages go because
// others on the host want memory: what it has, and what it reads again within the
// horizon. It has no effect where a group above it protects nothing.
func (k Policy) low(node policies.Node, j policies.Job) []policies.Change {
	m := j.MemoryUse
	now, present := j.Now[runtime.KnobMemoryLow].Int()
	if !present || !m.Read || m.Limit > 0 || !m.LowReaches || j.Verdict.Cause != policies.CauseStorage || j.Rate.PerSecond <= 0 ||
		!j.Enrolment.Allows(runtime.KnobMemoryLow) || m.Reread < evictedShare*m.DiskRead || m.Reread < calmReread {
		return nil
	}
	to := math.Floor((m.Current+m.Reread*horizonSeconds)/mib) * mib
	to = min(to, math.Floor((node.Memory-node.ReserveMemory)/2/mib)*mib)
	lost := min(0.9, j.Breakdown.Share(policies.PartInputStorage)*min(1, m.Reread/m.DiskRead))
	gain := lost / (1 - lost)
	if to <= float64(now) || gain < k.p.MinGain {
		return nil
	}
	return []policies.Change{{Key: j.Key, Name: j.Name, Knob: runtime.KnobMemoryLow, From: j.Now[runtime.KnobMemoryLow], To: runtime.IntValue(int64(to)),
		Gain: gain, RateAfter: j.Rate.PerSecond * (1 + gain),
		Reason: fmt.Sprintf("it has no limit, and reads %.1f MiB/s again that others on the host displaced", m.Reread/mib)}}
}
