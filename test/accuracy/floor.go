package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
)

// Floor is what today's code made of a set of recordings when the golden file was
// written, by case: the confusion matrix in full. A later change may better it,
// never fall below it without the file saying so.
type Floor map[string]FloorCase

// FloorCase is one row.
type FloorCase struct {
	Truth        Label         `json:"truth"`
	Said         map[Label]int `json:"said"`
	Right        int           `json:"right"`
	Windows      int           `json:"windows"`
	WrongActions int           `json:"wrongActions,omitempty"`
	Detected     bool          `json:"detected"`
	DetectS      float64       `json:"detectS,omitempty"`   // where detected, in tenths
	RateError    float64       `json:"rateError,omitempty"` // 95th percentile, relative, in thousandths
	Readings     int           `json:"readings,omitempty"`  // of the rate, that it is of
	Knee         float64       `json:"knee,omitempty"`      // said, CPUs, in hundredths; where it is judged
	KneeRight    bool          `json:"kneeRight,omitempty"` // and within the factor
}

// A case may be so much slower to be found, and its rate so much further off, before it
// counts as worse: a window, and what one reading more or less makes of a percentile.
const (
	slackS         = 2.5
	slackRateError = 0.01
)

func floorOf(cases []Case) Floor {
	out := Floor{}
	for _, c := range cases {
		row := FloorCase{Truth: c.Truth.Is, Said: c.Said, Right: c.Right, Windows: c.Windows, WrongActions: c.WrongActions, Detected: c.Detected}
		if c.Knee > 0 {
			row.Knee, row.KneeRight = math.Round(100*c.SaidKnee)/100, c.kneeRight()
		}
		if c.Detected {
			row.DetectS = math.Round(10*c.DetectS) / 10
		}
		if len(c.RateErrors) > 0 {
			row.Readings = len(c.RateErrors)
			row.RateError = math.Round(1000*quantile(c.RateErrors, 0.95)) / 1000
		}
		out[c.Container+", "+c.Phase] = row
	}
	return out
}

// fallen says where now is worse than the floor: a smaller share of right windows, a
// truth that is found later or no longer, a rate that is further off, another wrong
// action, a case that is gone.
func (f Floor) fallen(now Floor) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		was, is := f[name], now[name]
		switch {
		case is.Windows == 0 && was.Windows > 0:
			out = append(out, fmt.Sprintf("%s: no window is left, there were %d", name, was.Windows))
		case shareOf(is.Right, is.Windows) < shareOf(was.Right, was.Windows):
			out = append(out, fmt.Sprintf("%s: right %d of %d, it was %d of %d; truth %s, said %v", name, is.Right, is.Windows, was.Right, was.Windows, is.Truth, is.Said))
		case was.Detected && !is.Detected:
			out = append(out, fmt.Sprintf("%s: %s is no longer found", name, is.Truth))
		case was.Detected && is.DetectS > was.DetectS+slackS:
			out = append(out, fmt.Sprintf("%s: %s is found after %.1f s, it was %.1f s", name, is.Truth, is.DetectS, was.DetectS))
		}
		switch {
		case 2*is.Readings < was.Readings:
			out = append(out, fmt.Sprintf("%s: %d readings of its rate are left, there were %d", name, is.Readings, was.Readings))
		case was.Readings > 0 && is.RateError > was.RateError+slackRateError:
			out = append(out, fmt.Sprintf("%s: its rate is off by %.1f %%, it was %.1f %%", name, 100*is.RateError, 100*was.RateError))
		}
		if was.KneeRight && !is.KneeRight {
			out = append(out, fmt.Sprintf("%s: its knee is said to be %.2f CPUs, it was %.2f", name, is.Knee, was.Knee))
		}
		if is.WrongActions > was.WrongActions {
			out = append(out, fmt.Sprintf("%s: %d wrong actions, it was %d", name, is.WrongActions, was.WrongActions))
		}
	}
	return out
}

func readFloor(path string) (Floor, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f Floor
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

func (f Floor) write(path string) error {
	text, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
