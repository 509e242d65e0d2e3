package core

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/fingerprint"
)

// short makes a job read again what its limit evicts, and slow; without, it has enough with
// so many MiB in use.
func (j *simJob) short(is bool, usedMiB int64) {
	j.device = 0.04
	if j.cgroup.MemoryBytes = uint64(usedMiB * mib); is {
		j.cgroup.MemoryBytes = uint64(j.limit())
		j.cgroup.RefaultFile += 5_000
		j.device = 0.10
	}
}

// asksFor1500 asks for a limit of 1500 MiB, once.
func asksFor1500(j policies.Job) []policies.Change {
	if j.MemoryUse.Limit > 500*mib || !j.MemoryUse.Rereads() {
		return nil
	}
	return []policies.Change{limitTo(j, 1500, false, "")}
}

// TestMemoryIsLearntAndKept: what a job did under a limit that was too small, and what it used
// once it had enough, are one curve, and the job's fingerprint holds it.
func TestMemoryIsLearntAndKept(t *testing.T) {
	n := newNode(4)
	j := n.limited("cache", 400, 200, allowMemory())
	c := New(Defaults(), script{asksFor1500}, "t")
	run(c, n, 120, func(int, Decision) { j.short(j.limit() == 400*mib, 680) })
	core := c.jobs[j.c.Key()]
	now, _, _ := core.byMemory.At(400 * mib)
	enough, low, high := core.byMemory.At(700 * mib)
	if want := (0.02 + 0.10) / (0.02 + 0.04); math.Abs(enough/now/want-1) > 0.1 || low > enough || high < enough {
		t.Errorf("times %.2f (%.1f/s, from %.1f to %.1f), want %.2f", enough/now, enough, low, high, want)
	}
	if p := core.paging.Paging; !p.Enough || math.Abs(p.Set/(680*mib)-1) > 0.02 {
		t.Errorf("%+v, want 680 MiB to be enough", p)
	}
	known := c.Book().All()
	if len(known) != 1 || known[0].Learned.Memory == nil || !known[0].Learned.Memory.Paging.Enough {
		t.Fatalf("the book holds %+v", known)
	}
	// Another container of the kind begins with it.
	book, err := fingerprint.Open(known, c.last.UnixNs)
	if err != nil {
		t.Fatal(err)
	}
	n = newNode(4)
	j = n.limited("again", 400, 200, allowMemory())
	c = New(Defaults(), knee.New(knee.Defaults()), "t")
	c.Remember(book)
	run(c, n, 12, nil)
	if p := c.jobs[j.c.Key()].paging.Paging; !p.Enough || len(c.jobs[j.c.Key()].like.taken) < 2 {
		t.Errorf("%+v, taken %v", p, c.jobs[j.c.Key()].like.taken)
	}
}

// TestMemoryOfJobsThatMisbehave: what is learnt outlives a hang, a limit that fills and first
// touches, and is learnt anew where the job does something else, or is another process.
func TestMemoryOfJobsThatMisbehave(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(j *simJob)
		kept bool
	}{
		"it hangs":           {func(j *simJob) { j.device = 1e6 }, true},
		"its limit fills":    {func(j *simJob) { j.cgroup.MemoryBytes = 500 * mib; j.cgroup.RefaultFile += 5000; j.device = 0.3 }, true},
		"it does other work": {func(j *simJob) { j.device = 1 }, false},
		"it needs more":      {func(j *simJob) { j.cgroup.MemoryBytes = 1490 * mib; j.cgroup.RefaultFile += 5000; j.device = 0.08 }, false},
		"another source":     {func(j *simJob) { j.ticks.Source = "graph launches" }, false},
		"its owner unlimited": {func(j *simJob) {
			j.c.Now = j.c.Now.Clone()
			j.c.Now[runtime.KnobMemoryLimit] = runtime.ValueMax
			j.device = 0.2
		}, true},
	} {
		n := newNode(4)
		j := n.limited("cache", 400, 200, allowMemory())
		c := New(Defaults(), script{asksFor1500}, "t")
		run(c, n, 100, func(int, Decision) { j.short(j.limit() == 400*mib, 680) })
		core := c.jobs[j.c.Key()]
		before := core.paging
		if !before.Paging.Enough {
			t.Fatalf("%s: nothing was learnt: %+v", name, before)
		}
		run(c, n, 120, func(int, Decision) { tc.edit(j) })
		now := core.paging.Paging // the window in which it began to hang counts as slow
		same := core.paging.Phases == before.Phases && core.paging.Source == before.Source && now.Enough && now.Set == before.Paging.Set && now.Base < 1.5*before.Paging.Base
		if same != tc.kept {
			t.Errorf("%s: %+v became %+v", name, before.Paging, core.paging.Paging)
		}
	}
}

// TestPartOfASetIsWorthWhatIsSure: where it was measured how much is enough, and less is free,
// a raise is made as far as even the pessimist gains by it.
func TestPartOfASetIsWorthWhatIsSure(t *testing.T) {
	n := newNode(4)
	j := n.limited("cache", 400, 200, allowMemory())
	c := New(Defaults(), script{asksFor1500}, "t")
	run(c, n, 100, func(int, Decision) { j.short(j.limit() == 400*mib, 680) })
	core := c.jobs[j.c.Key()]
	raise := policies.Change{Key: core.key, Knob: runtime.KnobMemoryLimit, Gain: 1}
	whole, some, little := c.gainOf(core, raise, 400*mib, 700*mib, 800*mib), c.gainOf(core, raise, 400*mib, 650*mib, 800*mib), c.gainOf(core, raise, 400*mib, 450*mib, 800*mib)
	if math.Abs(whole-0.75) > 1e-9 || some > 0.625 || little > 0.05 || little > some {
		t.Errorf("%+.2f for all that is enough, %+.2f for most of it, %+.2f for little", whole, some, little)
	}
	core.paging.Paging.Enough = false
	if got := c.gainOf(core, raise, 400*mib, 450*mib, 800*mib); got != 0.125 {
		t.Errorf("%+.3f for an eighth of a guess", got)
	}
}
