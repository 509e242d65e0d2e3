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
	}{
		"the first is shown at once": {"h", host, -1, 1. / 3},
		"one other changes nothing":  {"hhhi", host, 0, 0.75},
		"two others neither":         {"hhhhii", host, 0, 0.5},
		"three of four do":           {"hhhhihii", input, 1, 0.8 * 0.75},
		"and are sure of it later":   {"hhhhiiiiii", input, 1, 0.8},
		"it goes not to and fro":     {"hhhhiiiihhhhiiii", input, 1, 0.8},
		"but follows what stays":     {"hhhhiiii" + strings.Repeat("h", 15), host, 2, 0.64},
	} {
		var h Hold
		changes := -1 // the first
		for i, w := range c.windows {
			v := host
			if w == 'i' {
				v = input
			}
			if h.Add(v, int64(i)*windowNs) {
				changes++
			}
		}
		got := h.Shown()
		if !same(got, c.want) || changes != c.changes || got.Confidence < c.sure-1e-9 || got.Confidence > c.sure+1e-9 {
			t.Errorf("%s: shows %s %s with %.2f after %d changes; want %s %s with %.2f after %d", name, got.Class, got.Cause, got.Confidence, changes, c.want.Class, c.want.Cause, c.sure, c.changes)
		}
	}
}

// A job between two classes, whose windows say one or the other by chance: at most one change in
// five minutes of that, in 99 of 100 jobs.
func TestHoldOfAJobBetweenTwo(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	classes := []policies.Verdict{{Class: policies.ClassCompute, Confidence: 1}, {Class: policies.ClassInput, Confidence: 1}}
	for _, share := range []float64{0.5, 0.6, 0.7, 0.9} {
		const jobs = 1000
		often := 0
		for range jobs {
			var h Hold
			changes := -1 // the first
			for i := range 30 {
				v := classes[0]
				if random.Float64() < share {
					v = classes[1]
				}
				if h.Add(v, int64(i)*windowNs) {
					changes++
				}
			}
			if changes > 1 {
				often++
			}
		}
		if often > jobs/100 {
			t.Errorf("share %.1f: %d of %d jobs were shown more than one change in five minutes", share, often, jobs)
		}
	}
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
