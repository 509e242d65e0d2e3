package guard

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

const mib = 1 << 20

// container may be tuned in all ways, and nothing of it was changed yet.
func container() *Container {
	now := runtime.Values{runtime.KnobCPUQuota: "40000 100000", runtime.KnobCPUWeight: "1024", runtime.KnobMemoryLimit: runtime.IntValue(1000 * mib), runtime.KnobGPU: "GPU-a,GPU-b"}
	return &Container{Enrolment: policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"cpu", "memory", "gpu"}}, Now: now, Original: now.Clone(),
		Memory: policies.MemoryUse{Read: true, Current: 900 * mib, Held: 300 * mib, Limit: 1000 * mib}, Readings: 20}
}

func limits() Limits {
	return Limits{Node: policies.Node{CPUs: 4, Reserve: 0.4, MaxWeight: 262144, Memory: 16 << 30, ReserveMemory: 1 << 30, MemoryFree: 4 << 30}, ChangesLeft: 30, MaxTunedLeft: math.MaxInt,
		Trials: func(string) string { return "" }, Rights: func([]policies.Change) string { return "" }}
}

func change(c *Container, k runtime.Knob, to runtime.Value) policies.Change {
	return policies.Change{Key: "a", Name: "a", Knob: k, From: c.Now[k], To: to, Take: to.Quantity() < c.Now[k].Quantity()}
}

func check(c *Container, l Limits, kind policies.Kind, changes ...policies.Change) (policies.Plan, []Rejection) {
	return Check(policies.DefaultConstants(), l, func(key string) *Container {
		if key == "a" {
			return c
		}
		return nil
	}, policies.Plan{Policy: "test", Kind: kind, Changes: changes})
}

// TestGates: each says no in its own name, and a text; what passes is cut to what it may be.
func TestGates(t *testing.T) {
	quota := func(to runtime.Value) func(*Container) policies.Change {
		return func(c *Container) policies.Change { return change(c, runtime.KnobCPUQuota, to) }
	}
	weight := func(to runtime.Value) func(*Container) policies.Change {
		return func(c *Container) policies.Change { return change(c, runtime.KnobCPUWeight, to) }
	}
	memory := func(toMiB int64) func(*Container) policies.Change {
		return func(c *Container) policies.Change {
			return change(c, runtime.KnobMemoryLimit, runtime.IntValue(toMiB*mib))
		}
	}
	lent := func(c *Container, _ *Limits) {
		c.Now = c.Now.Clone()
		c.Now[runtime.KnobCPUQuota], c.Now[runtime.KnobMemoryLimit], c.Changed = "200000 100000", runtime.IntValue(2000*mib), true
		c.Memory.Limit = 2000 * mib
	}
	for name, tt := range map[string]struct {
		edit   func(*Container, *Limits)
		kind   policies.Kind
		change func(*Container) policies.Change
		gate   Gate          // "": it passes
		to     runtime.Value // where it passes
	}{
		"a loan":                 {nil, policies.KindLoan, quota("200000 100000"), "", "200000 100000"},
		"a loan beyond the node": {nil, policies.KindLoan, quota("900000 100000"), "", "400000 100000"},
		"beyond a label":         {func(c *Container, _ *Limits) { c.Enrolment.CPU.Max = 1.5 }, policies.KindLoan, quota("900000 100000"), "", "150000 100000"},
		"at the label's bound":   {func(c *Container, _ *Limits) { c.Enrolment.CPU.Max = 0.4 }, policies.KindLoan, quota("900000 100000"), GateBounds, ""},
		"where its owner set none": {func(c *Container, _ *Limits) {
			c.Original[runtime.KnobCPUQuota], c.Now[runtime.KnobCPUQuota] = "max 100000", "max 100000"
		}, policies.KindLoan, quota("200000 100000"), GateBounds, ""},
		"below its owner's":             {nil, policies.KindReturn, quota("20000 100000"), GateBounds, ""},
		"a return below its owner's":    {lent, policies.KindReturn, quota("20000 100000"), "", "40000 100000"},
		"a return":                      {lent, policies.KindReturn, quota("130000 100000"), "", "130000 100000"},
		"a step not worth a write":      {lent, policies.KindReturn, quota("198000 100000"), GateStep, ""},
		"quotas that cannot be read":    {func(c *Container, _ *Limits) { c.Now[runtime.KnobCPUQuota] = "much" }, policies.KindLoan, quota("200000 100000"), GateBounds, ""},
		"nothing may be changed":        {func(c *Container, _ *Limits) { c.Fixed, c.FixedGate = "paused", GateFixed }, policies.KindLoan, quota("200000 100000"), GateFixed, ""},
		"a knob that is not allowed":    {func(c *Container, _ *Limits) { c.Enrolment.Knobs = []string{"memory"} }, policies.KindLoan, quota("200000 100000"), GateKnob, ""},
		"a knob that somebody else set": {func(c *Container, _ *Limits) { c.Yielded = []runtime.Knob{runtime.KnobCPUQuota} }, policies.KindLoan, quota("200000 100000"), GateYielded, ""},
		"a value of before": {func(c *Container, _ *Limits) { c.Now = c.Now.Clone(); c.Now[runtime.KnobCPUQuota] = "50000 100000" }, policies.KindLoan, func(c *Container) policies.Change {
			ch := change(c, runtime.KnobCPUQuota, "200000 100000")
			ch.From = "40000 100000"
			return ch
		}, GateStale, ""},
		"what failed":                 {func(c *Container, _ *Limits) { c.Failed = func(runtime.Knob, bool) bool { return true } }, policies.KindLoan, quota("200000 100000"), GateFailed, ""},
		"a return of what failed":     {func(c *Container, l *Limits) { lent(c, l); c.Failed = func(runtime.Knob, bool) bool { return true } }, policies.KindReturn, quota("130000 100000"), "", "130000 100000"},
		"no room below maxTuned":      {func(_ *Container, l *Limits) { l.MaxTunedLeft = 0 }, policies.KindLoan, quota("200000 100000"), GateMaxTuned, ""},
		"one of maxTuned already":     {func(c *Container, l *Limits) { c.Changed, l.MaxTunedLeft = true, 0 }, policies.KindLoan, quota("200000 100000"), "", "200000 100000"},
		"a return needs no room":      {func(c *Container, l *Limits) { lent(c, l); l.MaxTunedLeft = 0 }, policies.KindReturn, quota("130000 100000"), "", "130000 100000"},
		"a trial":                     {nil, policies.KindTrial, weight("4096"), "", "4096"},
		"a trial, the minute is full": {func(_ *Container, l *Limits) { l.ChangesLeft = 0 }, policies.KindTrial, weight("4096"), GateRate, ""},
		"a loan, the minute is full":  {func(_ *Container, l *Limits) { l.ChangesLeft = 0 }, policies.KindLoan, quota("200000 100000"), "", "200000 100000"},
		"a trial too soon":            {func(c *Container, _ *Limits) { c.CoolSeconds = 7 }, policies.KindTrial, weight("4096"), GateCoolDown, ""},
		"a trial beside another":      {func(_ *Container, l *Limits) { l.Trials = func(string) string { return "another trial is open" } }, policies.KindTrial, weight("4096"), GateTrial, ""},
		"a trial with few readings":   {func(c *Container, _ *Limits) { c.Readings = 3 }, policies.KindTrial, weight("4096"), GateMeasuring, ""},
		"somebody would lose by it": {func(_ *Container, l *Limits) {
			l.Rights = func([]policies.Change) string { return "b would be left with less" }
		}, policies.KindTrial, weight("4096"), GateRights, ""},
		"a weight beyond the kernel's": {nil, policies.KindTrial, weight("999999"), GateBounds, ""},
		"the same weight":              {nil, policies.KindTrial, weight("1024"), GateStep, ""},
		"a loan's weight":              {nil, policies.KindLoan, weight("256"), "", "256"},
		"no weight":                    {nil, policies.KindTrial, weight("0"), GateBounds, ""},
		"memory":                       {nil, policies.KindLoan, memory(2000), "", runtime.IntValue(2000 * mib)},
		"memory that the host lacks":   {nil, policies.KindLoan, memory(9000), "", runtime.IntValue(4996 * mib)},
		"memory beyond a label":        {func(c *Container, _ *Limits) { c.Enrolment.Memory.Max = 1500 * mib }, policies.KindLoan, memory(9000), "", runtime.IntValue(1500 * mib)},
		"memory below its owner's":     {nil, policies.KindReturn, memory(500), GateBounds, ""},
		"memory below what is held":    {func(c *Container, l *Limits) { lent(c, l); c.Memory.Held = 1500 * mib }, policies.KindReturn, memory(1000), "", runtime.IntValue(1650 * mib)},
		"memory of a full host":        {func(_ *Container, l *Limits) { l.Node.MemoryFree = -1 << 30 }, policies.KindLoan, memory(2000), GateBounds, ""},
		"memory that is not read":      {func(c *Container, _ *Limits) { c.Memory.Read = false }, policies.KindLoan, memory(2000), GateMeasuring, ""},
		"memory where there is no limit": {func(c *Container, _ *Limits) {
			c.Now[runtime.KnobMemoryLimit], c.Original[runtime.KnobMemoryLimit] = "max", "max"
		}, policies.KindLoan, memory(2000), GateBounds, ""},
		"a knob that nobody moves": {func(c *Container, _ *Limits) { c.Enrolment.Knobs = []string{"cpuset"} }, policies.KindTrial, func(c *Container) policies.Change { return change(c, runtime.KnobCpuset, "") }, GateKnob, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, l := container(), limits()
			if tt.edit != nil {
				tt.edit(c, &l)
			}
			plan, no := check(c, l, tt.kind, tt.change(c))
			switch {
			case tt.gate != "":
				if len(no) != 1 || no[0].Gate != tt.gate || no[0].Container != "a" || no[0].Text == "" {
					t.Errorf("%+v, want a no of %s; %+v", no, tt.gate, plan)
				}
			case len(no) > 0 || len(plan.Changes) != 1 || plan.Changes[0].To != tt.to:
				t.Errorf("%+v, %+v; want %s", plan.Changes, no, tt.to)
			}
		})
	}
}

// TestOneNoStopsThePlan: a plan is carried out whole, or not at all.
func TestOneNoStopsThePlan(t *testing.T) {
	c := container()
	if _, no := check(c, limits(), policies.KindTrial, change(c, runtime.KnobCPUWeight, "4096"), policies.Change{Key: "gone"}); len(no) != 1 || no[0].Gate != GateStale {
		t.Errorf("%+v", no)
	}
	c.Yielded = []runtime.Knob{runtime.KnobCPUQuota}
	if _, no := check(c, limits(), policies.KindLoan, change(c, runtime.KnobCPUQuota, "200000 100000"), change(c, runtime.KnobCPUWeight, "256")); len(no) != 1 || no[0].Gate != GateYielded {
		t.Errorf("%+v", no)
	}
}

// TestMaxTunedCountsContainers: a loan is a quota and a weight, and takes one place.
func TestMaxTunedCountsContainers(t *testing.T) {
	c, l := container(), limits()
	l.MaxTunedLeft = 1
	if _, no := check(c, l, policies.KindLoan, change(c, runtime.KnobCPUQuota, "200000 100000"), change(c, runtime.KnobCPUWeight, "256")); len(no) > 0 {
		t.Errorf("%+v", no)
	}
}

// TestSmallerMaxTunedBindsNobodyWithin: a reload under which too many are tuned already takes nothing
// from those: a memory limit that protects one still rises.
func TestSmallerMaxTunedBindsNobodyWithin(t *testing.T) {
	c, l := container(), limits()
	c.Changed, l.MaxTunedLeft = true, -2
	if _, no := check(c, l, policies.KindLoan, change(c, runtime.KnobCPUQuota, "200000 100000")); len(no) > 0 {
		t.Errorf("%+v", no)
	}
}

// TestOwnersLimitToTheLetter: whatever unit its owner wrote it in.
func TestOwnersLimitToTheLetter(t *testing.T) {
	c := container()
	c.Original[runtime.KnobMemoryLimit], c.Now[runtime.KnobMemoryLimit], c.Memory.Limit = "900000000", runtime.IntValue(2000*mib), 2000*mib
	plan, no := check(c, limits(), policies.KindReturn, change(c, runtime.KnobMemoryLimit, "900000000"))
	if len(no) > 0 || plan.Changes[0].To != "900000000" {
		t.Errorf("%+v %+v", plan.Changes, no)
	}
}

// TestSwapMovesWithTheLimit: v1 counts memory and swap together.
func TestSwapMovesWithTheLimit(t *testing.T) {
	c := container()
	c.V1Memory = true
	c.Now[runtime.KnobMemorySwap] = runtime.IntValue(2000 * mib)
	c.Original[runtime.KnobMemorySwap] = runtime.IntValue(2000 * mib)
	plan, no := check(c, limits(), policies.KindLoan, change(c, runtime.KnobMemoryLimit, runtime.IntValue(1500*mib)))
	if len(no) > 0 || len(plan.Changes) != 2 || plan.Changes[1].Knob != runtime.KnobMemorySwap || plan.Changes[1].To != runtime.IntValue(2500*mib) {
		t.Errorf("%+v %+v", plan.Changes, no)
	}
	c.Yielded = []runtime.Knob{runtime.KnobMemorySwap}
	if _, no := check(c, limits(), policies.KindLoan, change(c, runtime.KnobMemoryLimit, runtime.IntValue(1500*mib))); len(no) != 1 || !strings.Contains(no[0].Text, "memory.swap") {
		t.Errorf("%+v", no)
	}
}

// TestLawsHold: whatever is proposed of whatever container, nothing leaves the guard that is
// below the owner's value, above the host's or a label's bound, or below what is held.
func TestLawsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, l := container(), limits()
		c.Enrolment.BestEffort = rapid.Bool().Draw(t, "best-effort")
		c.Enrolment.CPU = policies.Range{Min: rapid.SampledFrom([]float64{0, 0.2, 1}).Draw(t, "min"), Max: rapid.SampledFrom([]float64{0, 1, 3, 64}).Draw(t, "max")}
		c.Enrolment.Memory = policies.Range{Min: rapid.SampledFrom([]float64{0, 200 * mib, 900 * mib}).Draw(t, "memory min"), Max: rapid.SampledFrom([]float64{0, 1500 * mib, 5000 * mib}).Draw(t, "memory max")}
		c.Memory.Held = rapid.Float64Range(10, 3000).Draw(t, "held") * mib
		l.Node.MemoryFree = rapid.Float64Range(-1e9, 9e9).Draw(t, "free")
		c.Now = runtime.Values{runtime.KnobCPUQuota: runtime.QuotaFromCPUs(rapid.Float64Range(0.1, 4).Draw(t, "now"), 100_000), runtime.KnobCPUWeight: "300",
			runtime.KnobMemoryLimit: runtime.IntValue(rapid.Int64Range(500, 8000).Draw(t, "limit") * mib)}
		c.Memory.Limit = c.Now[runtime.KnobMemoryLimit].Quantity()
		kind := rapid.SampledFrom([]policies.Kind{policies.KindLoan, policies.KindReturn, policies.KindTrial}).Draw(t, "kind")
		var ch policies.Change
		if rapid.Bool().Draw(t, "cpu") {
			ch = change(c, runtime.KnobCPUQuota, runtime.QuotaFromCPUs(rapid.Float64Range(0.01, 100).Draw(t, "to"), 100_000))
		} else {
			ch = change(c, runtime.KnobMemoryLimit, runtime.IntValue(rapid.Int64Range(1, 40000).Draw(t, "to MiB")*mib))
		}
		plan, no := check(c, l, kind, ch)
		if len(no) > 0 {
			return
		}
		got := plan.Changes[0]
		to, from, own := got.To.Quantity(), got.From.Quantity(), c.Original[got.Knob].Quantity()
		raised := to > from
		switch {
		case raised == got.Take:
			t.Fatalf("%+v: a take raises, or a gift lowers", got)
		case !c.Enrolment.BestEffort && !raised && to < own*(1-1e-9):
			t.Fatalf("%+v goes below the owner's %v", got, own)
		case got.Knob == runtime.KnobCPUQuota && raised && to > max(own, c.Enrolment.CPU.Min, l.Node.CPUs-math.Floor(l.Node.Reserve))+0.011:
			t.Fatalf("%+v goes beyond the node", got)
		case got.Knob == runtime.KnobCPUQuota && raised && c.Enrolment.CPU.Max > 0 && to > max(own, c.Enrolment.CPU.Max, c.Enrolment.CPU.Min)+0.011:
			t.Fatalf("%+v goes beyond its label", got)
		case got.Knob == runtime.KnobMemoryLimit && !raised && to < c.Memory.Floor(policies.DefaultConstants()):
			t.Fatalf("%+v goes below the %v that is held", got, c.Memory.Held)
		case got.Knob == runtime.KnobMemoryLimit && raised && to > max(own, l.Node.Ceiling(c.Enrolment, c.Memory)):
			t.Fatalf("%+v goes beyond the host's %v", got, l.Node.Ceiling(c.Enrolment, c.Memory))
		}
	})
}
