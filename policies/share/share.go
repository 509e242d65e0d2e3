// Package share divides what is left of a node's CPUs, once everybody has what is theirs,
// among the jobs that make the most of it. Its means are CPU weights: among the jobs that want
// more than they have a right to they are dealt anew, and their sum stays what the owners made
// it, so that no other container is worth less than before. The plan is a trial.
//
// It acts on response curves alone: a job whose rate by CPUs is not known is taken as it is.
package share

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// Name is the policy's name in metrics and history.
const Name = "share"

// Policy implements policies.Policy.
type Policy struct{ k *policies.Constants }

// New returns the policy.
func New(k *policies.Constants) Policy { return Policy{k} }

// Name implements policies.Policy.
func (Policy) Name() string { return Name }

// party is one container as the surplus is divided.
type party struct {
	at       int // of its job
	job      *policies.Job
	claim    policies.Claim
	right    float64
	now      float64 // CPUs that it gets as weights stand
	need     float64 // CPUs beyond which more buy it nothing
	competes bool    // it wants more than its right, and its weight may be dealt
	cpus     float64 // what it is to have
	offers   float64 // what one unit more is worth to it
}

// Propose implements policies.Policy: at most one plan.
func (p Policy) Propose(node policies.Node, jobs []policies.Job) policies.Proposal {
	free := max(0, node.CPUs-node.HostCPUs)
	all := p.parties(node, free, jobs)
	var competing []*party
	for _, c := range all {
		if c.competes {
			competing = append(competing, c)
		}
	}
	if len(competing) < 2 {
		return policies.Proposal{}
	}
	before := value(node, competing, func(c *party) float64 { return c.now })
	p.divide(node, free, all, competing)
	weights := p.weights(node, competing)
	after := p.sharesWith(free, all, competing, weights)
	gain := value(node, competing, func(c *party) float64 { return after[c.at] })/before - 1
	if gain < p.k.PlanMinGain {
		return policies.Proposal{}
	}
	for _, c := range all { // the guard looks for itself
		if after[c.at] < min(c.now, c.right, c.need)*(1-p.k.RightMargin/2) {
			return policies.Proposal{}
		}
	}
	plan := policies.Plan{Policy: Name}
	for i, c := range competing {
		if ch, ok := p.change(c, weights[i], after[c.at], gain); ok {
			plan.Changes = append(plan.Changes, ch)
		}
	}
	if len(plan.Changes) < 2 {
		return policies.Proposal{}
	}
	return policies.Proposal{Plans: []policies.Plan{plan}}
}

func (p Policy) parties(node policies.Node, free float64, jobs []policies.Job) []*party {
	all := make([]*party, 0, len(jobs))
	claims := make([]policies.Claim, 0, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		c := &party{at: i, job: j, right: j.CPU.Entitlement}
		c.claim = policies.Claim{Active: j.CPU.Used >= p.k.ActiveCPUs, Weight: node.DefaultWeight()}
		if w, ok := j.Now[runtime.KnobCPUWeight].Int(); ok {
			c.claim.Weight = float64(w)
		}
		c.claim.Quota, _ = j.Now[runtime.KnobCPUQuota].CPUs()
		c.claim.Demand = j.Demand(free)
		c.need = c.claim.Demand
		if c.claim.Quota > 0 {
			c.need = min(c.need, c.claim.Quota)
		}
		all, claims = append(all, c), append(claims, c.claim)
	}
	parent := p.parentOfMost(jobs)
	for i, cpus := range policies.Shares(free, claims) {
		c := all[i]
		c.now = cpus
		c.competes = c.job.May && !c.job.Urgent && c.claim.Active && c.job.Curve.Known() && c.job.CostOK && c.job.Enrolment.Allows(runtime.KnobCPUWeight) &&
			c.job.CPU.Parent == parent && c.need > c.right*(1+p.k.PlanMinGain)
	}
	return all
}

// parentOfMost is the control group that most active containers are in: weights compare
// among siblings alone.
func (p Policy) parentOfMost(jobs []policies.Job) string {
	count, best := map[string]int{}, ""
	for i := range jobs {
		j := &jobs[i]
		if j.CPU.Used >= p.k.ActiveCPUs {
			count[j.CPU.Parent]++
			if n := count[j.CPU.Parent]; n > count[best] || n == count[best] && j.CPU.Parent < best {
				best = j.CPU.Parent
			}
		}
	}
	return best
}

// units bounds the work of one plan.
const units = 400

// divide gives those that compete their right, and then what is left, unit by unit, to
// whoever gains the most of it, or is the worst off.
func (p Policy) divide(node policies.Node, free float64, all, competing []*party) {
	left := free - node.Reserve
	for _, c := range all {
		if c.competes {
			c.cpus = min(c.need, c.right)
			left -= c.cpus
		} else {
			left -= c.now
		}
	}
	unit := max(left, 0) / units
	if unit <= 0 {
		return
	}
	for _, c := range competing {
		c.offers = c.bid(node, unit)
	}
	for range units {
		best := slices.MaxFunc(competing, func(a, b *party) int { return cmp.Compare(a.offers, b.offers) })
		if best.offers <= 0 {
			return
		}
		best.cpus += unit
		best.offers = best.bid(node, unit)
	}
}

// bid is what one unit more is worth to a job; 0 if it takes no more.
func (c *party) bid(node policies.Node, unit float64) float64 {
	if c.cpus >= c.need {
		return 0
	}
	if node.Objective == policies.ObjectiveMaxMin {
		return 1 / max(c.rate(c.cpus)/importance(c.job), 1e-6)
	}
	best := 0.0 // over any stretch: a curve that is flat at first may still be worth climbing
	for to := c.cpus + unit; to <= c.need+unit; to += max(unit, (c.need-c.cpus)/16) {
		best = max(best, (c.rate(min(to, c.need))-c.rate(c.cpus))/(to-c.cpus))
	}
	return best * importance(c.job)
}

// rate is the normalised rate on so many CPUs.
func (c *party) rate(cpus float64) float64 {
	rate, _, _ := c.job.Curve.At(cpus)
	return rate / c.job.Curve.Best()
}

// importance is what 1..10 weighs, 1 for 5, which 0 stands for.
func importance(j *policies.Job) float64 {
	if j.Enrolment.Importance <= 0 {
		return 1
	}
	return float64(min(j.Enrolment.Importance, 10)) / 5
}

// value is the objective over those that compete.
func value(node policies.Node, competing []*party, cpus func(*party) float64) float64 {
	sum, worst := 0.0, math.Inf(1)
	for _, c := range competing {
		rate := c.rate(cpus(c))
		sum += importance(c.job) * rate
		worst = min(worst, rate/importance(c.job))
	}
	if node.Objective == policies.ObjectiveMaxMin {
		return max(worst, 1e-9)
	}
	return max(sum, 1e-9)
}

// weights are dealt in proportion to what each is to have, within bounds, the kernel's among them.
func (p Policy) weights(node policies.Node, competing []*party) []float64 {
	n := len(competing)
	low, high, target, sum := make([]float64, n), make([]float64, n), make([]float64, n), 0.0
	for i, c := range competing {
		own := ownWeight(c)
		sum += own
		low[i], high[i], target[i] = own/p.k.WeightMax, min(own*p.k.WeightMax, node.MaxWeight), max(c.cpus, 1e-6)
	}
	out, _ := policies.Fill(sum, low, high, target)
	for i := range out {
		out[i] = max(math.Round(out[i]), 2)
	}
	return out
}

func ownWeight(c *party) float64 {
	if w, ok := c.job.Original[runtime.KnobCPUWeight].Int(); ok {
		return float64(w)
	}
	return c.claim.Weight
}

// sharesWith is what all get once the weights stand, in the order of jobs.
func (p Policy) sharesWith(free float64, all, competing []*party, weights []float64) []float64 {
	claims := make([]policies.Claim, len(all))
	for i, c := range all {
		claims[i] = c.claim
	}
	for i, c := range competing {
		claims[c.at].Weight = weights[i]
	}
	return policies.Shares(free, claims)
}

func (p Policy) change(c *party, weight, gets, gain float64) (ch policies.Change, ok bool) {
	now := c.claim.Weight
	if weight == now {
		return ch, false
	}
	ch = policies.Change{Key: c.job.Key, Name: c.job.Name, Knob: runtime.KnobCPUWeight, From: c.job.Now[runtime.KnobCPUWeight], To: runtime.IntValue(int64(weight)),
		Take: weight < now, RateAfter: c.job.Rate.PerSecond, Reason: fmt.Sprintf("it can use %.2f CPUs and has a right to %.2f; it is to have %.2f, so that those that compete gain %.0f %% together",
			c.need, c.right, gets, 100*gain)}
	if before := c.rate(c.now); before > 0 {
		ch.Gain = c.rate(gets)/before - 1
		ch.RateAfter *= 1 + ch.Gain
	}
	return ch, true
}
