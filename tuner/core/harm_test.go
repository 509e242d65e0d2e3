package core

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/view"
)

// TestSignsOfHarm: what one tick must show for memory that was taken to go back.
func TestSignsOfHarm(t *testing.T) {
	before := memoryMeans{seconds: 10, reread: 10 * mib, some: 0.05, full: 0.01, cpus: 1}
	for name, c := range map[string]struct {
		knob runtime.Knob
		edit func(*memoryTick)
		want string // "": none
	}{
		"as before":                        {runtime.KnobMemoryLimit, func(*memoryTick) {}, ""},
		"a little more is read again":      {runtime.KnobMemoryLimit, func(m *memoryTick) { m.reread = 15 * mib }, ""},
		"much more is":                     {runtime.KnobMemoryLimit, func(m *memoryTick) { m.reread = 17 * mib }, "reads 17.0 MiB/s again"},
		"some wait":                        {runtime.KnobMemoryLimit, func(m *memoryTick) { m.some = 0.2 }, "some of it waits"},
		"all wait":                         {runtime.KnobMemoryLimit, func(m *memoryTick) { m.full = 0.1 }, "all of it waits"},
		"a kill":                           {runtime.KnobMemoryHigh, func(m *memoryTick) { m.kills = 1 }, "was killed"},
		"it grows into the limit":          {runtime.KnobMemoryLimit, func(m *memoryTick) { m.held = 960 * mib }, "grows into the limit"},
		"it gets there by the next tick":   {runtime.KnobMemoryLimit, func(m *memoryTick) { m.held, m.grew = 900*mib, 60*mib }, "grows into the limit"},
		"it does, and evicts its cache":    {runtime.KnobMemoryLimit, func(m *memoryTick) { m.held, m.reread = 960*mib, 17*mib }, "grows into the limit"},
		"it grows, with time enough":       {runtime.KnobMemoryLimit, func(m *memoryTick) { m.held, m.grew = 900*mib, 40*mib }, ""},
		"the limit is hit, none the worse": {runtime.KnobMemoryLimit, func(m *memoryTick) { m.hits = 500 }, ""},
		"memory.high, and it gets on":      {runtime.KnobMemoryHigh, func(m *memoryTick) { m.high = 50 }, ""},
		"memory.high, and it does not":     {runtime.KnobMemoryHigh, func(m *memoryTick) { m.high, m.cpus = 50, 0.3 }, "holds it up"},
		"less to do under memory.high":     {runtime.KnobMemoryHigh, func(m *memoryTick) { m.cpus = 0.3 }, ""},
	} {
		tick := memoryTick{endNs: second, held: 500 * mib, current: 700 * mib, reread: 10 * mib, some: 0.05, full: 0.01, cpus: 1}
		c.edit(&tick)
		got := tick.hurts(before, policies.Change{Knob: c.knob, To: runtime.IntValue(1000 * mib), Take: true})
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestRaiseThatCrowdsGoesBack: memory given to one must not leave others waiting for it.
func TestRaiseThatCrowdsGoesBack(t *testing.T) {
	for name, free := range map[string]bool{"on a host that has none left": false, "on a host that has": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(4)
			j := n.limited("raised", 500, 300, allowMemory())
			other := n.limited("other", 4000, 300, policies.Enrolment{Mode: policies.ModeOff, WhyNot: "no label"})
			c := New(Defaults(), script{func(pj policies.Job) []policies.Change {
				if pj.MemoryUse.Limit != 500*mib {
					return nil
				}
				return []policies.Change{limitTo(pj, 900, false, policies.WitnessHarm)}
			}}, "t")
			raised := false
			records := run(c, n, 25, func(_ int, d Decision) {
				if raised = raised || len(d.Apply) > 0; raised {
					other.cgroup.Memory.FullUs += 200_000
					other.cgroup.Memory.SomeUs += 200_000
					if !free {
						n.memAvail = 1 << 30
					}
				}
			})
			got := outcomes(records)
			if free && (len(got) != 1 || got[0] != view.OutcomeKept) {
				t.Errorf("trials %v: the neighbour's want is its own", got)
			}
			if !free && (len(got) == 0 || got[0] != view.OutcomeRolledBack || j.limit() != 500*mib) {
				t.Errorf("trials %v, limit %d MiB, want it back: %+v", got, j.limit()/mib, records)
			}
		})
	}
}

// TestNeighboursAreGuardedBeyondTheLimit: what stands before neighbours goes back when
// they wait for it, also on a host that has memory left.
func TestNeighboursAreGuardedBeyondTheLimit(t *testing.T) {
	memory := func(o *simJob) { o.cgroup.Memory.FullUs += 200_000; o.cgroup.Memory.SomeUs += 200_000 }
	disk := func(o *simJob) { o.cgroup.IO.SomeUs += 500_000 }
	for name, c := range map[string]struct {
		knob     runtime.Knob
		now, to  runtime.Value
		from     int // -1: the neighbour waits from the start, else with the change
		press    func(*simJob)
		goesBack bool
	}{
		"memory.low, and it waits for memory":  {knob: runtime.KnobMemoryLow, now: "0", to: runtime.IntValue(400 * mib), press: memory, goesBack: true},
		"memory.low, and it waits for disks":   {knob: runtime.KnobMemoryLow, now: "0", to: runtime.IntValue(400 * mib), press: disk},
		"I/O weight, and it waits for disks":   {knob: runtime.KnobIOWeight, now: "100", to: "400", press: disk, goesBack: true},
		"I/O weight, and it waits for memory":  {knob: runtime.KnobIOWeight, now: "100", to: "400", press: memory},
		"I/O weight, and it waited before too": {knob: runtime.KnobIOWeight, now: "100", to: "400", from: -1, press: disk},
		"I/O weight, and nobody waits":         {knob: runtime.KnobIOWeight, now: "100", to: "400", press: func(*simJob) {}},
		"burst is none of theirs":              {knob: runtime.KnobCPUBurst, now: "0", to: "100000", press: disk},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(4)
			e := allowMemory()
			e.Knobs = []string{"cpu", "memory", "io"}
			j := n.limited("given", 1000, 300, e)
			j.onV2()
			j.c.LowReaches = true
			j.c.Now[c.knob], j.c.Now[runtime.KnobCPUQuota] = c.now, "400000 100000"
			other := n.limited("other", 4000, 300, policies.Enrolment{Mode: policies.ModeOff, WhyNot: "no label"})
			applied := -1
			co := New(Defaults(), script{func(pj policies.Job) []policies.Change {
				if pj.Now[c.knob] != c.now || applied >= 0 {
					return nil
				}
				return []policies.Change{{Key: pj.Key, Name: pj.Name, Knob: c.knob, From: c.now, To: c.to, Gain: 1, RateAfter: 2 * pj.Rate.PerSecond}}
			}}, "t")
			harmed := false
			for _, r := range run(co, n, 40, func(i int, d Decision) {
				if len(d.Apply) > 0 {
					applied = i
				}
				if c.from < 0 || applied >= 0 {
					c.press(other)
				}
			}) {
				harmed = harmed || r.Kind == view.RecordTrial && strings.Contains(r.Text, "other: ")
			}
			if applied < 0 {
				t.Fatal("nothing was given: nothing was tested")
			}
			if harmed != c.goesBack {
				t.Errorf("given back for the neighbour: %v, want %v", harmed, c.goesBack)
			}
		})
	}
}

// TestMemoryReplays: inputs that went through a recording's text lead to the same
// raises, takes and escapes.
func TestMemoryReplays(t *testing.T) {
	n := newNode(4)
	j := n.limited("given", 700, 300, allowMemory())
	first, again := New(Defaults(), knee.New(knee.Defaults()), "t"), New(Defaults(), knee.New(knee.Defaults()), "t")
	held, orders, backs := int64(300), 0, 0
	var results []Result
	for i := range 260 {
		in := n.tick()
		in.Results = results
		raw, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		d := first.Step(in)
		replayed, err := again.Replay(raw)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, replayed.Decision); diff != "" {
			t.Fatalf("tick %d (-first +again):\n%s", i, diff)
		}
		results = n.apply(d)
		orders, backs = orders+len(d.Apply), backs+len(d.Rollback)
		switch {
		case held < 600: // it grows, and is given more
			held += 16
		case len(first.standing) > 0 && j.limit() < 900*mib: // it stopped, and some was taken: it wants it after all
			j.cgroup.RefaultFile += 5000
		}
		j.hold(held)
	}
	if orders < 2 || backs == 0 {
		t.Errorf("%d orders and %d ways back: not enough happened to be compared", orders, backs)
	}
}
