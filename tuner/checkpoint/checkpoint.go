// Package checkpoint tells what the pauses cost in which a job writes its state: how often it does,
// how much, and how many seconds of work each takes away. It is pure, and knows neither frameworks
// nor files: a pause is a reading in which the job's threads wrote much, and its steps did not come
// as they do in between. A job that writes all the time shows none.
package checkpoint

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

const (
	// minBytes of files written in a reading are no log.
	minBytes = 1 << 20
	// minQuiet readings without writing lie between two pauses: else it is one.
	minQuiet = 3
	// cycles are kept, from the begin of a pause to that of the next; minCycles tell.
	cycles    = 32
	minCycles = 5
	// longest is how many seconds a cycle may last: what is further apart is not worth a change.
	longest = 3600
)

// Seen is what the pauses of a job cost. The zero value: none were seen.
type Seen struct {
	Cycles int `json:"cycles"` // that the means are of
	// EverySeconds lie from one pause to the next, in the mean; LostSeconds of full speed each takes, in
	// 95 % of such means between LowSeconds, 0 at the least, and HighSeconds.
	EverySeconds float64 `json:"everySeconds"`
	LostSeconds  float64 `json:"lostSeconds"`
	LowSeconds   float64 `json:"lowSeconds"`
	HighSeconds  float64 `json:"highSeconds"`
	Bytes        float64 `json:"bytes"` // written in each, in the mean
}

// cycle is the time from the begin of a pause to that of the next.
type cycle struct {
	seconds, ticks, bytes   float64
	quietSeconds, quietTick float64 // of the readings that touch no pause
}

// Tracker sees one job. The zero value is ready.
type Tracker struct {
	source string
	closed []cycle
	open   cycle
	begun  bool // the open cycle began with a pause
	quiet  int  // readings since something was written
	last   cycle
}

// Add takes in a reading: its length, what of source came in it (steps, or what grows with them), and
// the bytes of files that the job's threads wrote. Another source begins anew, as does a reading
// that tells no progress (source "").
func (t *Tracker) Add(source string, seconds, ticks, bytes float64) {
	if source != t.source || source == "" || !(seconds > 0) {
		*t = Tracker{source: source}
		return
	}
	if bytes < minBytes {
		if t.quiet++; t.quiet > 2 { // the one before stands between two that are quiet
			t.open.quietSeconds += t.last.seconds
			t.open.quietTick += t.last.ticks
		}
	} else {
		if t.quiet >= minQuiet {
			t.close()
		}
		t.quiet = 0
	}
	t.last = cycle{seconds: seconds, ticks: ticks}
	t.open.seconds += seconds
	t.open.ticks += ticks
	if bytes >= minBytes {
		t.open.bytes += bytes
	}
	if t.open.seconds > longest {
		*t = Tracker{source: source}
	}
}

// close ends the open cycle: the next pause begins.
func (t *Tracker) close() {
	if t.begun {
		t.closed = append(t.closed[max(0, len(t.closed)-cycles+1):], t.open)
	}
	t.open, t.begun = cycle{}, true
}

// Seen is what the latest cycles tell; the zero value where they are too few, or tell no loss.
func (t *Tracker) Seen() Seen {
	if len(t.closed) < minCycles {
		return Seen{}
	}
	var all cycle
	for _, c := range t.closed {
		all.quietSeconds += c.quietSeconds
		all.quietTick += c.quietTick
		all.seconds += c.seconds
		all.bytes += c.bytes
	}
	speed, n := all.quietTick/all.quietSeconds, float64(len(t.closed))
	if !(speed > 0) || all.quietSeconds < all.seconds/4 {
		return Seen{}
	}
	var lost []float64
	for _, c := range t.closed {
		lost = append(lost, c.seconds-c.ticks/speed)
	}
	mean, deviation := stat.MeanStdDev(lost, nil)
	half := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975) * deviation / math.Sqrt(n)
	if mean-half <= 0 {
		return Seen{}
	}
	return Seen{Cycles: len(t.closed), EverySeconds: all.seconds / n, LostSeconds: mean, LowSeconds: mean - half, HighSeconds: min(mean+half, slices.Max(lost)), Bytes: all.bytes / n}
}

// Best is how many seconds between pauses cost least, where each takes lost seconds and the job is
// interrupted once in so many: then it repeats half of what lies between them, in the mean
// (J. W. Young, CACM 17(9), 1974).
func Best(lost, between float64) float64 { return math.Sqrt(2 * lost * between) }

// Cost is the share of time that pauses take, and what is repeated after interruptions.
func Cost(every, lost, between float64) float64 {
	return lost/every + every/(2*between)
}
