package enrolment

import (
	"math"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

func modes() []policies.Mode {
	return []policies.Mode{policies.ModeOff, policies.ModeObserve, policies.ModeTune}
}

func rank(m policies.Mode) int { return slices.Index(modes(), m) }

func genRange[T float64 | Bytes](t *rapid.T, name string, top float64) Range[T] {
	a, b := rapid.Float64Range(0, top).Draw(t, name), rapid.Float64Range(0, top).Draw(t, name)
	r := Range[T]{Min: T(min(a, b)), Max: T(max(a, b))}
	if rapid.Bool().Draw(t, name+" open") {
		r.Max = 0
	}
	return r
}

func genFamilies(t *rapid.T, name string) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(runtime.Families()), 0, 5, rapid.ID[string]).Draw(t, name)
}

func loans(t *rapid.T, name string) policies.LoanMode {
	return rapid.SampledFrom(append(policies.LoanModes(), "")).Draw(t, name)
}

func genLabels(t *rapid.T) map[string]string {
	value := rapid.OneOf(rapid.SampledFrom([]string{"off", "observe", "tune", "true", "false", "cpu", "cpu,memory,gpu", "1", "2.5", "64", "-1",
		"4GiB", "512m", "11", "best-effort", "guaranteed", ""}), rapid.String())
	return rapid.MapOfN(rapid.SampledFrom(LabelNames()), value, 0, 11).Draw(t, "labels")
}

// Whatever labels and commands ask, the enrolment is never more than the host allows.
func TestNeverMoreThanTheHostAllows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := Rule{
			Name: "*", Mode: rapid.SampledFrom(append(modes(), "")).Draw(t, "rule mode"), Knobs: genFamilies(t, "rule knobs"),
			Importance: rapid.IntRange(0, 10).Draw(t, "importance"),
			CPU:        genRange[float64](t, "cpu", 64), Memory: genRange[Bytes](t, "memory", 1<<36),
			Allow: Allow{Modes: rapid.SliceOf(rapid.SampledFrom(modes())).Draw(t, "modes"), Knobs: genFamilies(t, "allow knobs"),
				CPU: genRange[float64](t, "allow cpu", 64), Memory: genRange[Bytes](t, "allow memory", 1<<36), Loans: loans(t, "allow loans")},
			Loans: loans(t, "rule loans"),
		}
		rules := Rules{Loans: loans(t, "host loans"), Mode: rapid.SampledFrom(modes()).Draw(t, "host mode"), Observe: ObserveAll, Knobs: genFamilies(t, "knobs"), Match: []Rule{rule}}
		host := Host{CPUs: rapid.Float64Range(1, 64).Draw(t, "cpus"), ReserveCPUs: 0.5, MemoryBytes: 1 << 35, ReserveMemory: 1 << 30}
		var manual *Manual
		if rapid.Bool().Draw(t, "by hand") {
			manual = &Manual{Mode: rapid.SampledFrom(modes()).Draw(t, "manual"), Knobs: genFamilies(t, "manual knobs")}
		}
		c := runtime.Container{Name: "x", Labels: genLabels(t), Kubernetes: rapid.Bool().Draw(t, "kubernetes")}
		e := Settle(c, rules, manual, host)

		if rank(e.Mode) > rank(rules.Mode) {
			t.Fatalf("mode %s above the host's %s", e.Mode, rules.Mode)
		}
		if e.Mode == policies.ModeTune {
			if c.Kubernetes || rule.Mode == policies.ModeOff || strings.ToLower(strings.TrimSpace(c.Labels[labelMode])) == "off" ||
				strings.ToLower(strings.TrimSpace(c.Labels[labelEnable])) == "false" {
				t.Fatalf("tuned against an off, or below kubernetes: %+v", e)
			}
			if len(rule.Allow.Modes) > 0 && !slices.Contains(rule.Allow.Modes, policies.ModeTune) {
				t.Fatal("tuned where the rule does not allow it")
			}
		}
		if (e.Mode == policies.ModeTune) != (e.WhyNot == "") {
			t.Fatalf("mode %s says %q", e.Mode, e.WhyNot)
		}
		for _, k := range e.Knobs {
			if len(rule.Allow.Knobs) > 0 && !slices.Contains(rule.Allow.Knobs, k) {
				t.Fatalf("knob %s is not allowed", k)
			}
		}
		for _, most := range []policies.LoanMode{rules.Loans, rule.Allow.Loans} {
			modes := policies.LoanModes()
			if slices.Index(modes, e.Loans) < slices.Index(modes, most) {
				t.Fatalf("loans %s, and %s is the most that is allowed", e.Loans, most)
			}
		}
		within(t, "cpu", e.CPU, rule.Allow.CPU.Bounds(), host.CPUs-math.Floor(host.ReserveCPUs))
		within(t, "memory", e.Memory, rule.Allow.Memory.Bounds(), host.MemoryBytes-host.ReserveMemory)
		if e.Importance < MinImportance || e.Importance > MaxImportance {
			t.Fatalf("importance %d", e.Importance)
		}
	})
}

func within(t *rapid.T, name string, got, allow policies.Range, node float64) {
	if got.Max > 0 && got.Min > got.Max {
		t.Fatalf("%s: min above max: %+v", name, got)
	}
	if allow.Max > 0 && (got.Max == 0 || got.Max > allow.Max || got.Min > allow.Max) {
		t.Fatalf("%s: %+v is beyond the rule's %+v", name, got, allow)
	}
	if got.Max > node || got.Min > node {
		t.Fatalf("%s: %+v is beyond the node's %v", name, got, node)
	}
	if got.Min < min(allow.Min, node) {
		t.Fatalf("%s: %+v is below the rule's %+v", name, got, allow)
	}
}

// Glob agrees with path.Match where the two have the same meaning.
func TestGlobAgreesWithPathMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab*?]{0,8}`).Draw(t, "pattern")
		s := rapid.StringMatching(`[ab]{0,10}`).Draw(t, "s")
		want, err := path.Match(pattern, s)
		if err != nil {
			t.Fatal(err)
		}
		if got := Glob(pattern, s); got != want {
			t.Fatalf("Glob(%q, %q) = %v", pattern, s, got)
		}
	})
}

// FuzzLabels: no label panics, escapes what is allowed, or is shown raw.
func FuzzLabels(f *testing.F) {
	for _, name := range LabelNames() {
		f.Add(name, "tune")
		f.Add(name, "1.5")
		f.Add(name, "4GiB")
		f.Add(name, "\x1b[31m\xff,,cpu")
	}
	f.Add(LabelRateLog, "\x1b]0;x\a(") // sets a terminal's title
	f.Add(LabelRateLog, "(?\u009b31m")
	f.Fuzz(func(t *testing.T, name, value string) {
		l := parseLabels(map[string]string{name: value, labelMode: "tune"})
		for _, v := range []float64{l.cpu.Min, l.cpu.Max, l.memory.Min, l.memory.Max} {
			if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("%s=%q reads as %v", name, value, v)
			}
		}
		if len(l.team) > maxWordBytes || len(l.job) > maxWordBytes {
			t.Errorf("%s=%q: too long", name, value)
		}
		for _, p := range l.problems {
			if !utf8.ValidString(p) || strings.ContainsFunc(p, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("shown raw: %q", p)
			}
		}
	})
}
