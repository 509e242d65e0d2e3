package core

import (
	"math"
	"slices"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/verdict"
	"github.com/trimtab/trimtab/tuner/window"
)

// A hypervisor that gives CPU time to others makes steps longer and dearer. Where it
// takes 4 % all day, that is the machine that there is, and waiting for a better one
// leaves every job as it is: a window is robbed by what was taken beyond the usual.
const (
	usualNs    = 20 * second // over which the usual is taken: a quota that starves is to be seen in less than a minute
	usualLeast = 5           // readings
	// usualMost is as much as can be usual: a cost is read too dear by what is stolen, and
	// beyond a tenth the knee would be another one.
	usualMost = 0.10
	// stolenOfGain is the part of the gain to be told by a trial that the stolen share may
	// differ by on its sides.
	stolenOfGain = 0.1
)

// stolen is what the hypervisor took lately, tick by tick.
type stolen struct {
	at     []int64
	shares []float64
	usual  float64 // the median
}

func (s *stolen) note(before, now probes.Host) {
	if before.AtNs <= 0 || now.AtNs <= before.AtNs {
		return
	}
	s.at, s.shares = append(s.at, now.AtNs), append(s.shares, now.StolenSince(before))
	old := 0
	for old < len(s.at)-usualLeast && s.at[old] < now.AtNs-usualNs {
		old++
	}
	s.at, s.shares = slices.Delete(s.at, 0, old), slices.Delete(s.shares, 0, old)
	if len(s.shares) < usualLeast {
		return
	}
	sorted := slices.Sorted(slices.Values(s.shares))
	s.usual = min(sorted[len(sorted)/2], usualMost)
}

// thresholds are the configured ones, as they hold on this machine now.
func (c *Core) thresholds() verdict.Thresholds {
	th := c.cfg.Thresholds
	th.Steal += c.stolen.usual
	return th
}

// robbed reports whether a window of a container is no evidence, for what was stolen in
// it. The sides of a trial must have been robbed alike, as its gain is large or small.
func (c *Core) robbed(key string, w *window.Window) bool {
	if len(c.trials) > 0 {
		for _, t := range c.trialsOf(key) {
			return math.Abs(w.StealShare-t.stolen) > max(c.cfg.Thresholds.Steal, stolenOfGain*t.order.Changes[0].Gain)
		}
	}
	return w.StealShare > c.thresholds().Steal
}
