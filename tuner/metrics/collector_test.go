package metrics

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

var update = flag.Bool("update", false, "rewrite golden files")

// busy is a snapshot in which every metric has something to show.
func busy() *state.Snapshot {
	quota, memory := runtime.QuotaFromCPUs(1.5, 100_000), runtime.IntValue(2<<30)
	now := runtime.Values{runtime.KnobCPUQuota: quota, runtime.KnobCPUWeight: "1024", runtime.KnobMemoryLimit: memory,
		runtime.KnobCpuset: "0-3,8", runtime.KnobMemorySwap: "max"}
	original := now.Clone()
	original[runtime.KnobCPUQuota] = runtime.QuotaFromCPUs(0.4, 100_000)
	c := state.Container{
		Key: "docker-0123456789abcdef-01234567-42", Engine: "docker", Name: "trainer", Image: "registry.example.com/resnet:1", State: runtime.StateRunning,
		GPUs: []string{"all"}, Watched: true, Enrolment: policies.Enrolment{Mode: policies.ModeTune, Team: "vision"},
		Rate:     policies.Rate{PerSecond: 24.5, Source: "hand-offs"},
		Verdict:  policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseThrottled, Severity: 0.4, Confidence: 0.9},
		Similar:  &state.Similar{Similar: policies.Similar{Name: "before", Jobs: 2, Distance: 0.05, Confidence: 0.8}},
		LastRuns: &profiles.Shown{Runs: 8, PerSecond: 28.8, Low: 28, High: 29.6, Slower: 0.15},
		Devices:  []state.DeviceSpeed{{Model: "H100", PerSecond: 9, Ratio: 1.5}},
		Knee:     1.5, Paging: policies.Paging{Base: 0.02, Limit: 680 << 20, Set: 680 << 20, Enough: true}, UsedCPUs: 1.25, Windows: 17, Now: now, Original: original,
		Changed: []runtime.Knob{runtime.KnobCPUQuota}, Yielded: []runtime.Knob{runtime.KnobMemoryLimit},
		Gain: 0.61, HasGain: true, Loan: &state.Loan{CPUs: 1.4, Own: 0.4}, Tuning: "settled", Work: &state.Work{Ratio: 3.12}, Gate: "fixed", Trial: &state.Trial{}, Preflight: "no green preflight", Pending: "memory.limit", Held: true,
	}
	for p := range policies.NumParts {
		c.PartNs[p] = int64(p+1) * 1_500_000_000
	}
	return &state.Snapshot{
		UnixNs: 1_750_000_000_000_000_000,
		Daemon: state.Daemon{
			Version: "v0.1.0", Mode: policies.ModeTune, Policies: []string{"knee"}, CPUSeconds: 12.5, RSSBytes: 40 << 20,
			Engines: []state.Part{{Name: "docker", OK: true}}, Probes: []state.Part{{Name: "kernel", OK: true, LostEvents: 3}, {Name: "cgroup"}},
			Receivers:    []state.Receiver{{Part: state.Part{Name: "webhook", OK: true}, Sent: 7, Failed: 1, Dropped: 2, Queued: 3}, {Part: state.Part{Name: "otlp"}}},
			ProbeSeconds: 0.25, ProbeRuns: 1000, ProbeMapBytes: 1 << 20, ProbeLost: 3, BudgetShare: 0.2, ConfigUnixNs: 1_740_000_000_000_000_000,
		},
		Node:       policies.Node{CPUs: 16, Reserve: 1.6, OtherCPUs: 2},
		Containers: []state.Container{c, {Key: "docker-b", Name: "web", Enrolment: policies.Enrolment{Mode: policies.ModeObserve}}},
		Devices:    gpus(), Virtual: true,
		Totals: state.Totals{
			TeamGPUHeld: []state.Count{{Team: "vision", Value: 500}, {Value: 400}}, TeamGPUIdle: []state.Count{{Team: "vision"}, {Value: 370}},
			Plans:      []state.Count{{Policy: "knee", Result: "applied", Value: 2}},
			Changes:    []state.Count{{Policy: "knee", Knob: runtime.KnobCPUQuota, Result: "applied", Value: 2}},
			Rejections: []state.Count{{Result: "idle", Value: 3}}, LentSeconds: 42,
			Trials:    []state.Count{{Policy: "knee", Result: "kept", Value: 1}, {Policy: "knee", Result: "rolled_back", Value: 1}},
			Restores:  []state.Count{{Result: "restored", Value: 1}},
			TeamParts: []state.Count{{Team: "vision", Part: "input_throttled", Value: 7.5}},
			TeamUse: []state.TeamUse{{Team: "vision", Resource: "gpu", Cause: "compute", Held: 90}, {Team: "vision", Resource: "cpu", Cause: "input_throttled", Held: 30, Actionable: 20, Proven: 10, Saved: 5, Tried: 4, Lost: 1},
				{Resource: "gpu", Cause: "idle", Held: 370}},
			TeamLent: []state.Count{{Team: "vision", Value: 12}}, TeamGiven: []state.Count{{Team: "vision", Value: 3}}, ObservedSeconds: 600,
			TeamVerdicts: []state.Count{{Team: "vision", Class: policies.ClassInput, Cause: policies.CauseThrottled, Value: 12}},
			ApplySeconds: state.Histogram{Bounds: []float64{0.01, 0.1, 1}, Counts: []uint64{1, 2, 2}, Sum: 0.06, Count: 2}, ForeignWrites: 1, GPUAccessLost: 1, GPURepairs: []state.Count{{Result: "repaired", Value: 1}},
		},
	}
}

func registryOf(t *testing.T, latest func() *state.Snapshot) *prometheus.Registry {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(NewCollector(latest)); err != nil {
		t.Fatal(err)
	}
	return reg
}

// text renders a registry as a scrape would show it.
func text(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return strings.ReplaceAll(b.String(), goruntime.Version(), "GOVERSION")
}

func TestGolden(t *testing.T) {
	got := text(t, registryOf(t, busy))
	const golden = "testdata/metrics.prom"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("run go test ./tuner/metrics -update if this is meant (-want +got):\n%s", diff)
	}
}

func TestPromtoolFindsNothing(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("needs promtool: apt-get install prometheus")
	}
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(text(t, registryOf(t, busy)))
	if out, err := cmd.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

func TestPromlintFindsNothing(t *testing.T) {
	problems, err := testutil.GatherAndLint(registryOf(t, busy))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestEveryFamilyIsEmitted: a metric that is described, and so documented, but
// that no code emits is a lie.
func TestEveryFamilyIsEmitted(t *testing.T) {
	families, err := registryOf(t, busy).Gather()
	if err != nil {
		t.Fatal(err)
	}
	emitted := map[string]bool{}
	for _, f := range families {
		emitted[f.GetName()] = true
	}
	for _, f := range Families() {
		if !emitted[f.Name] {
			t.Errorf("%s is described and not emitted", f.Name)
		}
	}
}

func TestNoSnapshotYet(t *testing.T) {
	if got := text(t, registryOf(t, func() *state.Snapshot { return nil })); got != "" {
		t.Errorf("metrics before the first snapshot:\n%s", got)
	}
}

func TestSeriesDieWithTheContainerAndTeamsStay(t *testing.T) {
	s := busy()
	reg := registryOf(t, func() *state.Snapshot { return s })
	if got := text(t, reg); !strings.Contains(got, `container="trainer"`) {
		t.Fatalf("no series of the container:\n%s", got)
	}
	after := busy()
	after.Containers, after.Devices = nil, nil
	s = after
	got := text(t, reg)
	if strings.Contains(got, "container=") {
		t.Errorf("series outlived their container:\n%s", got)
	}
	if !strings.Contains(got, `trimtab_team_breakdown_seconds_total{part="input_throttled",team="vision"} 7.5`) {
		t.Errorf("the team's counters are gone:\n%s", got)
	}
}

// TestHostileLabels: whatever a container calls itself, the scrape stands, and
// each container keeps series of its own.
func TestHostileLabels(t *testing.T) {
	long := strings.Repeat("x", 5000)
	s := &state.Snapshot{}
	for i, name := range []string{"a\xff\n\"}b", long, long + "y", "same", "same", "", "ünï\u0000", "\x1b[2J\u202e\x9b<b>🚀"} {
		s.Containers = append(s.Containers, state.Container{Key: fmt.Sprintf("key-%d", i), Name: name, Image: name, Watched: true,
			Enrolment: policies.Enrolment{Team: name}, Rate: policies.Rate{PerSecond: 1, Source: name}})
	}
	families, err := registryOf(t, func() *state.Snapshot { return s }).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if at := strings.IndexFunc(l.GetValue(), func(r rune) bool { return !unicode.IsPrint(r) }); at >= 0 || !utf8.ValidString(l.GetValue()) {
					t.Errorf("%s: label %s is %q", f.GetName(), l.GetName(), l.GetValue())
				}
				if len(l.GetValue()) > maxLabelBytes {
					t.Errorf("%s: label %s is %d bytes long", f.GetName(), l.GetName(), len(l.GetValue()))
				}
			}
		}
		if f.GetName() == "trimtab_container_info" && len(f.GetMetric()) != len(s.Containers) {
			t.Errorf("%d containers shown, want %d", len(f.GetMetric()), len(s.Containers))
		}
	}
}

func TestCaps(t *testing.T) {
	s := &state.Snapshot{}
	for i := range MaxContainers + 7 {
		s.Containers = append(s.Containers, state.Container{Key: fmt.Sprint(i), Name: fmt.Sprintf("c%04d", i), Watched: true})
	}
	for i := range MaxTeams + 5 {
		s.Totals.TeamParts = append(s.Totals.TeamParts, state.Count{Team: fmt.Sprintf("t%04d", i), Part: "compute", Value: 2})
	}
	got := text(t, registryOf(t, func() *state.Snapshot { return s }))
	for _, want := range []string{
		"trimtab_containers_not_exported 7\n",
		`trimtab_team_breakdown_seconds_total{part="compute",team="other"} 10` + "\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q", want)
		}
	}
	if n := strings.Count(got, "trimtab_container_info{"); n != MaxContainers {
		t.Errorf("%d containers exported, want %d", n, MaxContainers)
	}
}

// TestPendingIsTold: whether or not the container is watched or has a place.
func TestPendingIsTold(t *testing.T) {
	s := &state.Snapshot{}
	for i := range MaxContainers {
		s.Containers = append(s.Containers, state.Container{Key: fmt.Sprint(i), Name: fmt.Sprintf("c%04d", i), Watched: true})
	}
	s.Containers = append(s.Containers, state.Container{Key: "late", Name: "late", Watched: true, Pending: "memory in use"},
		state.Container{Key: "off", Name: "off", Pending: "memory in use"})
	got := text(t, registryOf(t, func() *state.Snapshot { return s }))
	for _, name := range []string{"late", "off"} {
		if want := `trimtab_container_restore_owed{container="` + name + `",team=""} 1` + "\n"; !strings.Contains(got, want) {
			t.Errorf("no %q", want)
		}
	}
}

// TestTeamsAreAdmittedOnce: a team that had its own series keeps them when others
// come that sort before it, so no counter falls.
func TestTeamsAreAdmittedOnce(t *testing.T) {
	c := NewCollector(nil)
	for i := range MaxTeams {
		c.team(fmt.Sprintf("m%d", i))
	}
	if got := c.team("a"); got != "other" {
		t.Errorf("a late team is %q, want other", got)
	}
	if got := c.team("m0"); got != "m0" {
		t.Errorf("an early team became %q", got)
	}
}

func TestLimit(t *testing.T) {
	tests := []struct {
		knob   runtime.Knob
		value  runtime.Value
		metric string
		want   float64
		ok     bool
	}{
		{runtime.KnobCPUQuota, "150000 100000", nLimitCPUs, 1.5, true},
		{runtime.KnobCPUQuota, "max 100000", nLimitCPUs, 0, false},
		{runtime.KnobCPUQuota, "", nLimitCPUs, 0, false},
		{runtime.KnobCpuset, "0-3,8", nLimitCPUs, 5, true},
		{runtime.KnobCpuset, "", nLimitCPUs, 0, false},
		{runtime.KnobMemoryLimit, "1073741824", nLimitBytes, 1 << 30, true},
		{runtime.KnobCPUWeight, "1024", nWeight, 1024, true},
		{"gpu", "1", "", 0, false},
	}
	for _, tc := range tests {
		metric, got, ok := limit(tc.knob, tc.value)
		if ok != tc.ok || (ok && (metric != tc.metric || got != tc.want)) {
			t.Errorf("limit(%s, %q) = %s %v %v, want %s %v %v", tc.knob, tc.value, metric, got, ok, tc.metric, tc.want, tc.ok)
		}
	}
}

func BenchmarkScrape(b *testing.B) {
	s := busy()
	for i := range 100 {
		c := s.Containers[0]
		c.Name = fmt.Sprintf("c%d", i)
		s.Containers = append(s.Containers, c)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(NewCollector(func() *state.Snapshot { return s }))
	for b.Loop() {
		if _, err := reg.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
