package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/trial"
)

// hasPSI reports whether the container's pressure can be read.
func (j *job) hasPSI() bool { return len(j.usage) > 0 && j.usage[len(j.usage)-1].psi }

// mean is CPU use and waiting between two instants.
func (j *job) mean(fromNs, toNs int64) (cpus, waiting float64) { return meanUse(j.usage, fromNs, toNs) }

// usedLately is the mean of ten seconds, or of those in which it did the work that it does
// now, of three at the least: what it needed for other work it does not miss.
func (j *job) usedLately(nowNs int64) (cpus, waiting float64) {
	from := nowNs - 10*second
	return j.mean(max(from, min(j.otherSinceNs+second, nowNs-3*second)), nowNs)
}

func meanUse(all []usage, fromNs, toNs int64) (cpus, waiting float64) {
	n := 0.0
	begin, _ := slices.BinarySearchFunc(all, fromNs+1, func(u usage, ns int64) int { return cmp.Compare(u.endNs, ns) })
	for _, u := range all[begin:] {
		if u.endNs <= toNs {
			cpus, waiting, n = cpus+u.cpus, waiting+u.waiting, n+1
		}
	}
	if n == 0 {
		return 0, 0
	}
	return cpus / n, waiting / n
}

// movedShare is how much less of the node's CPUs the others must use than before
// for a gain to be theirs as well as the plan's.
const movedShare = 0.1

// beganNs is the instant from which it counts what others used while the rate before was
// read: what they did not use then already is no room that they made since.
func (t *openTrial) beganNs(nowNs int64) int64 {
	if len(t.before) == 0 {
		return nowNs - 10*second
	}
	return max(nowNs-10*second, t.before[0].StartNs)
}

// movedInFavour reports whether neighbours and host made room while the plan was
// on trial. One that waits more for a CPU than before was pushed aside, by the plan as a
// rule, and made none.
func (c *Core) movedInFavour(t *openTrial) bool {
	from := t.appliedNs + second
	outside, _ := meanUse(c.outside, from, c.now())
	less := t.outsideBefore - outside
	for _, key := range slices.Sorted(maps.Keys(t.usedWith)) {
		if t.touches(key) {
			continue // what the plan took from it is no room that it made
		}
		room := min(t.usedBefore[key], t.usedWith[key]) // one that is busy by turns may have been in one just then
		if j := c.jobs[key]; j != nil {                 // one that ended made all its room
			after, waiting := j.mean(from, c.now())
			if room -= after; room > 0 && j.hasPSI() && t.waitsMore(key, waiting) {
				continue
			}
		}
		less += room
	}
	return less > movedShare*c.node.CPUs
}

// harmed finds a neighbour that lost more than the margin of what it used and
// was entitled to, and waits for a CPU more than before: a neighbour that merely
// has less to do is not harmed. What the host's own processes took more of since
// is not laid at the plan's door.
func (c *Core) harmed(t *openTrial) (who *job, how string) {
	from := t.appliedNs + second
	if c.now()-from < c.guardNs() {
		return nil, ""
	}
	outside, _ := meanUse(c.outside, from, c.now())
	grown := max(0, outside-t.outsideBefore)
	for _, key := range c.keys() {
		before, known := t.usedBefore[key]
		j := c.jobs[key]
		if !known || before < activeCPUs {
			continue
		}
		if quota, limited := j.c.Now[runtime.KnobCPUQuota].CPUs(); limited && j.changedNs > t.appliedNs {
			before = min(before, quotaUsed*quota) // it may have gone down since, as another trial ended
		}
		after, waiting := j.mean(from, c.now())
		due := min(before, j.entitled)*(1-c.cfg.NeighbourMargin) - grown
		// Without PSI the loss alone tells: a trial too many is undone, no neighbour is harmed.
		if after < due && (t.waitsMore(key, waiting) || !j.hasPSI()) && !c.keepsRate(j, t.appliedNs) {
			return j, fmt.Sprintf("it used %.2f CPUs before and %.2f after, and is entitled to %.2f", before, after, j.entitled)
		}
	}
	return nil, ""
}

// waitsMore reports whether a container's share of time with a task waiting for a CPU is
// clearly above what it was before the plan.
func (t *openTrial) waitsMore(key string, waiting float64) bool {
	return waiting > t.waitedBefore[key]+0.02
}

// quotaUsed is how much of its quota a container uses that runs out of it all the time
// [measured: 0.93 to 0.95 of 0.4 CPUs, by jobs of the judge].
const quotaUsed = 0.93

// rateLeastNs of a neighbour's rate must have been read on each side of a plan.
const rateLeastNs = 3 * second

func observedNs(obs []trial.Obs) (ns int64) {
	for _, o := range obs {
		ns += o.EndNs - o.StartNs
	}
	return ns
}

// keepsRate reports whether a neighbour is known to step as fast since a plan as in the ten
// seconds before: what it no longer uses is then no loss.
func (c *Core) keepsRate(j *job, appliedNs int64) bool {
	var before, after []trial.Obs
	for _, o := range j.pace {
		switch {
		case o.StartNs >= appliedNs+second:
			after = append(after, o)
		case o.EndNs <= appliedNs && o.StartNs >= appliedNs-10*second:
			before = append(before, o)
		}
	}
	return observedNs(before) >= rateLeastNs && observedNs(after) >= rateLeastNs && meanRate(after) >= (1-c.cfg.NeighbourMargin)*meanRate(before)
}
