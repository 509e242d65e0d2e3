package core

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
)

// TestPromisedMemory: what a raised limit may still take is not free.
func TestPromisedMemory(t *testing.T) {
	limits := func(now, original int64) (v, o runtime.Values) {
		v = runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(now * mib)}
		if original > 0 {
			o = runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(original * mib)}
		}
		return v, o
	}
	for name, c := range map[string]struct {
		now, original, current int64
		edit                   func(c *Core, j *job)
		want                   int64
	}{
		"its owner's":              {now: 1000, current: 300, want: 0},
		"raised, below its old":    {now: 3000, original: 1000, current: 300, want: 2000},
		"raised, partly used":      {now: 3000, original: 1000, current: 2500, want: 500},
		"raised, all used":         {now: 3000, original: 1000, current: 3000, want: 0},
		"lowered":                  {now: 800, original: 1000, current: 300, want: 0},
		"its owner's, on its way":  {now: 1000, current: 300, want: 500, edit: pendingRaise(0)},
		"on its way, and answered": {now: 1000, current: 300, want: 0, edit: pendingRaise(second)},
		"no limit":                 {current: 300, want: 0, edit: func(_ *Core, j *job) { j.c.Now[runtime.KnobMemoryLimit] = runtime.ValueMax }},
		"its owner set none": {now: 800, current: 300, want: 0, edit: func(_ *Core, j *job) {
			j.c.Original = runtime.Values{runtime.KnobMemoryLimit: runtime.ValueMax}
		}},
	} {
		co := New(Defaults(), script{}, "t")
		j := &job{c: Container{Container: runtime.Container{ID: runtime.ID{Container: "x"}}}}
		j.c.Now, j.c.Original = limits(c.now, c.original)
		j.memory = []memoryTick{{endNs: second, current: float64(c.current * mib)}}
		j.key = j.c.Key()
		co.jobs[j.key] = j
		if c.edit != nil {
			c.edit(co, j)
		}
		co.last.Host = probes.Host{MemTotal: 16 << 30, MemAvail: 8 << 30, AtNs: second}
		co.balanceMemory()
		reserve := co.node.ReserveMemory
		if got := (8<<30 - reserve - co.node.MemoryFree) / mib; got != float64(c.want) {
			t.Errorf("%s: %.0f MiB promised, want %d", name, got, c.want)
		}
	}
}

// pendingRaise puts a raise to 1500 MiB on trial.
func pendingRaise(appliedNs int64) func(*Core, *job) {
	return func(c *Core, j *job) {
		c.trials["p"] = &openTrial{appliedNs: appliedNs, order: Order{Plan: "p", Changes: []policies.Change{{Key: j.c.Key(), Knob: runtime.KnobMemoryLimit,
			From: j.c.Now[runtime.KnobMemoryLimit], To: runtime.IntValue(1500 * mib)}}}}
	}
}

// TestMemoryIsGivenOnce: jobs that grow at the same time are not each promised all that is free.
func TestMemoryIsGivenOnce(t *testing.T) {
	n := newNode(4)
	var jobs []*simJob
	for _, name := range []string{"a", "b", "c", "d"} {
		jobs = append(jobs, n.limited(name, 500, 300, allowMemory()))
	}
	c := New(Defaults(), script{func(pj policies.Job) []policies.Change {
		if pj.MemoryUse.Limit > 500*mib {
			return nil
		}
		return []policies.Change{limitTo(pj, 6000, false, policies.WitnessHarm)}
	}}, "t")
	n.memAvail = 4 << 30
	free := 4096 - int64(c.cfg.ReserveMemoryShare*16384)
	raised := 0
	run(c, n, 60, func(i int, _ Decision) {
		var promised int64
		raised = 0
		for _, j := range jobs {
			if j.limit() > 500*mib {
				raised++
				promised += j.limit()/mib - 500
			}
		}
		if promised > free {
			t.Fatalf("tick %d: %d MiB promised of %d that are free", i, promised, free)
		}
	})
	if raised == 0 {
		t.Error("nothing was raised: nothing was tested")
	}
}
