// Package account adds up what the GPUs and CPUs of a host were held for, from what the daemon
// publishes at each tick. It is pure, and knows nothing of its own: devices held and idle are
// those of `trimtab gpu idle`, the breakdown, the verdict, the loan and the trials those of
// `trimtab explain`.
//
// All time of a device, and of a CPU, that a container holds is in exactly one cause: idle, one
// of the parts of the breakdown, or not known. So held is the sum of its causes, whatever the
// report is sorted by. docs/report.md has the formula of each term.
//
// The trap is absence. What no two readings saw is not counted, a window that did not close is
// not known, and a saving needs a proof that stands now.
package account

import (
	"cmp"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/policies"
)

// Cause is what held time went into: a part of the breakdown, or one of the two below.
type Cause uint8

// The causes beside the parts.
const (
	Idle Cause = Cause(policies.NumParts) + iota
	Unknown
	NumCauses
)

// String is the cause's name in reports, metrics and on disk.
func (c Cause) String() string {
	switch {
	case c < Idle:
		return policies.Part(c).String()
	case c == Idle:
		return "idle"
	}
	return "not_known"
}

// Stalled: a rank neither computes nor waits for its device, as policies.Breakdown.Stalled says.
func (c Cause) Stalled() bool {
	return c < Idle && policies.Part(c) != policies.PartCompute && policies.Part(c) != policies.PartDevice
}

// CauseOf is the cause of a name; one of a newer version is not known here.
func CauseOf(name string) Cause {
	for c := range NumCauses {
		if c.String() == name {
			return c
		}
	}
	return Unknown
}

// Term is a quantity of a cause: time of devices or CPUs.
type Term uint8

// The terms. On disk they are numbered so: new ones go to the end, none goes.
const (
	Held       Term = iota
	Actionable      // stalled by what its verdict says can be relieved
	Proven          // in use under changes that a trial proved and that stand
	Saved           // the part of it that the lower bound of the gain is worth
	Tried           // in use in trials that were judged and not kept
	Lost            // the part of it by which the rate was below that before
	NumTerms
)

// Cell is the terms of one cause.
type Cell [NumTerms]int64

// Use is what devices, or CPUs, went into.
type Use [NumCauses]Cell

func (u *Use) add(o *Use) {
	for c := range u {
		if o[c] == (Cell{}) {
			continue // most are, and a report of a week adds up some million
		}
		for t := range u[c] {
			u[c][t] += o[c][t]
		}
	}
}

// Sums are what is counted of a container, or of a team. Units are the holder's: nanoseconds in a
// Book, milliseconds in a Row.
type Sums struct {
	Observed int64 // wall time
	Lent     int64 // CPU time used above the owner's quota, of a loan
	Given    int64 // the same, of what a trial gave
	GPU, CPU Use
}

func (s *Sums) add(o *Sums) {
	s.Observed += o.Observed
	s.Lent += o.Lent
	s.Given += o.Given
	s.GPU.add(&o.GPU)
	s.CPU.add(&o.CPU)
}

// split takes whole milliseconds out of nanoseconds; what is less waits for more.
func (s *Sums) split() (ms Sums, any bool) {
	ms = *s
	ms.each(func(v *int64) { *v /= 1e6; any = any || *v != 0 })
	s.each(func(v *int64) { *v %= 1e6 })
	return ms, any
}

// each changes all of them by f.
func (s *Sums) each(f func(*int64)) {
	f(&s.Observed)
	f(&s.Lent)
	f(&s.Given)
	for c := range NumCauses {
		for t := range NumTerms {
			f(&s.GPU[c][t])
			f(&s.CPU[c][t])
		}
	}
}

// Row is one container in one stretch, in milliseconds.
type Row struct {
	Key, Name, Image, Team string
	Sums
	Peak Peak // the latest that was told
}

// Hour is what was counted in an hour, or, once that is old, in a day of UTC.
type Hour struct {
	StartUnixNs int64
	Hours       int64 // 1, or 24
	Observed    int64 // milliseconds that trimtab looked on
	Rows        []Row // sorted by key
}

const (
	// HoursInDay is how long old hours are summed to.
	HoursInDay = 24
	// MaxRows is how many containers an hour, or a day, has apart: later ones are summed.
	MaxRows = 4096
	// maxText cuts names, images and teams, in bytes: they are hostile input.
	maxText = 200

	othersKey = "(others)"
	hostKey   = "(host)"
	nsInHour  = int64(3600e9)
)

// Merge adds the rows of two stretches, of which the first begins and is as long as the result.
func Merge(a, b Hour) Hour {
	at := make(map[string]int, len(a.Rows))
	a.Rows = slices.Clone(a.Rows)
	for i, r := range a.Rows {
		at[r.Key] = i
	}
	for _, r := range b.Rows {
		if _, ok := at[r.Key]; !ok && len(at) >= MaxRows {
			r = Row{Key: othersKey, Name: othersKey, Image: othersKey, Team: othersKey, Sums: r.Sums}
		}
		i, ok := at[r.Key]
		if !ok {
			at[r.Key] = len(a.Rows)
			a.Rows = append(a.Rows, r)
			continue
		}
		x := &a.Rows[i]
		x.add(&r.Sums)
		if r.Peak.Told() {
			x.Peak = r.Peak
		}
		x.Name, x.Image, x.Team = cmp.Or(x.Name, r.Name), cmp.Or(x.Image, r.Image), cmp.Or(x.Team, r.Team) // what was not known at first
	}
	slices.SortFunc(a.Rows, func(x, y Row) int { return strings.Compare(x.Key, y.Key) })
	a.Observed += b.Observed
	return a
}

// Day begins the day of UTC that an instant is in.
func Day(unixNs int64) int64 { return floor(unixNs, HoursInDay*nsInHour) }

func floor(ns, step int64) int64 {
	if ns < 0 {
		return (ns - step + 1) / step * step
	}
	return ns / step * step
}

// cut bounds a text, at the end of a character.
func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "")
}
