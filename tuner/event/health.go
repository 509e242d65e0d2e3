package event

import (
	"fmt"

	"github.com/trimtab/trimtab/tuner/state"
)

// Health follows what the daemon says of itself, and tells of changes. The zero value is ready.
type Health struct {
	ok  map[string]bool   // engines and probes that were well once
	ill map[string]string // what was told to be unwell, and in what words
}

// lostForNs is for how long an engine or a probe is away before that is told: one that restarts
// is back sooner.
const lostForNs = int64(15e9)

// Next returns what changed. stuck is why the agent does not do its work; nil: it does. What was
// never there is not told: `trimtab doctor` says it.
func (h *Health) Next(s *state.Snapshot, stuck error, host string, nowNs int64) (out []Event) {
	if h.ok == nil {
		h.ok, h.ill = map[string]bool{}, map[string]string{}
	}
	const config = "config" // refused again for something else is another event
	tell := func(what, why string) {
		was, ill := h.ill[what]
		switch {
		case why != "" && (!ill || what == config && why != was): // of the others, words go on counting seconds
			h.ill[what] = why
			out = append(out, Event{Kind: Unwell, Host: host, UnixNs: nowNs, Text: Clean(what+": "+why, maxText)})
		case why == "" && ill:
			delete(h.ill, what)
			out = append(out, Event{Kind: Well, Host: host, UnixNs: nowNs, Text: Clean(fmt.Sprintf("%s is well again; it was: %s", what, was), maxText)})
		}
	}
	why := ""
	if stuck != nil {
		why = stuck.Error()
	}
	tell("trimtab", why)
	tell(config, s.Daemon.ConfigError)
	for kind, parts := range [][]state.Part{s.Daemon.Engines, s.Daemon.Probes} {
		for _, p := range parts {
			what := []string{"engine ", "probe "}[kind] + p.Name
			switch {
			case p.OK:
				h.ok[what] = true
				tell(what, "")
			case h.ok[what] && nowNs-p.Since >= lostForNs:
				tell(what, p.Lost)
			}
		}
	}
	return out
}
