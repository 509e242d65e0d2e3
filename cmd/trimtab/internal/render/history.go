package render

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/state"
)

// kindWords says in a word what a record tells of.
func kindWords(r state.Record) string {
	words := map[state.RecordKind]string{
		state.RecordChange: "changed", state.RecordWould: "would", state.RecordTrial: "trial", state.RecordRollback: "reverted",
		state.RecordRestore: "restored", state.RecordYield: "yielded", state.RecordPending: "pending", state.RecordRefused: "refused",
		state.RecordEnrol: "enrolment", state.RecordVerdict: "verdict", state.RecordGPURepair: "GPU repaired", state.RecordGPUError: "GPU error",
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
// words, follows "no changes" when there is none. As many as an answer may have may not be all.
func History(records []state.Record, changedOnly bool, since, until string, clock Clock) string {
	if len(records) == 0 {
		what := "no records"
		if changedOnly {
			what = "no changes"
		}
		if since != "" {
			what += " since " + Clean(since)
		}
		if until != "" {
			what += " until " + Clean(until)
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
	out := table(columns, rows)
	if len(records) >= state.MaxRecords {
		out += fmt.Sprintf("these are the newest %d records; older ones are left out\n", len(records))
	}
	return out
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

// outcomeWords says in plain words how a trial ended.
func outcomeWords(o state.Outcome) string {
	words := map[state.Outcome]string{
		state.OutcomeOpen: "being measured", state.OutcomeKept: "kept", state.OutcomeRolledBack: "reverted",
		state.OutcomeInconclusive: "reverted: no clear result", state.OutcomeUnproven: "left standing: no clear result, and nobody lacked it", state.OutcomeWithdrawn: "taken back later", state.OutcomeAborted: "void", state.OutcomeWould: "would have been tried",
	}
	return cmp.Or(words[o], Clean(string(o)))
}

// trials lists what was tried, the open one first.
func trials(c state.Container, clock Clock) string {
	all := c.Trials
	if c.Trial != nil {
		all = append([]state.Trial{*c.Trial}, all...)
	}
	s := section{title: "What was tried, latest first"}
	for _, t := range all {
		s.say("%s %s: %s", clock.at(t.StartedUnixNs), changes(t.Changes), outcomeWords(t.Outcome))
		s.say("      %s", speeds(t))
		if t.Why != "" {
			s.say("      %s", Clean(t.Why))
		}
		for _, ch := range t.Changes {
			if ch.Reason != "" {
				s.say("      reason: %s", Clean(ch.Reason))
			}
		}
	}
	return s.String()
}

// speeds sets prediction and measurement side by side: rates where they are of steps, else only
// what became of them.
func speeds(t state.Trial) string {
	if len(t.Changes) > 0 && t.Changes[0].Criterion == policies.CriterionNoHarm {
		return "judged by harm to it and to others, not by its rate: " + t.Changes[0].Expected()
	}
	rate := func(v float64) string {
		if t.Unit != state.UnitSteps || v <= 0 {
			return ""
		}
		return number(v) + " " + state.UnitSteps + ", "
	}
	out := ""
	switch before := rate(t.Before); {
	case before != "":
		out = "before " + before
	case t.Unit == state.UnitRelative:
		out = "relative to before: "
	}
	out += "expected " + rate(t.Predicted) + expected(t)
	if g, ok := measuredGain(t); ok {
		out += "; measured " + rate(t.After) + signed(g)
		if t.Low > 0 && t.High > 0 {
			out += fmt.Sprintf(", between %s and %s", signed(t.Low-1), signed(t.High-1))
		}
		if t.Together > 0 {
			out += ", by all that it gives to"
		}
	} else if t.Outcome == state.OutcomeWould {
		out += "; never applied"
	}
	return out
}

// gained shows what a trial measured; "≈": by no steps.
func gained(g float64, unit string) string {
	if unit == state.UnitRelative {
		return "≈" + signed(g)
	}
	return signed(g)
}

// enrolmentText tells who let trimtab do what, and which labels were not understood.
func enrolmentText(c state.Container) string {
	e := c.Enrolment
	s := section{title: "What trimtab may do: "}
	switch e.Mode {
	case policies.ModeTune:
		s.title += fmt.Sprintf("change %s; enrolled by %s", strings.Join(e.Knobs, ", "), cmp.Or(Clean(e.EnrolledBy), "default"))
	case policies.ModeObserve:
		s.title += fmt.Sprintf("watch, and change nothing (%s)", cmp.Or(Clean(e.WhyNot), "observe mode"))
	default:
		s.title += fmt.Sprintf("nothing (%s)", cmp.Or(Clean(e.WhyNot), string(e.Mode)))
	}
	if e.Mode == policies.ModeTune && c.WhyNot != "" {
		s.title += "; not now: " + Clean(c.WhyNot)
		if c.Gate != "" && c.Gate != "none" { // what said no, as the metric of rejections names it
			s.title += " (" + Clean(c.Gate) + ")"
		}
	}
	if e.Mode == policies.ModeObserve && e.EnrolledBy == enrolment.ByDefault {
		s.say("`trimtab enable %s` lets it act, within what the host's config allows", name(c.Name))
	}
	for _, p := range e.Problems {
		s.say("problem: %s", Clean(p))
	}
	return s.title + "\n" + s.lines.String()
}
