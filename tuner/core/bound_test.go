package core

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
)

// TestBoundsOfOtherKnobs: what the guard lets through, bends and refuses.
func TestBoundsOfOtherKnobs(t *testing.T) {
	type setting struct {
		knob          runtime.Knob
		now, original runtime.Value
		to            runtime.Value
		edit          func(c *Core, j *job)
		want          runtime.Value // "": refused
		why           string
		take          bool
	}
	none := func(*Core, *job) {}
	best := func(_ *Core, j *job) { j.c.Enrolment.BestEffort = true }
	for name, s := range map[string]setting{
		"I/O weight up":               {runtime.KnobIOWeight, "100", "100", "400", none, "400", "", false},
		"I/O weight down":             {runtime.KnobIOWeight, "100", "100", "50", none, "", "below its owner's", true},
		"I/O weight of a best-effort": {runtime.KnobIOWeight, "100", "100", "50", best, "50", "", true},
		"I/O weight beyond BFQ's":     {runtime.KnobIOWeight, "100", "100", "4000", none, "", "up to 1000", false},

		"weight back towards its owner's":           {runtime.KnobCPUWeight, "697", "1024", "844", none, "844", "", false},
		"weight lower still, not said to be less":   {runtime.KnobCPUWeight, "697", "1024", "600", none, "", "below its owner's", false},
		"weight below its owner's":                  {runtime.KnobCPUWeight, "1024", "1024", "600", none, "", "below its owner's", false},
		"weight below its owner's, said to be less": {runtime.KnobCPUWeight, "1024", "1024", "600", none, "600", "", true},

		"burst":                      {runtime.KnobCPUBurst, "0", "0", "50000", none, "50000", "", false},
		"burst above half the quota": {runtime.KnobCPUBurst, "0", "0", "900000", none, "100000", "", false},
		"burst below its owner's":    {runtime.KnobCPUBurst, "50000", "50000", "10000", none, "", "below its owner's", true},
		"burst without a quota": {runtime.KnobCPUBurst, "0", "0", "50000", func(_ *Core, j *job) {
			j.c.Now[runtime.KnobCPUQuota] = "max 100000"
		}, "", "owner set none", false},

		"CPU set":                {runtime.KnobCpuset, "0-7", "0-7", "0-3", none, "0-3", "", false},
		"CPU set, none before":   {runtime.KnobCpuset, "", "", "4-7", none, "4-7", "", false},
		"CPU set outside":        {runtime.KnobCpuset, "0-3", "0-3", "2-5", none, "", "outside of its owner's", false},
		"CPU set below a quota":  {runtime.KnobCpuset, "0-7", "0-7", "0", none, "", "fewer than", false},
		"CPU set, empty":         {runtime.KnobCpuset, "0-7", "0-7", "", none, "", "empty", false},
		"CPU set over pins":      {runtime.KnobCpuset, "0-7", "0-7", "0-3", func(_ *Core, j *job) { j.c.Pinned = "thread 7 pins itself" }, "", "pins itself", false},
		"CPU set, owner's floor": {runtime.KnobCpuset, "0-7", "0-7", "0-3", func(_ *Core, j *job) { j.c.Enrolment.CPU.Min = 6 }, "", "fewer than", false},

		"memory.low": {runtime.KnobMemoryLow, "0", "0", runtime.IntValue(500 * mib), func(_ *Core, j *job) { j.c.LowReaches = true }, runtime.IntValue(500 * mib), "", false},
		"memory.low within half of the node": {runtime.KnobMemoryLow, "0", "0", runtime.IntValue(90000 * mib), func(_ *Core, j *job) { j.c.LowReaches = true },
			runtime.IntValue(7372 * mib), "", false},
		"memory.low without effect": {runtime.KnobMemoryLow, "0", "0", runtime.IntValue(500 * mib), none, "", "without effect", false},
	} {
		t.Run(name, func(t *testing.T) {
			e := tune()
			e.Knobs = []string{"cpu", "cpuset", "memory", "io"}
			j := &job{c: Container{Container: runtime.Container{ID: runtime.ID{Container: "x"}}, Enrolment: e, Now: runtime.Values{runtime.KnobCPUQuota: "200000 100000", s.knob: s.now}}}
			if s.original != s.now {
				j.c.Original = runtime.Values{s.knob: s.original}
			}
			j.memory = []memoryTick{{endNs: second, current: 300 * mib, held: 100 * mib}}
			c := New(Defaults(), script{}, "t")
			c.jobs["x"] = j
			c.last.Host = probes.Host{CPUs: 8, MemTotal: 16 << 30, MemAvail: 12 << 30, AtNs: second}
			c.balanceMemory()
			s.edit(c, j)
			got, why := c.bound(j, policies.Change{Key: "x", Knob: s.knob, From: s.now, To: s.to, Take: s.take})
			if s.want == "" && !strings.Contains(why, s.why) || s.want == "" && why == "" {
				t.Errorf("%s, %q; want it refused: %q", got.To, why, s.why)
			}
			if s.want != "" && (why != "" || got.To != s.want) {
				t.Errorf("%s, %q; want %s", got.To, why, s.want)
			}
		})
	}
}

// TestQuotaTakesTheBurstAlong: a burst above its quota is refused by the kernel, and
// with it the take.
func TestQuotaTakesTheBurstAlong(t *testing.T) {
	quota := func(take bool, to runtime.Value) policies.Change {
		return policies.Change{Key: "x", Knob: runtime.KnobCPUQuota, From: "400000 100000", To: to, Take: take, RateAfter: 7}
	}
	weight := policies.Change{Key: "x", Knob: runtime.KnobCPUWeight, From: "100", To: "50"}
	lowerBurst := policies.Change{Key: "x", Knob: runtime.KnobCPUBurst, From: "400000", To: "150000", Take: true}
	for name, s := range map[string]struct {
		now, original runtime.Value // burst
		yielded       bool
		changes       []policies.Change
		want          []runtime.Knob
		burst, why    string
	}{
		"below the burst":           {"400000", "0", false, []policies.Change{quota(true, "200000 100000")}, []runtime.Knob{runtime.KnobCPUQuota, runtime.KnobCPUBurst}, "200000", ""},
		"and a weight":              {"400000", "0", false, []policies.Change{quota(true, "200000 100000"), weight}, []runtime.Knob{runtime.KnobCPUQuota, runtime.KnobCPUBurst, runtime.KnobCPUWeight}, "200000", ""},
		"to the owner's burst":      {"400000", "200000", false, []policies.Change{quota(true, "200000 100000")}, []runtime.Knob{runtime.KnobCPUQuota, runtime.KnobCPUBurst}, "200000", ""},
		"below the owner's burst":   {"400000", "300000", false, []policies.Change{quota(true, "200000 100000")}, nil, "", "its owner's burst"},
		"somebody else's burst":     {"400000", "0", true, []policies.Change{quota(true, "200000 100000")}, nil, "", "somebody else"},
		"the burst is moved anyway": {"400000", "0", false, []policies.Change{quota(true, "200000 100000"), lowerBurst}, []runtime.Knob{runtime.KnobCPUQuota, runtime.KnobCPUBurst}, "150000", ""},
		"above the burst":           {"100000", "0", false, []policies.Change{quota(true, "200000 100000")}, []runtime.Knob{runtime.KnobCPUQuota}, "", ""},
		"no burst here":             {"", "", false, []policies.Change{quota(true, "200000 100000")}, []runtime.Knob{runtime.KnobCPUQuota}, "", ""},
		"no quota at the end":       {"400000", "0", false, []policies.Change{quota(false, "max 100000")}, []runtime.Knob{runtime.KnobCPUQuota}, "", ""},
		"a weight alone":            {"400000", "0", false, []policies.Change{weight}, []runtime.Knob{runtime.KnobCPUWeight}, "", ""},
	} {
		c := New(Defaults(), script{}, "t")
		j := &job{c: Container{Now: runtime.Values{runtime.KnobCPUBurst: s.now}, Original: runtime.Values{runtime.KnobCPUBurst: s.original}}}
		if s.now == "" {
			j.c.Now, j.c.Original = nil, nil
		}
		if s.yielded {
			j.c.Yielded = []runtime.Knob{runtime.KnobCPUBurst}
		}
		c.jobs["x"] = j
		got, why := c.withBurst(s.changes)
		if (s.why == "") != (why == "") || !strings.Contains(why, s.why) {
			t.Errorf("%s: %q, want %q", name, why, s.why)
		}
		var knobs []runtime.Knob
		for _, ch := range got {
			knobs = append(knobs, ch.Knob)
			if ch.Knob == runtime.KnobCPUBurst && (string(ch.To) != s.burst || ch.From != s.now || !ch.Take) {
				t.Errorf("%s: %+v", name, ch)
			}
			if !slices.Contains(s.changes, ch) && ch.RateAfter != 7 {
				t.Errorf("%s: %+v: it is judged with the quota", name, ch)
			}
		}
		if !slices.Equal(knobs, s.want) {
			t.Errorf("%s: %v, want %v", name, knobs, s.want)
		}
	}
}

// TestQuotaTakeWithBurstIsMade: the whole way, with the kernel's rule at the end of it.
func TestQuotaTakeWithBurstIsMade(t *testing.T) {
	n := newNode(4)
	j := n.addJob("train", 3, tune())
	j.c.Now[runtime.KnobCPUBurst] = "300000"
	j.c.Original = runtime.Values{runtime.KnobCPUQuota: "50000 100000", runtime.KnobCPUBurst: "0"}
	c := New(Defaults(), script{func(pj policies.Job) []policies.Change {
		if now := pj.Now[runtime.KnobCPUQuota]; now == "300000 100000" {
			return []policies.Change{{Key: pj.Key, Knob: runtime.KnobCPUQuota, From: now, To: "200000 100000", Take: true, RateAfter: pj.Rate.PerSecond}}
		}
		return nil
	}}, "t")
	taken := false
	run(c, n, 60, func(_ int, d Decision) {
		taken = taken || len(d.Apply) > 0
		quotaUs, _, err := runtime.ParseQuota(j.c.Now[runtime.KnobCPUQuota])
		if burst, ok := j.c.Now[runtime.KnobCPUBurst].Int(); err != nil || !ok || burst > quotaUs {
			t.Fatalf("burst %d above the quota of %d: refused (%v)", burst, quotaUs, err)
		}
	})
	if !taken {
		t.Error("nothing was taken: nothing was tested")
	}
}

// TestWhoDecides: somebody else over label and rule, these over the policy, that over the default.
func TestWhoDecides(t *testing.T) {
	e := tune()
	e.Knobs, e.KnobsFrom = []string{"cpu", "memory"}, "label trimtab.knobs"
	e.Memory = policies.Range{Min: mib, Max: mib}
	j := &job{c: Container{Watched: true, Enrolment: e, Yielded: []runtime.Knob{runtime.KnobCPUWeight},
		Now: runtime.Values{runtime.KnobCPUQuota: "max 100000", runtime.KnobCPUWeight: "100", runtime.KnobMemoryLimit: "max", runtime.KnobIOWeight: "100"}}}
	c := New(Defaults(), script{}, "t")
	got := c.deciders(j)
	for k, want := range map[runtime.Knob]string{
		runtime.KnobCPUWeight: "somebody else, who set it", runtime.KnobCPUQuota: "policy script (label trimtab.knobs)",
		runtime.KnobMemoryLimit: "its bounds, which leave one value", runtime.KnobIOWeight: "its owner (label trimtab.knobs)",
	} {
		if got[k] != want {
			t.Errorf("%s: %q, want %q", k, got[k], want)
		}
	}
	// What it follows from may change from one tick to the next; what was told stays as it was.
	before := maps.Clone(got)
	for _, change := range []struct {
		what, want string
		of         runtime.Knob
		make       func(*Container)
	}{
		{"bounds", "policy script (label trimtab.knobs)", runtime.KnobMemoryLimit, func(c *Container) { c.Enrolment.Memory.Max *= 2 }},
		{"knobs", "its owner (label trimtab.knobs)", runtime.KnobMemoryLimit, func(c *Container) { c.Enrolment.Knobs = []string{"cpu"} }},
		{"a yield", "somebody else, who set it", runtime.KnobCPUQuota, func(c *Container) { c.Yielded = append(c.Yielded, runtime.KnobCPUQuota) }},
		{"a knob that came", "policy script (label trimtab.knobs)", runtime.KnobCPUBurst, func(c *Container) {
			c.Now = runtime.Values{runtime.KnobCPUQuota: "max 100000", runtime.KnobCPUWeight: "100", runtime.KnobMemoryLimit: "max", runtime.KnobCPUBurst: "0"}
		}},
		{"the mode", "its owner (observe)", runtime.KnobCPUBurst, func(c *Container) { c.Enrolment.Mode = policies.ModeObserve }},
		{"where the knobs are from", "its owner (config)", runtime.KnobMemoryLimit, func(c *Container) { c.Enrolment.KnobsFrom = "config" }},
	} {
		change.make(&j.c)
		if now := c.deciders(j)[change.of]; now != change.want {
			t.Errorf("after %s changed, %s: %q, want %q", change.what, change.of, now, change.want)
		}
	}
	if !maps.Equal(before, got) {
		t.Errorf("what was published was written to: %v, before %v", got, before)
	}
}
