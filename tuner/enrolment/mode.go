package enrolment

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// What enrols a container; a rule's is "config: rule N".
const (
	ByLabel   = "label"
	ByEnable  = "enable"
	ByDefault = "default"
)

// decision is a mode, who decided it, and why it is not tune.
type decision struct {
	mode       policies.Mode
	by, whyNot string
}

// mode asks label, rules and `trimtab enable` in their order, then bounds the answer. Off from anyone is
// absolute: from a label, from a rule, and from the host.
func (s *resolver) mode(c runtime.Container, asked labels, manual *Manual, ceiling policies.Mode) decision {
	byRule := fmt.Sprintf("config: rule %d", s.number)
	switch {
	case ceiling == policies.ModeOff:
		return decision{policies.ModeOff, ByDefault, "host mode: off"}
	case asked.mode == policies.ModeOff:
		return decision{policies.ModeOff, ByLabel, "label says off"}
	case s.rule.Mode == policies.ModeOff:
		return decision{policies.ModeOff, byRule, fmt.Sprintf("config rule %d says off", s.number)}
	}
	d := s.wanted(asked, manual, byRule)
	if c.Kubernetes {
		return decision{policies.ModeObserve, d.by, "kubernetes: observe only"}
	}
	if d.mode != policies.ModeTune {
		return d
	}
	if bound := s.bound(asked, ceiling); bound != "" {
		d.mode, d.whyNot = policies.ModeObserve, bound
	}
	return d
}

// wanted is the mode by the first of them that says anything.
func (s *resolver) wanted(asked labels, manual *Manual, byRule string) decision {
	switch {
	case manual != nil && manual.Mode == policies.ModeTune:
		return decision{policies.ModeTune, ByEnable, ""}
	case manual != nil:
		return decision{policies.ModeObserve, ByEnable, "disabled by hand"}
	case asked.mode == policies.ModeTune:
		return decision{policies.ModeTune, ByLabel, ""}
	case asked.mode == policies.ModeObserve:
		return decision{policies.ModeObserve, ByLabel, "label says observe"}
	case s.rule.Mode == policies.ModeTune:
		return decision{policies.ModeTune, byRule, ""}
	case s.rule.Mode == policies.ModeObserve:
		return decision{policies.ModeObserve, byRule, fmt.Sprintf("config rule %d says observe", s.number)}
	case asked.badMode != "":
		return decision{policies.ModeObserve, ByLabel, "unreadable label " + asked.badMode}
	}
	return decision{policies.ModeObserve, ByDefault, "no label"}
}

// bound says why a container that one of them would tune may only be observed; ""
// if nothing forbids it. A mode label that cannot be read forbids it too: it may
// have been meant as off.
func (s *resolver) bound(asked labels, ceiling policies.Mode) string {
	switch {
	case ceiling != policies.ModeTune:
		return "host mode: " + string(policies.ModeObserve)
	case asked.badMode != "":
		return "unreadable label " + asked.badMode
	case len(s.rule.Allow.Modes) > 0 && !slices.Contains(s.rule.Allow.Modes, policies.ModeTune):
		s.problem("mode tune clamped to observe: config rule %d allows %v", s.number, s.rule.Allow.Modes)
		return fmt.Sprintf("config rule %d does not allow tune", s.number)
	}
	return ""
}
