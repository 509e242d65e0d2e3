package verdict

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
)

const windowNs = int64(10e9)

func TestHoldShowsWhatStays(t *testing.T) {
	host := policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseHost, Confidence: 1}
	input := policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseWorkers, Confidence: 1}
	for name, c := range map[string]struct {
		windows string // h, i
		want    policies.Verdict
		changes int
		sure    float64
		since   int64 // the window from which on it is shown
	}{
		"the first is shown at once": {"h", host, -1, 1. / 3, 1},
		"one other changes nothing":  {"hhhi", host, 0, 0.75, 1},
		"two others neither":         {"hhhhii", host, 0, 0.5, 1},
		"three of four do":           {"hhhhihii", input, 1, 0.8 * 0.75, 8},
		"and are sure of it later":   {"hhhhiiiiii", input, 1, 0.8, 7},
		"it goes not to and fro":     {"hhhhiiiihhhhiiii", input, 1, 0.8, 7},
		"but follows what stays":     {"hhhhiiii" + strings.Repeat("h", 20), host, 2, 0.64, 28},
	} {
		var h Hold
		changes := -1 // the first
		for i, w := range c.windows {
			v := host
			if w == 'i' {
				v = input
			}
			if h.Add(v, int64(i+1)*windowNs) {
				changes++
			}
		}
		got := h.Shown()
		if since := h.SinceNs() / windowNs; since != c.since {
			t.Errorf("%s: since window %d, want %d", name, since, c.since)
		}
		if !same(got, c.want) || changes != c.changes || got.Confidence < c.sure-1e-9 || got.Confidence > c.sure+1e-9 {
			t.Errorf("%s: shows %s %s with %.2f after %d changes; want %s %s with %.2f after %d", name, got.Class, got.Cause, got.Confidence, changes, c.want.Class, c.want.Cause, c.sure, c.changes)
		}
	}
}

// A job between two classes, whose windows say one or the other by chance: at most one change in
// five minutes of that, in 99 of 100 jobs, however long a window is.
func TestHoldOfAJobBetweenTwo(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	classes := []policies.Verdict{{Class: policies.ClassCompute, Confidence: 1}, {Class: policies.ClassInput, Confidence: 1}}
	for _, seconds := range []int64{2, 5, 10, 60} {
		for _, share := range []float64{0.5, 0.6, 0.7, 0.9} {
			const jobs = 1000
			often := 0
			for range jobs {
				var h Hold
				changes, shown := -1, policies.Verdict{} // the first is none
				for at := int64(0); at < 300; at += seconds {
					v := classes[0]
					if random.Float64() < share {
						v = classes[1]
					}
					h.Add(v, at*1e9)
					if now := h.Shown(); at >= 20 && !same(now, shown) { // its first seconds are not held by much
						changes, shown = changes+1, now
					}
				}
				if changes > 1 {
					often++
				}
			}
			if often > jobs/100 {
				t.Errorf("windows of %d s, share %.1f: %d of %d jobs were shown more than one change in five minutes", seconds, share, often, jobs)
			}
		}
	}
}

// TestHoldOfWhatPasses: a warning is shown at once and not held on to, nor is what nobody knew.
func TestHoldOfWhatPasses(t *testing.T) {
	host := policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseHost, Confidence: 1}
	risk := policies.Verdict{Class: policies.ClassMemory, Cause: policies.CauseRisk, Confidence: 1}
	idle := policies.Verdict{Class: policies.ClassIdle, Confidence: 1}
	var h Hold
	for i, c := range []struct{ said, want policies.Verdict }{
		{idle, idle}, {idle, idle}, {host, idle}, {host, host}, {host, host}, {risk, risk}, {host, host}, {host, host}, {idle, host},
	} {
		h.Add(c.said, int64(i)*windowNs)
		if got := h.Shown(); !same(got, c.want) {
			t.Errorf("window %d: shows %s %s, want %s %s", i, got.Class, got.Cause, c.want.Class, c.want.Cause)
		}
	}
	if got := h.Shown().Confidence; got != 0.5 { // two of four windows, and no change counts against it
		t.Errorf("confidence %.2f", got)
	}
}

// TestHoldOfWhatNobodySaysAnyMore: what is shown ends, some time after the last window that said it.
func TestHoldOfWhatNobodySaysAnyMore(t *testing.T) {
	var h Hold
	say := func(classes string) policies.Verdict {
		for _, class := range classes {
			h.Add(policies.Verdict{Class: policies.Class(class), Confidence: 1}, h.at()+windowNs)
		}
		return h.Shown()
	}
	if got := say("aaaabcbc"); got.Class != "a" || got.Confidence != 0 {
		t.Errorf("soon after: shows %+v", got)
	}
	if got := say("bcbcbcbcbcbcbcbc"); got.Class != "c" || got.Confidence != 0.5 {
		t.Errorf("what windows agree on: shows %+v", got)
	}
	if got := say("efgh"); got.Class != policies.ClassUnknown || got.Confidence != 0 {
		t.Errorf("where they agree on nothing: shows %+v", got)
	}
}

// at is when the latest window ended.
func (h *Hold) at() int64 {
	if n := len(h.windows); n > 0 {
		return h.windows[n-1].atNs
	}
	return 0
}

func TestHoldForgets(t *testing.T) {
	var h Hold
	for i, class := range []policies.Class{policies.ClassInput, policies.ClassCompute, policies.ClassCompute, policies.ClassCompute} {
		h.Add(policies.Verdict{Class: class, Confidence: 1}, int64(i)*windowNs)
	}
	h.Forget()
	if got := h.Shown().Confidence; got != 0.75 {
		t.Errorf("confidence %.2f after its resources changed, want 0.75", got)
	}
	for i := range 3 {
		if changed := h.Add(policies.Verdict{Class: policies.ClassInput}, int64(4+i)*windowNs); changed != (i == 2) {
			t.Errorf("window %d: changed %v", i, changed)
		}
	}
}

// TestVerdictIsAgreedOn: one odd window among four changes nothing.
func TestVerdictIsAgreedOn(t *testing.T) {
	k := policies.DefaultConstants()
	a := policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseThrottled}
	b := policies.Verdict{Class: policies.ClassBalanced}
	c := policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseHost}
	for _, tt := range []struct {
		seen []policies.Verdict
		want policies.Verdict
	}{
		{nil, policies.Verdict{}},
		{[]policies.Verdict{a}, policies.Verdict{}},
		{[]policies.Verdict{a, a}, a},
		{[]policies.Verdict{a, a, a, b}, a},
		{[]policies.Verdict{a, b, a, b}, b},
		{[]policies.Verdict{a, a, b, b}, b},
		{[]policies.Verdict{a, b, c}, policies.Verdict{}},
		{[]policies.Verdict{a, a, a, b, c, b, c}, c},
	} {
		var h Hold
		for i, v := range tt.seen {
			h.Add(v, int64(i)*windowNs)
		}
		if got := h.Agreed(k.Agree); got.Class != tt.want.Class || got.Cause != tt.want.Cause {
			t.Errorf("%v: %v", tt.seen, got)
		}
	}
}

// TestHoldRestarts: where somebody else changed what a container has, two windows are enough, once,
// and they cost no confidence later.
func TestHoldRestarts(t *testing.T) {
	host := policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseHost, Confidence: 1}
	input := policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseWorkers, Confidence: 1}
	var h Hold
	at := int64(0)
	add := func(v policies.Verdict) bool { at += windowNs; return h.Add(v, at) }
	for range 6 {
		add(host)
	}
	h.Restart()
	if add(input); !same(h.Shown(), host) {
		t.Errorf("one window shows %+v", h.Shown())
	}
	if news := add(input); !news || !same(h.Shown(), input) {
		t.Errorf("two windows show %+v, news %v", h.Shown(), news)
	}
	for range 2 {
		add(host)
	}
	if !same(h.Shown(), input) {
		t.Errorf("two more windows show %+v: it is held again", h.Shown())
	}
	for range 6 {
		add(input)
	}
	if got := h.Shown().Confidence; got != 1 {
		t.Errorf("confidence %.2f after a change that somebody else made", got)
	}
	h.Restart()
	for range 3 {
		if add(input) {
			t.Error("the same again is no news")
		}
	}
}
