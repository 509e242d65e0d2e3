package cluster

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/arbiter"
	"github.com/trimtab/trimtab/tuner/response"
)

// Tuned runs a policy as the daemon does, in short: it measures with noise, one
// plan is on trial on a server at a time, and what the trial does not prove goes back.
// Each job begins with its proportional share as quota and limit, and a weight by
// its GPUs, as an owner would set them who asks for that share. The arbiter makes one
// plan of a server of what the policy wants; Alone leaves it out.
func Tuned(p policies.Policy, s Setup) Mechanism {
	params := arbiter.Defaults()
	params.Objective = cmp.Or(s.Objective, params.Objective)
	return Mechanism{Name: p.Name(), New: func(noise *rand.Rand) Divider {
		return &tuned{policy: p, times: s.Times, params: params, noise: noise, held: map[int]*held{}, deals: true}
	}}
}

// Alone is a policy without the arbiter: one plan after the other, weights as they are.
func Alone(p policies.Policy, s Setup) Mechanism {
	return Mechanism{Name: p.Name() + ", alone", New: func(noise *rand.Rand) Divider {
		return &tuned{policy: p, times: s.Times, params: arbiter.Defaults(), noise: noise, held: map[int]*held{}}
	}}
}

// Times are what the daemon takes for its steps, in seconds, and how well it reads.
type Times struct {
	Verdict  float64 `json:"verdictS"`  // from a job's start to its first settled verdict
	Trial    float64 `json:"trialS"`    // of a plan that gives
	Deal     float64 `json:"dealS"`     // of one that deals weights anew
	Take     float64 `json:"takeS"`     // of one that takes a quota or a limit back
	Fill     float64 `json:"fillS"`     // until what a raised limit keeps was read once more, before its trial
	CoolDown float64 `json:"coolDownS"` // between plans for one job
	Settled  float64 `json:"settledS"`  // unchanged for so long before some is taken back
	Noise    float64 `json:"noise"`     // standard deviation of each reading, relative
	MinGain  float64 `json:"minGain"`   // that a trial must show
	MaxLoss  float64 `json:"maxLoss"`   // that one that takes, or a neighbour, may show
}

// DefaultTimes: verdict and trial as the README's figures have them (4 s, 7 s), the
// rest from the daemon's defaults (a deal: 8 s until what was prefetched is used up, then as
// a trial; pages have 60 s to come back); 2 % is the CV of a rate in windows of a second.
func DefaultTimes() Times {
	return Times{Verdict: 4, Trial: 7, Deal: 15, Take: 60, Fill: 60, CoolDown: 20, Settled: 60, Noise: 0.02, MinGain: 0.03, MaxLoss: 0.02}
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
	curve           response.Learner      // of its rate by CPUs
}

type tuned struct {
	policy policies.Policy
	times  Times
	params arbiter.Params
	noise  *rand.Rand
	held   map[int]*held
	on     []int // jobs of the last call
	trial  *trial
	deals  bool // the arbiter makes one plan of what the policy wants, and deals weights anew
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
			d.held[r.ID] = &held{quota: cpus, memoryGB: memory, weight: ownWeight(r.Job), changedS: now, correction: 1, failed: map[runtime.Knob]bool{}}
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

// share gives CPUs by quota and weight, as the kernel does. Limits of memory may sum above
// the server, too: then page caches give way down to each owner's limit, in proportion.
func (d *tuned) share(s Server, jobs []*Running) {
	weights, wants := make([]float64, len(jobs)), make([]float64, len(jobs))
	for i, r := range jobs {
		_, weights[i] = s.share(r.GPUs)
		wants[i] = d.held[r.ID].memoryGB
	}
	for i, gb := range pour(s.MemoryGB, weights, wants) {
		jobs[i].MemoryGB = gb
	}
	for i, r := range jobs {
		h := d.held[r.ID]
		weights[i], wants[i] = float64(h.weight), min(h.quota, r.want(r.MemoryGB))
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

// propose asks the policy and begins the first plan that may be tried.
func (d *tuned) propose(now float64, s Server, jobs []*Running) {
	var asked []policies.Job
	spare, freeGB := s.CPUs, s.MemoryGB
	for _, r := range jobs {
		spare, freeGB = spare-r.Have, freeGB-r.MemoryGB
	}
	for _, r := range jobs {
		if h := d.held[r.ID]; now >= r.StartS+d.times.Verdict-1e-9 && now >= h.cooledS-1e-9 {
			asked = append(asked, d.measure(now, s, r, max(0, spare)))
		}
	}
	if len(asked) == 0 {
		return
	}
	node := policies.Node{CPUs: s.CPUs, MaxWeight: 10000, Memory: s.MemoryGB * 1e9, MemoryFree: max(0, freeGB) * 1e9}
	plans := d.policy.Propose(node, asked).Plans
	if d.deals {
		var freed bool
		if plans, freed = d.arbitrate(now, node, s, jobs, asked, plans); freed {
			return
		}
	}
	for _, plan := range plans {
		if d.begin(now, s, jobs, plan) {
			return
		}
	}
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

// ownWeight is what an owner sets who asks for a share by GPUs.
func ownWeight(j *Job) int64 { return 100 * int64(j.GPUs) }

func key(id int) string { return fmt.Sprintf("job-%06d", id) }

func number(key string) (id int) {
	if _, err := fmt.Sscanf(key, "job-%d", &id); err != nil {
		return -1
	}
	return id
}
