package main

import (
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

// Each way to be wrong is counted, and being right is none.
func TestTake(t *testing.T) {
	told := func(quota float64, at time.Duration, took ...string) seen {
		return seen{at: at, quota: quota, c: state.Container{LastRuns: &profiles.Shown{Runs: 1, Took: took}}}
	}
	const want = 2.0
	for name, tc := range map[string]struct {
		first, last              seen
		right, wrong, late, full int
	}{
		"right":                                 {told(2, time.Second, "CPU"), told(2, time.Second), 1, 0, 0, 0},
		"a little less, and it settles":         {told(1.8, time.Second, "CPU"), told(2, time.Second), 1, 0, 0, 0},
		"right, and later than was asked":       {told(2, 4*time.Second, "CPU"), told(2, 4*time.Second), 0, 0, 0, 0},
		"too little, and put right":             {told(0.8, 0, "CPU"), told(2, 0), 0, 1, 0, 0},
		"too little, and it stays":              {told(0.8, 0, "CPU"), told(0.8, 0), 0, 1, 1, 0},
		"right at first, and it does not stand": {told(2, time.Second, "CPU"), told(0.4, time.Second), 1, 1, 1, 0},
		"no CPU was idle":                       {told(0.4, 0), told(0.4, 0), 0, 0, 0, 1},
	} {
		var r result
		r.take(tc.first, tc.last, want)
		if r.starts != 1 || r.right != tc.right || r.wrong != tc.wrong || r.late != tc.late || r.full != tc.full {
			t.Errorf("%s: %+v", name, r)
		}
	}
	good := result{starts: 100, right: 90, wrong: 5}
	if !good.met() {
		t.Errorf("%+v misses a goal", good)
	}
	for _, bad := range []result{{}, {starts: 100, right: 89}, {starts: 100, right: 95, wrong: 6}, {starts: 100, right: 95, wrong: 1, late: 1}} {
		if bad.met() {
			t.Errorf("%+v meets all goals", bad)
		}
	}
}
