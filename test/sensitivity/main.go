// Command sensitivity prints what doubling and halving each constant does, from what three runs
// wrote: the recordings, the simulated mixes and the simulated trials (`make sensitivity`).
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/policies"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sensitivity FOLDER (of recordings.json, mixes.json and trials.json)")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "sensitivity: %v\n", err)
		os.Exit(1)
	}
}

// outcomes are figures by name, of one set of constants.
type outcomes map[string]float64

// read returns the outcomes of each variant: "=" the defaults, "*Name" and "/Name" one constant
// doubled and halved.
func read(file string) (map[string]outcomes, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var nested map[string]map[string]json.RawMessage
	if err := json.Unmarshal(raw, &nested); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	out := map[string]outcomes{}
	for variant, values := range nested {
		o := outcomes{}
		for name, v := range values {
			var one float64
			var several map[string]float64
			switch {
			case json.Unmarshal(v, &one) == nil:
				o[name] = one
			case json.Unmarshal(v, &several) == nil:
				for figure, x := range several {
					o[name+", "+figure] = x
				}
			default:
				return nil, fmt.Errorf("%s: %s of %s is no figure", file, name, variant)
			}
		}
		out[variant] = o
	}
	return out, nil
}

// moved is the least relative change that is told, of a figure of one or more.
const moved = 0.005

// difference lists what a variant changes, the largest changes first.
func difference(base, o outcomes) (out []string) {
	type change struct {
		text string
		size float64
	}
	var all []change
	for _, name := range slices.Sorted(maps.Keys(base)) {
		size := math.Abs(o[name]-base[name]) / max(1, math.Abs(base[name]))
		if size > moved {
			all = append(all, change{fmt.Sprintf("%s %s → %s", name, number(base[name]), number(o[name])), size})
		}
	}
	slices.SortStableFunc(all, func(a, b change) int {
		switch {
		case a.size > b.size:
			return -1
		case a.size < b.size:
			return 1
		}
		return 0
	})
	for _, c := range all {
		out = append(out, c.text)
	}
	return out
}

func number(x float64) string {
	switch {
	case x == math.Trunc(x) || math.Abs(x) >= 100:
		return fmt.Sprintf("%.0f", x)
	case math.Abs(x) >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.3f", x)
}

// shown is how many changes a cell names.
const shown = 3

func cell(changes []string) string {
	switch {
	case len(changes) == 0:
		return "-"
	case len(changes) > shown:
		return strings.Join(changes[:shown], "; ") + fmt.Sprintf("; %d more", len(changes)-shown)
	}
	return strings.Join(changes, "; ")
}

func run(dir string) error {
	var parts []map[string]outcomes
	var failed error
	for _, name := range []string{"recordings", "mixes", "trials"} {
		part, err := read(filepath.Join(dir, name+".json"))
		failed = errors.Join(failed, err)
		parts = append(parts, part)
	}
	if failed != nil {
		return failed
	}
	fields := reflect.TypeFor[policies.Constants]()
	values := reflect.ValueOf(*policies.DefaultConstants())
	fmt.Println("| constant | value | doubled | halved |\n|---|---|---|---|")
	var none []string
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		var twice, half []string
		for _, part := range parts {
			twice = append(twice, difference(part["="], part["*"+name])...)
			half = append(half, difference(part["="], part["/"+name])...)
		}
		if len(twice)+len(half) == 0 {
			none = append(none, name)
		}
		fmt.Printf("| %s | %v | %s | %s |\n", name, values.Field(i).Float(), cell(twice), cell(half))
	}
	fmt.Printf("\n%d constants; without effect on any of these outcomes: %s\n", fields.NumField(), strings.Join(none, ", "))
	return nil
}
