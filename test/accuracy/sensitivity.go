package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/policies/lend"
	"github.com/trimtab/trimtab/policies/share"
	"github.com/trimtab/trimtab/tuner/control"
)

// recorded is what the recordings come to under one set of constants.
type recorded struct {
	Class  float64 `json:"class"`  // share of windows with the right class
	Cause  float64 `json:"cause"`  // share with the right label
	Wrong  float64 `json:"wrong"`  // actions that were wrong
	First  float64 `json:"first"`  // seconds to the first change, mean over tuned recordings
	Orders float64 `json:"orders"` // changes, all tuned recordings
}

// writeSensitivity replays all recordings with each constant doubled and halved.
func writeSensitivity(dir, tuned, file string) error {
	run := func(k *policies.Constants) (out recorded, err error) {
		cases, err := readCases(k, dir)
		if err != nil {
			return out, err
		}
		s := sum(cases)
		out = recorded{Class: s.Class, Cause: s.Cause, Wrong: float64(s.WrongActions)}
		files, err := filepath.Glob(filepath.Join(tuned, "*.trimtab"))
		if err != nil || len(files) == 0 {
			return out, errors.Join(err, fmt.Errorf("%s holds no recordings", tuned))
		}
		for _, f := range files {
			first, n, err := tunedOnce(f, k)
			if err != nil {
				return out, fmt.Errorf("%s: %w", f, err)
			}
			out.First += first / float64(len(files))
			out.Orders += n
		}
		return out, nil
	}
	all := map[string]recorded{}
	base, err := run(policies.DefaultConstants())
	if err != nil {
		return err
	}
	all["="] = base
	fields := reflect.TypeFor[policies.Constants]()
	for i := range fields.NumField() {
		for sign, factor := range map[string]float64{"*": 2, "/": 0.5} {
			k := policies.DefaultConstants()
			f := reflect.ValueOf(k).Elem().Field(i)
			f.SetFloat(f.Float() * factor)
			if all[sign+fields.Field(i).Name], err = run(k); err != nil {
				return err
			}
		}
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return os.WriteFile(file, raw, 0o644)
}

// tunedOnce is when a recording of a tuned container is first acted on, in seconds from its
// begin (its end, where nothing is done), and how many orders are given.
func tunedOnce(file string, k *policies.Constants) (first, orders float64, err error) {
	deciding := func(k *policies.Constants) []policies.Policy {
		return []policies.Policy{lend.New(k), knee.New(k), share.New(k)}
	}
	configured := func(raw json.RawMessage) (control.Config, error) {
		cfg := control.Defaults()
		err := json.Unmarshal(raw, &cfg)
		cfg.Constants = *k
		return cfg, err
	}
	var began, last int64
	err = playFile(file, configured, deciding, func(_ *control.Controller, t control.Tick) {
		if last = t.Input.Host.AtNs; began == 0 {
			began = last
		}
		if n := len(t.Decision.Apply) + len(t.Decision.Rollback); n > 0 {
			if orders == 0 {
				first = float64(last-began) / 1e9
			}
			orders += float64(n)
		}
	})
	if orders == 0 {
		first = float64(last-began) / 1e9
	}
	return first, orders, err
}
