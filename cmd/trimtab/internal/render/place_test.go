package render

import (
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/state"
)

// TestPlacementOfHostileNames: whatever names hold, each line is one, in the table's width, and
// nothing of it acts on a terminal.
func TestPlacementOfHostileNames(t *testing.T) {
	clock := Clock{Now: time.Unix(1e9, 0), Zone: time.UTC}
	for _, evil := range []string{"\x1b]0;x\x07\x1b[2J", "<script>alert(1)</script>", strings.Repeat("x", 4096), "\u202egnp.exe", "🚀🚀", "a\nb\r\tc", "\xff\xfe", "\u009b31m"} {
		choice := state.PlaceChoice{Device: evil, Label: evil, Model: evil, Holders: []string{evil, evil}, Hold: &state.Hold{For: evil, UntilUnixNs: clock.Now.UnixNano() + 30e9},
			Rate: state.PlaceRate{How: evil, PerSecond: 1, Unit: evil}}
		unfit := choice
		unfit.Unfit = evil
		j := state.PlacedJob{Job: state.PlaceJob{Name: evil, Image: evil}, Choices: []state.PlaceChoice{choice, unfit}, Why: evil, Chosen: []string{evil},
			Elsewhere: []state.PlaceElsewhere{{Model: evil, Hosts: []string{evil}, Rate: choice.Rate}}, Evidence: []state.PlaceEvidence{{Name: evil, Alike: evil}}}
		list := state.Placement{Jobs: []state.PlacedJob{j, j}, Plan: &state.PlacePlan{Policy: evil, Notes: []string{evil}, Starts: []state.PlaceStart{{Label: evil, Model: evil}, {Job: 99}}}}
		for _, text := range []string{Placement(state.Placement{Jobs: []state.PlacedJob{j}}, clock), Placement(list, clock), Placement(state.Placement{Jobs: []state.PlacedJob{{}}, Why: evil}, clock)} {
			for i, r := range text {
				if r != '\n' && (r < ' ' || r >= 0x7f && r <= 0x9f || r == '\u202e') {
					t.Fatalf("%q: character %d of %q", evil, i, text)
				}
			}
		}
		if one := Placement(state.Placement{Jobs: []state.PlacedJob{j}}, clock); strings.Count(one, "\n") != 6 {
			t.Errorf("%q: %q", evil, one)
		}
	}
}

func TestStateOfAChoice(t *testing.T) {
	clock := Clock{Now: time.Unix(1e9, 0), Zone: time.UTC}
	hold := &state.Hold{For: "next", UntilUnixNs: clock.Now.UnixNano() + 30e9}
	for want, c := range map[string]state.PlaceChoice{
		"free":                           {Free: true},
		"free; open to a, b":             {Free: true, Holders: []string{"a", "b"}},
		"used by a":                      {Holders: []string{"a"}},
		"used by a; held for next, 30 s": {Holders: []string{"a"}, Hold: hold},
		"held for next, 30 s":            {Hold: hold},
		"lost: fell off the bus":         {Unfit: "lost: fell off the bus"},
		"too little memory; used by a":   {Unfit: "too little memory", Holders: []string{"a"}},
	} {
		if got := choiceState(c, clock); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
