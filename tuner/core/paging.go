package core

import (
	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/response"
	"github.com/trimtab/trimtab/tuner/verdict"
	"github.com/trimtab/trimtab/tuner/window"
)

// limitFull is the share of a limit from which on what is used meets it.
const limitFull = 0.9

// learnPaging takes a closed window into the container's curve by memory: what it did under
// a limit that evicts what it reads again, or what it used where nothing was evicted.
// Without a limit page cache grows as it likes, and while a limit fills, or data is read
// for the first time, the rate says nothing of what memory buys.
func (c *Core) learnPaging(j *job, r window.Reading) {
	limit, limited := j.c.Now[runtime.KnobMemoryLimit].Int()
	w := r.Window
	if !limited || limit <= 0 || !w.HasCgroup || w.Seconds() <= 0 || !verdict.Steady(c.thresholds(), r) || !(r.Rate.PerSecond > 0) {
		return
	}
	use := policies.MemoryUse{Current: float64(w.Cgroup.MemoryBytes), Limit: float64(limit),
		Reread: float64(w.Cgroup.RefaultFile+w.Cgroup.RefaultAnon) * pageBytes / w.Seconds(), DiskRead: float64(w.Block.ReadBytes) / w.Seconds()}
	seen := response.Seen{Rate: r.Rate.PerSecond, Source: r.Rate.Source}
	tick := 1 / r.Rate.PerSecond
	switch lost := use.Evicted(j.verdict, r.Breakdown); {
	case use.Rereads() && use.Current >= limitFull*use.Limit:
		seen.X, seen.Paging = use.Limit, policies.Paging{Base: tick * (1 - lost), Lost: tick * lost, Limit: use.Limit, Set: use.Limit + use.Missing()}
	case use.Calm() && r.Breakdown.Share(policies.PartInputStorage) < c.cfg.Thresholds.Input && w.Cgroup.MemorySome < c.cfg.Thresholds.Reclaim:
		seen.X, seen.Paging = use.Current, policies.Paging{Base: tick, Limit: use.Current, Set: use.Current, Enough: true}
	default:
		return
	}
	j.paging.Learn(seen)
	j.byMemory = j.paging.Curve(c.node.Memory)
}
