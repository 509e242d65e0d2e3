package core

import (
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/window"
)

// A cost is read from the whole stretch at the present resources, so that prefetched
// batches do not blur it. Of a job that is busy by turns that is a mean, and a quota of
// the mean's knee binds in each busy turn.
const (
	peakWindows = 6    // that are remembered
	peakLeast   = 4    // of them must be known where they differ
	peakAbove   = 1.25 // times the mean's knee is a peak, and no noise
	peakApart   = 1.5  // between two windows is a need that varies
	turnWindows = 3    // after which a shortage is another one
)

// noteNeed remembers what a window alone says that the job needs.
func (j *job) noteNeed(own window.Reading) {
	if knee := own.Cost.Knee(); own.CostOK && knee > 0 {
		j.needs = append(j.needs, knee)
		j.needs = j.needs[max(0, len(j.needs)-peakWindows):]
	}
}

// peak is the CPUs that the job needs in its busiest windows; 0 where that is no more than
// its mean. One window alone may be that of a queue being filled: two are believed.
func (j *job) peak() float64 {
	if len(j.needs) < 2 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(j.needs))
	if second := sorted[len(sorted)-2]; second > peakAbove*j.reading.Cost.Knee() {
		return second
	}
	return 0
}

// varies reports whether what the job needs differs from window to window, and has not
// been seen for long enough to tell how much.
func (j *job) varies() bool {
	return len(j.needs) >= 2 && len(j.needs) < peakLeast && slices.Max(j.needs) > peakApart*slices.Min(j.needs)
}

// settle counts the windows that agree. A job that is starved by turns has windows between
// in which nothing is short: they speak against no verdict of what it lacks in the others.
func (j *job) settle(v policies.Verdict) {
	same := func(a, b policies.Verdict) bool { return a.Class == b.Class && a.Cause == b.Cause }
	if same(v, j.verdict) {
		j.agree++
	} else {
		j.agree = 1
	}
	if v.Class == policies.ClassBalanced || v.Cause == policies.CauseDevice {
		return
	}
	if same(v, j.short) && j.windows-j.shortAt <= turnWindows {
		j.shorts++
	} else {
		j.short, j.shorts = v, 1
	}
	j.shortAt = j.windows
	j.agree = max(j.agree, j.shorts)
}
