package render

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/state"
)

// Status tells how the daemon fares.
func Status(s api.Status, clock Clock) string {
	d := s.Daemon
	var out strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&out, "%-12s %s\n", what, fmt.Sprintf(format, args...))
	}
	line("daemon", "%s, process %d, since %s", Clean(d.Version), d.PID, clock.at(d.StartedUnixNs))
	line("mode", "%s", mode(d))
	line("policies", "%s", Clean(strings.Join(d.Policies, ", ")))
	line("containers", "%d running, %d watched, %d may be tuned, %d changed", s.Containers.Running, s.Containers.Watched, s.Containers.Tuned, s.Containers.Changed)
	if s.Containers.Pending > 0 {
		line("pending", "containers that wait for their own values: %d; `trimtab ps` names them", s.Containers.Pending)
	}
	line("node", "%s CPUs, %s of them kept idle when CPU is lent", cpus(s.Node.CPUs), cpus(s.Node.Reserve))
	for _, p := range d.Engines {
		line("engine", "%s", part(p, clock))
	}
	for _, p := range d.Probes {
		line("probe", "%s", part(p, clock))
	}
	for _, r := range d.Receivers {
		line("told", "%s; told %d, failed %d, dropped %d, waiting %d", part(r.Part, clock), r.Sent, r.Failed, r.Dropped, r.Queued)
	}
	line("config", "loaded %s", clock.at(d.ConfigUnixNs))
	if d.ConfigError != "" {
		line("", "the newer one was refused: %s", Clean(strings.ReplaceAll(d.ConfigError, "\n", "; ")))
	}
	line("own CPU", "%s", ownCPU(d))
	line("own memory", "%s, %s of the budget", enrolment.FormatBytes(float64(d.RSSBytes)), percent(d.MemoryShare))
	line("own probes", "hold %s, %s of the budget; the job that pays most pays %s of what it may", enrolment.FormatBytes(float64(d.ProbeMapBytes)), percent(d.MapsShare), percent(d.JobShare))
	if d.ProbeLost > 0 {
		line("", "%d events found no room: verdicts are less sure", d.ProbeLost)
	}
	if d.Virtual {
		line("virtual", "a virtual GPU is in use")
	}
	return out.String()
}

func mode(d state.Daemon) string {
	out := string(d.Mode)
	if d.Paused {
		out += "; paused: values stay as they are until `trimtab resume`"
	}
	if d.Disabled {
		out += "; nothing is written while /etc/trimtab/disabled is there"
	}
	return out
}

func part(p state.Part, clock Clock) string {
	lost := ""
	if p.LostEvents > 0 {
		lost = fmt.Sprintf("; %d events found no room", p.LostEvents)
	}
	if p.OK {
		return Clean(p.Name) + " works, since " + clock.at(p.Since) + lost
	}
	return Clean(p.Name) + " is lost, since " + clock.at(p.Since) + ": " + Clean(p.Lost) + lost
}

// ownCPU is what the daemon used of late, and how much of its budget that is.
func ownCPU(d state.Daemon) string {
	if d.RecentCPUs <= 0 {
		return "not measured yet"
	}
	used := percent(d.RecentCPUs) + " of a CPU in the last 10 s"
	if d.BudgetShare <= 0 { // it has none
		return used
	}
	return used + ", " + percent(d.BudgetShare) + " of the budget"
}
