package cluster

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/arbiter"
	"github.com/trimtab/trimtab/tuner/response"
)

// arbiterName is the policy of plans that no policy asked for: weights dealt anew.
const arbiterName = "arbiter"

// arbitrate makes one plan of what the policy wants to give and of what weights could
// do, as the daemon does; plans that take stay their own. freed: weights went back to
// the owners' instead, since somebody no longer got what it has a right to.
func (d *tuned) arbitrate(now float64, node policies.Node, s Server, jobs []*Running, asked []policies.Job, plans []policies.Plan) (out []policies.Plan, freed bool) {
	claims := d.claims(s, jobs, asked)
	at := map[string]int{}
	for i, c := range claims {
		at[c.Key] = i
	}
	var wants, others []policies.Plan
	for _, p := range plans {
		if d.gives(p) {
			wants = append(wants, p)
			for _, ch := range p.Changes {
				if to, ok := ch.To.CPUs(); ok && ch.Knob == runtime.KnobCPUQuota {
					claims[at[ch.Key]].Want = to
				}
			}
		} else {
			others = append(others, p)
		}
	}
	wants = d.dealMemory(node, jobs, wants)
	deal := arbiter.Decide(d.params, node, claims)
	if deal.Release {
		for _, g := range deal.Grants {
			if h := d.held[number(g.Key)]; h.weight != int64(g.Weight) {
				h.weight, h.changedS, h.cooledS = int64(g.Weight), now, now+d.times.CoolDown
			}
		}
		return nil, true
	}
	one := policies.Plan{Policy: arbiterName}
	for _, p := range wants {
		one.Policy = p.Policy
		for _, ch := range p.Changes {
			if ch, ok := beside(ch, claims[at[ch.Key]].CPU, deal.Grants[at[ch.Key]].CPUs, asked, len(wants)); ok {
				one.Changes = append(one.Changes, ch)
			}
		}
	}
	if deal.Move {
		one.Changes = append(one.Changes, d.steer(deal, asked)...)
	}
	slices.SortStableFunc(one.Changes, func(a, b policies.Change) int { return cmp.Compare(b.Gain, a.Gain) })
	return append([]policies.Plan{one}, others...), false
}

// claims are all jobs of the server, of which those that are asked may be moved.
func (d *tuned) claims(s Server, jobs []*Running, asked []policies.Job) []arbiter.Claim {
	out := make([]arbiter.Claim, 0, len(jobs))
	next := 0
	for _, r := range jobs {
		h := d.held[r.ID]
		share, _ := s.share(r.GPUs)
		c := arbiter.Claim{Key: key(r.ID), Name: key(r.ID), OwnQuota: share, Quota: h.quota, OwnWeight: float64(ownWeight(r.Job)), Weight: float64(h.weight),
			Used: r.Have, Enrolled: true, Active: true, GPUs: float64(r.GPUs), Importance: 5}
		if want := min(h.quota, r.want(r.MemoryGB)); r.Have < want-1e-9 {
			c.Waiting = 1 - r.Have/want
		}
		if next < len(asked) && asked[next].Key == c.Key {
			j := asked[next]
			next++
			had := min(h.quota, s.CPUs)
			if c.Waiting > 0 {
				had = r.Have // others stood before it
			}
			h.curve.Learn(response.Seen{X: had, Rate: j.Rate.PerSecond, Source: j.Rate.Source, Cost: j.Cost})
			c.CPU = h.curve.Curve(s.CPUs)
			c.Returnable, c.Movable = true, !h.failed[runtime.KnobCPUWeight]
		}
		out = append(out, c)
	}
	return out
}

// gives reports whether a plan only gives, and none of it failed before.
func (d *tuned) gives(p policies.Plan) bool {
	return len(p.Changes) > 0 && !slices.ContainsFunc(p.Changes, func(ch policies.Change) bool {
		return ch.Take || !d.moves(ch.Knob) || d.held[number(ch.Key)].failed[ch.Knob]
	})
}

// moves lists the knobs that are simulated.
func (*tuned) moves(k runtime.Knob) bool {
	return k == runtime.KnobCPUQuota || k == runtime.KnobCPUWeight || k == runtime.KnobMemoryLimit
}

// dealMemory leaves of the raises of limits that are asked for at one time those that what
// is free holds whole, in the arbiter's order.
func (d *tuned) dealMemory(node policies.Node, jobs []*Running, wants []policies.Plan) (out []policies.Plan) {
	var raises []arbiter.Raise
	of := map[string]int{}
	for _, p := range wants {
		for _, ch := range p.Changes {
			if to, ok := ch.To.Int(); ok && ch.Knob == runtime.KnobMemoryLimit {
				i := slices.IndexFunc(jobs, func(r *Running) bool { return r.ID == number(ch.Key) })
				of[ch.Key] = len(raises)
				raises = append(raises, arbiter.Raise{Bytes: max(0, float64(to)-1e9*jobs[i].MemoryGB), Own: max(0, 1e9*(d.held[jobs[i].ID].memoryGB-jobs[i].MemoryGB)), Gain: ch.Gain, Importance: 5})
			}
		}
	}
	bytes, _ := arbiter.DealMemory(d.params, node.MemoryFree, raises)
	for _, p := range wants {
		p.Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(ch policies.Change) bool {
			i, raise := of[ch.Key]
			return raise && ch.Knob == runtime.KnobMemoryLimit && bytes[i] < raises[i].Bytes*(1-1e-9)
		})
		if len(p.Changes) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// beside corrects what a change is to gain by what it will get beside the others; not
// ok: nothing worth it.
func beside(ch policies.Change, curve policies.Curve, gets float64, asked []policies.Job, wants int) (policies.Change, bool) {
	if wants < 2 {
		return ch, true
	}
	if to, ok := ch.To.CPUs(); ok && ch.Knob == runtime.KnobCPUQuota && gets < to {
		best, _, _ := curve.At(to)
		less, _, _ := curve.At(gets)
		if rate := rateOf(ch.Key, asked); best > 0 && rate > 0 {
			ch.RateAfter = min(ch.RateAfter, max(rate, ch.RateAfter*less/best))
			ch.Gain = min(ch.Gain, ch.RateAfter/rate-1)
		}
	}
	return ch, ch.Gain >= arbiter.Defaults().MinGain
}

func rateOf(key string, asked []policies.Job) float64 {
	for _, j := range asked {
		if j.Key == key {
			return j.Rate.PerSecond
		}
	}
	return 0
}

// steer are the changes of weights that the arbiter asks for: all of them, or none.
func (d *tuned) steer(deal arbiter.Plan, asked []policies.Job) (out []policies.Change) {
	for _, g := range deal.Grants {
		h := d.held[number(g.Key)]
		to := int64(g.Weight + 0.5)
		if to == h.weight {
			continue
		}
		rate := rateOf(g.Key, asked)
		if rate == 0 || h.failed[runtime.KnobCPUWeight] {
			return nil
		}
		ch := policies.Change{Key: g.Key, Name: g.Key, Knob: runtime.KnobCPUWeight, From: runtime.IntValue(h.weight), To: runtime.IntValue(to),
			Take: to < h.weight, RateAfter: rate, Reason: g.Why()}
		if g.RateNow > 0 {
			ch.RateAfter, ch.Gain = rate*g.Rate/g.RateNow, g.Rate/g.RateNow-1
		}
		out = append(out, ch)
	}
	return out
}
