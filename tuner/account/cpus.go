package account

import (
	"math"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// cpuTime is what a container held of CPUs, ns: untold while its use was not read. What it queued for
// behind other work it wanted, and could not get: that is not idle. What it used above its owner's
// quota a loan lent, or a trial gave.
type cpuTime struct{ busy, queued, idle, untold, lent, given int64 }

// cpuTimes divides its owner's quota, as far as the host and its CPU set have that much, or else what it is
// entitled to, and at the least what it used; without a quota nothing is above its own.
func cpuTimes(c *state.Container, dt int64, hostCPUs float64) cpuTime {
	own, limited := ownQuota(c)
	used, lent, given := max(0, c.UsedCPUs), 0.0, 0.0
	if limited {
		if now, _ := c.Now[runtime.KnobCPUQuota].CPUs(); now > own { // else it is a reading's error
			given = max(0, used-own)
			if c.Loan != nil { // it lies on top of what a trial gave
				given = min(given, max(0, now-own-c.Loan.CPUs))
				lent = max(0, used-own) - given
			}
		}
		used = min(used, own)
		own = max(used, min(own, mostCPUs(c, hostCPUs)))
	} else {
		own = max(c.Entitled, used)
	}
	if !c.Watched && c.UsedCPUs == 0 {
		return cpuTime{untold: times(dt, own)}
	}
	busy := times(dt, used)
	left := max(0, times(dt, own)-busy)
	queued := min(left, times(dt, c.QueuedCPUs))
	return cpuTime{busy: busy, queued: queued, idle: left - queued, lent: times(dt, lent), given: times(dt, given)}
}

func ownQuota(c *state.Container) (float64, bool) {
	if cpus, ok := c.Original[runtime.KnobCPUQuota].CPUs(); ok {
		return cpus, true
	}
	if _, changed := c.Original[runtime.KnobCPUQuota]; changed {
		return 0, false
	}
	return c.Now[runtime.KnobCPUQuota].CPUs()
}

// mostCPUs is what its owner's CPU set, and the host, have at the most. A host of which that is not known has enough.
func mostCPUs(c *state.Container, hostCPUs float64) float64 {
	most := math.Inf(1)
	if hostCPUs > 0 {
		most = hostCPUs
	}
	set, known := c.Original[runtime.KnobCpuset]
	if !known {
		set = c.Now[runtime.KnobCpuset]
	}
	if cpus, err := runtime.ParseCPUList(string(set)); err == nil && len(cpus) > 0 {
		most = min(most, float64(len(cpus)))
	}
	return most
}
