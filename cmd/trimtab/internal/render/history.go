package render

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// kindWords says in a word what a record tells of.
func kindWords(r state.Record) string {
	words := map[state.RecordKind]string{
		state.RecordChange: "changed", state.RecordWould: "would", state.RecordTrial: "trial", state.RecordRollback: "reverted",
		state.RecordRestore: "restored", state.RecordYield: "yielded", state.RecordPending: "pending", state.RecordRefused: "refused",
		state.RecordEnrol: "enrolment", state.RecordVerdict: "verdict", state.RecordGPURepair: "GPU repaired",
	}
	if r.Kind == state.RecordLoan {
		return loanWord(r)
	}
	w := cmp.Or(words[r.Kind], Clean(string(r.Kind)))
	if r.Kind == state.RecordTrial && r.Outcome != "" {
		return w + " " + strings.ReplaceAll(Clean(string(r.Outcome)), "_", " ")
	}
	return w
}

// loanWord says what became of a loan: a weight that goes with it is part of it.
func loanWord(r state.Record) string {
	switch {
	case r.Knob == runtime.KnobCPUWeight:
		return "loan's weight"
	case r.To.Quantity() > r.From.Quantity():
		return "lent"
	}
	return "loan cut"
}

// History is one line for each record, oldest first; what was asked for, in
// words, follows "no changes" when there is none.
func History(records []state.Record, changedOnly bool, since string, clock Clock) string {
	if len(records) == 0 {
		what := "no records"
		if changedOnly {
			what = "no changes"
		}
		if since != "" {
			what += " since " + Clean(since)
		}
		return what + "\n"
	}
	columns := []column{{"TIME", 19, 19, false}, {"WHAT", 18, 8, false}, {"NAME", 16, 10, true}, {"CHANGE", 20, 14, false},
		{"SPEEDUP", 14, 14, false}, {"WHY", 25, 20, false}}
	var rows [][]string
	for _, r := range records {
		rows = append(rows, []string{time.Unix(0, r.UnixNs).In(clock.Zone).Format(time.DateTime), kindWords(r), cmp.Or(name(r.Name), "-"),
			recordChange(r), recordGain(r), cmp.Or(Clean(r.Text), "-")})
	}
	return table(columns, rows)
}

func recordChange(r state.Record) string {
	if r.Knob == "" {
		return "-"
	}
	return change(r.Knob, r.From, r.To)
}

// recordGain marks what was only expected. Of a trial it is the same figure that explain tells.
func recordGain(r state.Record) string {
	switch {
	case r.Kind == state.RecordTrial:
	case r.Gain == 0:
		return "-"
	default:
		return signed(r.Gain) + " expected"
	}
	t := state.Trial{Before: r.Before, After: r.After}
	if r.Gain != 0 { // else the trial came to no verdict by its measure
		t.Ratio = 1 + r.Gain
	}
	if g, ok := measuredGain(t); ok {
		return gained(g, r.Unit)
	}
	return "-"
}

// Results tells what became of an action, one line for each container.
func Results(all []state.ActionResult) string {
	if len(all) == 0 {
		return "nothing to do\n"
	}
	var out strings.Builder
	for _, r := range all {
		state := ""
		if !r.OK {
			state = "not done: "
		}
		fmt.Fprintf(&out, "%s: %s%s\n", name(r.Name), state, Clean(r.Text))
	}
	return out.String()
}
