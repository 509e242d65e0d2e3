package knee

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

const gib = 1 << 30

var bigNode = policies.Node{CPUs: 8, MaxWeight: 262144, MaxIOWeight: 1000, Memory: 64 * gib, ReserveMemory: 6 * gib, MemoryFree: 20 * gib, DecisionSeconds: 34}

// cached is a job that reads 10 MiB/s again under a limit of 320 MiB and loses half
// of its time to it.
func cached() policies.Job {
	now := runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(320 * mib), runtime.KnobCPUQuota: "max 100000", runtime.KnobCPUWeight: "1024"}
	b := policies.Breakdown{WallNs: 100}
	b.Ns[policies.PartInputStorage], b.Ns[policies.PartCompute] = 50, 50
	return policies.Job{Key: "a", Name: "a", Now: now, Original: now, Breakdown: b, Rate: policies.Rate{PerSecond: 10}, Correction: 1,
		Enrolment: policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"cpu", "memory", "io", "cpuset"}},
		Verdict:   policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseCache, Confidence: 1, Severity: 0.5},
		MemoryUse: policies.MemoryUse{Read: true, Current: 320 * mib, Held: 150 * mib, Limit: 320 * mib, Reread: 10 * mib, DiskRead: 10 * mib}}
}

func growing() policies.Job {
	j := cached()
	j.Verdict = policies.Verdict{Class: policies.ClassMemory, Cause: policies.CauseRisk, Confidence: 1}
	j.Breakdown = policies.Breakdown{}
	j.MemoryUse = policies.MemoryUse{Read: true, Current: 310 * mib, Held: 250 * mib, Limit: 320 * mib, Growth: 16 * mib}
	return j
}

func with(j policies.Job, edit func(*policies.Job)) policies.Job {
	j.Now, j.Original = j.Now.Clone(), j.Original.Clone()
	edit(&j)
	return j
}

func mibOf(t *testing.T, v runtime.Value) int64 {
	t.Helper()
	n, ok := v.Int()
	if !ok {
		t.Fatalf("%q is no amount", v)
	}
	return n / mib
}

// TestMemoryUp: how much is given, and what bounds it.
func TestMemoryUp(t *testing.T) {
	for name, c := range map[string]struct {
		job  policies.Job
		node func(*policies.Node)
		to   int64 // MiB; 0: nothing
	}{
		"what is read again in a minute": {cached(), nil, 320 + 600},
		"the owner's bound":              {with(cached(), func(j *policies.Job) { j.Enrolment.Memory.Max = 500 * mib }), nil, 500},
		"half of what is free":           {cached(), func(n *policies.Node) { n.MemoryFree = 400 * mib }, 320 + 200},
		"no more than 8 GiB at once":     {with(cached(), func(j *policies.Job) { j.MemoryUse.Reread = 900 * mib }), nil, 320 + 8192},
		"a full host":                    {cached(), func(n *policies.Node) { n.MemoryFree = -gib }, 0},
		"at the owner's bound":           {with(cached(), func(j *policies.Job) { j.Enrolment.Memory.Max = 322 * mib }), nil, 0},
		"no limit is imposed": {with(cached(), func(j *policies.Job) {
			j.Now[runtime.KnobMemoryLimit], j.MemoryUse.Limit = runtime.ValueMax, 0
		}), nil, 0},
		"memory is not allowed":              {with(cached(), func(j *policies.Job) { j.Enrolment.Knobs = []string{"cpu"} }), nil, 0},
		"evicted pages beside another cause": {with(cached(), func(j *policies.Job) { j.Verdict.Cause = policies.CauseContended }), nil, 320 + 600},
		"first touches beside another cause": {with(cached(), func(j *policies.Job) { j.Verdict.Cause, j.MemoryUse.Reread = policies.CauseContended, mib }), nil, 0},
		"unsure":                             {with(cached(), func(j *policies.Job) { j.Verdict.Confidence = 0.3 }), nil, 0},
		"little to gain":                     {with(cached(), func(j *policies.Job) { j.MemoryUse.DiskRead = 1000 * mib }), nil, 0},
		"not read":                           {with(cached(), func(j *policies.Job) { j.MemoryUse = policies.MemoryUse{} }), nil, 0},
		"reclaim without refaults":           {with(cached(), func(j *policies.Job) { j.Verdict.Cause, j.MemoryUse.Reread = policies.CauseReclaim, 0 }), nil, 400},
		"growth of two decisions":            {growing(), nil, 250 + 2*34*16 + 64},
		"growth, the owner's bound":          {with(growing(), func(j *policies.Job) { j.Enrolment.Memory.Max = 600 * mib }), nil, 600},
		"growth, what is free":               {growing(), func(n *policies.Node) { n.MemoryFree = 100 * mib }, 310 + 100},
		"growth that nobody may meet":        {with(growing(), func(j *policies.Job) { j.Enrolment.Knobs = nil }), nil, 0},
		"growth at the owner's bound":        {with(growing(), func(j *policies.Job) { j.Enrolment.Memory.Max = 322 * mib }), nil, 0},
		"slow growth":                        {with(growing(), func(j *policies.Job) { j.MemoryUse.Growth = 0.1 * mib }), nil, 400},
	} {
		t.Run(name, func(t *testing.T) {
			node := bigNode
			if c.node != nil {
				c.node(&node)
			}
			p := New(Defaults()).Propose(node, []policies.Job{c.job})
			if c.to == 0 {
				if len(p.Plans) > 0 {
					t.Fatalf("%+v", p.Plans)
				}
				return
			}
			ch := only(t, p)
			if ch.Knob != runtime.KnobMemoryLimit || ch.Take || mibOf(t, ch.To) != c.to {
				t.Errorf("%s, want %d MiB; %s", ch.Knob.Text(ch.From, ch.To), c.to, ch.Reason)
			}
			if protects := ch.Witness == policies.WitnessHarm; protects != (c.job.Verdict.Cause == policies.CauseRisk) {
				t.Errorf("witness %q of %s", ch.Witness, c.job.Verdict.Cause)
			}
		})
	}
}

func TestMemoryGainAndReason(t *testing.T) {
	ch := only(t, New(Defaults()).Propose(bigNode, []policies.Job{cached()}))
	if ch.Gain != 1 || ch.RateAfter != 20 {
		t.Errorf("gain %.2f to %.1f/s; half of its time lost means twice the rate", ch.Gain, ch.RateAfter)
	}
	for _, said := range []string{"10.0 MiB/s again", "limit of 320 MiB", "600 MiB in 60 s"} {
		if !strings.Contains(ch.Reason, said) {
			t.Errorf("the reason does not say %q: %s", said, ch.Reason)
		}
	}
	j := cached()
	j.Enrolment.Knobs = []string{"cpu"}
	if a := New(Defaults()).Propose(bigNode, []policies.Job{j}).Advice; len(a) != 1 || !strings.Contains(a[0].Text, "trimtab.knobs") {
		t.Errorf("advice %+v, want which knob to allow", a)
	}
}

// TestMeasuredEnoughBeatsTheGuess: where it was measured how much keeps all that is read
// again, so much is asked for, and its curve says what it brings.
func TestMeasuredEnoughBeatsTheGuess(t *testing.T) {
	j := cached()
	j.Paging = policies.Paging{Base: 0.025, Lost: 0.075, Limit: 320 * mib, Set: 500 * mib, Enough: true}
	j.Memory = policies.Curve{Points: []policies.Point{{X: 320 * mib, Rate: 10}, {X: 500 * mib, Rate: 40}}}
	ch := only(t, New(Defaults()).Propose(bigNode, []policies.Job{j}))
	if mibOf(t, ch.To) != 500+64 || ch.Gain != 3 || ch.RateAfter != 40 || !strings.Contains(ch.Reason, "500 MiB were enough before") {
		t.Errorf("%+v, want what was enough, with room", ch)
	}
	j.Memory.Points[1].Rate = 10.1
	if p := New(Defaults()).Propose(bigNode, []policies.Job{j}); len(p.Plans) > 0 {
		t.Errorf("%+v: it brought nothing", p.Plans)
	}
	j.Paging.Set, j.Paging.Limit = 300*mib, 300*mib // and now it reads again with more
	if ch := only(t, New(Defaults()).Propose(bigNode, []policies.Job{j})); mibOf(t, ch.To) != 320+600 {
		t.Errorf("%+v, want what is read again in a minute", ch)
	}
}

// TestQuotaAndMemoryAtOnce: a job that runs out of quota, part of which it spends on reading
// again what its limit evicted, is given both; what takes quota goes alone.
func TestQuotaAndMemoryAtOnce(t *testing.T) {
	both := func(edit func(*policies.Job)) []policies.Plan {
		j := starved(0.5)
		c := cached()
		j.MemoryUse, j.Enrolment = c.MemoryUse, c.Enrolment
		j.Now = with(j, func(j *policies.Job) { j.Now[runtime.KnobMemoryLimit] = c.Now[runtime.KnobMemoryLimit] }).Now
		j.Original = j.Now
		j.Breakdown.Ns[policies.PartCompute], j.Breakdown.Ns[policies.PartInputStorage] = 40, 20
		edit(&j)
		return New(Defaults()).Propose(bigNode, []policies.Job{j}).Plans
	}
	for _, cause := range []policies.Cause{policies.CauseThrottled, policies.CauseCache} {
		plans := both(func(j *policies.Job) { j.Verdict.Cause = cause })
		if len(plans) != 1 || len(plans[0].Changes) != 2 || plans[0].Changes[0].Knob != runtime.KnobCPUQuota || plans[0].Changes[1].Knob != runtime.KnobMemoryLimit {
			t.Fatalf("%s: %+v, want quota and memory in one plan", cause, plans)
		}
		if ch := plans[0].Changes[1]; mibOf(t, ch.To) != 320+600 || ch.Gain != 0.25 {
			t.Errorf("%s: %+v, want 920 MiB for the fifth of its time that it waits for them", cause, ch)
		}
	}
	// Reading single pages again costs CPU and hardly any wait: 10 MiB/s are 2,560 reads, and a
	// twentieth of half a CPU at the least.
	plans := both(func(j *policies.Job) {
		j.Breakdown.Ns[policies.PartCompute], j.Breakdown.Ns[policies.PartInputStorage] = 60, 0
		j.MemoryUse.Reads, j.UsedCPUs = 2560, 0.5
	})
	if len(plans) != 1 || len(plans[0].Changes) != 2 || math.Abs(plans[0].Changes[1].Gain-0.054) > 0.001 {
		t.Errorf("%+v, want memory for the CPU that reading again costs", plans)
	}
	for name, edit := range map[string]func(*policies.Job){
		"large reads": func(j *policies.Job) {
			j.Breakdown.Ns[policies.PartCompute], j.Breakdown.Ns[policies.PartInputStorage] = 60, 0
			j.MemoryUse.Reads, j.UsedCPUs = 80, 0.5
		},
		"memory is not allowed": func(j *policies.Job) { j.Enrolment.Knobs = []string{"cpu"} },
		"first touches":         func(j *policies.Job) { j.MemoryUse.Reread = mib },
		"it waits for none": func(j *policies.Job) {
			j.Breakdown.Ns[policies.PartCompute], j.Breakdown.Ns[policies.PartInputStorage] = 60, 0
		},
	} {
		if plans := both(edit); len(plans) != 1 || len(plans[0].Changes) != 1 || plans[0].Changes[0].Knob != runtime.KnobCPUQuota {
			t.Errorf("%s: %+v, want the quota alone", name, plans)
		}
	}
}

func given() policies.Job {
	j := cached()
	j.Original = j.Now.Clone()
	j.Now = j.Now.Clone()
	j.Now[runtime.KnobMemoryLimit] = runtime.IntValue(2000 * mib)
	j.Verdict = policies.Verdict{Class: policies.ClassBalanced, Confidence: 1}
	j.Breakdown = policies.Breakdown{}
	j.Settled = true
	j.MemoryUse = policies.MemoryUse{Read: true, Current: 700 * mib, Held: 150 * mib, Limit: 2000 * mib}
	return j
}

// TestGrowthBelowTheOwnersLimit: what the owner set is the job's own, on a host that has nothing left.
func TestGrowthBelowTheOwnersLimit(t *testing.T) {
	full := bigNode
	full.MemoryFree = -gib
	below := func(original runtime.Value) policies.Job {
		return with(growing(), func(j *policies.Job) { j.Original[runtime.KnobMemoryLimit] = original })
	}
	for original, want := range map[runtime.Value]int64{runtime.IntValue(380 * mib): 380, runtime.ValueMax: 400} {
		p := New(Defaults()).Propose(full, []policies.Job{below(original)})
		if len(p.Plans) != 1 || mibOf(t, p.Plans[0].Changes[0].To) < want {
			t.Errorf("its owner's is %s: %+v, want %d MiB at least", original, p.Plans, want)
		}
	}
	if p := New(Defaults()).Propose(full, []policies.Job{growing()}); len(p.Plans) != 0 {
		t.Errorf("at its owner's: %+v", p.Plans)
	}
}

// TestMemoryDown: only what trimtab gave and what nothing uses goes back.
func TestMemoryDown(t *testing.T) {
	for name, c := range map[string]struct {
		job policies.Job
		to  int64
	}{
		"to what is used":         {given(), 700 + 70},
		"not below the owner's":   {with(given(), func(j *policies.Job) { j.MemoryUse.Current = 100 * mib }), 320},
		"the owner's stays":       {with(given(), func(j *policies.Job) { j.Original[runtime.KnobMemoryLimit] = runtime.IntValue(2000 * mib) }), 0},
		"used":                    {with(given(), func(j *policies.Job) { j.MemoryUse.Current = 1600 * mib }), 0},
		"it reads again":          {with(given(), func(j *policies.Job) { j.MemoryUse.Reread = mib }), 0},
		"it waits for memory":     {with(given(), func(j *policies.Job) { j.MemoryUse.Some = 0.05 }), 0},
		"it grows":                {with(given(), func(j *policies.Job) { j.MemoryUse.Growth = mib }), 0},
		"it has not settled":      {with(given(), func(j *policies.Job) { j.Settled = false }), 0},
		"no limit of its owner's": {with(given(), func(j *policies.Job) { j.Original[runtime.KnobMemoryLimit] = runtime.ValueMax }), 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(Defaults()).Propose(bigNode, []policies.Job{c.job})
			if c.to == 0 {
				if len(p.Plans) > 0 {
					t.Fatalf("%+v", p.Plans)
				}
				return
			}
			if ch := only(t, p); !ch.Take || ch.Witness != policies.WitnessHarm || mibOf(t, ch.To) != c.to {
				t.Errorf("%+v, want a take to %d MiB", ch, c.to)
			}
		})
	}
}

// TestKnobsThatAreNotAllowedStandInNobodysWay: a job that queues for a CPU, of which
// only the memory may be moved, gives back memory all the same.
func TestKnobsThatAreNotAllowedStandInNobodysWay(t *testing.T) {
	j := with(given(), func(j *policies.Job) {
		c := contended()
		j.Cost, j.CostOK, j.Breakdown, j.Verdict, j.Entitlement, j.Rate = c.Cost, true, c.Breakdown, c.Verdict, c.Entitlement, c.Rate
		j.Enrolment.Knobs = []string{"memory"}
	})
	if ch := only(t, New(Defaults()).Propose(bigNode, []policies.Job{j})); ch.Knob != runtime.KnobMemoryLimit || !ch.Take {
		t.Errorf("%+v, want unused memory taken", ch)
	}
	j.Enrolment.Knobs = []string{"cpu", "memory"}
	if ch := only(t, New(Defaults()).Propose(bigNode, []policies.Job{j})); ch.Knob != runtime.KnobCPUWeight {
		t.Errorf("%+v, want what its cause calls for", ch)
	}
}

// TestBestEffortIsNotSqueezed: what of its memory could be reclaimed is page cache, which the
// host counts as free already: to take it would give nobody anything.
func TestBestEffortIsNotSqueezed(t *testing.T) {
	full := bigNode
	full.MemoryFree = 0
	j := given()
	j.Key, j.Name = "z", "best-effort"
	j.Enrolment.BestEffort = true
	j.Now[runtime.KnobMemoryLimit], j.Original[runtime.KnobMemoryLimit] = runtime.ValueMax, runtime.ValueMax
	j.Now[runtime.KnobMemoryHigh], j.Original[runtime.KnobMemoryHigh] = runtime.ValueMax, runtime.ValueMax
	j.MemoryUse = policies.MemoryUse{Read: true, Current: 5000 * mib, Held: 1000 * mib}
	if p := New(Defaults()).Propose(full, []policies.Job{cached(), j}); len(p.Plans) > 0 {
		t.Errorf("%+v", p.Plans)
	}
}

// TestMemoryStaysAboveWhatIsHeld: no proposal goes below what only a kill frees.
func TestMemoryStaysAboveWhatIsHeld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.Float64Range(mib, 16*gib)
		j := given()
		j.Enrolment.BestEffort = rapid.Bool().Draw(t, "best-effort")
		held := amount.Draw(t, "held")
		j.MemoryUse = policies.MemoryUse{Read: true, Held: held, Current: held + amount.Draw(t, "cache")}
		j.MemoryUse.Limit = j.MemoryUse.Current + amount.Draw(t, "room")
		j.Now[runtime.KnobMemoryLimit] = runtime.IntValue(int64(j.MemoryUse.Limit))
		node := bigNode
		node.MemoryFree = rapid.Float64Range(-gib, 20*gib).Draw(t, "free")
		for _, p := range New(Defaults()).Propose(node, []policies.Job{j}).Plans {
			for _, ch := range p.Changes {
				to, ok := ch.To.Int()
				if ok && ch.Take && float64(to) < j.MemoryUse.Floor() {
					t.Fatalf("%+v while %.0f bytes are held", ch, held)
				}
				if original, _ := j.Original[ch.Knob].Int(); ok && ch.Take && !j.Enrolment.BestEffort && to < original {
					t.Fatalf("%+v below the owner's %d", ch, original)
				}
			}
		}
	})
}
