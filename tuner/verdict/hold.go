package verdict

import (
	"slices"
	"time"

	"github.com/trimtab/trimtab/policies"
)

// What people are shown changes seldom: a class that changes with each window tells nothing.
const (
	kept     = 4               // windows
	told     = 2               // of them agree before the first is told in the history
	most     = 3               // of them agree on a verdict before it is shown in place of another
	flipTime = 5 * time.Minute // a second change within it
	unlike   = 15              // takes so many windows in a row without the one that is shown: 150 s
	flipSure = 0.8             // of the confidence is left for each change within it
)

// Hold holds what the latest windows said of a container, and what people are shown of it. The
// zero value is ready.
type Hold struct {
	windows   []policies.Verdict // the latest, at most kept
	shown     policies.Verdict   // of the latest window that said it
	unlike    int                // windows in a row that said something else
	told      bool               // in the history
	changedNs []int64            // when another was shown, of late
}

// Add takes in the verdict of a window that ended at an instant, CLOCK_MONOTONIC, and reports
// whether what is shown is news for the history.
func (h *Hold) Add(v policies.Verdict, atNs int64) (news bool) {
	h.windows = append(h.windows, v)
	h.windows = slices.Clone(h.windows[max(0, len(h.windows)-kept):]) // snapshots share none of it
	h.changedNs = slices.DeleteFunc(h.changedNs, func(ns int64) bool { return ns <= atNs-int64(flipTime) })
	if h.unlike++; same(v, h.shown) {
		h.unlike = 0
	}
	if !same(v, h.shown) {
		first := h.shown.Class == ""
		if !first && (h.alike(v) < most || len(h.changedNs) > 0 && h.unlike < unlike) {
			return false
		}
		h.unlike, h.told = 0, false
		if !first {
			h.changedNs = append(h.changedNs, atNs)
		}
	}
	h.shown = v
	if h.told || h.alike(v) < told {
		return false
	}
	h.told = true
	return true
}

// Forget says that the container's resources were changed: what it does then is no doubt of what
// was said before.
func (h *Hold) Forget() { h.changedNs = nil }

// Shown is the verdict that people are shown. Its confidence falls with the latest windows that say
// otherwise, or are still to come, and with what was shown in its place of late.
func (h *Hold) Shown() policies.Verdict {
	v := h.shown
	v.Confidence *= float64(h.alike(v)) / float64(max(most, len(h.windows)))
	for range h.changedNs {
		v.Confidence *= flipSure
	}
	return v
}

// Latest is the verdict of the latest window.
func (h *Hold) Latest() policies.Verdict {
	if n := len(h.windows); n > 0 {
		return h.windows[n-1]
	}
	return policies.Verdict{}
}

// Agreed is the latest verdict that at least so many of the latest windows gave; the zero value
// while no so many agree.
func (h *Hold) Agreed(windows float64) policies.Verdict {
	for _, v := range slices.Backward(h.windows) {
		if float64(h.alike(v)) >= windows {
			return v
		}
	}
	return policies.Verdict{}
}

// alike counts the latest windows that gave a verdict.
func (h *Hold) alike(v policies.Verdict) (n int) {
	for _, o := range h.windows {
		if same(o, v) {
			n++
		}
	}
	return n
}

func same(a, b policies.Verdict) bool { return a.Class == b.Class && a.Cause == b.Cause }
