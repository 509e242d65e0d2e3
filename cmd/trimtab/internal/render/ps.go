package render

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// PS is the table of all containers; all of them, also those that are not
// watched, when all is set.
func PS(containers []state.Container, all bool) string {
	// At their least they add up to Width.
	columns := []column{{"NAME", 14, 10, true}, {"TEAM", 6, 5, true}, {"GPUS", 4, 4, false}, {"MODE", 7, 7, false}, {"RATE", 20, 18, false},
		{"STALLED", 7, 7, false}, {"CAUSE", 9, 9, false}, {"CPU(now←original)", 17, 17, false}, {"SPEEDUP", 11, 11, false}, {"REASON", 16, 14, false}}
	var rows [][]string
	hidden := 0
	for _, c := range containers {
		if !c.Watched && !all && c.Enrolment.Mode != policies.ModeTune && c.Pending == "" {
			hidden++
			continue
		}
		x := CellsOf(c)
		rows = append(rows, []string{x.Name, cmp.Or(x.Team, "-"), x.GPUs, x.Mode, x.Rate, x.Stalled, x.Cause, x.CPU, x.Speedup, cmp.Or(x.Reason, "-")})
	}
	note := ""
	if hidden > 0 {
		note = "not watched: " + strconv.Itoa(hidden) + " (--all shows them)\n"
	}
	if len(rows) == 0 && hidden == 0 {
		return "no containers are running\n"
	}
	if len(rows) == 0 {
		return note
	}
	return table(columns, rows) + note
}

// gpus shows how many devices a container holds.
func gpus(held []string) string {
	switch {
	case len(held) == 0:
		return "-"
	case slices.Contains(held, "all"):
		return "all"
	}
	return strconv.Itoa(len(held))
}

// cpuColumn shows the first of CPU and memory knobs that trimtab changed, or else the quota.
func cpuColumn(c state.Container) string {
	for _, k := range []runtime.Knob{runtime.KnobCPUQuota, runtime.KnobCPUWeight, runtime.KnobCpuset, runtime.KnobMemoryLimit} {
		now, original := c.Now[k], c.Original[k]
		if !slices.Contains(c.Changed, k) || now == "" || original == "" {
			continue
		}
		switch text := value(k, now) + "←" + value(k, original); {
		case k == runtime.KnobCPUQuota && c.Loan != nil:
			return text + " lent"
		case k == runtime.KnobCPUQuota:
			return text
		case k == runtime.KnobCPUWeight || k == runtime.KnobCpuset:
			return strings.TrimPrefix(knob(k), "CPU ") + " " + text
		}
		return knob(k) + " " + short(now) + "←" + short(original)
	}
	if quota, ok := c.Now[runtime.KnobCPUQuota]; ok {
		return value(runtime.KnobCPUQuota, quota)
	}
	return "-"
}

// gain shows what was measured: by steps; else by what grows with work, marked; else the CPU
// that is used. In observe mode it is what was predicted, marked.
func gain(c state.Container) string {
	switch w := c.Work; {
	case c.Doubt:
		return signed(c.Gain) + "?"
	case c.HasGain:
		return signed(c.Gain)
	case c.Trial != nil:
		return "trying"
	case w != nil && w.Ratio > 0:
		return "≈" + signed(w.Ratio-1)
	case w != nil && w.CPUs > 0:
		return signed(w.CPUs-1) + " CPU"
	}
	if t := latestWould(c); t != nil && len(c.Changed) == 0 {
		return strings.TrimSpace("would " + predicted(*t))
	}
	return "-"
}

// latestWould is what observe mode would have done last, unless something was
// really tried since.
func latestWould(c state.Container) *state.Trial {
	if len(c.Trials) > 0 && c.Trials[0].Outcome == state.OutcomeWould {
		return &c.Trials[0]
	}
	return nil
}

func predictedGain(t state.Trial) float64 {
	if t.Before > 0 && t.Predicted > 0 {
		return t.Predicted/t.Before - 1
	}
	best := 0.0
	for _, c := range t.Changes {
		best = max(best, c.Gain)
	}
	return best
}

// predicted shows the gain that was predicted; "": none that shows.
func predicted(t state.Trial) string {
	g := predictedGain(t)
	if percent(math.Abs(g)) == percent(0) {
		return ""
	}
	return signed(g)
}

// expected is what a trial was expected to bring. Of a job that works in bursts the mean predicts next to nothing.
func expected(t state.Trial) string {
	if len(t.Changes) > 0 && t.Changes[0].Criterion == policies.CriterionNoHarm {
		return "no harm"
	}
	return cmp.Or(predicted(t), "some gain")
}

// measuredGain is the trial's ratio less one; ok is false if it was not judged.
func measuredGain(t state.Trial) (gain float64, ok bool) {
	switch {
	case t.Ratio > 0:
		return t.Ratio - 1, true
	case t.Before > 0 && t.After > 0:
		return t.After/t.Before - 1, true
	}
	return 0, false
}
