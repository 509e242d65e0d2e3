package main

import (
	"encoding/json"
	"fmt"
	"maps"
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
}

func floorOf(cases []Case) Floor {
	out := Floor{}
	for _, c := range cases {
		out[c.Container+", "+c.Phase] = FloorCase{Truth: c.Truth.Is, Said: c.Said, Right: c.Right, Windows: c.Windows, WrongActions: c.WrongActions, Detected: c.Detected}
	}
	return out
}

// fallen says where now is worse than the floor: a smaller share of right windows,
// a truth that is no longer found, another wrong action, a case that is gone.
func (f Floor) fallen(now Floor) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		was, is := f[name], now[name]
		switch {
		case is.Windows == 0 && was.Windows > 0:
			out = append(out, fmt.Sprintf("%s: no window is left, there were %d", name, was.Windows))
		case share(is.Right, is.Windows) < share(was.Right, was.Windows):
			out = append(out, fmt.Sprintf("%s: right %d of %d, it was %d of %d; truth %s, said %v", name, is.Right, is.Windows, was.Right, was.Windows, is.Truth, is.Said))
		case was.Detected && !is.Detected:
			out = append(out, fmt.Sprintf("%s: %s is no longer found", name, is.Truth))
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
