package verdict

import (
	"slices"
	"time"

	"github.com/trimtab/trimtab/policies"
)

// What people are shown changes seldom: a class that changes with each window tells nothing.
const (
	kept     = 4                // windows at least, and all of the latest
	keptTime = 25 * time.Second // of them
	most     = 0.75             // of these agree before another verdict is shown
	told     = 2                // windows agree before a verdict is told in the history
	flipTime = 5 * time.Minute  // a second change within it
	unlike   = 20               // takes so many windows in a row without the one that is shown,
	unlikeIn = 60 * time.Second // and at least that long
	flipSure = 0.8              // of the confidence is left for each change within it
)

// Hold holds what the latest windows said of a container, and what people are shown of it. The
// zero value is ready.
type Hold struct {
	windows   []seen
	shown     policies.Verdict // of the latest window that said it
	told      bool             // in the history
	unlike    int              // windows in a row that said something else
	unlikeNs  int64            // end of the window before these
	changedNs []int64          // when another was shown, of late
	restarted bool             // nothing was agreed on since its resources are others
	shownNs   int64            // end of the first window in a row that is shown as shown
}

// seen is a window's verdict.
type seen struct {
	v    policies.Verdict
	atNs int64
}

// Add takes in the verdict of a window that ended at an instant, CLOCK_MONOTONIC, and reports
// whether what is shown is news for the history.
func (h *Hold) Add(v policies.Verdict, atNs int64) (news bool) {
	h.windows = append(h.windows, seen{v, atNs})
	for len(h.windows) > kept && h.windows[0].atNs <= atNs-int64(keptTime) {
		h.windows = h.windows[1:]
	}
	h.changedNs = slices.DeleteFunc(h.changedNs, func(ns int64) bool { return ns <= atNs-int64(flipTime) })
	if h.unlike++; same(v, h.shown) {
		h.unlike, h.unlikeNs = 0, atNs
	}
	if !same(v, h.shown) {
		if !h.gives(v, atNs) {
			return false
		}
		if !passing(h.shown) && !passing(v) && h.told && !h.restarted {
			h.changedNs = append(h.changedNs, atNs)
		}
		h.unlike, h.unlikeNs, h.told, h.shownNs = 0, atNs, false, atNs
	}
	h.shown, h.restarted = v, h.restarted && h.alike(v) < told
	if h.told || h.alike(v) < told && v.Cause != policies.CauseRisk {
		return false
	}
	h.told = true
	return true
}

// gives reports whether what is shown gives way to another verdict.
func (h *Hold) gives(v policies.Verdict, atNs int64) bool {
	switch {
	case h.shown.Class == "", v.Cause == policies.CauseRisk: // a warning comes in time
		return true
	case passing(h.shown), !h.told, h.restarted:
		return h.alike(v) >= told
	case len(h.changedNs) > 0:
		return h.unlike >= unlike && atNs-h.unlikeNs >= int64(unlikeIn) && h.enough(v)
	}
	return h.enough(v)
}

func (h *Hold) enough(v policies.Verdict) bool {
	return float64(h.alike(v)) >= most*float64(max(kept, len(h.windows)))
}

// passing is a verdict that nobody has to hold on to: that nothing is known, or nothing runs, or a
// warning.
func passing(v policies.Verdict) bool {
	return v.Class == policies.ClassUnknown || v.Class == policies.ClassIdle || v.Cause == policies.CauseRisk
}

// Forget says that the container's resources were changed: what it does then is no doubt of what
// was said before.
func (h *Hold) Forget() { h.changedNs = nil }

// Restart says that somebody else gave the container other resources: what is shown gives way as
// soon as two windows since say another thing.
func (h *Hold) Restart() { h.windows, h.changedNs, h.restarted = nil, nil, true }

// Shown is the verdict that people are shown. Its confidence falls with the latest windows that say
// otherwise, or are still to come, and with what was shown in its place of late. What no window has
// said for long gives way to what they agree on, if anything.
func (h *Hold) Shown() policies.Verdict {
	v := h.shown
	alike := h.alike(v)
	if h.unlike >= unlike && alike == 0 {
		if v = h.Agreed(told); v.Class == "" {
			return unknown("its latest windows say one thing and another; before, it was " + string(h.shown.Class))
		}
		alike = h.alike(v)
	}
	v.Confidence *= float64(alike) / float64(max(kept-1, len(h.windows)))
	for range h.changedNs {
		v.Confidence *= flipSure
	}
	return v
}

// SinceNs is the instant, CLOCK_MONOTONIC, since when people are shown this class and cause; 0:
// nothing was shown yet.
func (h *Hold) SinceNs() int64 { return h.shownNs }

// Latest is the verdict of the latest window.
func (h *Hold) Latest() policies.Verdict {
	if n := len(h.windows); n > 0 {
		return h.windows[n-1].v
	}
	return policies.Verdict{}
}

// Agreed is the latest verdict that at least so many of the latest four windows gave; the zero
// value while no so many agree.
func (h *Hold) Agreed(windows float64) policies.Verdict {
	latest := Hold{windows: h.windows[max(0, len(h.windows)-kept):]}
	for _, o := range slices.Backward(latest.windows) {
		if float64(latest.alike(o.v)) >= windows {
			return o.v
		}
	}
	return policies.Verdict{}
}

// alike counts the latest windows that gave a verdict.
func (h *Hold) alike(v policies.Verdict) (n int) {
	for _, o := range h.windows {
		if same(o.v, v) {
			n++
		}
	}
	return n
}

func same(a, b policies.Verdict) bool { return a.Class == b.Class && a.Cause == b.Cause }
