package render

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

var update = flag.Bool("update", false, "write the golden files anew")

// at is an instant of the day that the tests show.
func at(hour, minute int) int64 {
	return time.Date(2026, 1, 2, hour, minute, 5, 0, time.UTC).UnixNano()
}

func testClock() Clock { return Clock{Now: time.Unix(0, at(18, 0)), Zone: time.UTC} }

func golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// protected grows, and was given memory before it met its limit.
func protected() state.Container {
	limit := policies.Change{Knob: runtime.KnobMemoryLimit, From: "734003200", To: "1572864000", Criterion: policies.CriterionNoHarm,
		Reason: "it holds 348 MiB of its limit of 700 MiB and grows by 16.0 MiB/s"}
	swap := policies.Change{Knob: runtime.KnobMemorySwap, From: "1468006400", To: "2306867200", Criterion: policies.CriterionNoHarm,
		Reason: "it counts memory and swap together"}
	return state.Container{Name: "growing", Watched: true, Enrolment: policies.Enrolment{Mode: policies.ModeTune, EnrolledBy: "label", Knobs: []string{"memory"}}, WhyNot: "cool-down 12 s",
		Now:       runtime.Values{runtime.KnobMemoryLimit: limit.To, runtime.KnobMemorySwap: swap.To, runtime.KnobCPUQuota: "max 100000"},
		Original:  runtime.Values{runtime.KnobMemoryLimit: limit.From, runtime.KnobMemorySwap: swap.From, runtime.KnobCPUQuota: "max 100000"},
		Changed:   []runtime.Knob{runtime.KnobMemoryLimit, runtime.KnobMemorySwap},
		MemoryUse: policies.MemoryUse{Read: true, Current: 620 << 20, Held: 600 << 20, Limit: 1500 << 20, Growth: 16 << 20},
		Paging:    policies.Paging{Base: 0.05, Lost: 0.05, Limit: 700 << 20, Set: 1200 << 20, Enough: true},
		ByMemory:  policies.Curve{Points: []policies.Point{{X: 700 << 20, Rate: 10, Low: 9, High: 11}, {X: 1200 << 20, Rate: 20, Low: 19, High: 21}}},
		Deciders: map[runtime.Knob]string{runtime.KnobMemoryLimit: "trimtab (label trimtab.knobs)", runtime.KnobMemorySwap: "trimtab (label trimtab.knobs)",
			runtime.KnobCPUQuota: "its owner (label trimtab.knobs)"},
		Verdict: policies.Verdict{Class: policies.ClassMemory, Cause: policies.CauseRisk, Severity: 0.5, Confidence: 1,
			Evidence: []policies.Evidence{{Name: "read from disk", Value: 5 << 20, Unit: "B"}, {Name: "network", Value: 3 << 20, Unit: "B/s"}}},
		Trials: []state.Trial{{Changes: []policies.Change{limit, swap}, StartedUnixNs: at(14, 2), Outcome: state.OutcomeKept, Before: 20, After: 20,
			Why: "it protects, and did no harm"}}}
}

// tuned was starved and is not any more.
func tuned() state.Container {
	c := starved()
	c.Enrolment = policies.Enrolment{Mode: policies.ModeTune, EnrolledBy: "label", Knobs: []string{"cpu"}, Team: "vision", Importance: 5}
	c.WhyNot = "cool-down 40 s"
	c.Now = runtime.Values{runtime.KnobCPUQuota: "150000 100000", runtime.KnobCPUWeight: "1024"}
	c.Original = runtime.Values{runtime.KnobCPUQuota: "100000 100000", runtime.KnobCPUWeight: "1024"}
	c.Changed = []runtime.Knob{runtime.KnobCPUQuota}
	c.Gain, c.HasGain = 0.61, true
	c.Correction = 1.06
	c.ByCPUs = policies.Curve{Source: "torch.backward", Points: []policies.Point{{X: 1.5, Rate: 26.5, Low: 25.2, High: 27.9}}}
	c.Rate = policies.Rate{PerSecond: 26.7, Source: "torch.backward", Steps: true, Ticks: 300}
	c.Breakdown = policies.Breakdown{WallNs: 1e9}
	c.Breakdown.Ns[policies.PartCompute] = 48e7
	c.Breakdown.Ns[policies.PartDevice] = 50e7
	c.Breakdown.Ns[policies.PartInputWorkers] = 15e6
	c.Breakdown.Ns[policies.PartOther] = 5e6
	c.Verdict = policies.Verdict{Class: policies.ClassBalanced, Confidence: 0.9, Why: "Nothing takes more than 5 % of the time."}
	c.Trials = []state.Trial{
		{Plan: "p2", Changes: quota("150000 100000", "160000 100000"), StartedUnixNs: at(14, 30), Outcome: state.OutcomeInconclusive,
			Before: 26.7, After: 26.8, Unit: state.UnitSteps, Predicted: 27, Ratio: 1.004, Low: 0.98, High: 1.03, Why: "the gain is below what is worth keeping"},
		{Plan: "p1", Changes: quota("100000 100000", "150000 100000"), StartedUnixNs: at(14, 2), EndedUnixNs: at(14, 3),
			Outcome: state.OutcomeKept, Before: 16.6, After: 26.7, Unit: state.UnitSteps, Predicted: 25, Ratio: 1.61, Low: 1.55, High: 1.66},
	}
	return c
}

func quota(from, to runtime.Value) []policies.Change {
	gain := 0.58
	return []policies.Change{{Name: "train", Knob: runtime.KnobCPUQuota, From: from, To: to, Gain: gain,
		Reason: "loaders stand still for want of quota"}}
}

// starved is observed only, and would have been helped.
func starved() state.Container {
	c := state.Container{Key: "docker-1", ID: "4f0c", Name: "train", State: runtime.StateRunning, Watched: true, GPUs: []string{"0", "1"}, Ranks: 2,
		Enrolment: policies.Enrolment{Mode: policies.ModeObserve, EnrolledBy: "default", Knobs: []string{"cpu"}, WhyNot: "no label", Importance: 5,
			Problems: []string{"label trimtab.cpu.max=-2: allowed are numbers of CPUs above 0, such as 0.5 or 4"}},
		WhyNot: "no label",
		Rate:   policies.Rate{PerSecond: 16.6, Source: "hand-offs", Ticks: 200},
		Cost:   policies.Cost{TrainerCPU: 0.020, LoaderCPU: 0.040, Device: 0.020, Batch: 0.080, Loaders: 4, Ticks: 240},
		Now:    runtime.Values{runtime.KnobCPUQuota: "100000 100000"}, Original: runtime.Values{runtime.KnobCPUQuota: "100000 100000"},
		Advice: []string{"4 loaders are enough: more would only wait"},
	}
	c.Breakdown = policies.Breakdown{WallNs: 1e9}
	c.Breakdown.Ns[policies.PartCompute] = 20e7
	c.Breakdown.Ns[policies.PartThrottled] = 6e7
	c.Breakdown.Ns[policies.PartDevice] = 18e7
	c.Breakdown.Ns[policies.PartInputThrottled] = 55e7
	c.Breakdown.Ns[policies.PartOther] = 1e7
	c.Verdict = policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseThrottled, Severity: 0.61, Confidence: 0.95,
		Why: "The trainer waits for data while its loaders stand still for want of CPU quota.", Relief: "a CPU quota of 1.5",
		Evidence: []policies.Evidence{{Name: "input wait", Value: 0.55, Unit: "share"}, {Name: "quota", Value: 1, Unit: "CPUs"}}}
	c.Trials = []state.Trial{{Plan: "w1", Changes: quota("100000 100000", "150000 100000"), StartedUnixNs: at(14, 2),
		Outcome: state.OutcomeWould, Before: 16.6, Predicted: 26.2, Unit: state.UnitRelative}}
	return c
}

// lent is a job whose steps are counted, with a loan that has settled.
func lent() state.Container {
	c := tuned()
	c.Trials, c.Gain, c.Tuning = nil, 3.05, "settled"
	c.WhyNot, c.Gate, c.Value, c.Threshold = "no CPU of this host is idle", "idle", 0.02, 0.05
	c.Now = runtime.Values{runtime.KnobCPUQuota: "180000 100000", runtime.KnobCPUWeight: "256"}
	c.Original = runtime.Values{runtime.KnobCPUQuota: "40000 100000", runtime.KnobCPUWeight: "1024"}
	c.Changed = []runtime.Knob{runtime.KnobCPUQuota, runtime.KnobCPUWeight}
	c.Loan = &state.Loan{CPUs: 1.4, Own: 0.4, Used: 1.25, Settled: true, SinceUnixNs: at(14, 2), Why: "1.80 CPUs are enough: nothing held it back, and that is what it used, with a margin"}
	return c
}

// uncounted is a program whose steps nobody counts.
func uncounted(w *state.Work) state.Container {
	c := lent()
	c.Work, c.HasGain, c.Gain = w, false, 0
	c.Rate, c.RateWhy, c.Aggregated = policies.Rate{}, "its steps are not counted", true
	c.Cost = policies.Cost{TrainerCPU: 0.5, OtherCPU: 0.4, Device: 0.5, Ticks: 12}
	c.ByCPUs, c.Correction = policies.Curve{}, 0
	c.Thinned = []string{"cuda.sync is counted 25 % of the time", "launches: no library of its processes has them"}
	return c
}

// bursty is one of which the quota stops bursts that no mean shows.
func bursty(c state.Container) state.Container {
	c.Bursts, c.UsedCPUs = 0.9, 0.13
	return c
}

func gone(edit func(*state.Container)) state.Container {
	c := tuned()
	edit(&c)
	return c
}

func TestExplain(t *testing.T) {
	golden(t, "explain-tuned.txt", Explain(tuned(), testClock()))
	golden(t, "explain-lent.txt", Explain(lent(), testClock()))
	golden(t, "explain-uncounted.txt", Explain(uncounted(&state.Work{Ratio: 3.12, By: "bytes read and written, page faults", CPUs: 4}), testClock()))
	golden(t, "explain-bursts.txt", Explain(bursty(uncounted(nil)), testClock()))
	golden(t, "explain-observed.txt", Explain(starved(), testClock()))
	golden(t, "explain-memory.txt", Explain(protected(), testClock()))
	golden(t, "explain-new.txt", Explain(state.Container{Name: "new", Enrolment: policies.Enrolment{Mode: policies.ModeTune, EnrolledBy: "enable", Knobs: []string{"cpu", "memory"}}}, testClock()))
}

// What a trial gave stands apart from the loan above it; together they are what stands.
func TestExplainTellsLoansFromTrials(t *testing.T) {
	c := lent()
	c.Loan.CPUs, c.Loan.Trial = 0.5, 0.9
	text := Explain(c, testClock())
	for _, want := range []string{"lent 0.5 CPUs that nobody used; 0.4 are yours, 0.9 a trial gave;", "given by a trial, no loan        0.9 CPUs", "lent, while nobody else wants it 0.5 CPUs", "--cpus 1.8`"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Errors of its GPUs are told with when they came, and cannot move the terminal's cursor.
func TestExplainTellsOfGPUErrors(t *testing.T) {
	c := starved()
	if strings.Contains(Explain(c, testClock()), "Errors of its GPUs") {
		t.Error("there is none, and it is told")
	}
	c.GPUErrors = []state.GPUError{{UnixNs: at(14, 2), Text: "GPU 0 reported XID 79: fell off the bus"}, {UnixNs: at(14, 3), Text: "GPU \x1b[2J"}}
	got := Explain(c, testClock())
	if !regexp.MustCompile(`(?m)^Errors of its GPUs.*never acted on.*\n +14:02 +GPU 0 reported XID 79: fell off the bus$`).MatchString(got) || strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
}

func TestHeadline(t *testing.T) {
	for want, c := range map[string]state.Container{
		"14:02 CPU 1.0→1.5; +61 % measured; reverts on exit.":                                                                                    tuned(),
		"since 14:02 lent 1.4 CPUs that nobody used; 0.4 are yours; +305 % measured; reverts on exit.":                                           lent(),
		"since 14:02 lent 1.4 CPUs that nobody used; 0.4 are yours; work done: +212 %, by bytes read and written, page faults; reverts on exit.": uncounted(&state.Work{Ratio: 3.12, By: "bytes read and written, page faults", CPUs: 4}),
		"since 14:02 lent 1.4 CPUs that nobody used; 0.4 are yours; +305 % by its own count, which is in doubt: +12 % by page faults; reverts on exit.": gone(func(c *state.Container) {
			*c = lent()
			c.Doubt, c.Work = true, &state.Work{Ratio: 1.12, By: "page faults"}
		}),
		"since 14:02 lent 1.4 CPUs that nobody used; 0.4 are yours; CPU used: +180 %; its steps are not counted; reverts on exit.": uncounted(&state.Work{CPUs: 2.8}),
		"since 14:02 lent 1.4 CPUs that nobody used; 0.4 are yours; CPU used: +180 %; its rate before is not known in this unit, or is another process's; reverts on exit.": func() state.Container {
			c := uncounted(&state.Work{CPUs: 2.8})
			c.Rate = policies.Rate{PerSecond: 4, Source: "optimizer steps", Steps: true}
			return c
		}(),
		"since 14:02 lent 1.4 CPUs that nobody used; 0.4 are yours; CPU used: +180 %; it is paused or stopped; reverts on exit.": func() state.Container {
			c := uncounted(&state.Work{CPUs: 2.8})
			c.RateWhy = "it is paused or stopped"
			return c
		}(),
		"since 14:02 lent 1.4 CPUs that nobody used; 0.4 are yours; not measured yet; reverts on exit.":   uncounted(nil),
		"nothing was changed (no label). At 14:02 trimtab would have set CPU 1.0→1.5 and expected +58 %.": starved(),
		"restore pending: memory in use is above the limit.":                                              gone(func(c *state.Container) { c.Pending = "memory in use is above the limit" }),
		"your own values are back, and stay until `trimtab resume train`.":                                gone(func(c *state.Container) { c.Held = true }),
		"since 15:00 CPU 1.0→1.5 is on trial, +50 % expected; it is reverted unless that is measured.": gone(func(c *state.Container) {
			c.Trial = &state.Trial{StartedUnixNs: at(15, 0), Changes: quota("100000 100000", "150000 100000"), Before: 10, Predicted: 15}
		}),
		"nothing was changed: cool-down 40 s.": gone(func(c *state.Container) { c.Changed, c.Trials = nil, nil }),
		"your own values are back: its loan went back, since b gets 1.5 of its 1.6 CPUs; 3 of 8 readings.": gone(func(c *state.Container) {
			c.Changed, c.Trials, c.Tuning, c.WhyNot = nil, nil, "returned", "its loan went back, since b gets 1.5 of its 1.6 CPUs; 3 of 8 readings"
		}),
		"your own values are back: cool-down 40 s.":                     gone(func(c *state.Container) { c.Changed = nil }),
		"nothing was changed: Nothing takes more than 5 % of the time.": gone(func(c *state.Container) { c.Changed, c.Trials, c.WhyNot = nil, nil, "" }),
		"CPU 1.0→1.5, memory 1GiB→no limit; not measured yet; reverts on exit.": gone(func(c *state.Container) {
			c.Trials, c.HasGain = nil, false
			c.Changed = append(c.Changed, runtime.KnobMemoryLimit)
			c.Original[runtime.KnobMemoryLimit], c.Now[runtime.KnobMemoryLimit] = "1073741824", "max"
		}),
	} {
		if got := Headline(c, testClock()); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestNoGainOfNothingIsExpected: of a job that works in bursts its mean predicts next to nothing, and what takes from
// a job is expected to do no harm.
func TestNoGainOfNothingIsExpected(t *testing.T) {
	change := func(ch policies.Change) state.Trial {
		ch.Knob, ch.From, ch.To = runtime.KnobCPUQuota, "100000 100000", "150000 100000"
		return state.Trial{StartedUnixNs: at(15, 0), Changes: []policies.Change{ch}}
	}
	for name, c := range map[string]struct {
		trial                    state.Trial
		headline, speedup, tried string
	}{
		"predicted":      {change(policies.Change{Gain: 0.58}), "+58 % expected", "would +58 %", "expected +58 %"},
		"hardly any":     {change(policies.Change{Gain: 0.0004}), "some gain expected", "would", "expected some gain"},
		"none":           {change(policies.Change{}), "some gain expected", "would", "expected some gain"},
		"judged by harm": {change(policies.Change{Criterion: policies.CriterionNoHarm, Take: true}), "no harm expected", "would", "nothing should miss it"},
	} {
		t.Run(name, func(t *testing.T) {
			open, would := state.Container{Trial: &c.trial}, c.trial
			would.Outcome = state.OutcomeWould
			if got := Headline(open, testClock()); !strings.Contains(got, c.headline) {
				t.Errorf("%q, want %q", got, c.headline)
			}
			if got := gain(state.Container{Trials: []state.Trial{would}}); got != c.speedup {
				t.Errorf("%q, want %q", got, c.speedup)
			}
			if got := speeds(would); !strings.Contains(got, c.tried) {
				t.Errorf("%q, want %q", got, c.tried)
			}
		})
	}
}

func TestPSShowsMemory(t *testing.T) {
	if got := cpuColumn(protected()); got != "memory 1.4G←700M" {
		t.Errorf("%q", got)
	}
}

func TestPS(t *testing.T) {
	plain := state.Container{Name: "web", Enrolment: policies.Enrolment{Mode: policies.ModeObserve}, WhyNot: "no label",
		Now: runtime.Values{runtime.KnobCPUQuota: "max 100000"}}
	weight := tuned()
	weight.Name, weight.Gain, weight.WhyNot = "other", -0.004, ""
	weight.Changed = []runtime.Knob{runtime.KnobCPUWeight}
	weight.Original = runtime.Values{runtime.KnobCPUWeight: "1024"}
	weight.Now = runtime.Values{runtime.KnobCPUWeight: "2048", runtime.KnobCPUQuota: "max 100000"}
	trying := tuned()
	trying.Name, trying.HasGain, trying.Trial, trying.GPUs = strings.Repeat("long-name-", 5), false, &state.Trial{}, []string{"all"}
	all := []state.Container{weight, starved(), tuned(), trying, plain, lent(), uncounted(&state.Work{Ratio: 3.12, By: "page faults"}), uncounted(&state.Work{CPUs: 2.8})}
	golden(t, "ps.txt", PS(all, false))
	golden(t, "ps-all.txt", PS(all, true))
	if got := PS(nil, false); got != "no containers are running\n" {
		t.Errorf("without any: %q", got)
	}
}

// What is pending is shown whether or not the container is watched, and before anything
// else that keeps trimtab from acting.
func TestPSShowsPending(t *testing.T) {
	pending := state.Container{Name: "web", Enrolment: policies.Enrolment{Mode: policies.ModeOff}, WhyNot: "no label", Pending: "memory in use"}
	if got := PS([]state.Container{pending}, false); !strings.Contains(got, "restore pending") {
		t.Errorf("%s", got)
	}
}

// A rate whose ticks are not known to be steps is never printed as steps.
func TestProxyRates(t *testing.T) {
	c := starved()
	for _, text := range []string{PS([]state.Container{c}, true), Explain(c, testClock())} {
		if strings.Contains(text, "steps/s") || !strings.Contains(text, "≈") {
			t.Errorf("a proxy rate as steps:\n%s", text)
		}
	}
	if got := rate(policies.Rate{PerSecond: 16.6, Source: "hand-offs"}); got != "≈16.6/s hand-offs" {
		t.Error(got)
	}
	if got := rate(policies.Rate{PerSecond: 16.6, Steps: true}); got != "16.6 steps/s" {
		t.Error(got)
	}
}

func TestHistory(t *testing.T) {
	records := []state.Record{
		{UnixNs: at(14, 2), Kind: state.RecordChange, Name: "train", Knob: runtime.KnobCPUQuota, From: "100000 100000", To: "150000 100000", Gain: 0.58, Text: "loaders stand still for want of quota"},
		{UnixNs: at(14, 3), Kind: state.RecordTrial, Name: "train", Outcome: state.OutcomeKept, Before: 16.6, After: 26.7, Unit: state.UnitSteps, Gain: 0.61, Text: "16.6 to 26.7 steps/s, surely between +55 % and +66 %; predicted +58 %"},
		{UnixNs: at(14, 5), Kind: state.RecordLoan, Name: "xgb", Knob: runtime.KnobCPUQuota, From: "40000 100000", To: "180000 100000", Gain: 2.1, Text: "its quota of 0.40 CPUs stops it for 66 % of the time that it wants a CPU; lent 1.40 CPUs that nobody uses, 0.40 are its own"},
		{UnixNs: at(14, 5), Kind: state.RecordLoan, Name: "xgb", Knob: runtime.KnobCPUWeight, From: "1024", To: "256", Text: "so that its loan takes nothing that others have a right to"},
		{UnixNs: at(14, 7), Kind: state.RecordLoan, Name: "xgb", Knob: runtime.KnobCPUQuota, From: "180000 100000", To: "40000 100000", Text: "other gets 0.99 of the 1.60 CPUs it has a right to"},
		{UnixNs: at(14, 9), Kind: state.RecordWould, Name: "observed", Knob: runtime.KnobMemoryLimit, From: "1073741824", To: "2147483648", Gain: 0.1, Text: "pages are read again"},
		{UnixNs: at(15, 0), Kind: state.RecordTrial, Name: "train", Outcome: state.OutcomeRolledBack, Unit: state.UnitRelative, Gain: -0.03, Text: "slower"},
		{UnixNs: at(15, 1), Kind: state.RecordTrial, Name: "train", Outcome: state.OutcomeAborted, Text: "the container ended"},
		{UnixNs: at(15, 2), Kind: state.RecordTrial, Name: "train", Outcome: state.OutcomeAborted, Before: 2.6, After: 3.6, Text: "others made room"},
		{UnixNs: at(16, 0), Kind: state.RecordEnrol, Text: "paused by hand: everything stands as it is until `trimtab resume`"},
	}
	golden(t, "history.txt", History(records, false, "", "", testClock()))
	if got := History(nil, true, "2h", "1h", testClock()); got != "no changes since 2h until 1h\n" {
		t.Errorf("got %q", got)
	}
	if got := History(nil, false, "", "", testClock()); got != "no records\n" {
		t.Errorf("got %q", got)
	}
	for n, cut := range map[int]bool{state.MaxRecords - 1: false, state.MaxRecords: true} {
		if got := History(make([]state.Record, n), false, "", "", testClock()); strings.Contains(got, "older ones are left out") != cut {
			t.Errorf("of %d records it is told that older ones are left out: %v", n, !cut)
		}
	}
}

func TestStatus(t *testing.T) {
	s := api.Status{UnixNs: at(18, 0), Node: policies.Node{CPUs: 8, Reserve: 0.8}, Containers: api.Numbers{Running: 5, Watched: 3, Tuned: 2, Changed: 1, Pending: 1},
		Daemon: state.Daemon{Version: "v0.1.0", PID: 812, StartedUnixNs: at(8, 0), Mode: policies.ModeTune, Policies: []string{"lend", "knee", "share"}, Paused: true, Disabled: true, Virtual: true,
			Receivers: []state.Receiver{{Part: state.Part{Name: "otlp", OK: true, Since: at(8, 0)}, Sent: 12},
				{Part: state.Part{Name: "webhook", Since: at(8, 30), Lost: "notify.webhook: https://hooks.example.com answered \"401 Unauthorized\": \"\x1b[2J\""}, Failed: 3, Queued: 1}},
			Engines: []state.Part{{Name: "docker", OK: true, Since: at(8, 0)}}, ConfigUnixNs: at(8, 0), ConfigError: "a.yaml:1: x\na.yaml:2: y",
			Probes:     []state.Part{{Name: "kernel", Since: at(9, 0), Lost: "no BTF: causes of waits are not told apart; boot a kernel with CONFIG_DEBUG_INFO_BTF"}, {Name: "cuda", OK: true, Since: at(8, 0), LostEvents: 12}},
			CPUSeconds: 300, RecentCPUs: 0.01, ProbeSeconds: 60, RSSBytes: 40 << 20, ProbeMapBytes: 9 << 20, ProbeLost: 12, BudgetShare: 0.5, MapsShare: 0.28, JobShare: 0.04}}
	golden(t, "status.txt", Status(s, testClock()))
	s.Daemon.RecentCPUs, s.Daemon.BudgetShare = 0, 0 // ten seconds have not passed since its start
	if got := Status(s, testClock()); !strings.Contains(got, "own CPU      not measured yet\n") || strings.Contains(got, "of a CPU") {
		t.Errorf("before the first measurement:\n%s", got)
	}
}

func TestResults(t *testing.T) {
	got := Results([]state.ActionResult{{Name: "a", OK: true, Text: "restored"}, {Name: "b\x1b[2J", Text: "gone"}})
	if want := "a: restored\nb?[2J: not done: gone\n"; got != want {
		t.Errorf("got %q", got)
	}
}

func genText(t *rapid.T, label string) string {
	return rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"train", "\x1b]0;x\a", "\u202eevil", strings.Repeat("x", 300), "a\nb", "\xff\xfe", ""})).Draw(t, label)
}

func genContainer(t *rapid.T) state.Container {
	f := rapid.Float64()
	c := state.Container{Name: genText(t, "name"), Image: genText(t, "image"), GPUs: rapid.SliceOfN(rapid.String(), 0, 20).Draw(t, "gpus"),
		Watched: true, WhyNot: genText(t, "why not"), Pending: genText(t, "owed"), Preflight: genText(t, "preflight"),
		Rate:    policies.Rate{PerSecond: f.Draw(t, "rate"), Source: genText(t, "source"), Steps: rapid.Bool().Draw(t, "steps")},
		Verdict: policies.Verdict{Class: policies.Class(genText(t, "class")), Cause: policies.Cause(genText(t, "cause")), Why: genText(t, "why"), Relief: genText(t, "relief")},
		Cost:    policies.Cost{TrainerCPU: f.Draw(t, "ct"), LoaderCPU: f.Draw(t, "cl"), Device: f.Draw(t, "d"), Ticks: f.Draw(t, "ticks")},
		Gain:    f.Draw(t, "gain"), HasGain: rapid.Bool().Draw(t, "has gain"), Advice: []string{genText(t, "advice")}, Thinned: []string{genText(t, "not counted")},
		Enrolment: policies.Enrolment{Mode: policies.ModeTune, EnrolledBy: genText(t, "door"), Team: genText(t, "team"), Problems: []string{genText(t, "problem")}}}
	c.Breakdown.WallNs = rapid.Int64Range(0, 1e12).Draw(t, "wall")
	for i := range c.Breakdown.Ns {
		c.Breakdown.Ns[i] = rapid.Int64Range(-10, 1e12).Draw(t, "part")
	}
	for _, k := range []runtime.Knob{runtime.KnobCPUQuota, runtime.KnobCpuset} {
		c.Changed = append(c.Changed, k)
		c.Now = runtime.Values{k: runtime.Value(genText(t, "now"))}
		c.Original = runtime.Values{k: runtime.Value(genText(t, "original"))}
	}
	return c
}

// Whatever containers are named and say, a table stays within its width, a row is
// one line, and no character that a terminal acts on comes through.
func TestHostileTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := []state.Container{genContainer(t), genContainer(t)}
		records := []state.Record{{Kind: state.RecordKind(genText(t, "kind")), Name: genText(t, "name"), Knob: runtime.Knob(genText(t, "knob")),
			From: runtime.Value(genText(t, "from")), Text: genText(t, "text"), Gain: rapid.Float64().Draw(t, "gain")}}
		ps, history := PS(all, true), History(records, true, genText(t, "since"), genText(t, "until"), testClock())
		for _, text := range []string{ps, history, Explain(all[0], testClock()), Results([]state.ActionResult{{Name: all[0].Name, Text: all[1].Name}})} {
			for _, r := range text {
				if r != '\n' && !unicode.IsPrint(r) {
					t.Fatalf("%q comes through:\n%q", r, text)
				}
			}
		}
		if n := strings.Count(ps, "\n"); n != 3 {
			t.Fatalf("two containers in %d lines:\n%s", n, ps)
		}
		for line := range strings.Lines(ps + history) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > Width {
				t.Fatalf("%d columns:\n%s", n, line)
			}
		}
	})
}

// What people are shown changes seldom: where the latest window says something else, both are told.
func TestVerdictOfAnEarlierWindow(t *testing.T) {
	shown := policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseWorkers, Severity: 0.4}
	for _, c := range []struct {
		latest policies.Verdict
		want   bool
	}{
		{shown, false},
		{policies.Verdict{}, false},
		{policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseHost}, true},
	} {
		if got := verdict(shown, c.latest); strings.Contains(got, "the latest alone says compute/host: the training process itself") != c.want {
			t.Errorf("latest %+v:\n%s", c.latest, got)
		}
	}
}

// TestBurstsHaveNoKnee: what is made of means is not told of a job that works in bursts; what its steps cost is.
func TestBurstsHaveNoKnee(t *testing.T) {
	for name, c := range map[string]state.Container{"counted": bursty(lent()), "uncounted": bursty(uncounted(nil)), "no cost": bursty(gone(func(c *state.Container) { c.Cost = policies.Cost{} }))} {
		text := Explain(c, testClock())
		if !strings.Contains(text, "a quota of 0.9 CPUs") || strings.Contains(text, "knee") || strings.Contains(text, "best speed") || strings.Contains(text, "predicted") || strings.Contains(text, "What one step costs") != (name == "counted") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

// TestCountsHaveNoDecimals: what is counted is shown whole, and what is measured with its decimals.
func TestCountsHaveNoDecimals(t *testing.T) {
	for want, e := range map[string]policies.Evidence{
		"2":              {Value: 2},
		"0":              {},
		"14 pages":       {Value: 14, Unit: "pages"},
		"8 hand-offs":    {Value: 8, Unit: "hand-offs"},
		"1.00 CPUs":      {Value: 1, Unit: "CPUs"},
		"4.00 s":         {Value: 4, Unit: "s"},
		"0.50 hand-offs": {Value: 0.5, Unit: "hand-offs"},
	} {
		if got := quantity(e); got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
}
