package enrolment

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// tuneHost is a host without rules that lets labels tune.
func tuneHost(match ...Rule) Rules {
	return Rules{Mode: policies.ModeTune, Observe: ObserveGPU, Knobs: []string{"cpu"}, Match: match}
}

func container(labels ...string) runtime.Container {
	c := runtime.Container{Name: "train", Image: "registry/vision/train:1", Labels: map[string]string{}}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		c.Labels[k] = v
	}
	return c
}

func TestMode(t *testing.T) {
	enabled := &Manual{Mode: policies.ModeTune}
	disabled := &Manual{Mode: policies.ModeObserve}
	rule := func(m policies.Mode) Rules { return tuneHost(Rule{Name: "train", Mode: m}) }
	host := func(m policies.Mode) Rules { r := tuneHost(); r.Mode = m; return r }
	kubernetes := func(c runtime.Container) runtime.Container { c.Kubernetes = true; return c }
	for name, tt := range map[string]struct {
		c      runtime.Container
		rules  Rules
		manual *Manual
		mode   policies.Mode
		by     string
		whyNot string
	}{
		"nobody asks":                  {container(), tuneHost(), nil, "observe", "default", "no label"},
		"label tune":                   {container("trimtab.mode=tune"), tuneHost(), nil, "tune", "label", ""},
		"label tune, other case":       {container("trimtab.mode= Tune "), tuneHost(), nil, "tune", "label", ""},
		"label observe":                {container("trimtab.mode=observe"), tuneHost(), nil, "observe", "label", "label says observe"},
		"label off":                    {container("trimtab.mode=off"), tuneHost(), nil, "off", "label", "label says off"},
		"enable true":                  {container("trimtab.enable=true"), tuneHost(), nil, "tune", "label", ""},
		"enable false":                 {container("trimtab.enable=false"), tuneHost(), nil, "off", "label", "label says off"},
		"mode is over enable":          {container("trimtab.enable=true", "trimtab.mode=observe"), tuneHost(), nil, "observe", "label", "label says observe"},
		"off is absolute in either":    {container("trimtab.enable=false", "trimtab.mode=tune"), tuneHost(), nil, "off", "label", "label says off"},
		"off is absolute over enable":  {container("trimtab.mode=off"), rule("tune"), enabled, "off", "label", "label says off"},
		"unreadable mode narrows":      {container("trimtab.mode=offf"), rule("tune"), enabled, "observe", "enable", "unreadable label trimtab.mode"},
		"unreadable enable narrows":    {container("trimtab.enable=no"), rule("tune"), nil, "observe", "config: rule 1", "unreadable label trimtab.enable"},
		"unreadable mode, good enable": {container("trimtab.enable=true", "trimtab.mode=x"), tuneHost(), nil, "observe", "label", "unreadable label trimtab.mode"},
		"rule tune":                    {container(), rule("tune"), nil, "tune", "config: rule 1", ""},
		"rule off is absolute":         {container("trimtab.mode=tune"), rule("off"), enabled, "off", "config: rule 1", "config rule 1 says off"},
		"label over rule":              {container("trimtab.mode=tune"), rule("observe"), nil, "tune", "label", ""},
		"rule observe":                 {container(), rule("observe"), nil, "observe", "config: rule 1", "config rule 1 says observe"},
		"enabled by hand":              {container(), tuneHost(), enabled, "tune", "enable", ""},
		"enabled over label observe":   {container("trimtab.mode=observe"), tuneHost(), enabled, "tune", "enable", ""},
		"disabled by hand":             {container("trimtab.mode=tune"), tuneHost(), disabled, "observe", "enable", "disabled by hand"},
		"host observes":                {container("trimtab.mode=tune"), host("observe"), enabled, "observe", "enable", "host mode: observe"},
		"host off":                     {container("trimtab.mode=tune"), host("off"), enabled, "off", "default", "host mode: off"},
		"kubernetes":                   {kubernetes(container("trimtab.mode=tune")), tuneHost(), enabled, "observe", "enable", "kubernetes: observe only"},
		"kubernetes, off":              {kubernetes(container("trimtab.mode=off")), tuneHost(), nil, "off", "label", "label says off"},
		"rule forbids tune": {container("trimtab.mode=tune"), tuneHost(Rule{Name: "*", Allow: Allow{Modes: []policies.Mode{"off", "observe"}}}), enabled,
			"observe", "enable", "config rule 1 does not allow tune"},
		"no knob left": {container("trimtab.mode=tune", "trimtab.knobs=memory"), tuneHost(Rule{Name: "*", Allow: Allow{Knobs: []string{"cpu"}}}), nil,
			"observe", "label", "no knob is allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			e := Settle(tt.c, tt.rules, tt.manual, Host{})
			got := []string{string(e.Mode), e.EnrolledBy, e.WhyNot}
			if diff := cmp.Diff([]string{string(tt.mode), tt.by, tt.whyNot}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhoNamedTheKnobs(t *testing.T) {
	rule := Rule{Name: "train", Knobs: []string{"gpu"}}
	for want, tt := range map[string]struct {
		labels []string
		rules  Rules
		manual *Manual
	}{
		"config: knobs":       {nil, tuneHost(), nil},
		"config: rule 1":      {nil, tuneHost(rule), nil},
		"label trimtab.knobs": {[]string{"trimtab.knobs=memory"}, tuneHost(rule), nil},
		"trimtab enable":      {[]string{"trimtab.knobs=memory"}, tuneHost(rule), &Manual{Mode: policies.ModeTune, Knobs: []string{"cpu"}}},
	} {
		if got := Settle(container(tt.labels...), tt.rules, tt.manual, Host{}).KnobsFrom; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func lending(most policies.LoanMode, match ...Rule) Rules {
	r := tuneHost(match...)
	r.Loans = most
	return r
}

func TestValues(t *testing.T) {
	rule := Rule{Name: "train", Knobs: []string{"cpu", "memory"}, Team: "rules", Job: "r", Class: "best-effort", Importance: 7,
		CPU: Range[float64]{Min: 1, Max: 4}, Memory: Range[Bytes]{Max: 8 << 30}}
	clamping := rule
	clamping.Allow = Allow{Knobs: []string{"cpu", "gpu"}, CPU: Range[float64]{Min: 0.5, Max: 3}, Memory: Range[Bytes]{Max: 2 << 30},
		Importance: Range[int]{Max: 6}}
	host := Host{CPUs: 8, ReserveCPUs: 0.8}
	base := policies.Enrolment{Mode: "observe", EnrolledBy: "default", WhyNot: "no label", Knobs: []string{"cpu"}, Importance: 5, Loans: policies.LoansFree}
	with := func(edit func(*policies.Enrolment)) policies.Enrolment { e := base; edit(&e); return e }
	for name, tt := range map[string]struct {
		c      runtime.Container
		rules  Rules
		manual *Manual
		want   policies.Enrolment
	}{
		"defaults": {container(), tuneHost(), nil, base},
		"rule": {container(), tuneHost(rule), nil, with(func(e *policies.Enrolment) {
			e.Knobs, e.Team, e.Job, e.BestEffort, e.Importance = []string{"cpu", "memory"}, "rules", "r", true, 7
			e.CPU, e.Memory = rule.CPU.Bounds(), rule.Memory.Bounds()
		})},
		"labels over the rule": {container("trimtab.knobs=gpu, cpu", "trimtab.team=labels", "trimtab.job=l/1", "trimtab.class=guaranteed",
			"trimtab.importance=2", "trimtab.cpu.min=0.5", "trimtab.cpu.max=6", "trimtab.memory.min=1g"), tuneHost(rule), nil,
			with(func(e *policies.Enrolment) {
				e.Knobs, e.Team, e.Job, e.Importance = []string{"cpu", "gpu"}, "labels", "l/1", 2
				e.CPU, e.Memory = policies.Range{Min: 0.5, Max: 6}, policies.Range{Min: 1 << 30, Max: 8 << 30}
			})},
		"clamped by the rule": {container("trimtab.knobs=cpu,memory", "trimtab.importance=9", "trimtab.cpu.min=0.1", "trimtab.cpu.max=6",
			"trimtab.memory.max=4GiB"), tuneHost(clamping), nil, with(func(e *policies.Enrolment) {
			e.Team, e.Job, e.BestEffort, e.Importance = "rules", "r", true, 6
			e.CPU, e.Memory = policies.Range{Min: 0.5, Max: 3}, policies.Range{Max: 2 << 30}
			e.Problems = []string{
				"knob memory left out: config rule 1 allows [cpu gpu]",
				"cpu.min 0.1 raised to 0.5: config rule 1 allows no less",
				"cpu.max 6 clamped to 3: config rule 1 allows no more",
				"memory.max 4GiB clamped to 2GiB: config rule 1 allows no more",
				"importance 9 clamped to 6: 1 to 6 is allowed",
			}
		})},
		"loans by label":                     {container("trimtab.loans=proven"), tuneHost(), nil, with(func(e *policies.Enrolment) { e.Loans = policies.LoansProven })},
		"loans by a rule, within the host's": {container(), lending(policies.LoansProven, Rule{Name: "train", Loans: policies.LoansFree}), nil, with(func(e *policies.Enrolment) { e.Loans = policies.LoansProven })},
		"loans beyond what the host allows": {container("trimtab.loans=free"), lending(policies.LoansOff), nil, with(func(e *policies.Enrolment) {
			e.Loans, e.Problems = policies.LoansOff, []string{"loans free clamped to off, which is the most that is allowed"}
		})},
		"loans beyond what the rule allows": {container("trimtab.loans=free"), tuneHost(Rule{Name: "train", Allow: Allow{Loans: policies.LoansProven}}), nil, with(func(e *policies.Enrolment) {
			e.Loans, e.Problems = policies.LoansProven, []string{"loans free clamped to proven, which is the most that is allowed"}
		})},
		"loans that cannot be read": {container("trimtab.loans=always"), lending(policies.LoansProven), nil, with(func(e *policies.Enrolment) {
			e.Loans, e.Problems = policies.LoansProven, []string{"label trimtab.loans=always: allowed are free, proven, off"}
		})},
		"clamped by the node": {container("trimtab.cpu.max=64", "trimtab.cpu.min=9"), tuneHost(), nil, with(func(e *policies.Enrolment) {
			e.CPU = policies.Range{Min: 8, Max: 8}
			e.Problems = []string{"cpu.min 9 clamped to 8: this host has no more to give", "cpu.max 64 clamped to 8: this host has no more to give"}
		})},
		"enable names knobs": {container("trimtab.knobs=memory"), tuneHost(), &Manual{Mode: policies.ModeTune, Knobs: []string{"cpuset", "cpu"}},
			with(func(e *policies.Enrolment) {
				e.Mode, e.EnrolledBy, e.WhyNot, e.Knobs = "tune", "enable", "", []string{"cpu", "cpuset"}
			})},
		"malformed labels disturb nothing else": {container("trimtab.mode=tune", "trimtab.team=a b", "trimtab.job="+strings.Repeat("j", 64),
			"trimtab.cpu.min=NaN", "trimtab.cpu.max=-2", "trimtab.memory.max=1e9", "trimtab.importance=high", "trimtab.class=gold",
			"trimtab.knobs=cpu,disk", "trimtab.cpus=3"), tuneHost(), nil, with(func(e *policies.Enrolment) {
			e.Mode, e.EnrolledBy, e.WhyNot = "tune", "label", ""
			e.Problems = []string{
				"label trimtab.class=gold: allowed are guaranteed, best-effort",
				"label trimtab.cpu.max=-2: allowed are numbers of CPUs above 0, such as 0.5 or 4",
				"label trimtab.cpu.min=NaN: allowed are numbers of CPUs above 0, such as 0.5 or 4",
				"label trimtab.cpus=3: unknown label; known are " + strings.Join(LabelNames(), ", "),
				"label trimtab.importance=high: allowed are whole numbers from 1 to 10",
				"label trimtab.job=" + strings.Repeat("j", 48) + "…: allowed are 1 to 63 letters, digits and any of . _ / -",
				"label trimtab.knobs=cpu,disk: no such knob: disk; allowed are cpu, cpuset, memory, gpu",
				"label trimtab.memory.max=1e9: allowed are amounts of memory above 0, such as 512MiB or 8GiB",
				`label trimtab.team="a b": allowed are 1 to 63 letters, digits and any of . _ / -`,
			}
		})},
		"a family of the version before": {container("trimtab.knobs=cpu,io"), tuneHost(), nil, base},
		"inverted bounds": {container("trimtab.cpu.min=3", "trimtab.cpu.max=2"), tuneHost(), nil, with(func(e *policies.Enrolment) {
			e.Problems = []string{"label trimtab.cpu.min is above trimtab.cpu.max: both ignored"}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Settle(tt.c, tt.rules, tt.manual, host), cmpopts.IgnoreFields(policies.Enrolment{}, "KnobsFrom")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestQuotaAbove: whatever is asked, no more CPUs than the control group above has, and
// that is said; where it bounds nothing, nothing is.
func TestQuotaAbove(t *testing.T) {
	host := Host{CPUs: 8, AncestorLimit: AncestorLimit{CPUs: 2.5, Group: "/sys/fs/cgroup/team"}}
	says := []string{"cpu.max is 2.5: the quota of /sys/fs/cgroup/team, to which it belongs"}
	for name, tt := range map[string]struct {
		labels []string
		want   policies.Range
		says   []string
	}{
		"nothing asked": {nil, policies.Range{Max: 2.5}, says},
		"more asked":    {[]string{"trimtab.cpu.min=3", "trimtab.cpu.max=4"}, policies.Range{Min: 2.5, Max: 2.5}, says},
		"less asked":    {[]string{"trimtab.cpu.max=2"}, policies.Range{Max: 2}, nil},
	} {
		e := Settle(container(tt.labels...), tuneHost(), nil, host)
		if e.CPU != tt.want || !slices.Equal(e.Problems, tt.says) {
			t.Errorf("%s: %+v, %q", name, e.CPU, e.Problems)
		}
	}
}

// TestMemoryAbove: below a group with a memory limit of its own none is lent.
func TestMemoryAbove(t *testing.T) {
	rules := tuneHost()
	rules.Knobs = []string{"cpu", "memory"}
	for bytes, want := range map[float64][]string{4 << 30: {"cpu"}, 64 << 30: {"cpu", "memory"}} {
		e := Settle(container(), rules, nil, Host{CPUs: 8, MemoryBytes: 32 << 30, AncestorLimit: AncestorLimit{Memory: bytes, MemoryGroup: "/sys/fs/cgroup/team"}})
		if !slices.Equal(e.Knobs, want) || (len(want) == 1) != (len(e.Problems) == 1) {
			t.Errorf("%g bytes above: %q, %q", bytes, e.Knobs, e.Problems)
		}
	}
}

func TestProblemsAreCapped(t *testing.T) {
	c := container()
	for i := range 10_000 {
		c.Labels["trimtab.x"+strings.Repeat("y", i%200)+string(rune('a'+i%26))+strings.Repeat("z", i/200)] = strings.Repeat("\x1b[2J", 1000)
	}
	e := Settle(c, tuneHost(), nil, Host{})
	if len(e.Problems) != maxProblems+1 {
		t.Fatalf("%d problems", len(e.Problems))
	}
	for _, p := range e.Problems {
		if strings.Contains(p, "\x1b") || len(p) > 1000 {
			t.Errorf("a hostile text is shown as it came: %q", p)
		}
	}
}

func TestDroppedLabelsAreTold(t *testing.T) {
	c := container("trimtab.mode=tune")
	if e := Settle(c, tuneHost(), nil, Host{}); len(e.Problems) != 0 {
		t.Errorf("problems %q", e.Problems)
	}
	c.LabelsDropped = 3
	if e := Settle(c, tuneHost(), nil, Host{}); len(e.Problems) != 1 || !strings.Contains(e.Problems[0], "3 of its labels are not kept") || e.Mode != policies.ModeTune {
		t.Errorf("%q, problems %q", e.Mode, e.Problems)
	}
}

func TestFirstRuleWins(t *testing.T) {
	rules := tuneHost(
		Rule{Image: "*/vision/*", Name: "other", Team: "one"},
		Rule{Compose: "lab-?", Team: "two"},
		Rule{Label: map[string]string{"tier": "prod*"}, Team: "three"},
		Rule{Image: "registry/*", Team: "four"},
		Rule{Name: "train", Team: "five"},
	)
	for want, c := range map[string]runtime.Container{
		"two":   container("com.docker.compose.project=lab-1"),
		"three": container("com.docker.compose.project=lab-12", "tier=production"),
		"four":  container("tier=dev"),
	} {
		if got := Settle(c, rules, nil, Host{}).Team; got != want {
			t.Errorf("team %q, want %q", got, want)
		}
	}
}

func TestWatched(t *testing.T) {
	gpu := container()
	gpu.GPUs = []string{"0"}
	off := gpu
	off.Labels = map[string]string{"trimtab.mode": "off"}
	named := container("trimtab.team=a")
	ruled := container()
	ruled.Name = "ruled"
	for _, tt := range []struct {
		name   string
		c      runtime.Container
		manual *Manual
		want   map[Observe]bool
	}{
		{"plain", container("other=x"), nil, map[Observe]bool{ObserveLabelled: false, ObserveGPU: false, ObserveAll: true}},
		{"gpu", gpu, nil, map[Observe]bool{ObserveLabelled: false, ObserveGPU: true, ObserveAll: true}},
		{"label", named, nil, map[Observe]bool{ObserveLabelled: true, ObserveGPU: true, ObserveAll: true}},
		{"rule", ruled, nil, map[Observe]bool{ObserveLabelled: true, ObserveGPU: true, ObserveAll: true}},
		{"enabled", container(), &Manual{Mode: policies.ModeTune}, map[Observe]bool{ObserveLabelled: true, ObserveGPU: true, ObserveAll: true}},
		{"off", off, nil, map[Observe]bool{ObserveLabelled: false, ObserveGPU: false, ObserveAll: false}},
	} {
		for observe, want := range tt.want {
			rules := tuneHost(Rule{Name: "ruled"})
			rules.Observe = observe
			if got := Watched(tt.c, rules, Settle(tt.c, rules, tt.manual, Host{})); got != want {
				t.Errorf("%s, observe %s: watched %v", tt.name, observe, got)
			}
		}
	}
}

func TestExpressionForTheLog(t *testing.T) {
	for _, tt := range []struct {
		raw string
		bad bool
	}{
		{`step (\d+)`, false}, {`(?P<step>\d+)/\d+`, false}, {`step (`, true}, {`(?=x)`, true}, {strings.Repeat("a", 513), true},
	} {
		got := parseLabels(map[string]string{LabelRateLog: tt.raw}).problems
		if (len(got) > 0) != tt.bad {
			t.Errorf("%.20q: %v", tt.raw, got)
		}
		if tt.bad && !strings.Contains(got[0], "allowed") {
			t.Errorf("not said what is allowed: %s", got[0])
		}
	}
}

// TestSwapGoesBackWithItsLimit: v1 counts both together; of a limit that somebody else set trimtab's
// swap is no part.
func TestSwapGoesBackWithItsLimit(t *testing.T) {
	e := policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"memory"}}
	both := runtime.Values{runtime.KnobMemoryLimit: "1", runtime.KnobMemorySwap: "2"}
	if why := Withdrawn(e, both); why != "" {
		t.Error(why)
	}
	for _, v := range []struct {
		swap, limit runtime.Value
		want        bool
	}{{"1", "2", true}, {"2", "1", false}, {"1", "max", true}, {"max", "1", false}} { // an owner's swap below a limit that stands cannot go back
		if v.swap.Below(v.limit) != v.want {
			t.Errorf("%+v", v)
		}
	}
	delete(both, runtime.KnobMemoryLimit)
	if Withdrawn(e, both) == "" {
		t.Error("the swap stands alone")
	}
}
