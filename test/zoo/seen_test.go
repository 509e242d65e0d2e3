package main

import (
	"math"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/state"
)

func TestClasses(t *testing.T) {
	input := program{name: "vision", class: policies.ClassInput}
	for _, tc := range []struct {
		p     program
		v     policies.Verdict
		wrong bool
	}{
		{program{}, policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseHost, Relief: policies.ReliefQuota}, false},
		{program{}, policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseThrottled, Relief: policies.ReliefQuota}, true},
		{program{}, policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseHost, Relief: "faster cores"}, true},
		{program{}, policies.Verdict{}, true},
		{input, policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseThrottled, Relief: policies.ReliefQuota}, false},
		{input, policies.Verdict{Class: policies.ClassCompute, Relief: policies.ReliefQuota}, true},
	} {
		var all tally
		if said := all.class(tc.p, tc.v); strings.HasPrefix(said, "WRONG") != tc.wrong || (all.wrong == 1) != tc.wrong || all.judged != 1 {
			t.Errorf("%s, %+v: %q, %+v", tc.p.name, tc.v, said, all)
		}
	}
}

func TestRates(t *testing.T) {
	for _, tc := range []struct {
		shown        float64
		why          string
		right, shows int
	}{{10, "", 1, 1}, {10.2, "", 1, 1}, {9.6, "", 0, 1}, {0, "", 1, 0}, {3, "its steps are not counted", 1, 0}} {
		var all tally
		said := all.rate(state.Container{Rate: policies.Rate{PerSecond: tc.shown, Source: "xgboost.update"}, RateWhy: tc.why}, 10)
		if all.rates != 1 || all.right != tc.right || all.shown != tc.shows || strings.Contains(said, "MISS") != (tc.right == 0) {
			t.Errorf("%.1f of 10 (%s): %q, %+v", tc.shown, tc.why, said, all)
		}
	}
}

func TestSlope(t *testing.T) {
	var all tally
	if !math.IsNaN(all.slope()) {
		t.Errorf("nothing was told, with a slope of %v", all.slope())
	}
	for _, truth := range []float64{2, 4, 8} {
		all.became(state.Container{HasGain: true, Gain: math.Sqrt(truth) - 1}, truth)
	}
	all.became(state.Container{}, 4) // not told
	if got := all.slope(); math.Abs(got-0.5) > 1e-9 {
		t.Errorf("told the root of it: %v", got)
	}
	all.became(state.Container{Work: &state.Work{Ratio: 16}}, 16)
	if len(all.logs) != 4 {
		t.Errorf("%d were told", len(all.logs))
	}
}

// Each goal that is missed is counted.
func TestMissed(t *testing.T) {
	good := tally{programs: 20, rates: 20, right: 20, judged: 20, wrong: 1, logs: [][2]float64{{1, 1.05}}}
	for range 20 {
		good.reached = append(good.reached, 0.97)
	}
	good.reached[0], good.reached[1] = 0.5, 0.8 // two of twenty
	if n := good.missed(); n != 0 {
		t.Errorf("%d goals are missed by %s", n, &good)
	}
	for name, worse := range map[string]func(*tally){
		"a rate":        func(a *tally) { a.right-- },
		"classes":       func(a *tally) { a.wrong = 2 },
		"a flip":        func(a *tally) { a.flips = 1 },
		"one of ten":    func(a *tally) { a.reached = append([]float64{0.8}, good.reached...) },
		"told too much": func(a *tally) { a.logs = [][2]float64{{1, 1.2}} },
		"too little":    func(a *tally) { a.logs = [][2]float64{{1, 0.8}} },
	} {
		bad := good
		worse(&bad)
		if bad.missed() == 0 {
			t.Errorf("%s: no goal is missed by %s", name, &bad)
		}
	}
	if line := good.String(); !strings.HasPrefix(line, "zoo: programs 20 reached-median 0.970 reached-p10 0.970 rate-right 20 of 20 (0 shown) log-ratio-slope 1.05 wrong-class 1 of 20 flips 0") {
		t.Error(line)
	}
	if n := (&tally{}).missed(); n != 0 {
		t.Errorf("%d goals are missed where nothing was measured", n)
	}
}
