// Package event says which of trimtab's records others are told of, and in what words. It is pure:
// an event is a record of the history, or a change in the daemon's own state, with nothing added.
//
// The one trap: names and texts in records are written by whoever starts a container. Here they
// lose what would move a terminal's cursor or turn a line around, and are cut; HTML and other
// markup are the business of whom they are sent to.
package event

import (
	"cmp"
	"strings"
	"unicode"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// Kind is what an event is about.
type Kind string

// The kinds.
const (
	Kept         Kind = "kept"          // a trial proved its change: it stands
	Reverted     Kind = "reverted"      // a trial ended and its change was taken back, worse or inconclusive; or what stood is taken back later
	Unproven     Kind = "unproven"      // a trial was inconclusive, and its change stands: nobody lacks what it gives
	Void         Kind = "void"          // a trial ended without evidence
	Lent         Kind = "lent"          // a loan was made or grew
	CalledIn     Kind = "called-in"     // a loan was called back, all or a part
	Changed      Kind = "changed"       // a knob was written, or went with another
	KnobReverted Kind = "knob-reverted" // a knob of a trial was written back
	Restored     Kind = "restored"      // an owner's value was given back
	Pending      Kind = "pending"       // an owner's value could not be given back yet
	Yielded      Kind = "yielded"       // somebody else wrote a knob: it is left alone
	Refused      Kind = "refused"       // the runtime or the guard refused
	Would        Kind = "would"         // observe mode: what would have been written
	GPULost      Kind = "gpu-lost"      // access to a GPU was lost, came back by itself, or could not be repaired
	GPURepaired  Kind = "gpu-repaired"  // lost access to a GPU was repaired
	GPUView      Kind = "gpu-view"      // GPUs were hidden or shown
	GPUError     Kind = "gpu-error"     // the driver reported an error of a GPU
	Verdict      Kind = "verdict"       // what bounds a job changed
	Slower       Kind = "slower"        // a run turned out slower than the last ones of its job
	Enrolment    Kind = "enrolment"     // enabled, disabled, held, resumed, paused
	Unwell       Kind = "unwell"        // the daemon stopped ticking, lost an engine or a probe, or refused its config
	Well         Kind = "well"          // what was unwell is well again
)

// Kinds are all of them.
func Kinds() []Kind {
	return []Kind{Kept, Reverted, Unproven, Void, Lent, CalledIn, Changed, KnobReverted, Restored, Pending, Yielded, Refused, Would,
		GPULost, GPURepaired, GPUView, GPUError, Verdict, Slower, Enrolment, Unwell, Well}
}

// Event is what others are told, as JSON on a script's standard input and in a webhook's body.
type Event struct {
	Kind   Kind          `json:"event"`
	Host   string        `json:"host"`
	UnixNs int64         `json:"time"`             // ns since 1970
	Text   string        `json:"text"`             // one sentence for people
	Record *state.Record `json:"record,omitempty"` // of the history; none of what the daemon tells of itself
}

// Container is its name; "" where the event is of the daemon.
func (e Event) Container() string {
	if e.Record == nil {
		return ""
	}
	return e.Record.Name
}

// Alarming reports whether a person may have to look.
func (e Event) Alarming() bool {
	switch e.Kind {
	case Pending, Refused, GPULost, Slower, Unwell:
		return true
	case GPUError: // as of the alert's counter
		return e.Record == nil || !e.Record.ByProgram
	}
	return false
}

// Of is the event that a record tells of.
func Of(r state.Record, host string) Event {
	for _, text := range []*string{&r.Name, &r.Team, &r.Key, &r.Plan, &r.Policy} {
		*text = Clean(*text, maxName)
	}
	for _, v := range []*runtime.Value{&r.From, &r.To, &r.Actual} {
		*v = runtime.Value(Clean(string(*v), maxText))
	}
	r.Text = Clean(r.Text, maxText)
	return Event{Kind: kindOf(r), Host: host, UnixNs: r.UnixNs, Text: r.Text, Record: &r}
}

// kindOf tells trials by their outcome, and loans by their direction. A kind of a later version goes by its own name.
func kindOf(r state.Record) Kind {
	switch r.Kind {
	case state.RecordTrial:
		return cmp.Or(map[state.Outcome]Kind{state.OutcomeKept: Kept, state.OutcomeRolledBack: Reverted, state.OutcomeInconclusive: Reverted,
			state.OutcomeUnproven: Unproven, state.OutcomeWithdrawn: Reverted}[r.Outcome], Void)
	case state.RecordLoan:
		if r.Knob == runtime.KnobCPUWeight {
			return Changed // it goes with the loan
		}
		if r.To.Quantity() > r.From.Quantity() {
			return Lent
		}
		return CalledIn
	}
	return cmp.Or(map[state.RecordKind]Kind{
		state.RecordChange: Changed, state.RecordRollback: KnobReverted, state.RecordRestore: Restored, state.RecordPending: Pending,
		state.RecordYield: Yielded, state.RecordRefused: Refused, state.RecordWould: Would, state.RecordGPULost: GPULost,
		state.RecordGPURepair: GPURepaired, state.RecordGPUView: GPUView, state.RecordGPUError: GPUError, state.RecordVerdict: Verdict, state.RecordSlower: Slower, state.RecordEnrol: Enrolment,
	}[r.Kind], Kind(r.Kind))
}

// What is sent of a name and of a text, in bytes at the most.
const (
	maxName = 256
	maxText = 2048
)

// Clean is a text as one line of valid UTF-8, of at most so many bytes, without what controls a
// terminal or the direction of writing.
func Clean(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
	if len(text) <= most {
		return text
	}
	const more = "…"
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}
