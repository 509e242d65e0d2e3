package main

import (
	"strings"
	"testing"
)

// good is a demo in which everything went well.
func good() figures {
	return figures{
		free: []float64{6.2, 6.3, 6.1, 6.2}, starved: []float64{2.2, 2.3, 2.2, 2.2}, helped: []float64{6.1, 6.3, 6.2, 6.2},
		freeCPUs: []float64{0.78, 0.80, 0.79, 0.79}, neighbourStarved: []float64{0.99, 1.02, 1.00, 0.99}, neighbourHelped: []float64{0.99, 1.00, 0.98, 0.99},
		quota: 0.28, granted: 0.85, limits: 12, readings: 14, ownStood: "28000 100000", ownBack: "28000 100000",
	}
}

// TestEachPromiseCanBeBroken breaks one after the other.
func TestEachPromiseCanBeBroken(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(*figures)
		broken string // a word of the promise; "": none
	}{
		"all is well":                {func(*figures) {}, ""},
		"slow with trimtab":          {func(f *figures) { f.helped = []float64{5.3, 5.4, 5.3, 5.4} }, "rate is 86 %"},
		"not helped at all":          {func(f *figures) { f.helped, f.granted = f.starved, f.quota }, "rate is"},
		"nothing granted":            {func(f *figures) { f.granted = f.quota }, "granted"},
		"too much granted":           {func(f *figures) { f.granted = 1.2 }, "granted"},
		"the neighbour lost a tenth": {func(f *figures) { f.neighbourHelped = []float64{0.90, 0.89, 0.91, 0.90} }, "neighbour"},
		"more than its due is no right of the neighbour": {func(f *figures) { f.neighbourStarved = []float64{1.2, 1.3} }, ""},
		"the neighbour had less to do": {func(f *figures) {
			f.neighbourStarved, f.neighbourHelped = []float64{0.5, 0.5, 0.5}, []float64{0.5, 0.49, 0.5}
		}, ""},
		"a limit is not back":   {func(f *figures) { f.changed = []string{"cpu.weight"} }, "limit"},
		"its quota is not back": {func(f *figures) { f.ownBack = "85000 100000" }, "limit"},
		"the machine wandered, so no promise is surely broken": {func(f *figures) {
			f.free, f.helped = []float64{6.2, 4.1, 6.3, 5.0}, []float64{6.1, 4.0, 3.9, 6.0}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := good()
			c.edit(&f)
			var broken []string
			for _, p := range judge(f) {
				if !p.kept {
					broken = append(broken, p.text)
				}
			}
			switch {
			case c.broken == "" && len(broken) > 0:
				t.Errorf("broken: %q", broken)
			case c.broken != "" && (len(broken) == 0 || !strings.Contains(strings.Join(broken, "\n"), c.broken)):
				t.Errorf("broken: %q, want %q among them", broken, c.broken)
			}
		})
	}
}
