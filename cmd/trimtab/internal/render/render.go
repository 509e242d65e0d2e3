// Package render turns what the daemon shows into text for a terminal. It is
// pure: views in, text out. The one trap: names, images and label values come
// from containers, so every text passes clean before it is printed.
package render

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/state"
)

// Width is how many columns a table takes at most.
const Width = 120

// Clock says how instants are shown: where, and which day is today.
type Clock struct {
	Now  time.Time
	Zone *time.Location
}

// at shows an instant: only the time of day if it was today.
func (c Clock) at(unixNs int64) string {
	t, now := time.Unix(0, unixNs).In(c.Zone), c.Now.In(c.Zone)
	if t.Year() == now.Year() && t.YearDay() == now.YearDay() {
		return t.Format("15:04")
	}
	return t.Format("2006-01-02 15:04")
}

// Clean makes a text safe for a terminal: no control characters, no escapes, no
// characters that turn the direction of writing, no broken UTF-8, and one line.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) || unicode.Is(unicode.Mn, r) {
			return '?'
		}
		return r
	}, s)
}

// name shows a name that a container chose: ASCII only, so that none can look
// like another, and each character takes one column.
func name(s string) string {
	return strings.ReplaceAll(ASCII(s), " ", "?")
}

// clip cuts a text to so many columns.
func clip(s string, columns int) string {
	if utf8.RuneCountInString(s) <= columns {
		return s
	}
	return string([]rune(s)[:max(columns-1, 0)]) + "…"
}

// ClipMiddle does the same, and keeps both ends: names of one job differ at the end.
func ClipMiddle(s string, columns int) string {
	r := []rune(s)
	if len(r) <= columns || columns < 3 {
		return clip(s, columns)
	}
	head := columns / 2
	return string(r[:head]) + "…" + string(r[len(r)-(columns-head-1):])
}

// number shows three significant digits, and never an exponent.
func number(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "?"
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// cpus shows CPUs with one or two decimals: 1.0, 0.75.
func cpus(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 2, 64), "0")
}

// percent shows a share: 62 %, 0.4 %.
func percent(share float64) string {
	v := share * 100
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "?"
	}
	if a := math.Abs(v); a >= 9.95 || a < 0.05 {
		return strconv.FormatFloat(v, 'f', 0, 64) + " %"
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " %"
}

// signed shows a gain: +61 %, -3.0 %.
func signed(gain float64) string {
	if gain >= 0 {
		return "+" + percent(gain)
	}
	return percent(gain)
}

// milliseconds shows seconds in ms.
func milliseconds(seconds float64) string { return number(seconds*1000) + " ms" }

// rate shows a rate in its own unit. Ticks whose number per step is not confirmed
// are marked ≈ and named, and never called steps.
func rate(r policies.Rate) string {
	switch {
	case r.PerSecond <= 0:
		return "-"
	case r.Steps:
		return number(r.PerSecond) + " steps/s"
	}
	return "≈" + number(r.PerSecond) + "/s " + Clean(r.Source)
}

// shownRate is a container's rate; "-" where there is a reason to show none: how often threads
// wait for each other is a rhythm, and no speed.
func shownRate(c state.Container) string {
	if r := c.LastRuns; r != nil && r.PerSecond > 0 && !(c.Rate.PerSecond > 0) {
		return "usual " + number(r.PerSecond) + "/s"
	}
	if c.RateWhy != "" {
		return "-"
	}
	return rate(c.Rate)
}

// perSecond shows a number in the unit of a rate, without naming its source.
func perSecond(v float64, r policies.Rate) string {
	if r.Steps {
		return number(v) + " steps/s"
	}
	return "≈" + number(v) + "/s"
}

// value shows a knob's value with its unit.
func value(k runtime.Knob, v runtime.Value) string {
	switch k {
	case runtime.KnobCPUQuota:
		if n, ok := v.CPUs(); ok {
			return cpus(n)
		}
		if strings.HasPrefix(string(v), "max") {
			return "no limit"
		}
	case runtime.KnobMemoryLimit, runtime.KnobMemorySwap:
		if v == runtime.ValueMax {
			return "no limit"
		}
		if n, ok := v.Int(); ok {
			return enrolment.FormatBytes(float64(n))
		}
	case runtime.KnobGPU:
		return Clean(v.GPUs())
	}
	if v == "" {
		return "?"
	}
	return Clean(string(v))
}

// knob names a knob in plain words.
func knob(k runtime.Knob) string {
	words := map[runtime.Knob]string{
		runtime.KnobCPUWeight: "CPU weight", runtime.KnobCPUQuota: "CPU",
		runtime.KnobCpuset: "CPU set", runtime.KnobMemoryLimit: "memory", runtime.KnobMemorySwap: "memory and swap",
		runtime.KnobGPU: "GPUs",
	}
	if w, ok := words[k]; ok {
		return w
	}
	return Clean(string(k))
}

// change shows what a knob went from and to: CPU 1.0→1.5.
func change(k runtime.Knob, from, to runtime.Value) string {
	return knob(k) + " " + value(k, from) + "→" + value(k, to)
}

func changes(all []policies.Change) string {
	return each(all, func(c policies.Change) string { return change(c.Knob, c.From, c.To) })
}

// each shows all, with commas between them.
func each[T any](all []T, show func(T) string) string {
	var out []string
	for _, x := range all {
		out = append(out, show(x))
	}
	return strings.Join(out, ", ")
}

// column is a table's column. To fit, columns first shrink to what is good to
// read, then names to their least, then all. A name loses its middle: names of
// one job differ at the end.
type column struct {
	title       string
	good, least int
	isName      bool
}

const gap = 2 // columns between two cells

// table lays out rows within Width; what a cell cannot hold becomes …
func table(columns []column, rows [][]string) string {
	widths := make([]int, len(columns))
	total := gap * (len(columns) - 1)
	for i, c := range columns {
		widths[i] = utf8.RuneCountInString(c.title)
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		total += widths[i]
	}
	shrink(columns, widths, total-Width)
	var out strings.Builder
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	for _, row := range append([][]string{titles}, rows...) {
		writeRow(&out, columns, row, widths)
	}
	return out.String()
}

// shrink takes so many columns away, each from the widest that may still give.
func shrink(columns []column, widths []int, excess int) {
	for _, floor := range []func(column) int{
		func(c column) int { return c.good },
		func(c column) int {
			if c.isName {
				return c.least
			}
			return c.good
		},
		func(c column) int { return c.least },
	} {
		for excess > 0 {
			widest := -1
			for i, c := range columns {
				if widths[i] > floor(c) && (widest < 0 || widths[i] > widths[widest]) {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			widths[widest]--
			excess--
		}
	}
}

func writeRow(out *strings.Builder, columns []column, row []string, widths []int) {
	line := ""
	for i, cell := range row {
		if columns[i].isName {
			cell = ClipMiddle(cell, widths[i])
		} else {
			cell = clip(cell, widths[i])
		}
		line += cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+gap)
	}
	out.WriteString(strings.TrimRight(line, " ") + "\n")
}
