package render

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/state"
)

// outcomeWords says in plain words how a trial ended.
func outcomeWords(o state.Outcome) string {
	words := map[state.Outcome]string{
		state.OutcomeOpen: "being measured", state.OutcomeKept: "kept", state.OutcomeRolledBack: "reverted",
		state.OutcomeInconclusive: "reverted: no clear result", state.OutcomeUnproven: "stands: no clear result, and nobody lacks it", state.OutcomeAborted: "void", state.OutcomeWould: "would have been tried",
	}
	return cmp.Or(words[o], Clean(string(o)))
}

// trials lists what was tried, the open one first.
func trials(c state.Container, clock Clock) string {
	all := c.Trials
	if c.Trial != nil {
		all = append([]state.Trial{*c.Trial}, all...)
	}
	if len(all) == 0 {
		return ""
	}
	var out strings.Builder
	out.WriteString("What was tried, latest first\n")
	for _, t := range all {
		fmt.Fprintf(&out, "  %s %s: %s\n", clock.at(t.StartedUnixNs), changes(t.Changes), outcomeWords(t.Outcome))
		fmt.Fprintf(&out, "        %s\n", speeds(t))
		if t.Why != "" {
			fmt.Fprintf(&out, "        %s\n", Clean(t.Why))
		}
		for _, ch := range t.Changes {
			if ch.Reason != "" {
				fmt.Fprintf(&out, "        reason: %s\n", Clean(ch.Reason))
			}
		}
	}
	return out.String()
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
	out += "expected " + rate(t.Predicted) + signed(predictedGain(t))
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

// adviceLines lists what trimtab cannot do itself.
func adviceLines(c state.Container) string {
	if len(c.Advice) == 0 {
		return ""
	}
	out := "What you could do\n"
	for _, a := range c.Advice {
		out += "  " + Clean(a) + "\n"
	}
	return out
}

// gate names what said no, as the metric of rejections does.
func gate(c state.Container) string {
	if c.Gate == "" || c.Gate == "none" {
		return ""
	}
	return " (" + Clean(c.Gate) + ")"
}

// enrolmentText tells who let trimtab do what, and which labels were not understood.
func enrolmentText(c state.Container) string {
	e := c.Enrolment
	var out strings.Builder
	out.WriteString("What trimtab may do: ")
	switch e.Mode {
	case policies.ModeTune:
		fmt.Fprintf(&out, "change %s; enrolled by %s", strings.Join(e.Knobs, ", "), cmp.Or(Clean(e.EnrolledBy), "default"))
	case policies.ModeObserve:
		fmt.Fprintf(&out, "watch, and change nothing (%s)", cmp.Or(Clean(e.WhyNot), "observe mode"))
	default:
		fmt.Fprintf(&out, "nothing (%s)", cmp.Or(Clean(e.WhyNot), string(e.Mode)))
	}
	if e.Mode == policies.ModeTune && c.WhyNot != "" {
		fmt.Fprintf(&out, "; not now: %s%s", Clean(c.WhyNot), gate(c))
	}
	out.WriteString("\n")
	if e.Mode == policies.ModeObserve && e.EnrolledBy == enrolment.ByDefault {
		fmt.Fprintf(&out, "  `trimtab enable %s` lets it act, within what the host's config allows\n", name(c.Name))
	}
	for _, p := range e.Problems {
		fmt.Fprintf(&out, "  problem: %s\n", Clean(p))
	}
	return out.String()
}
