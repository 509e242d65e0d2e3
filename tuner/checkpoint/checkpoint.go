// Package checkpoint tells what the pauses cost in which a job writes its state: how often it does,
// how much, and how many seconds of work each takes away. It is pure, and knows neither frameworks
// nor files: a pause is a reading in which the job's threads wrote much, and its steps did not come
// as they do in between. A job that writes all the time shows none.
package checkpoint

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

const (
	// minBytes of files written in a reading are no log. Twice that misses the states of smaller models.
	minBytes = 1 << 20
	// minQuiet readings of no pause lie between two: else it is one. Twice that joins pauses 6 s apart.
	minQuiet = 3
	// cycles are kept, from the begin of a pause to that of the next. With twice as many a change of pace shows later.
	cycles = 32
	// minCycles tell: Student's interval of fewer is wide. With twice as many the advice comes twice as late.
	minCycles = 5
	// longest is how many seconds a cycle may last: what is further apart is not worth a change, and a
	// job without a pause for so long saves no more as it did. Twice that keeps it for longer.
	longest = 3600
)

// Seen is what the pauses of a job cost. The zero value: none were seen.
type Seen struct {
	Cycles int `json:"cycles"` // that the means are of
	// EverySeconds lie from one pause to the next, in the mean; LostSeconds of full speed each takes. Its mean
	// lies between LowSeconds and HighSeconds by a Student interval of 95 %, and a step to each side.
	EverySeconds float64 `json:"everySeconds"`
	LostSeconds  float64 `json:"lostSeconds"`
	LowSeconds   float64 `json:"lowSeconds"`
	HighSeconds  float64 `json:"highSeconds"`
	Bytes        float64 `json:"bytes"` // written in each, in the mean
}

// Reading is what came in one: of the job's threads together, and one reading after the other.
type Reading struct {
	StartNs, EndNs int64
	// Ticks are steps, or what grows with them. AtOnce come together: one of each rank. Reports of them may be
	// EveryNs apart.
	Ticks, AtOnce float64
	EveryNs       int64
	Bytes         float64 // of files that were written
}

func (r Reading) seconds() float64 { return float64(r.EndNs-r.StartNs) / 1e9 }

// cycle is the time from the begin of a pause to that of the next.
type cycle struct {
	seconds, ticks, bytes    float64
	quietSeconds, quietTicks float64 // of the readings that touch no pause
}

// Tracker sees one job. The zero value is ready.
type Tracker struct {
	source string
	endNs  int64 // of the latest reading
	atOnce float64
	every  float64 // s
	closed []cycle
	seen   Seen // what these tell
	open   cycle
	begun  bool // the open cycle began with a pause
	quiet  int  // readings since the latest pause
	// held are the latest of them, from the last with progress on: they may belong to the next pause.
	heldSeconds, heldTicks float64
}

// Add takes in the next reading; source names its ticks. Another source begins anew, and where a
// reading is missing so does the open cycle. Readings without progress behind one that wrote are of its
// pause, and so are those before the next: a job may work for what it writes, and wait for it.
func (t *Tracker) Add(source string, r Reading) {
	if source != t.source || source == "" || t.open.seconds > longest {
		*t = Tracker{source: source}
	}
	if r.StartNs != t.endNs {
		t.open, t.begun, t.quiet, t.heldSeconds, t.heldTicks = cycle{}, false, 0, 0, 0
	}
	t.endNs, t.atOnce, t.every = r.EndNs, r.AtOnce, float64(r.EveryNs)/1e9
	if source == "" || r.EndNs <= r.StartNs {
		return
	}
	if r.Bytes >= minBytes || t.quiet == 0 && r.Ticks == 0 && t.open.bytes > 0 {
		if t.quiet >= minQuiet {
			t.close()
		}
		t.quiet, t.heldSeconds, t.heldTicks = 0, 0, 0
	} else if t.quiet++; t.quiet > 1 { // a part of the first is still the pause's
		if r.Ticks > 0 {
			t.open.quietSeconds += t.heldSeconds
			t.open.quietTicks += t.heldTicks
			t.heldSeconds, t.heldTicks = 0, 0
		}
		t.heldSeconds += r.seconds()
		t.heldTicks += r.Ticks
	}
	t.open.seconds += r.seconds()
	t.open.ticks += r.Ticks
	if r.Bytes >= minBytes {
		t.open.bytes += r.Bytes
	}
}

// close ends the open cycle: the next pause begins.
func (t *Tracker) close() {
	if t.begun {
		t.closed = append(t.closed[max(0, len(t.closed)-cycles+1):], t.open)
		t.seen = t.tell()
	}
	t.open, t.begun = cycle{}, true
}

// Seen is what the latest cycles tell; the zero value where they are too few, or tell no loss.
func (t *Tracker) Seen() Seen { return t.seen }

// tell works that out. A step or report may fall to either side of a reading's end, and always to the same:
// so the bounds are wider by one.
func (t *Tracker) tell() Seen {
	if len(t.closed) < minCycles {
		return Seen{}
	}
	var all cycle
	for _, c := range t.closed {
		all.quietSeconds += c.quietSeconds
		all.quietTicks += c.quietTicks
		all.seconds += c.seconds
		all.bytes += c.bytes
	}
	speed, n := all.quietTicks/all.quietSeconds, float64(len(t.closed))
	if !(speed > 0) || all.quietSeconds < all.seconds/4 {
		return Seen{}
	}
	var lost []float64
	for _, c := range t.closed {
		lost = append(lost, c.seconds-c.ticks/speed)
	}
	mean, deviation := stat.MeanStdDev(lost, nil)
	half := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975)*deviation/math.Sqrt(n) + max(t.atOnce/speed, t.every)
	if !(mean-half > 0) {
		return Seen{}
	}
	every := all.seconds / n
	return Seen{Cycles: len(t.closed), EverySeconds: every, LostSeconds: mean, LowSeconds: mean - half, HighSeconds: max(mean, min(mean+half, every)), Bytes: all.bytes / n}
}

// Best is how many seconds between pauses cost least, where each takes lost seconds and the job is
// interrupted once in so many: then it repeats half of what lies between them, in the mean
// (J. W. Young, CACM 17(9), 1974).
func Best(lost, between float64) float64 { return math.Sqrt(2 * lost * between) }

// Cost is the share of time that pauses take, and what is repeated after interruptions.
func Cost(every, lost, between float64) float64 {
	return lost/every + every/(2*between)
}
