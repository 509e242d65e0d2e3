package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/state"
)

// memory tells what a container's memory does, where that was read.
func memory(c state.Container) string {
	m := c.MemoryUse
	if !m.Read {
		return ""
	}
	s := section{title: "Memory"}
	limit := "no limit"
	if m.Limit > 0 {
		limit = "of " + enrolment.FormatBytes(m.Limit)
	}
	s.line("in use, page cache included", enrolment.FormatBytes(m.Current)+" "+limit)
	s.line("of it not to be reclaimed", enrolment.FormatBytes(m.Held))
	if m.Growth > 0 {
		s.line("growing by", enrolment.FormatBytes(m.Growth)+"/s")
	}
	if m.Reread > 0 {
		s.line("read again after eviction", enrolment.FormatBytes(m.Reread)+"/s")
	}
	if m.Some >= leastShown {
		s.line("waiting for memory", percent(m.Some))
	}
	if set := c.Paging.Set; set > 0 && c.ByMemory.Source == c.Rate.Source {
		how := ", by what is read again"
		if c.Paging.Enough {
			how = ", measured"
		}
		s.line("what would be enough", enrolment.FormatBytes(set)+how)
		for _, bytes := range []float64{m.Limit, set} {
			if bytes > 0 {
				s.line("speed with "+enrolment.FormatBytes(bytes), asLearned(c.ByMemory, bytes, c.Rate))
			}
		}
	}
	return s.String()
}

// asLearned is what a curve says of the rate with so much, and how sure it is.
func asLearned(curve policies.Curve, amount float64, r policies.Rate) string {
	rate, low, high := curve.At(amount)
	return fmt.Sprintf("%s, between %s and %s", perSecond(rate, r), number(low), number(high))
}

// deciders says whose each knob is: label over policy over default. Knobs of one
// decider stand together.
func deciders(c state.Container) string {
	var order []string
	knobs := map[string][]string{}
	for _, k := range append(runtime.Knobs(), runtime.KnobGPU) {
		who, ok := c.Deciders[k]
		if !ok {
			continue
		}
		if !slices.Contains(order, who) {
			order = append(order, who)
		}
		knobs[who] = append(knobs[who], knob(k))
	}
	s := section{title: "Who decides"}
	for _, who := range order {
		s.say("%s: %s", Clean(who), strings.Join(knobs[who], ", "))
	}
	return s.String()
}

// short shows an amount of memory in few columns: 500M, 1.5G.
func short(v runtime.Value) string {
	n, ok := v.Int()
	if !ok {
		return Clean(string(v))
	}
	text := strings.TrimSuffix(enrolment.FormatBytes(float64(n)), "iB")
	if whole, unit, fraction := strings.Cut(text, "."); fraction { // one decimal is enough
		text = whole + "." + unit[:1] + unit[len(unit)-1:]
	}
	return text
}
