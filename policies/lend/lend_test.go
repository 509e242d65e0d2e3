package lend

import (
	"math"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

const gib = 1 << 30

var bigNode = policies.Node{CPUs: 8, Reserve: 0.5, MaxWeight: 262144, Memory: 64 * gib, ReserveMemory: 6 * gib, MemoryFree: 20 * gib}

func policy() Policy { return New(policies.DefaultConstants()) }

// starved has half a CPU and is stopped for 60 % of the time that it wants one. Its steps are
// not counted.
func starved() policies.Job {
	now := runtime.Values{runtime.KnobCPUQuota: "50000 100000", runtime.KnobCPUWeight: "1024"}
	return policies.Job{Key: "a", Name: "a", May: true, Now: now, Original: now, Correction: 1,
		Enrolment: policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"cpu", "memory"}},
		CPU:       policies.CPUUse{Used: 0.5, Throttled: true, Lost: 0.6, Entitlement: 0.5}}
}

// lent is the same job with four CPUs, of which it uses 1.2.
func lent() policies.Job {
	return with(starved(), func(j *policies.Job) {
		j.Now[runtime.KnobCPUQuota] = "400000 100000"
		j.CPU = policies.CPUUse{Used: 1.2, Enough: 1.26, Entitlement: 0.5}
	})
}

func with(j policies.Job, edits ...func(*policies.Job)) policies.Job {
	j.Now, j.Original = j.Now.Clone(), j.Original.Clone()
	for _, edit := range edits {
		edit(&j)
	}
	return j
}

func loans(m policies.LoanMode) func(*policies.Job) {
	return func(j *policies.Job) { j.Enrolment.Loans = m }
}

func TestCPU(t *testing.T) {
	for name, c := range map[string]struct {
		job  policies.Job
		kind policies.Kind
		to   float64 // CPUs; 0: nothing
	}{
		"stopped by its quota":   {starved(), policies.KindLoan, 8},
		"by a label's bound":     {with(starved(), func(j *policies.Job) { j.Enrolment.CPU.Max = 2 }), policies.KindLoan, 2},
		"loans are to be proven": {with(starved(), loans(policies.LoansProven)), policies.KindTrial, 8},
		"loans are off":          {with(starved(), loans(policies.LoansOff)), "", 0},
		"not stopped":            {with(starved(), func(j *policies.Job) { j.CPU.Throttled = false }), "", 0},
		"without a quota": {with(starved(), func(j *policies.Job) {
			j.Now[runtime.KnobCPUQuota], j.Original[runtime.KnobCPUQuota] = "max 100000", "max 100000"
		}), "", 0},
		"at its ceiling":                {with(starved(), func(j *policies.Job) { j.Enrolment.CPU.Max = 0.5 }), "", 0},
		"nothing may be proposed of it": {with(starved(), func(j *policies.Job) { j.May = false }), "", 0},
		"runs out of memory first":      {with(starved(), func(j *policies.Job) { j.Urgent = true }), "", 0},
		"settles to what it used":       {lent(), policies.KindReturn, 1.3},
		"was free for too few readings": {with(lent(), func(j *policies.Job) { j.CPU.Enough = 0 }), "", 0},
		"has settled":                   {with(lent(), func(j *policies.Job) { j.Now[runtime.KnobCPUQuota] = "130000 100000" }), "", 0},
		"would free less than a tenth":  {with(lent(), func(j *policies.Job) { j.Now[runtime.KnobCPUQuota], j.CPU.Enough = "200000 100000", 1.85 }), "", 0},
		"uses less than its own":        {with(lent(), func(j *policies.Job) { j.CPU.Enough = 0.2 }), policies.KindReturn, 0.5},
		"its own is no twentieth": {with(lent(), func(j *policies.Job) {
			j.Original[runtime.KnobCPUQuota], j.CPU.Enough = "33000 100000", 0.2
		}), policies.KindReturn, 0.33},
		"its rate shows no use of the loan": {with(lent(), func(j *policies.Job) { j.CPU.LoanBrings = -1 }), policies.KindReturn, 0.5},
		"in doubt below its floor": {with(lent(), loans(policies.LoansFree), func(j *policies.Job) {
			j.Enrolment.CPU.Min, j.CPU.LoanDoubt, j.CPU.Throttled = 6, true, true
		}), policies.KindLoan, 8},
		"in doubt above its floor":   {with(lent(), loans(policies.LoansFree), func(j *policies.Job) { j.Enrolment.CPU.Min, j.CPU.LoanDoubt = 2, true }), policies.KindReturn, 2},
		"loans were switched off":    {with(lent(), loans(policies.LoansOff)), policies.KindReturn, 0.5},
		"uses less since it settled": {with(lent(), func(j *policies.Job) { j.Now[runtime.KnobCPUQuota], j.CPU.Shrank = "130000 100000", 4 }), policies.KindLoan, 4},
		"lent anew what was enough":  {with(starved(), func(j *policies.Job) { j.CPU.Known = 1.3 }), policies.KindLoan, 1.3},
		"what was enough no longer is": {with(lent(), func(j *policies.Job) {
			j.Now[runtime.KnobCPUQuota], j.CPU.Known, j.CPU.Throttled = "130000 100000", 1.3, true
		}), policies.KindLoan, 8},
		"bursts are stopped by what it settled to": {with(lent(), func(j *policies.Job) {
			j.Now[runtime.KnobCPUQuota], j.CPU = "130000 100000", policies.CPUUse{Used: 1, Throttled: true, Lost: 0.2, HasSettled: true, Bursts: 1.3}
		}), policies.KindLoan, 1.63}, // 1.3 / 0.8, in hundredths
		"bursts lose little": {with(lent(), func(j *policies.Job) {
			j.Now[runtime.KnobCPUQuota], j.CPU = "130000 100000", policies.CPUUse{Used: 1, Throttled: true, Lost: 0.03, HasSettled: true, Bursts: 1.3}
		}), policies.KindLoan, 1.37}, // 5 % more at least
		"bursts by a label's bound": {with(lent(), func(j *policies.Job) {
			j.Enrolment.CPU.Max = 1.5
			j.Now[runtime.KnobCPUQuota], j.CPU = "130000 100000", policies.CPUUse{Used: 1, Throttled: true, Lost: 0.5, HasSettled: true, Bursts: 1.3}
		}), policies.KindLoan, 1.5},
		"bursts before it has settled": {with(lent(), func(j *policies.Job) {
			j.Now[runtime.KnobCPUQuota], j.CPU = "130000 100000", policies.CPUUse{Used: 1, Throttled: true, Lost: 0.2, Bursts: 1.3}
		}), policies.KindLoan, 8},
		"bursts that nothing settled for": {with(starved(), func(j *policies.Job) { j.CPU.Bursts = 0.5 }), policies.KindLoan, 8},
		"short of the loan":               {with(lent(), func(j *policies.Job) { j.CPU.Throttled = true }), policies.KindLoan, 8},
	} {
		t.Run(name, func(t *testing.T) {
			plans := policy().Propose(bigNode, []policies.Job{c.job}).Plans
			if c.to == 0 {
				if len(plans) > 0 {
					t.Fatalf("%+v", plans)
				}
				return
			}
			if len(plans) != 1 {
				t.Fatalf("%+v, want one plan", plans)
			}
			ch := plans[0].Changes[0]
			if to, _ := ch.To.CPUs(); plans[0].Kind != c.kind || ch.Knob != runtime.KnobCPUQuota || math.Abs(to-c.to) > 1e-9 || ch.Take != (c.kind == policies.KindReturn) {
				t.Errorf("%s %+v, want %s of %.2f CPUs", plans[0].Kind, ch, c.kind, c.to)
			}
		})
	}
}

// TestBurstsAreRaisedByWhatIsGranted: a raise is rounded to hundredths of a CPU and is of 5 % at least, so that the
// least loss that counts leads to one at any quota.
func TestBurstsAreRaisedByWhatIsGranted(t *testing.T) {
	k := policies.DefaultConstants()
	for _, now := range []int64{3, 5, 10, 25, 30, 50, 77, 130, 400} { // hundredths
		j := with(lent(), func(j *policies.Job) {
			j.Original[runtime.KnobCPUQuota] = runtime.QuotaFromCPUs(float64(now)/200, 100000)
			j.Now[runtime.KnobCPUQuota] = runtime.QuotaFromCPUs(float64(now)/100, 100000)
			j.CPU = policies.CPUUse{Used: float64(now) / 120, Throttled: true, Lost: k.Notable, HasSettled: true, Bursts: float64(now) / 100}
		})
		plans := policy().Propose(bigNode, []policies.Job{j}).Plans
		if len(plans) != 1 {
			t.Errorf("%.2f CPUs: %+v, want one plan", float64(now)/100, plans)
			continue
		}
		to := plans[0].Changes[0].To.Quantity()
		if floor := math.Floor(to*100+1e-6) / 100; floor < float64(now)/100*(1+k.MinStep) || to > float64(now)/100*(1+2*k.MinStep)+0.01 {
			t.Errorf("%.2f CPUs: raised to %.3f", float64(now)/100, to)
		}
	}
}

// TestGain: what is lost tells the gain; where the cost is known it does, counted or not.
func TestGain(t *testing.T) {
	gain := func(j policies.Job) float64 {
		return policy().Propose(bigNode, []policies.Job{j}).Plans[0].Changes[0].Gain
	}
	if got := gain(starved()); math.Abs(got-1.5) > 1e-9 {
		t.Errorf("60 %% lost: %+.2f, want +1.5", got)
	}
	for _, ticks := range []float64{1, 50} { // a "tick" of an aggregated cost is a second
		j := with(starved(), func(j *policies.Job) {
			j.CostOK, j.Cost = true, policies.Cost{TrainerCPU: 0.02 * ticks, Device: 0.02 * ticks, LoaderCPU: 0.04 * ticks, Batch: 0.04 * ticks, Loaders: 4}
		})
		if got := gain(j); math.Abs(got-2) > 1e-9 {
			t.Errorf("a knee of 1.5 CPUs: %+.2f, want +2", got)
		}
		j.CPU.Obtainable = 1
		if got := gain(j); math.Abs(got-1) > 1e-9 {
			t.Errorf("of which it can obtain one: %+.2f, want +1", got)
		}
	}
}

// TestNoGainIsNoPrediction: where its mean step can use less than the quota that stops it, nothing is predicted, and
// that is said.
func TestNoGainIsNoPrediction(t *testing.T) {
	told := func(j policies.Job) string {
		ch := policy().Propose(bigNode, []policies.Job{j}).Plans[0].Changes[0]
		if !strings.Contains(ch.Reason, "stops it for 60 %") {
			t.Errorf("what it is for is not said: %s", ch.Reason)
		}
		return ch.Expected()
	}
	if got := told(starved()); got != "+150 % predicted" {
		t.Errorf("60 %% lost: %s", got)
	}
	bursts := with(starved(), func(j *policies.Job) { j.CostOK, j.Cost = true, policies.Cost{TrainerCPU: 0.2, Device: 0.8} })
	if got := told(bursts); got != "its gain is not predicted" {
		t.Errorf("a mean step that can use 0.2 CPUs: %s", got)
	}
}

// cached reads 10 MiB/s again under a limit of 320 MiB.
func cached() policies.Job {
	j := starved()
	j.CPU = policies.CPUUse{Used: 0.3}
	j.Now = runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(320 * mib)}
	j.Original = j.Now
	b := policies.Breakdown{WallNs: 100}
	b.Ns[policies.PartInputStorage], b.Ns[policies.PartCompute] = 50, 50
	j.Breakdown, j.Rate = b, policies.Rate{PerSecond: 10}
	j.Verdict = policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseCache, Confidence: 1, Severity: 0.5}
	j.Memory = policies.MemoryUse{Read: true, Current: 320 * mib, Held: 150 * mib, Limit: 320 * mib, AtLimit: true, Reread: 10 * mib, DiskRead: 10 * mib}
	return j
}

// growing runs into its limit.
func growing() policies.Job {
	return with(cached(), func(j *policies.Job) {
		j.Verdict, j.Breakdown = policies.Verdict{Class: policies.ClassMemory, Cause: policies.CauseRisk, Confidence: 1}, policies.Breakdown{}
		j.Memory = policies.MemoryUse{Read: true, Current: 310 * mib, Held: 250 * mib, Limit: 320 * mib, Growth: 16 * mib}
	})
}

// cachedLent has 4 GiB of a loan, holds all of its files, and reads nothing again.
func cachedLent() policies.Job {
	return with(cached(), func(j *policies.Job) {
		j.Now[runtime.KnobMemoryLimit] = runtime.IntValue(4096 * mib)
		j.Memory = policies.MemoryUse{Read: true, Current: 1400 * mib, Held: 150 * mib, Limit: 4096 * mib, CalmSeconds: 20, SparedSeconds: 20,
			Loan: policies.MemoryLoan{From: 320 * mib, Before: 1 * mib, Seconds: 30}}
	})
}

// misled was lent at its start what its last runs needed, and reads again all the same.
func misled(j *policies.Job) {
	m := &j.Memory
	m.Reread, m.DiskRead, m.Loan.Before, m.Loan.After, m.SparedSeconds, m.Current, m.AtLimit = 5*mib, 5*mib, 0, 1*mib, 0, m.Limit, true
}

// nearlyFull reads less again than before its loan, whose last tenth it has reached.
func nearlyFull(j *policies.Job) {
	m := &j.Memory
	m.Reread, m.DiskRead, m.Loan.After, m.SparedSeconds, m.Current = 5*mib, 5*mib, mib/3, 0, 0.95*m.Limit
}

func TestMemory(t *testing.T) {
	memory := func(edit func(*policies.MemoryUse)) func(*policies.Job) {
		return func(j *policies.Job) { edit(&j.Memory) }
	}
	for name, c := range map[string]struct {
		job  policies.Job
		node func(*policies.Node)
		kind policies.Kind
		to   int64 // MiB; 0: nothing
	}{
		"half of what is free":      {cached(), nil, policies.KindLoan, 320 + 10*1024},
		"the owner's bound":         {with(cached(), func(j *policies.Job) { j.Enrolment.Memory.Max = 500 * mib }), nil, policies.KindLoan, 500},
		"what was enough before":    {with(cached(), func(j *policies.Job) { j.Paging = policies.Paging{Set: 1000 * mib, Enough: true} }), nil, policies.KindLoan, 1100},
		"a full host":               {cached(), func(n *policies.Node) { n.MemoryFree = -gib }, "", 0},
		"no limit is imposed":       {with(cached(), memory(func(m *policies.MemoryUse) { m.Limit = 0 })), nil, "", 0},
		"memory is not allowed":     {with(cached(), func(j *policies.Job) { j.Enrolment.Knobs = []string{"cpu"} }), nil, "", 0},
		"loans are off":             {with(cached(), loans(policies.LoansOff)), nil, "", 0},
		"lent, and loans are off":   {with(cachedLent(), loans(policies.LoansOff)), nil, policies.KindReturn, 320},
		"loans are to be proven":    {with(cached(), loans(policies.LoansProven)), nil, policies.KindTrial, 320 + 10*1024},
		"first touches":             {with(cached(), memory(func(m *policies.MemoryUse) { m.DiskRead = 1000 * mib })), nil, "", 0},
		"not read":                  {with(cached(), memory(func(m *policies.MemoryUse) { *m = policies.MemoryUse{} })), nil, "", 0},
		"growth of a minute":        {growing(), nil, policies.KindLoan, 314 + 2*30*16},
		"growth comes before proof": {with(growing(), loans(policies.LoansProven)), nil, policies.KindLoan, 314 + 2*30*16},
		"growth, the owner's bound": {with(growing(), func(j *policies.Job) { j.Enrolment.Memory.Max = 600 * mib }), nil, policies.KindLoan, 600},
		"growth that nobody allows": {with(growing(), func(j *policies.Job) { j.Enrolment.Knobs = nil }), nil, "", 0},
		"enough, with room":         {cachedLent(), nil, policies.KindReturn, 1540},
		"not calm for long":         {with(cachedLent(), memory(func(m *policies.MemoryUse) { m.CalmSeconds, m.SparedSeconds = 5, 5 })), nil, "", 0},
		"still fills":               {with(cachedLent(), memory(func(m *policies.MemoryUse) { m.Fills = true })), nil, "", 0},
		"the host is short":         {cachedLent(), func(n *policies.Node) { n.MemoryFree = -gib }, policies.KindReturn, 320},
		"the host is short, held":   {with(cachedLent(), memory(func(m *policies.MemoryUse) { m.Held = 1000 * mib })), func(n *policies.Node) { n.MemoryFree = -gib }, policies.KindReturn, 1100},
		"fills, and reads again": {with(cachedLent(), memory(func(m *policies.MemoryUse) {
			m.Reread, m.DiskRead, m.Fills, m.CalmSeconds, m.SparedSeconds = 5*mib, 5*mib, true, 0, 0
		})), nil, "", 0},
		"reads as much as before": {with(cachedLent(), memory(func(m *policies.MemoryUse) {
			m.Reread, m.DiskRead, m.Loan.After, m.SparedSeconds, m.Current, m.AtLimit = 5*mib, 5*mib, 1*mib, 0, m.Limit, true
		})), nil, policies.KindReturn, 320},
		"reads as much, and has room": {with(cachedLent(), memory(func(m *policies.MemoryUse) {
			m.Reread, m.DiskRead, m.Loan.After, m.SparedSeconds = 5*mib, 5*mib, 1*mib, 0
		})), nil, "", 0},
		"reads as much, and is nearly full": {with(cachedLent(), func(j *policies.Job) {
			nearlyFull(j)
			j.Memory.Loan.After = 1 * mib
		}), nil, policies.KindLoan, 4096 + 10*1024},
		"nearly full, and much is free":   {with(cachedLent(), nearlyFull), nil, policies.KindLoan, 4096 + 10*1024},
		"nearly full, and little is free": {with(cachedLent(), nearlyFull), func(n *policies.Node) { n.MemoryFree = 1500 * mib }, "", 0},
		"full, and little is free": {with(cachedLent(), func(j *policies.Job) {
			nearlyFull(j)
			j.Memory.AtLimit = true
		}), func(n *policies.Node) { n.MemoryFree = 1500 * mib }, policies.KindLoan, 4096 + 750},
		"all that it reads has come": {with(cachedLent(), memory(func(m *policies.MemoryUse) {
			m.Reread, m.DiskRead, m.Loan.After, m.SparedSeconds = 5*mib, 5*mib, 1*mib, 7
		})), nil, "", 0},
		"reads less, and again some": {with(cachedLent(), memory(func(m *policies.MemoryUse) {
			m.Reread, m.DiskRead, m.Loan.After, m.SparedSeconds, m.Current, m.AtLimit = 5*mib, 5*mib, mib/3, 0, m.Limit, true
		})), nil, policies.KindLoan, 4096 + 10*1024},
		"others evict of what is nearly full": {with(cachedLent(), memory(func(m *policies.MemoryUse) {
			m.Reread, m.DiskRead, m.Loan.After, m.SparedSeconds, m.Current = 5*mib, 5*mib, 1*mib, 7, 0.95*m.Limit
		})), nil, "", 0},
		"others evict of a loan for a minute": {with(cachedLent(), memory(func(m *policies.MemoryUse) {
			m.Reread, m.DiskRead, m.Loan.After, m.SparedSeconds, m.Current, m.Most, m.MostBefore = 5*mib, 5*mib, 1*mib, 60, 900*mib, 1400*mib, 1400*mib
		})), nil, policies.KindReturn, 1540},
		"others evict of a loan, and it grows": {with(cachedLent(), memory(func(m *policies.MemoryUse) {
			m.Reread, m.DiskRead, m.Loan.After, m.SparedSeconds, m.Current, m.Most, m.MostBefore = 5*mib, 5*mib, 1*mib, 60, 900*mib, 1400*mib, 1300*mib
		})), nil, "", 0},
		"its last runs misled, and no more is free": {with(cachedLent(), misled), func(n *policies.Node) { n.MemoryFree = 100 * mib }, policies.KindReturn, 320},
		"its last runs misled, and more is free":    {with(cachedLent(), misled), nil, policies.KindLoan, 4096 + 10*1024},
		"its last runs may mislead": {with(cachedLent(), func(j *policies.Job) {
			misled(j)
			j.Memory.Loan.Seconds = 5
		}), func(n *policies.Node) { n.MemoryFree = 100 * mib }, "", 0},
		"known, and nothing is free": {with(cachedLent(), memory(func(m *policies.MemoryUse) { m.Last = 8 * gib })), func(n *policies.Node) { n.MemoryFree = 0 }, policies.KindReturn, 1540},
		"known":                      {with(cached(), memory(func(m *policies.MemoryUse) { m.Last = 800 * mib })), nil, policies.KindLoan, 800},
		"its owner's is not lowered": {with(cachedLent(), func(j *policies.Job) { j.Original = j.Now }), nil, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			node := bigNode
			if c.node != nil {
				c.node(&node)
			}
			plans := policy().Propose(node, []policies.Job{c.job}).Plans
			if c.to == 0 {
				if len(plans) > 0 {
					t.Fatalf("%+v", plans)
				}
				return
			}
			if len(plans) != 1 {
				t.Fatalf("%+v, want one plan", plans)
			}
			ch := plans[0].Changes[0]
			if to, _ := ch.To.Int(); plans[0].Kind != c.kind || ch.Knob != runtime.KnobMemoryLimit || to/mib != c.to || ch.Take != (c.kind == policies.KindReturn) {
				t.Errorf("%s %s, want %s of %d MiB; %s", plans[0].Kind, ch.Knob.Text(ch.From, ch.To), c.kind, c.to, ch.Reason)
			}
		})
	}
}

func TestReasons(t *testing.T) {
	for _, c := range []struct {
		job  policies.Job
		says []string
	}{
		{starved(), []string{"its quota of 0.50 CPUs stops it", "60 %"}},
		{lent(), []string{"1.30 CPUs are enough"}},
		{cached(), []string{"10.0 MiB/s again", "limit of 320 MiB", "20480 MiB of the host are free"}},
		{cachedLent(), []string{"1540 MiB are enough", "page cache included"}},
	} {
		reason := policy().Propose(bigNode, []policies.Job{c.job}).Plans[0].Changes[0].Reason
		for _, said := range c.says {
			if !strings.Contains(reason, said) {
				t.Errorf("%q does not say %q", reason, said)
			}
		}
	}
}

// TestWhoCrowdsTheCPUsLeavesSome: of a loan that stands from before, too. Nobody else does: a program that reads
// its quota would start a thread less.
func TestWhoCrowdsTheCPUsLeavesSome(t *testing.T) {
	node := bigNode
	node.Left = 0.24
	j := with(lent(), func(j *policies.Job) { j.Now[runtime.KnobCPUQuota], j.CPU.Enough = "800000 100000", 0 })
	if plans := policy().Propose(node, []policies.Job{j}).Plans; len(plans) > 0 {
		t.Errorf("%+v, want none", plans)
	}
	j.CPU.Crowds = true
	plans := policy().Propose(node, []policies.Job{j}).Plans
	if len(plans) != 1 || plans[0].Kind != policies.KindReturn || plans[0].Changes[0].To != "776000 100000" {
		t.Errorf("%+v, want 7.76 of 8 CPUs", plans)
	}
	j.Now[runtime.KnobCPUQuota] = "776000 100000"
	if plans := policy().Propose(node, []policies.Job{j}).Plans; len(plans) > 0 {
		t.Errorf("%+v, want none", plans)
	}
}
