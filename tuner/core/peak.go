package core

import (
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/trial"
	"github.com/trimtab/trimtab/tuner/window"
)

// A cost is read from the whole stretch at the present resources, so that prefetched
// batches do not blur it. Of a job that is busy by turns that is a mean, and a quota of
// the mean's knee binds in each busy turn. Turns may be as short as a window, and lie
// across two of them: what is needed is read from tick to tick where a tick's slice holds
// steps enough.
const (
	peakSlices  = 12   // that are remembered
	peakLeast   = 8    // of them must be known where they differ
	peakPart    = 6    // a sixth of them, and two at the least, must need a peak
	peakAbove   = 1.25 // times the mean's knee is a peak, and no noise
	peakApart   = 1.5  // between two slices is a need that varies
	turnWindows = 3    // after which a shortage is another one
)

// noteNeed remembers what a stretch alone says that the job needs, unless a part of it
// said so already. A job that came to need far more waits for no cool-down after plans for
// its old work, once in excuseNs.
func (j *job) noteNeed(own window.Reading) {
	if own.Need > 0 && own.Window.StartNs >= j.needNs {
		j.needs, j.needNs = last(append(j.needs, own.Need), peakSlices), own.Window.EndNs
		j.works = last(append(j.works, own.NeedAlone), peakSlices)
		if n := len(j.works) - 2; n >= peakLeast && otherWork(j.works[:n], j.works) {
			if nowNs := j.needNs; dearer(j.works[:n], j.works) && (j.workNs == 0 || nowNs-j.workNs >= excuseNs) {
				j.workNs, j.cooledNs = nowNs, 0
			}
			j.workChanged(own.Window.StartNs)
		}
	}
}

// workChanged forgets what was measured before the job did nothing but other work: no later
// plan is to be judged by a rate that it had for other reasons, or to be made for the mean of
// both. Of the two needs that tell it the first is that mean, as a rule.
func (j *job) workChanged(sinceNs int64) {
	j.otherSinceNs = sinceNs
	before := func(o trial.Obs) bool { return o.StartNs < sinceNs }
	j.needs, j.works = last(slices.Clone(j.needs), 1), last(slices.Clone(j.works), 1)
	j.obs = slices.DeleteFunc(slices.Clone(j.obs), before)
	j.long.Cut()
}

// peak is the CPUs that the job needs in its busiest slices, or in both of the latest, if it
// has changed; 0 where that is no more than its mean. One slice alone may be that of a queue
// being filled.
func (j *job) peak() float64 {
	n := len(j.needs)
	if n < 2 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(j.needs))
	high := max(sorted[n-max(2, n/peakPart)], min(j.needs[n-1], j.needs[n-2]))
	if high > peakAbove*j.reading.Cost.Knee() {
		return high
	}
	return 0
}

// needsNow are the needs that tell what the job does now: of one that is busy by turns all
// that are remembered, of one that changed the latest two.
func (j *job) needsNow() []float64 {
	if j.turns() {
		return j.needs
	}
	return last(j.needs, 2)
}

// turns reports whether what the job needs has gone up and down: one that changed for good
// went one way.
func (j *job) turns() bool {
	if j.peak() == 0 {
		return false
	}
	middle := (slices.Max(j.needs) + slices.Min(j.needs)) / 2
	crossed := 0
	for i := 1; i < len(j.needs); i++ {
		if (j.needs[i] > middle) != (j.needs[i-1] > middle) {
			crossed++
		}
	}
	return crossed >= turnCrossings
}

// turnCrossings: up and down, or the other way round.
const turnCrossings = 2

// varies reports whether what the job needs differs from slice to slice, and has not
// been seen for long enough to tell how much.
func (j *job) varies() bool {
	return len(j.needs) >= 2 && len(j.needs) < peakLeast && slices.Max(j.needs) > peakApart*slices.Min(j.needs)
}

// settle counts the windows that agree. A job that is starved by turns has windows between
// in which nothing is short: they speak against no verdict of what it lacks in the others.
func (j *job) settle(v policies.Verdict, r window.Reading) {
	same := func(a, b policies.Verdict) bool { return a.Class == b.Class && a.Cause == b.Cause }
	if same(v, j.verdict) {
		j.agree++
	} else {
		j.agree = 1
	}
	if v.Class == policies.ClassBalanced || v.Cause == policies.CauseDevice {
		return
	}
	lacks := func(relief string) bool { return v.Relief == relief && j.short.Relief == relief }
	recent := j.shorts > 0 && j.windows-j.shortAt <= turnWindows
	switch {
	case recent && (same(v, j.short) || lacks(policies.ReliefQuota) || lacks(policies.ReliefWeight)):
		j.shorts++
	case recent && v.Severity < j.short.Severity:
		return // nor does it speak against what was lacked more
	default:
		j.shorts = 1
	}
	j.short, j.shortAt, j.shortTime = v, j.windows, r.Breakdown
	if r.Window != nil {
		j.shortNs = r.Window.EndNs
	}
	j.agree = max(j.agree, j.shorts)
}

// shortLately reports whether the latest windows at the present resources hold one in which
// something was short.
func (j *job) shortLately() bool {
	return j.shorts > 0 && j.windows-j.shortAt <= turnWindows && j.shortNs > j.changedNs
}

// byTurns is what a job that is starved by turns lacks in them; ok is false for all others,
// and in such a turn, when the latest window says so itself.
func (j *job) byTurns(agree int) (v policies.Verdict, b policies.Breakdown, ok bool) {
	between := j.windows > j.shortAt+1
	return j.short, j.shortTime, between && j.shorts >= agree && j.shortLately()
}

// settled reports whether so many windows agree on what the job lacks, or on that it lacks
// nothing.
func (j *job) settled(agree int) bool {
	_, _, turns := j.byTurns(agree)
	return turns || j.agree >= agree
}
