// Package period finds the steps of a job in what a process calls of CUDA and NCCL: what
// recurs, whatever it is.
package period

import "github.com/trimtab/trimtab/probes"

// MaxMarks bounds the marks that a window holds for one process: eight steps of 128.
const MaxMarks = 1024

// Least evidence for a period: marks in all, and repetitions of the pattern.
const (
	minMarks   = 8
	minRepeats = 4
	// matchShare of the marks must agree with the one a period before: a step with a
	// checkpoint or a logged value is odd, the others are not.
	matchShare = 0.9
	maxPeriod  = MaxMarks / minRepeats
)

// Pattern is how often each kind of mark comes in one step, found by what recurs.
type Pattern struct {
	Marks    int // in one period; 0: none found
	PerKind  [probes.NumMarkKinds]int
	Launches uint64 // in one period
}

// beat is what one mark looks like in the pattern.
type beat struct {
	kind     probes.MarkKind
	launches uint64 // since the mark before
}

// Find looks for the shortest period in a process's marks: the same kinds
// with the same launches between. An optimizer's launches tell the last of several
// accumulated micro-batches from the others, so the period is a step, not a pass.
func Find(marks []probes.Mark) Pattern {
	var beats []beat
	for i := 1; i < len(marks); i++ {
		beats = append(beats, beat{marks[i].Kind, max(marks[i].Launches, marks[i-1].Launches) - marks[i-1].Launches})
	}
	if len(beats) < minMarks {
		return Pattern{}
	}
	for k := 1; k <= min(maxPeriod, len(beats)/minRepeats); k++ {
		if !recurs(beats, k) {
			continue
		}
		p := Pattern{Marks: k}
		for _, b := range beats[len(beats)-k:] {
			p.PerKind[b.kind%probes.NumMarkKinds]++
			p.Launches += b.launches
		}
		if p.Launches == 0 {
			return Pattern{} // nothing was computed in between: polling, not stepping
		}
		return p
	}
	return Pattern{}
}

// recurs reports whether the beats repeat every k: over the whole stretch, and in
// the first period as in the last, since a slow drift matches too.
func recurs(beats []beat, k int) bool {
	same := 0
	for i := k; i < len(beats); i++ {
		if beats[i] == beats[i-k] {
			same++
		}
	}
	if float64(same) < matchShare*float64(len(beats)-k) {
		return false
	}
	for i := range k {
		if beats[len(beats)-k+i] != beats[(len(beats)-k+i)%k] {
			return float64(same) >= 0.98*float64(len(beats)-k)
		}
	}
	return true
}
