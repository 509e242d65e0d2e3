package cluster

import (
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/trial/correction"
)

// keepTried is how many judged changes of a job a policy is shown, as by the daemon.
const keepTried = 10

// trial is the open plan.
type trial struct {
	plan  policies.Plan
	was   map[int]held // what stood, of the jobs that it changes
	sides []side
	used  map[int]float64 // CPUs that others used before, within their entitlement
	endS  float64
}

// side is one job of a plan. Those that are given something are judged together, those
// that something is taken from each alone.
type side struct {
	id        int
	take      bool
	rate      float64 // before, as read
	due       float64 // share of that rate that it must keep
	worth     float64 // rate over the best that it could reach
	predicted float64
	memory    bool    // its limit changed, which the CPU model does not predict
	ratio     float64 // after over before, as read at the end
}

// begin applies a plan if none of its changes failed before or goes below an
// owner's quota or limit, which here are the proportional share.
func (d *tuned) begin(now float64, s Server, jobs []*Running, plan policies.Plan) bool {
	t := &trial{plan: plan, was: map[int]held{}, used: map[int]float64{}, endS: now + d.times.Trial}
	next, predicted, takes, memories := map[int]held{}, map[int]float64{}, map[int]bool{}, map[int]bool{}
	for _, ch := range plan.Changes {
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
		next[id], predicted[id], takes[id] = n, ch.RateAfter, ch.Take
		memories[id] = memories[id] || ch.Knob == runtime.KnobMemoryLimit
		switch {
		case ch.Knob == runtime.KnobMemoryLimit && !ch.Take:
			t.endS = max(t.endS, now+d.times.Fill+d.times.Trial)
		case ch.Take && ch.Knob == runtime.KnobCPUWeight:
			t.endS = max(t.endS, now+d.times.Deal)
		case ch.Take:
			t.endS = max(t.endS, now+d.times.Take)
		}
	}
	for _, r := range jobs {
		cpus, memory := s.share(r.GPUs)
		n, changes := next[r.ID]
		if !changes {
			t.used[r.ID] = min(r.Have, cpus)
			continue
		}
		if n.quota < cpus*(1-1e-9) || n.memoryGB < memory*(1-1e-6) || n.weight < 1 || n.weight < ownWeight(r.Job) && !d.deals {
			return false
		}
		rate := r.on(r.Have, r.MemoryGB)
		side := side{id: r.ID, take: takes[r.ID], rate: d.read(rate * ticksPerUnit), predicted: predicted[r.ID], memory: memories[r.ID], due: 1,
			worth: rate / r.Curve.Most(r.MemoryGB/float64(r.GPUs))}
		if n.weight < d.held[r.ID].weight { // it may lose what it had above its right
			side.due = r.on(min(r.Have, cpus), r.MemoryGB) / rate
		}
		t.sides = append(t.sides, side)
	}
	if len(t.sides) == 0 {
		return false
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

// back takes the open plan back.
func (d *tuned) back(now float64) {
	for id, was := range d.trial.was {
		if h := d.held[id]; h != nil {
			h.quota, h.memoryGB, h.weight, h.changedS = was.quota, was.memoryGB, was.weight, now
		}
	}
	d.trial = nil
}

// clearGain is what a job of a failed plan must have gained not to be blamed for it.
const clearGain = 0.125

// judge ends the open trial, and takes back what did not earn its place.
func (d *tuned) judge(now float64, jobs []*Running) {
	t := d.trial
	keep := d.good(t, jobs)
	if !keep {
		d.back(now)
	}
	d.trial = nil
	sides := map[int]side{}
	for _, s := range t.sides {
		sides[s.id] = s
		h := d.held[s.id]
		h.changedS, h.cooledS = now, now+d.times.CoolDown
		if !s.memory && (keep || len(t.sides) == 1) {
			h.correction = correction.Correct(h.correction, s.predicted, s.ratio*s.rate)
		}
	}
	for _, ch := range t.plan.Changes {
		s, h := sides[number(ch.Key)], d.held[number(ch.Key)]
		alone := s.memory && ch.Knob != runtime.KnobMemoryLimit // it is tried next without the limit
		if !keep && !alone && (len(t.sides) == 1 || s.take || s.ratio < 1+clearGain) {
			h.failed[ch.Knob] = true
		}
		h.tried = append([]policies.Tried{{Policy: t.plan.Policy, Knob: ch.Knob, From: ch.From, To: ch.To, Take: ch.Take, Kept: keep, Ratio: s.ratio}},
			h.tried[:min(len(h.tried), keepTried-1)]...)
	}
}

// good reports whether those that were given something gained enough together,
// nobody lost what it had a right to, and what some gained is worth what others lost.
func (d *tuned) good(t *trial, jobs []*Running) bool {
	var gain, gives, worth, after float64
	worst, worstAfter := math.Inf(1), math.Inf(1)
	good, at := true, 0
	for _, r := range jobs {
		if used, ok := t.used[r.ID]; ok {
			good = good && r.Have >= used*(1-d.times.MaxLoss)
			continue
		}
		s := &t.sides[at] // in the order of jobs
		at++
		s.ratio = d.read(r.on(r.Have, r.MemoryGB)*ticksPerUnit) / s.rate
		worth, after = worth+s.worth, after+s.worth*s.ratio
		worst, worstAfter = min(worst, s.worth), min(worstAfter, s.worth*s.ratio)
		if s.take {
			good = good && s.ratio >= s.due*(1-d.times.MaxLoss)
		} else {
			gain, gives = gain+s.ratio, gives+1
		}
	}
	if gives > 0 && gain/gives < 1+d.times.MinGain {
		return false
	}
	if d.params.Objective == policies.ObjectiveMaxMin {
		return good && (len(t.sides) == 1 || worstAfter >= worst*(1-d.times.MaxLoss))
	}
	return good && (len(t.sides) == 1 || after >= worth)
}
