package cluster

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/trial/correction"
)

// Tuned runs a policy as the daemon does, in short: it measures with noise, one
// plan is on trial on a server at a time, and what the trial does not prove goes back.
// Each job begins with its proportional share as quota and limit, and a weight by
// its GPUs, as an owner would set them who asks for that share.
func Tuned(p policies.Policy, t Times) Mechanism {
	return Mechanism{Name: p.Name(), New: func(noise *rand.Rand) Divider {
		return &tuned{policy: p, times: t, noise: noise, held: map[int]*held{}}
	}}
}

// Times are what the daemon takes for its steps, in seconds, and how well it reads.
type Times struct {
	Verdict  float64 `json:"verdictS"`  // from a job's start to its first settled verdict
	Trial    float64 `json:"trialS"`    // of a plan that gives
	Take     float64 `json:"takeS"`     // of one that takes
	CoolDown float64 `json:"coolDownS"` // between plans for one job
	Settled  float64 `json:"settledS"`  // unchanged for so long before some is taken back
	Noise    float64 `json:"noise"`     // standard deviation of each reading, relative
	MinGain  float64 `json:"minGain"`   // that a trial must show
	MaxLoss  float64 `json:"maxLoss"`   // that one that takes, or a neighbour, may show
}

// DefaultTimes: verdict and trial as the README's figures have them (4 s, 7 s), the
// rest from the daemon's defaults; 2 % is the CV of a rate in windows of a second.
func DefaultTimes() Times {
	return Times{Verdict: 4, Trial: 7, Take: 60, CoolDown: 20, Settled: 60, Noise: 0.02, MinGain: 0.03, MaxLoss: 0.02}
}

// held is what stands for one job, and what the daemon remembers of it.
type held struct {
	quota, memoryGB float64
	weight          int64
	changedS        float64
	cooledS         float64
	correction      float64
	failed          map[runtime.Knob]bool // until jobs come or go
	tried           []policies.Tried      // latest first
}

type tuned struct {
	policy policies.Policy
	times  Times
	noise  *rand.Rand
	held   map[int]*held
	on     []int // jobs of the last call
	trial  *trial
}

// keepTried is how many judged changes of a job a policy is shown, as by the daemon.
const keepTried = 10

// trial is the open plan.
type trial struct {
	plan    policies.Plan
	was     map[int]held // what stood, of the jobs that it changes
	rate    float64      // of its subject before, as read
	subject int
	used    map[int]float64 // CPUs that others used before, within their entitlement
	endS    float64
}

// Divide implements Divider.
func (d *tuned) Divide(now float64, s Server, jobs []*Running) float64 {
	d.admit(now, s, jobs)
	d.share(s, jobs)
	if d.trial != nil && now >= d.trial.endS-1e-9 {
		d.judge(now, jobs)
		d.share(s, jobs)
	}
	if d.trial == nil {
		d.propose(now, s, jobs)
		d.share(s, jobs)
	}
	return d.again(now, jobs)
}

// admit takes in who came and lets go of who went; either ends an open trial
// without an answer, which takes the plan back.
func (d *tuned) admit(now float64, s Server, jobs []*Running) {
	var on []int
	for _, r := range jobs {
		on = append(on, r.ID)
		if d.held[r.ID] == nil {
			cpus, memory := s.share(r.GPUs)
			d.held[r.ID] = &held{quota: cpus, memoryGB: memory, weight: 100 * int64(r.GPUs), changedS: now, correction: 1, failed: map[runtime.Knob]bool{}}
		}
	}
	if slices.Equal(on, d.on) {
		return
	}
	for _, id := range d.on {
		if !slices.Contains(on, id) {
			delete(d.held, id)
		}
	}
	d.on = on
	for _, h := range d.held {
		clear(h.failed)
	}
	if d.trial != nil {
		d.back(now)
	}
}

// back takes the open plan back.
func (d *tuned) back(now float64) {
	for id, was := range d.trial.was {
		if h := d.held[id]; h != nil {
			h.quota, h.memoryGB, h.weight, h.changedS = was.quota, was.memoryGB, was.weight, now
		}
	}
	d.trial = nil
}

// share gives CPUs by quota and weight, as the kernel does.
func (d *tuned) share(s Server, jobs []*Running) {
	weights, wants := make([]float64, len(jobs)), make([]float64, len(jobs))
	for i, r := range jobs {
		h := d.held[r.ID]
		r.MemoryGB = h.memoryGB
		weights[i], wants[i] = float64(h.weight), min(h.quota, r.want(h.memoryGB))
	}
	for i, cpus := range pour(s.CPUs, weights, wants) {
		jobs[i].Have = cpus
	}
}

// read is a measured value: the true one with noise.
func (d *tuned) read(v float64) float64 {
	if d.times.Noise == 0 {
		return v
	}
	return v * math.Exp(d.times.Noise*d.noise.NormFloat64())
}

// judge ends the open trial: kept if its subject gained enough, or lost little
// where it gave up some, and no neighbour lost what it had a right to.
func (d *tuned) judge(now float64, jobs []*Running) {
	t := d.trial
	ch := t.plan.Changes[0]
	bad, gained := false, 0.0
	for _, r := range jobs {
		if r.ID == t.subject {
			ratio := d.read(r.on(r.Have, r.MemoryGB)*ticksPerUnit) / t.rate
			bad = bad || ch.Take && ratio < 1-d.times.MaxLoss || !ch.Take && ratio < 1+d.times.MinGain
			h := d.held[r.ID]
			gained = ratio
			h.correction = correction.Correct(h.correction, ch.RateAfter, ratio*t.rate)
		} else if used, ok := t.used[r.ID]; ok && r.Have < used*(1-d.times.MaxLoss) {
			bad = true
		}
	}
	if bad {
		d.back(now)
	}
	d.trial = nil
	for _, ch := range t.plan.Changes {
		if h := d.held[number(ch.Key)]; h != nil {
			h.changedS, h.cooledS = now, now+d.times.CoolDown
			if bad {
				h.failed[ch.Knob] = true
			}
			h.tried = append([]policies.Tried{{Policy: t.plan.Policy, Knob: ch.Knob, From: ch.From, To: ch.To, Take: ch.Take, Kept: !bad, Ratio: gained}},
				h.tried[:min(len(h.tried), keepTried-1)]...)
		}
	}
}

// propose asks the policy and begins the first plan that may be tried.
func (d *tuned) propose(now float64, s Server, jobs []*Running) {
	var asked []policies.Job
	spare := s.CPUs
	for _, r := range jobs {
		spare -= r.Have
	}
	for _, r := range jobs {
		if h := d.held[r.ID]; now >= r.StartS+d.times.Verdict-1e-9 && now >= h.cooledS-1e-9 {
			asked = append(asked, d.measure(now, s, r, max(0, spare)))
		}
	}
	if len(asked) == 0 {
		return
	}
	node := policies.Node{CPUs: s.CPUs, MaxWeight: 10000, Memory: s.MemoryGB * 1e9, Devices: s.GPUs}
	for _, plan := range d.policy.Propose(node, asked).Plans {
		if d.begin(now, s, jobs, plan) {
			return
		}
	}
}

// begin applies a plan if none of its changes failed before or goes below an
// owner's value, which here is the proportional share.
func (d *tuned) begin(now float64, s Server, jobs []*Running, plan policies.Plan) bool {
	t := &trial{plan: plan, was: map[int]held{}, used: map[int]float64{}, endS: now + d.times.Trial}
	next := map[int]held{}
	for i, ch := range plan.Changes {
		id := number(ch.Key)
		h := d.held[id]
		if h == nil || h.failed[ch.Knob] {
			return false
		}
		if _, ok := next[id]; !ok {
			t.was[id], next[id] = *h, *h
		}
		n := next[id]
		if !n.set(ch) {
			return false
		}
		next[id] = n
		if i == 0 {
			t.subject = id
		}
		if ch.Take {
			t.endS = now + d.times.Take
		}
	}
	if len(next) == 0 {
		return false
	}
	for _, r := range jobs {
		cpus, memory := s.share(r.GPUs)
		if n, ok := next[r.ID]; ok && (n.quota < cpus*(1-1e-9) || n.weight < 100*int64(r.GPUs) || n.memoryGB < memory*(1-1e-6)) {
			return false
		} else if !ok {
			t.used[r.ID] = min(r.Have, cpus)
		}
		if r.ID == t.subject {
			t.rate = d.read(r.on(r.Have, r.MemoryGB) * ticksPerUnit)
		}
	}
	for id, n := range next {
		n.changedS = now
		*d.held[id] = n
	}
	d.trial = t
	return true
}

// set applies one change.
func (h *held) set(ch policies.Change) (ok bool) {
	switch ch.Knob {
	case runtime.KnobCPUQuota:
		h.quota, ok = ch.To.CPUs()
	case runtime.KnobCPUWeight:
		h.weight, ok = ch.To.Int()
	case runtime.KnobMemoryLimit:
		var bytes int64
		bytes, ok = ch.To.Int()
		h.memoryGB = float64(bytes) / 1e9
	}
	return ok
}

// again is when there may be something to decide, though nobody came or went.
func (d *tuned) again(now float64, jobs []*Running) float64 {
	if d.trial != nil {
		return d.trial.endS
	}
	next := math.Inf(1)
	for _, r := range jobs {
		h := d.held[r.ID]
		for _, at := range []float64{r.StartS + d.times.Verdict, h.cooledS, h.changedS + d.times.Settled} {
			if at > now+1e-6 {
				next = min(next, at)
			}
		}
	}
	if math.IsInf(next, 1) {
		return 0
	}
	return next
}

func key(id int) string { return fmt.Sprintf("job-%06d", id) }

func number(key string) (id int) {
	if _, err := fmt.Sscanf(key, "job-%d", &id); err != nil {
		return -1
	}
	return id
}
