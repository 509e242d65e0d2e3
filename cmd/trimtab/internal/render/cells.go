package render

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/state"
)

// Cells are a container as tables show it: each is clean and in one line. Team and Reason
// may be empty; the others then show "-".
type Cells struct {
	Name, Team, GPUs, Mode, Rate, Stalled, Cause, CPU, Speedup, Reason string
}

// ASCII makes a text one of characters that each take one column.
func ASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// CellsOf shows a container.
func CellsOf(c state.Container) Cells {
	stalled := "-"
	if c.Breakdown.WallNs > 0 {
		stalled = percent(c.Breakdown.Stalled())
	}
	mode := string(c.Enrolment.Mode)
	if !c.Watched && c.Enrolment.Mode == policies.ModeObserve {
		mode = "-" // nothing is read of it, so nothing is observed
	}
	whyNot := c.WhyNot
	if c.LastRuns != nil && c.LastRuns.Slower > 0 {
		whyNot = c.LastRuns.SlowerWhy
	}
	if c.Pending != "" {
		whyNot = "restore pending: " + c.Pending
	}
	return Cells{Name: name(c.Name), Team: name(c.Enrolment.Team), GPUs: gpus(c.GPUs), Mode: Clean(mode), Rate: shownRate(c), Stalled: stalled,
		Cause: causeWord(c.Verdict), CPU: cpuColumn(c), Speedup: gain(c), Reason: Clean(whyNot)}
}

// Standing says in a word where a container stands with trimtab; what an operator should
// look at comes first.
func Standing(c state.Container) string {
	switch {
	case c.Pending != "":
		return "pending"
	case c.GPULost != "":
		return "gpu lost"
	case c.Held:
		return "held"
	case c.Trial != nil:
		return "trial"
	case c.Tuning != "":
		return Clean(c.Tuning)
	case !c.Watched:
		return "-"
	}
	return Clean(string(c.Enrolment.Mode))
}

// Loan shows the CPUs that are lent, and "=" once that is what the container can use; "-": none.
func Loan(c state.Container) string {
	switch {
	case c.Loan == nil:
		return "-"
	case c.Loan.Enough():
		return "+" + cpus(c.Loan.CPUs) + " ="
	}
	return "+" + cpus(c.Loan.CPUs)
}

// LatestTrial shows the open trial, or else how the latest ended: "kept +61 %"; "-": none.
func LatestTrial(c state.Container) string {
	t := c.Trial
	if t == nil && len(c.Trials) > 0 {
		t = &c.Trials[0]
	}
	if t == nil {
		return "-"
	}
	words := map[state.Outcome]string{state.OutcomeOpen: "open", state.OutcomeRolledBack: "reverted", state.OutcomeInconclusive: "unclear",
		state.OutcomeUnproven: "unproven", state.OutcomeAborted: "void"}
	word := cmp.Or(words[t.Outcome], cmp.Or(Clean(string(t.Outcome)), "open"))
	if g, ok := measuredGain(*t); ok {
		return word + " " + gained(g, t.Unit)
	}
	if g := predicted(*t); g != "" && t.Outcome != state.OutcomeAborted {
		return word + " " + g + "?"
	}
	return word
}

// Limits shows each knob that stands, and its original where trimtab changed it.
func Limits(c state.Container) string {
	return each(c.Now.Sorted(), func(k runtime.Knob) string {
		text := knob(k) + " " + value(k, c.Now[k])
		if original := c.Original[k]; original != "" && slices.Contains(c.Changed, k) {
			text += "←" + value(k, original)
		}
		return text
	})
}

// Quota shows the CPU quota that stands, in CPUs; "-" where there is none.
func Quota(c state.Container) string {
	if n, limited := c.Now[runtime.KnobCPUQuota].CPUs(); limited {
		return cpus(n)
	}
	return "-"
}

// CauseWords says in plain words what bounds a job, and how sure that is; "" without a verdict.
func CauseWords(v policies.Verdict) string {
	if v.Class == "" {
		return ""
	}
	return causeWords(v) + " (" + classAndCause(v) + ", confidence " + percent(v.Confidence) + ")"
}

// DeviceCells are a GPU or a slice as tables show it. What the driver does not tell is "-".
type DeviceCells struct {
	Device, Name, Duty, SM, Memory, Power, Temp, Holders string
}

// DeviceCellsOf shows a device.
func DeviceCellsOf(d state.Device) DeviceCells {
	share := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return percent(*v)
	}
	out := DeviceCells{Device: Clean(d.Label()), Name: Clean(deviceName(d)), Duty: share(d.Duty), SM: share(d.SMActive), Memory: "-", Power: "-", Temp: "-",
		Holders: holders(d)}
	if d.MemTotal > 0 {
		out.Memory = enrolment.FormatBytes(float64(d.MemUsed)) + "/" + enrolment.FormatBytes(float64(d.MemTotal))
	}
	if d.PowerW != nil {
		out.Power = number(*d.PowerW) + " W"
	}
	if d.TempC != nil {
		out.Temp = strconv.Itoa(int(*d.TempC)) + " °C"
	}
	return out
}

// holders names who holds a device, and what of it is idle.
func holders(d state.Device) string {
	if len(d.Holders) == 0 {
		return free(d)
	}
	text := each(d.Holders, func(h state.Holder) string {
		held := holderName(h) + " " + enrolment.FormatBytes(float64(h.MemBytes))
		if h.Idle {
			held += " idle " + Span(h.QuietSeconds)
		}
		return held
	})
	if d.Lost != "" {
		return free(d) + "; held by " + text
	}
	return text
}

// Host says in one line what the host has, uses and runs.
func Host(s api.Status) string {
	c := s.Containers
	text := fmt.Sprintf("%s CPUs, %s idle; %d running, %d watched, %d tuned, %d changed", cpus(s.Node.CPUs), cpus(s.Node.Idle), c.Running, c.Watched, c.Tuned, c.Changed)
	if c.Pending > 0 {
		text += fmt.Sprintf(", %d pending", c.Pending)
	}
	return text
}

// Daemon says in one line which daemon it is, and what holds it back.
func Daemon(d state.Daemon) string {
	text := "daemon " + Clean(d.Version) + ", mode " + Clean(string(d.Mode))
	switch {
	case d.Disabled:
		text += ", disabled"
	case d.Paused:
		text += ", paused"
	}
	return text
}

// Lost names the daemon's parts that do not work, each with what is lost; "": all work.
func Lost(d state.Daemon) string {
	var out []string
	for _, p := range slices.Concat(d.Engines, d.Probes) {
		if !p.OK {
			out = append(out, Clean(p.Name)+" is lost: "+Clean(p.Lost))
		}
	}
	if d.ConfigError != "" {
		out = append(out, "the newer config was refused")
	}
	return strings.Join(out, "; ")
}
