// Package enrolment settles what trimtab may do with a container: labels ask, an
// operator's `trimtab enable` asks, and the host's config answers. It is pure:
// the same container, rules and record give the same enrolment. The one trap:
// labels are hostile input (law: hostile input), so a value that cannot be read never widens
// what is allowed; where it concerns the mode, it narrows it to observe.
package enrolment

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// Observe says which containers are watched at all.
type Observe string

// Labelled: those named by a label, a rule or `trimtab enable`. GPU: those, and
// every one that holds a GPU. All: all.
const (
	ObserveLabelled Observe = "labelled"
	ObserveGPU      Observe = "gpu"
	ObserveAll      Observe = "all"
)

// Bounds of trimtab.importance, and what a container has that asks for none.
const (
	MinImportance     = 1
	MaxImportance     = 10
	DefaultImportance = 5
)

// Classes of trimtab.class. Best-effort containers may be given a quota or a
// limit that their owner never set (law: nothing imposed).
const (
	ClassGuaranteed = "guaranteed"
	ClassBestEffort = "best-effort"
)

// Rules are the host's word: the ceiling, what is watched, the families that a
// tuned container gets when nobody names any, and the match rules.
type Rules struct {
	Mode    policies.Mode
	Observe Observe
	Knobs   []string
	Loans   policies.LoanMode // the most that may be lent to anybody; "": free
	Match   []Rule
}

// Rule enrols containers that fit all of its patterns; the first that fits wins.
// Empty patterns fit everything.
type Rule struct {
	Image      string            `yaml:"image"`   // glob
	Name       string            `yaml:"name"`    // glob
	Compose    string            `yaml:"compose"` // glob over the compose project
	Label      map[string]string `yaml:"label"`   // label key → glob over its value
	Mode       policies.Mode     `yaml:"mode"`    // "" leaves the mode to labels and defaults; off is absolute
	Knobs      []string          `yaml:"knobs"`
	Team       string            `yaml:"team"`
	Job        string            `yaml:"job"`
	Class      string            `yaml:"class"`
	Importance int               `yaml:"importance"`
	Loans      policies.LoanMode `yaml:"loans"`
	CPU        Range[float64]    `yaml:"cpu"`
	Memory     Range[Bytes]      `yaml:"memory"`
	Allow      Allow             `yaml:"allow"`
}

// Allow clamps what labels and `trimtab enable` ask. Empty lists and zero bounds
// clamp nothing.
type Allow struct {
	Modes      []policies.Mode   `yaml:"modes"`
	Knobs      []string          `yaml:"knobs"`
	CPU        Range[float64]    `yaml:"cpu"`
	Memory     Range[Bytes]      `yaml:"memory"`
	Importance Range[int]        `yaml:"importance"`
	Loans      policies.LoanMode `yaml:"loans"` // the most that may be asked
}

// Range bounds an amount; 0 leaves a side open.
type Range[T int | float64 | Bytes] struct {
	Min T `yaml:"min"`
	Max T `yaml:"max"`
}

// Bounds are those of any amount.
func (r Range[T]) Bounds() policies.Range {
	return policies.Range{Min: float64(r.Min), Max: float64(r.Max)}
}

// Host is what the node has, and what of it the container can reach; zero means unknown
// and clamps nothing.
type Host struct {
	CPUs          float64
	ReserveCPUs   float64
	MemoryBytes   float64
	ReserveMemory float64
	AncestorLimit AncestorLimit
}

// AncestorLimit is the least quota and the least memory limit, bytes, among the control groups above
// the container: whatever it is given beyond, it cannot use. Others in the group share it.
type AncestorLimit struct {
	CPUs        float64
	Group       string // its directory; "": none has one
	Memory      float64
	MemoryGroup string
}

// Settle decides what may be done with a container. Values are the label's, else
// the rule's, else the default; the host's mode, the rule's allow ranges and the
// node bound them all, and every value so clamped is named in Problems. manual
// is the unexpired record of `trimtab enable` or `disable`, or nil.
func Settle(c runtime.Container, rules Rules, manual *Manual, host Host) policies.Enrolment {
	asked := parseLabels(c.Labels)
	rule, number := rules.match(c)
	s := resolver{rule: rule, number: number, problems: asked.problems}
	if c.LabelsDropped > 0 {
		s.problem("%d of its labels are not kept, being too long or too many: no rule matches by them", c.LabelsDropped)
	}
	knobs, from := s.knobs(asked, manual, rules.Knobs)
	e := policies.Enrolment{
		Knobs:      knobs,
		KnobsFrom:  from,
		CPU:        s.clampRange("cpu", overlay(asked.cpu, rule.CPU.Bounds()), rule.Allow.CPU.Bounds(), policies.Node{CPUs: host.CPUs, Reserve: host.ReserveCPUs}.WholeCPUs(), decimal),
		Memory:     s.clampRange("memory", overlay(asked.memory, rule.Memory.Bounds()), rule.Allow.Memory.Bounds(), host.MemoryBytes-host.ReserveMemory, FormatBytes),
		Importance: s.importance(asked.importance),
		Loans:      s.loans(asked.loans, rules.Loans),
		BestEffort: cmp.Or(asked.class, rule.Class) == ClassBestEffort,
		Job:        cmp.Or(asked.job, rule.Job),
		Team:       cmp.Or(asked.team, rule.Team),
	}
	s.below(&e, host)
	m := s.mode(c, asked, manual, rules.Mode)
	e.Mode, e.EnrolledBy, e.WhyNot = m.mode, m.by, m.whyNot
	if e.Mode == policies.ModeTune && len(e.Knobs) == 0 {
		e.Mode, e.WhyNot = policies.ModeObserve, "no knob is allowed"
	}
	e.Problems = capProblems(s.problems)
	return e
}

// Withdrawn says which consent to what stands at trimtab's value is gone; "" if none is. standing has
// the knobs that trimtab changed.
func Withdrawn(e policies.Enrolment, standing runtime.Values) string {
	_, limit := standing[runtime.KnobMemoryLimit]
	if _, swap := standing[runtime.KnobMemorySwap]; swap && !limit {
		return "its memory limit is somebody else's now, and its swap went with that"
	}
	for _, knob := range slices.Sorted(maps.Keys(standing)) {
		switch {
		case e.Mode != policies.ModeTune:
			return "no longer enrolled: " + e.WhyNot
		case !e.Allows(knob):
			return fmt.Sprintf("knob %s is no longer allowed", knob.Family())
		}
	}
	return ""
}

// Watched reports whether probes read the container: never one that is off.
func Watched(c runtime.Container, rules Rules, e policies.Enrolment) bool {
	if e.Mode == policies.ModeOff || rules.Mode == policies.ModeOff {
		return false
	}
	if rules.Observe == ObserveAll || rules.Observe == ObserveGPU && len(c.GPUs) > 0 {
		return true
	}
	return Named(c, rules, e)
}

// Named reports whether a trimtab label, a rule or `trimtab enable` speaks of c.
func Named(c runtime.Container, rules Rules, e policies.Enrolment) bool {
	if e.EnrolledBy == ByEnable || hasLabel(c.Labels) {
		return true
	}
	_, number := rules.match(c)
	return number > 0
}

// match returns the first rule that fits, and its number from 1; 0: none.
func (r Rules) match(c runtime.Container) (Rule, int) {
	for i, rule := range r.Match {
		if rule.fits(c) {
			return rule, i + 1
		}
	}
	return Rule{}, 0
}

// resolver gathers problems while one container is settled.
type resolver struct {
	rule     Rule
	number   int // of the rule, from 1; 0: none
	problems []string
}

func (s *resolver) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// knobs returns the families allowed, in Families' order, and who named them.
func (s *resolver) knobs(asked labels, manual *Manual, byDefault []string) (out []string, from string) {
	want, from := byDefault, "config: knobs"
	switch {
	case manual != nil && len(manual.Knobs) > 0:
		want, from = manual.Knobs, "trimtab enable"
	case asked.hasKnobs:
		want, from = asked.knobs, "label "+labelKnobs
	case len(s.rule.Knobs) > 0:
		want, from = s.rule.Knobs, fmt.Sprintf("config: rule %d", s.number)
	}
	for _, family := range runtime.Families() {
		if !slices.Contains(want, family) {
			continue
		}
		if len(s.rule.Allow.Knobs) > 0 && !slices.Contains(s.rule.Allow.Knobs, family) {
			s.problem("knob %s left out: config rule %d allows %v", family, s.number, s.rule.Allow.Knobs)
			continue
		}
		out = append(out, family)
	}
	return out, from
}

// importance clamps what was asked to 1..10 and to the rule's allow range.
func (s *resolver) importance(asked int) int {
	n := cmp.Or(asked, s.rule.Importance, DefaultImportance)
	a := s.rule.Allow.Importance
	low, high := max(MinImportance, a.Min), min(MaxImportance, cmp.Or(a.Max, MaxImportance))
	out := min(max(n, low), high)
	if out != n && asked != 0 {
		s.problem("importance %d clamped to %d: %d to %d is allowed", n, out, low, high)
	}
	return out
}

// loans is the label's word, else the rule's, within what the rule and the host allow.
func (s *resolver) loans(asked, host policies.LoanMode) policies.LoanMode {
	modes := policies.LoanModes() // the first allows the most
	rank := func(m policies.LoanMode) int { return max(0, slices.Index(modes, m)) }
	most := max(rank(host), rank(s.rule.Allow.Loans))
	n := rank(cmp.Or(asked, s.rule.Loans))
	if n < most && asked != "" {
		s.problem("loans %s clamped to %s, which is the most that is allowed", asked, modes[most])
	}
	return modes[max(n, most)]
}

// clampRange bounds what was asked by the rule's allow range and by what the
// node can give, the node last; a bound that nobody asked for is set to the
// allowed one.
func (s *resolver) clampRange(name string, r, allow policies.Range, node float64, format func(float64) string) policies.Range {
	raise := func(what string, v *float64) {
		if *v > 0 && *v < allow.Min {
			s.problem("%s.%s %s raised to %s: config rule %d allows no less", name, what, format(*v), format(allow.Min), s.number)
			*v = allow.Min
		}
	}
	raise("min", &r.Min)
	raise("max", &r.Max)
	r.Min = max(r.Min, allow.Min)

	ceiling, why := allow.Max, fmt.Sprintf("config rule %d allows no more", s.number)
	if node > 0 && (ceiling > node || ceiling == 0 && max(r.Min, r.Max) > node) {
		ceiling, why = node, "this host has no more to give"
	}
	lower := func(what string, v *float64) {
		if ceiling > 0 && *v > ceiling {
			s.problem("%s.%s %s clamped to %s: %s", name, what, format(*v), format(ceiling), why)
			*v = ceiling
		}
	}
	lower("min", &r.Min)
	lower("max", &r.Max)
	r.Max = cmp.Or(r.Max, ceiling)
	if r.Max > 0 && r.Min > r.Max { // a label's bound against a rule's
		s.problem("%s.min %s is above %[1]s.max: clamped to %[3]s", name, format(r.Min), format(r.Max))
		r.Min = r.Max
	}
	return r
}

// below bounds a container by what limits a group above it.
func (s *resolver) below(e *policies.Enrolment, host Host) {
	above := host.AncestorLimit
	if memory := runtime.KnobMemoryLimit.Family(); above.MemoryGroup != "" && above.Memory < host.MemoryBytes && slices.Contains(e.Knobs, memory) {
		e.Knobs = slices.DeleteFunc(slices.Clone(e.Knobs), func(family string) bool { return family == memory })
		s.problem("memory is not lent: %s, to which it belongs, has a limit of its own, and others in it may need that", shown(above.MemoryGroup))
	}
	e.Group, e.GroupCPUs = above.Group, above.CPUs
	if above.Group == "" || e.CPU.Max > 0 && e.CPU.Max <= above.CPUs {
		return
	}
	e.CPU.Max, e.CPU.Min = above.CPUs, min(e.CPU.Min, above.CPUs)
	s.problem("cpu.max is %s: the quota of %s, to which it belongs", decimal(above.CPUs), shown(above.Group))
}

// overlay takes each bound from the label, else from the rule.
func overlay(label, rule policies.Range) policies.Range {
	return policies.Range{Min: cmp.Or(label.Min, rule.Min), Max: cmp.Or(label.Max, rule.Max)}
}

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
