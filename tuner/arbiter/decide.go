package arbiter

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
)

// Decide makes the node's plan. claims are all containers that run, in one order.
func Decide(p Params, node policies.Node, claims []Claim) Plan {
	plan := Plan{Grants: make([]Grant, len(claims))}
	rights, short, why := Entitle(node, claims)
	plan.Short, plan.Why = short, why
	free := max(0, node.CPUs-node.HostCPUs)
	now := Shares(free, claims)
	same := shares(free, claims, Claim.weight, Claim.want)
	for i, c := range claims {
		plan.Grants[i] = Grant{Key: c.Key, Entitled: rights[i], Need: c.need(free), Now: now[i], CPUs: same[i], Weight: c.Weight,
			Rate: c.rate(same[i]), RateNow: c.rate(now[i])}
		plan.Grants[i].wants = c.Active && plan.Grants[i].Need > rights[i]*(1+p.MinGain)
		plan.Grants[i].Competes = c.Movable && plan.Grants[i].wants
	}
	if free > 0 && len(claims) > 0 {
		plan.target(p, node, free, claims)
		plan.steer(p, free, claims, same)
	}
	for i, c := range claims {
		g := &plan.Grants[i]
		g.idle, g.unknown, g.used = !c.Active, !c.CPU.Known(), c.Used
		if plan.Short {
			g.short = plan.Why
		}
	}
	return plan
}

// target deals the surplus; for the moment, Grants' CPUs of those that compete become
// what each should have.
func (plan *Plan) target(p Params, node policies.Node, free float64, claims []Claim) {
	capacity := free - node.Reserve
	var base float64
	var all []*held
	for i, c := range claims {
		g := plan.Grants[i]
		if !c.Movable {
			capacity -= g.CPUs
			continue
		}
		h := &held{at: i, c: c, need: g.Need, cpus: min(g.Need, g.Entitled*p.Keep)}
		h.dominant = dominant(c, h.need-h.cpus)
		base += h.cpus
		all = append(all, h)
	}
	if base > capacity {
		// Unenrolled neighbours use more than their right, or the reserve is eaten: nothing
		// is left to deal, and what is there is cut in proportion.
		plan.Short = plan.Short || base > max(capacity, 0)*p.Keep
		if plan.Why == "" && plan.Short {
			plan.Why = fmt.Sprintf("%.2f CPUs are needed within entitlements, and %.2f are left", base, max(capacity, 0))
		}
		for _, h := range all {
			h.cpus *= max(capacity, 0) / base
		}
		base = max(capacity, 0)
	}
	d := deal{p: p, cpus: max(0, capacity-base), all: node.CPUs}
	d.unit = max(p.Unit, d.cpus/maxUnits)
	d.run(all)
	for _, h := range all {
		if g := &plan.Grants[h.at]; g.Competes {
			g.CPUs = h.cpus
		}
	}
}

// steer turns the targets of those that compete into weights, and keeps them only if
// the kernel would make enough of them, and nobody falls below its right. same is what
// each gets as weights stand.
func (plan *Plan) steer(p Params, free float64, claims []Claim, same []float64) {
	weights, competing := plan.weights(p, claims)
	own := shares(free, claims, Claim.ownWeight, Claim.want)
	after, moved, least := same, 0, p.MinGain
	if p.MaxChanges > 0 && competing > p.MaxChanges {
		weights = plan.fewer(p, claims, same, weights)
		least *= float64(p.MaxChanges) / float64(competing) // of a part of them
	}
	if competing >= 2 && !plan.Short {
		steered := make([]Claim, len(claims))
		copy(steered, claims)
		for i, c := range claims {
			if g := plan.Grants[i]; g.Competes {
				steered[i].Weight = max(math.Round(weights[i]), 2)
				if math.Abs(math.Log(steered[i].Weight/c.weight())) > math.Log(1+p.MinMove) {
					moved++
				}
			}
		}
		after = shares(free, steered, Claim.weight, Claim.want)
		plan.Gain = plan.value(p, claims, after)/plan.value(p, claims, same) - 1
		plan.Move = moved > 0 && plan.Gain >= least
		for i := range steered { // as they will be seen then: what others no longer use is not theirs by owners' weights
			steered[i].Used = min(steered[i].Used, after[i])
		}
		next := shares(free, steered, Claim.ownWeight, Claim.want)
		for i, g := range plan.Grants {
			right := min(g.Need, g.Entitled)
			if after[i] < min(same[i], right)*0.995 || after[i] < min(max(own[i], next[i]), right)*releaseBelow { // it would be released at once
				plan.Move = false
			}
			if plan.Move && plan.Grants[i].Competes {
				plan.Grants[i].Weight = steered[i].Weight
			}
		}
	}
	if !plan.Move {
		after = same
	}
	for i, c := range claims {
		g := &plan.Grants[i]
		if !plan.Move {
			g.Weight = c.Weight
		}
		g.CPUs, g.Rate = after[i], c.rate(after[i])
	}
	plan.release(claims, own)
}

// weights deals the weights of those that compete in proportion to what each should
// have, within bounds; their sum stays the owners'.
func (plan *Plan) weights(p Params, claims []Claim) (out []float64, competing int) {
	n := len(claims)
	low, high, target, sum := make([]float64, n), make([]float64, n), make([]float64, n), 0.0
	for i, c := range claims {
		target[i] = 1
		if g := plan.Grants[i]; g.Competes {
			competing++
			sum += c.ownWeight()
			low[i], high[i], target[i] = c.ownWeight()/p.WeightMax, c.ownWeight()*p.WeightMax, max(g.CPUs, 1e-6)
		}
	}
	out, _ = fill(sum, low, high, target)
	return out, competing
}

// fewer deals anew the weights of as many as one plan may change: those that would be
// raised most, and those that would be lowered most. All other weights stand, and the sum
// of all stays the owners'; what the few have is less than all would give them, so those
// that are lowered are held at their rights. Where the few cannot keep that sum all stand.
// Deals after it go on from there.
func (plan *Plan) fewer(p Params, claims []Claim, same, weights []float64) []float64 {
	var order []int
	sum := 0.0
	for i, c := range claims {
		if plan.Grants[i].Competes {
			order, sum = append(order, i), sum+c.ownWeight()
		}
	}
	move := func(i int) float64 { return weights[i] - claims[i].weight() }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(move(b), move(a)) })
	raised := (p.MaxChanges + 1) / 2
	order = slices.Concat(order[:raised], order[len(order)-(p.MaxChanges-raised):], order[raised:len(order)-(p.MaxChanges-raised)])
	out := make([]float64, len(claims))
	for _, i := range order[p.MaxChanges:] {
		out[i] = claims[i].weight()
		sum -= out[i]
	}
	few := order[:p.MaxChanges]
	low, high, target := make([]float64, len(few)), make([]float64, len(few)), make([]float64, len(few))
	for k, i := range few {
		g, c := plan.Grants[i], claims[i]
		keeps := c.weight() * min(1, g.Entitled*p.Keep/max(same[i], 1e-9))
		low[k], high[k], target[k] = max(c.ownWeight()/p.WeightMax, keeps), c.ownWeight()*p.WeightMax, max(g.CPUs, 1e-6)
	}
	dealt, _ := fill(sum, low, high, target)
	for k, i := range few {
		out[i] = dealt[k]
		sum -= dealt[k]
	}
	if math.Abs(sum) > 1 { // the others hold more than is theirs, or too little: these few cannot make up for it
		for i, c := range claims {
			out[i] = c.weight()
		}
	}
	return out
}

// value is the objective over those that compete, and those that would if they could be
// moved at this moment: else what is dealt at their cost is dealt back once they can.
func (plan *Plan) value(p Params, claims []Claim, cpus []float64) float64 {
	sum, worst := 0.0, math.Inf(1)
	for i, c := range claims {
		if plan.Grants[i].wants && c.Enrolled && c.CPU.Known() {
			sum += c.importance() * c.rate(cpus[i])
			worst = min(worst, c.rate(cpus[i])/c.importance())
		}
	}
	if p.Objective == policies.ObjectiveMaxMin {
		return max(worst, 1e-9)
	}
	return max(sum, 1e-9)
}

// releaseBelow is the share of what it needs, has a right to, and would get by owners'
// weights, below which a job's loss makes weights go back.
const releaseBelow = 0.97

// release finds whoever gets less than it has a right to by weights that are not their
// owners': its own was lowered, or another's is raised, and whoever gave for that may
// have ended. That others' would-be use takes it is not enough: it must use less
// already. Else a donor whose need is read a little differently each time undoes deals
// and has them made again.
func (plan *Plan) release(claims []Claim, own []float64) {
	raised := slices.ContainsFunc(claims, func(c Claim) bool { return c.Returnable && c.Weight > c.OwnWeight })
	for i, c := range claims {
		g := plan.Grants[i]
		right := min(own[i], g.Need, g.Entitled)
		lowered := c.Returnable && c.Weight < c.OwnWeight
		if (lowered || raised) && max(g.CPUs, c.Used) < releaseBelow*right {
			plan.Release, plan.Move = true, false
			plan.Why = fmt.Sprintf("%s would get %.2f of the %.2f CPUs it has a right to", c.Name, g.CPUs, right)
		}
	}
	if plan.Release {
		for i, c := range claims {
			if c.Returnable {
				plan.Grants[i].Weight = c.OwnWeight
			}
		}
	}
}

// Why says in a sentence why a grant is what it is.
func (g Grant) Why() string {
	switch {
	case g.idle:
		return "it uses next to no CPU"
	case g.short != "":
		return g.short
	case g.unknown:
		return fmt.Sprintf("what more CPUs would buy it is not known; it is entitled to %.2f and uses %.2f", g.Entitled, g.used)
	case g.Need <= g.Entitled:
		return fmt.Sprintf("it can use %.2f of the %.2f CPUs it is entitled to; the rest is left to others", g.Need, g.Entitled)
	case g.CPUs >= 0.97*g.Need:
		return fmt.Sprintf("it is entitled to %.2f CPUs, and others leave it the %.2f that it can use", g.Entitled, g.Need)
	}
	return fmt.Sprintf("it can use %.2f CPUs and is entitled to %.2f; of what others leave it gets its part by weight: %.2f in all", g.Need, g.Entitled, g.CPUs)
}
