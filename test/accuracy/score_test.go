package main

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

const s = int64(1e9)

// windows makes one window a second from fromS on, of the labels given.
func windows(fromS int64, rate policies.Rate, labels ...Label) []Window {
	var out []Window
	for i, l := range labels {
		v := policies.Verdict{Class: l.Class()}
		if l.HasCause() {
			v.Cause = policies.Cause(string(l)[len(l.Class())+1:])
		}
		at := (fromS + int64(i)) * s
		rate.FromNs, rate.ToNs = at, at+s
		out = append(out, Window{StartNs: at, EndNs: at + s, Verdict: v, Rate: rate})
	}
	return out
}

func facts(truths ...Truth) Facts {
	f := Facts{Job: "j", Steps: map[string][]Count{"c": {{N: 0, AtNs: 0}, {N: 1000, AtNs: 100 * s}}}}
	for i, t := range truths {
		from := int64(10 * i)
		f.Phases = append(f.Phases, FactPhase{Name: "p", FromNs: from * s, ToNs: (from + 10) * s, SettleNs: 2 * s, Truths: map[string]Truth{"c": t}})
	}
	return f
}

func repeat(l Label, n int) []Label {
	var out []Label
	for range n {
		out = append(out, l)
	}
	return out
}

func TestScoreCountsSettledWindows(t *testing.T) {
	labels := append(repeat("unknown", 4), repeat("input/throttled", 6)...)
	got := score(facts(is("input/throttled")), map[string]*Seen{"c": {Windows: windows(0, policies.Rate{}, labels...)}}, Family{Name: "f"}, false)
	c := got[0]
	// Windows that begin in seconds 2 to 9 count: two are unknown.
	if c.Windows != 8 || c.Right != 6 || c.RightClass != 6 || c.Majority != "input/throttled" {
		t.Errorf("got %+v", c)
	}
	if !c.Detected || c.DetectS != 5 {
		t.Errorf("detected %v after %g s, want 5: the end of the first right window", c.Detected, c.DetectS)
	}
}

func TestDetectionMustStay(t *testing.T) {
	labels := []Label{"balanced", "input/throttled", "balanced", "balanced", "input/throttled", "input/throttled", "input/throttled", "balanced", "balanced", "balanced"}
	got := score(facts(is("input/throttled")), map[string]*Seen{"c": {Windows: windows(0, policies.Rate{}, labels...)}}, Family{}, false)
	if got[0].DetectS != 5 {
		t.Errorf("detected after %g s: a right window that the next two do not confirm does not count", got[0].DetectS)
	}
	got = score(facts(is("memory/risk")), map[string]*Seen{"c": {Windows: windows(0, policies.Rate{}, labels...)}}, Family{}, false)
	if got[0].Detected || got[0].DetectS != 10 {
		t.Errorf("never right, and yet %+v", got[0])
	}
}

func TestCauseAndClass(t *testing.T) {
	labels := repeat("input/contended", 10)
	got := score(facts(is("input/throttled")), map[string]*Seen{"c": {Windows: windows(0, policies.Rate{}, labels...)}}, Family{}, false)
	if total := sum(got); total.Class != 1 || total.Cause != 0 || total.CasesRight != 0 {
		t.Errorf("the class is right and the cause wrong, and yet %+v", total)
	}
	got = score(facts(is("input/throttled", "input/contended")), map[string]*Seen{"c": {Windows: windows(0, policies.Rate{}, labels...)}}, Family{}, false)
	if total := sum(got); total.Cause != 1 {
		t.Errorf("what is as true counts as wrong: %+v", total)
	}
}

func TestWrongActions(t *testing.T) {
	for _, tc := range []struct {
		name  string
		truth Label
		said  Label
		knob  runtime.Knob
		at    []int64
		want  int
	}{
		{"right verdict", "input/throttled", "input/throttled", runtime.KnobCPUQuota, []int64{4, 5}, 0},
		{"wrong, and the knob relieves nothing", "input/storage", "input/throttled", runtime.KnobCPUQuota, []int64{4, 5, 6}, 1},
		{"twice", "input/storage", "input/throttled", runtime.KnobCPUQuota, []int64{3, 9}, 2},
		{"wrong, but the knob helps", "compute/host", "input/throttled", runtime.KnobCPUQuota, []int64{4}, 0},
		{"before it settled", "input/storage", "input/throttled", runtime.KnobCPUQuota, []int64{1}, 0},
	} {
		seen := &Seen{Windows: windows(0, policies.Rate{}, repeat(tc.said, 10)...)}
		for _, at := range tc.at {
			seen.Proposals = append(seen.Proposals, Proposal{AtNs: at * s, Label: tc.said, Knob: tc.knob})
		}
		if got := score(facts(is(tc.truth)), map[string]*Seen{"c": seen}, Family{}, false)[0].WrongActions; got != tc.want {
			t.Errorf("%s: %d wrong actions, want %d", tc.name, got, tc.want)
		}
	}
}

func TestRateErrors(t *testing.T) {
	near := func(got []float64, want float64) bool {
		return len(got) > 0 && math.Abs(quantile(got, 1)-want) < 1e-9
	}
	ticks := repeat("balanced", 10) // the job makes 10 steps a second
	confirmed := score(facts(is("balanced")), map[string]*Seen{"c": {Windows: windows(0, policies.Rate{PerSecond: 11, Source: "x", Steps: true}, ticks...)}}, Family{}, false)
	if !near(confirmed[0].RateErrors, 0.1) {
		t.Errorf("a confirmed rate that is 10 %% off: %v", confirmed[0].RateErrors)
	}
	proxy := score(facts(is("balanced")), map[string]*Seen{"c": {Windows: windows(0, policies.Rate{PerSecond: 30, Source: "x"}, ticks...)}}, Family{}, false)
	if !near(proxy[0].RateErrors, 0) {
		t.Errorf("three ticks a step throughout are no error: %v", proxy[0].RateErrors)
	}
	// What it is the mean of lies between events, and not where the window does; where it is
	// of the past, it is compared with the present.
	f := facts(is("balanced"))
	f.Phases[0].ToNs = 20 * s
	f.Steps = map[string][]Count{"c": {{N: 0, AtNs: 0}, {N: 100, AtNs: 10 * s}, {N: 300, AtNs: 20 * s}}}
	for late, exact := range map[int64]bool{1: true, 5: false} {
		shown := windows(0, policies.Rate{PerSecond: 10, Source: "x", Steps: true}, ticks...)
		for i := range shown {
			shown[i].StartNs, shown[i].EndNs = shown[i].StartNs+late*s, shown[i].EndNs+late*s
		}
		if got := score(f, map[string]*Seen{"c": {Windows: shown}}, Family{}, false); near(got[0].RateErrors, 0) != exact {
			t.Errorf("a rate that ended %d s before its window: %v", late, got[0].RateErrors)
		}
	}
	// In the second phase the job is as fast as in the first, and the proxy says 20 % more.
	moved := append(windows(0, policies.Rate{PerSecond: 10, Source: "x"}, ticks...), windows(10, policies.Rate{PerSecond: 12, Source: "x"}, ticks...)...)
	both := score(facts(is("balanced"), is("balanced")), map[string]*Seen{"c": {Windows: moved}}, Family{}, false)
	if !near(both[0].RateErrors, 1-10.0/11) || !near(both[1].RateErrors, 12.0/11-1) {
		t.Errorf("a proxy whose constant moved: %v, %v", both[0].RateErrors, both[1].RateErrors)
	}
}

func TestStepsBetween(t *testing.T) {
	counts := []Count{{N: 10, AtNs: 1 * s}, {N: 20, AtNs: 2 * s}, {N: 40, AtNs: 3 * s}}
	if n, ok := stepsBetween(counts, s+s/2, 2*s+s/2); !ok || n != 15 {
		t.Errorf("got %g, %v; want 15", n, ok)
	}
	for _, at := range [][2]int64{{0, 2 * s}, {2 * s, 4 * s}, {2 * s, 2 * s}} {
		if _, ok := stepsBetween(counts, at[0], at[1]); ok {
			t.Errorf("%v: read beyond the log", at)
		}
	}
}

// TestSilenceIsWrong: a daemon that closes no window is not right in all it says.
func TestSilenceIsWrong(t *testing.T) {
	got := score(facts(is("communication/straggler")), map[string]*Seen{"c": {}}, Family{}, false)
	if total := sum(got); total.Windows != 1 || total.Class != 0 || total.Missed != 1 || got[0].Majority != silence {
		t.Errorf("got %+v, %+v", total, got[0])
	}
}
