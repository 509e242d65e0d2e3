// Package sidebyside sets what another policy would have decided on a recording
// beside what was decided then. It is pure.
//
// The trap: a recording shows what came of the decisions that were made. What
// would have come of others is in no recording, so each of the other policy's plans
// is refused as soon as it is made, and it goes on from what stood.
package sidebyside

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/core"
)

// Change is one decision to change a knob.
type Change struct {
	UnixNs    int64         `json:"unix"`
	Plan      string        `json:"plan"`
	Policy    string        `json:"policy"`
	Container string        `json:"container"`
	Knob      runtime.Knob  `json:"knob"`
	From      runtime.Value `json:"from"`
	To        runtime.Value `json:"to"`
	DryRun    bool          `json:"dryRun,omitempty"` // observe mode: "would have"
	Reason    string        `json:"reason"`
	key       string
}

// Row is one decision, or two that belong together.
type Row struct {
	Recorded *Change `json:"recorded,omitempty"`
	Other    *Change `json:"other,omitempty"`
}

// UnixNs is when the earlier of the two was made.
func (r Row) UnixNs() int64 { return r.first().UnixNs }

func (r Row) first() Change {
	switch {
	case r.Recorded == nil:
		return *r.Other
	case r.Other == nil || r.Recorded.UnixNs <= r.Other.UnixNs:
		return *r.Recorded
	}
	return *r.Other
}

// Container and Knob are the row's, whoever decided.
func (r Row) Container() string { return r.first().Container }

// Knob is what is changed.
func (r Row) Knob() runtime.Knob { return r.first().Knob }

// Report is what came of one recording.
type Report struct {
	File      string `json:"file"`
	Recorded  string `json:"recordedPolicy"`
	Policy    string `json:"policy"`
	Ticks     int    `json:"ticks"`
	Truncated bool   `json:"truncated,omitempty"`
	Rows      []Row  `json:"rows"`
	Counts    Counts `json:"counts"`
}

// Counts sum a report up.
type Counts struct {
	Recorded     int `json:"recorded"`  // changes
	TakenBack    int `json:"takenBack"` // recorded plans that went back
	Other        int `json:"other"`
	Both         int `json:"both"`  // rows with both sides
	Alike        int `json:"alike"` // of these: to values within a tenth
	OnlyRecorded int `json:"onlyRecorded"`
	OnlyOther    int `json:"onlyOther"`
}

// Plus adds the counts of another recording.
func (c Counts) Plus(o Counts) Counts {
	return Counts{Recorded: c.Recorded + o.Recorded, TakenBack: c.TakenBack + o.TakenBack, Other: c.Other + o.Other, Both: c.Both + o.Both,
		Alike: c.Alike + o.Alike, OnlyRecorded: c.OnlyRecorded + o.OnlyRecorded, OnlyOther: c.OnlyOther + o.OnlyOther}
}

// Shadow runs the other policy's core on a recording.
type Shadow struct {
	core     *core.Core
	atNs     int64
	refuse   []core.Result
	recorded []Change
	other    []Change
	ticks    int
	back     int
}

// NewShadow takes a fresh core with the other policy.
func NewShadow(c *core.Core) *Shadow { return &Shadow{core: c} }

// SetConfig takes in a config that was loaded while the recording ran.
func (s *Shadow) SetConfig(cfg core.Config) { s.core.SetConfig(cfg) }

// Tick takes in one recorded tick. What the actuator answered then was for the
// recorded plans; the other policy's are refused.
func (s *Shadow) Tick(raw json.RawMessage) error {
	var in core.Input
	if err := json.Unmarshal(raw, &in); err != nil {
		return fmt.Errorf("tick: %w", err)
	}
	in.Results = slices.DeleteFunc(in.Results, func(r core.Result) bool { return r.Kind != core.ResultEnded })
	in.Results = append(in.Results, s.refuse...)
	s.refuse, s.atNs = nil, in.UnixNs
	s.ticks++
	d := s.core.Step(in)
	for _, o := range d.Apply {
		if !o.DryRun {
			s.refuse = append(s.refuse, core.Result{Kind: core.ResultApply, Plan: o.Plan, Refused: true, Text: "a recording cannot be changed"})
		}
	}
	s.other = append(s.other, changes(in.UnixNs, d)...)
	return nil
}

// Decision takes in what was decided at the latest tick.
func (s *Shadow) Decision(raw json.RawMessage) error {
	var d core.Decision
	if err := json.Unmarshal(raw, &d); err != nil {
		return fmt.Errorf("decision: %w", err)
	}
	s.recorded = append(s.recorded, changes(s.atNs, d)...)
	s.back += len(d.Rollback)
	return nil
}

// Report closes the comparison.
func (s *Shadow) Report(file, recorded, policy string) Report {
	r := Report{File: file, Recorded: recorded, Policy: policy, Ticks: s.ticks, Rows: Pair(s.recorded, s.other)}
	for _, row := range r.Rows {
		switch {
		case row.Other == nil:
			r.Counts.OnlyRecorded++
		case row.Recorded == nil:
			r.Counts.OnlyOther++
		default:
			r.Counts.Both++
			if alike(*row.Recorded, *row.Other) {
				r.Counts.Alike++
			}
		}
	}
	r.Counts.Recorded, r.Counts.Other, r.Counts.TakenBack = len(s.recorded), len(s.other), s.back
	return r
}

func changes(unixNs int64, d core.Decision) (out []Change) {
	for _, o := range d.Apply {
		for _, ch := range o.Changes {
			out = append(out, Change{UnixNs: unixNs, Plan: o.Plan, Policy: o.Policy, Container: ch.Name, key: ch.Key, Knob: ch.Knob,
				From: ch.From, To: ch.To, DryRun: o.DryRun, Reason: ch.Reason})
		}
	}
	return out
}

// withinNs is how far apart two decisions on one knob may lie that belong together:
// beyond a minute something else is being decided.
const withinNs = 60 * int64(1e9)

// Pair puts decisions on the same knob of the same container, made within a minute,
// in one row: each recorded one with the earliest other that is free. Rows are
// sorted by time.
func Pair(recorded, other []Change) []Row {
	taken := make([]bool, len(other))
	rows := make([]Row, 0, len(recorded)+len(other))
	for i := range recorded {
		row := Row{Recorded: &recorded[i]}
		for k, o := range other {
			if apart := o.UnixNs - recorded[i].UnixNs; !taken[k] && o.key == recorded[i].key && o.Knob == recorded[i].Knob && max(apart, -apart) <= withinNs {
				row.Other, taken[k] = &other[k], true
				break
			}
		}
		rows = append(rows, row)
	}
	for k := range other {
		if !taken[k] {
			rows = append(rows, Row{Other: &other[k]})
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.UnixNs(), b.UnixNs()), cmp.Compare(a.Container(), b.Container()), cmp.Compare(a.Knob(), b.Knob()))
	})
	return rows
}

// alike reports whether two changes lead to the same value, or to one within a tenth.
func alike(a, b Change) bool {
	x, okX := amount(a.To)
	y, okY := amount(b.To)
	if okX && okY {
		return math.Abs(x-y) <= 0.1*max(x, y)
	}
	return a.To == b.To
}

func amount(v runtime.Value) (float64, bool) {
	if cpus, ok := v.CPUs(); ok {
		return cpus, true
	}
	n, ok := v.Int()
	return float64(n), ok
}
