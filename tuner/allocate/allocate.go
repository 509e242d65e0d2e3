// Package allocate turns what policies want for single containers into one plan of the node's
// CPUs and memory: who is lent how much of what nobody uses, at which weights, and whose loan
// is called in because somebody else wants the CPU. It is pure, and keeps nothing between
// ticks: what is lent is what stands above the owner's value.
//
// Rights come from the owners' values alone, never from raised ones. With a loan goes a weight
// at which, if all want all they may, everybody gets what the owners' values gave them. Weights
// compare among siblings of one control group, and the kernel deals coarsely on a few CPUs:
// so who is short all the same gets its CPU back by shrinking loans.
package allocate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
)

// Party is one container, as a node's CPUs are shared.
type Party struct {
	Key, Name string
	policies.Claim
	OwnQuota, OwnWeight float64 // the owner's; quota 0: none
	Used                float64 // CPUs, the more of the latest two readings
	Waiting             float64 // see policies.CPUUse, the less of the latest two readings
	Wants               float64 // CPUs that it would use now, by the more of them
	Spared              bool    // it lacked nothing in one of them
	// Asks is the quota that a policy wants for it as a loan; 0: none. Settles is the one that
	// its loan is to shrink to; 0: none. Both in CPUs.
	Asks, Settles float64
	Why           string  // of what is asked
	Gain          float64 // predicted of it, of its rate
	// Most is the largest quota that neighbours bear, MostWhy in what words; +Inf: no bound is known.
	Most    float64
	MostWhy string
	// Fixed: nothing of it may be changed now; FixedQuota, FixedWeight: not that.
	Fixed, FixedQuota, FixedWeight bool
	// Dealt: its weight was dealt by a trial that was kept. It stands while its return helps nobody.
	Dealt bool
	// Recalled: a part of its loan was called in a moment ago. Where that was too little, all goes.
	Recalled bool
	// Recent: its loan was written a moment ago. Only a recall may follow so soon.
	Recent bool
}

// lent is what stands above its owner's quota, CPUs. What a trial proved is called in as well,
// by those who have a right to it.
func (p Party) lent() float64 {
	if p.OwnQuota <= 0 || p.Quota <= 0 {
		return 0
	}
	return max(0, p.Quota-p.OwnQuota)
}

// Owners is its claim by its owner's values.
func (p Party) Owners() policies.Claim {
	c := p.Claim
	c.Quota, c.Weight = p.OwnQuota, p.OwnWeight
	return c
}

// mayQuota reports whether its quota may be changed.
func (p Party) mayQuota() bool { return !p.Fixed && !p.FixedQuota }

// Grant is what a plan holds for one party; what is not to be changed is as it stands.
type Grant struct {
	// Right is what the owners' values give it of the machine, Due what they give it of the CPUs
	// that all containers have now: what others outside of them take is nobody's loan.
	Right, Due, Obtainable float64
	Quota, Weight          float64
	// Recall: its loan shrinks because somebody is short of what it has a right to.
	Recall bool
	Why    string
}

// Rights is what each party has a right to, before anybody asks for anything.
type Rights struct {
	Grants []Grant // in the order of parties; nothing is changed by them

	node       policies.Node
	left, used float64 // CPUs that the host's own processes usually leave, that all parties use
	awake      []policies.Claim
	full       []float64 // the parts of what is left
	level, now float64   // CPUs for a unit of the owners' weights, of what is left and of what all have now; 0 where nobody contends
}

// RightsOf tells what the owners' values give each party. Those of the whole machine are its
// rights; weights divide what the host's own processes usually leave of it, and who is short now
// is told by what they leave now.
func RightsOf(node policies.Node, parties []Party) Rights {
	r := Rights{Grants: make([]Grant, len(parties)), node: node, left: max(0, node.CPUs-node.HostCPUs), awake: make([]policies.Claim, len(parties))}
	claims, owners := make([]policies.Claim, len(parties)), make([]policies.Claim, len(parties))
	for i, p := range parties {
		claims[i], owners[i], r.awake[i] = p.Claim, p.Owners(), p.Owners()
		r.awake[i].Active = p.Active || p.lent() > 0 // a borrower that sleeps wakes with its loan
		r.used += p.Used
	}
	rights, _ := policies.Rights(node.CPUs, owners)
	due, now := policies.Rights(min(node.CPUs, r.used+node.Idle), owners)
	r.now = now
	r.full, r.level = policies.Rights(r.left, r.awake)
	reach := policies.Reach(r.left, claims)
	for i, p := range parties {
		r.Grants[i] = Grant{Quota: p.Quota, Weight: p.Weight, Right: rights[i], Due: min(rights[i], due[i]), Obtainable: max(reach[i], p.Used+node.Idle)}
	}
	return r
}

// Plan makes the plan of what is asked by those whose rights these are. It writes into Grants, so
// it is made once.
func (r Rights) Plan(k *policies.Constants, parties []Party) []Grant {
	short := r.recall(k, parties)
	if short == 0 {
		lend(k, r.node, parties, r.Grants)
	}
	settle(k, parties, r.Grants)
	level := r.level
	if level <= 0 {
		level = withNewcomer(r.left, r.node.DefaultWeight(), parties, r.awake)
	}
	for i, p := range parties { // at which everybody who is there has what is theirs
		if r.awake[i].Active && p.OwnWeight > 0 {
			level = max(level, r.full[i]/p.OwnWeight)
		}
	}
	r.weigh(k, parties, level, short)
	return r.Grants
}

// withNewcomer is the CPUs for a unit of the owners' weights where all that is there would not
// fill these CPUs: one more is reckoned with, that wants the rest.
func withNewcomer(cpus, weight float64, parties []Party, owners []policies.Claim) float64 {
	newcomer := policies.Claim{Weight: weight, Active: true}
	for i, p := range parties {
		if !owners[i].Active {
			newcomer.Weight = max(newcomer.Weight, p.OwnWeight)
		}
	}
	_, level := policies.Rights(cpus, append(slices.Clip(owners), newcomer))
	return level
}

// Short is the CPUs that a party lacks of what it has a right to and would use.
func Short(k *policies.Constants, p Party, right float64) float64 {
	if !p.Active || p.Spared || p.Waiting < k.RightMargin {
		return 0
	}
	due := min(right, max(p.Wants, p.Used))
	if missing := due - p.Used; missing > k.RightMargin*due {
		return missing
	}
	return 0
}

// recall shrinks loans by what others are short of, the largest surplus first. A borrower that is
// short itself has its lowered weight in its way: where no other container waits, whom that would
// take from, it gets as much as gives it its right; else its owner's values come back. It returns
// how many are short.
func (r Rights) recall(k *policies.Constants, parties []Party) (short int) {
	missing, worst, by, waiting := 0.0, 0.0, "", 0
	for _, p := range parties {
		if p.Active && p.Waiting >= k.RightMargin {
			waiting++
		}
	}
	for i, p := range parties {
		s := Short(k, p, r.Grants[i].Due)
		if s <= 0 {
			continue
		}
		short++
		if p.lent() > 0 && p.Weight < p.OwnWeight && p.mayQuota() && !p.FixedWeight {
			g := &r.Grants[i]
			if to := regains(k, p, s, r.used, g.Due/r.now); waiting > 1 {
				g.Quota, g.Weight, g.Recall, g.Why = p.OwnQuota, p.OwnWeight, true, fmt.Sprintf("it gets %.2f of the %.2f CPUs it has a right to", p.Used, g.Due)
			} else if !p.Recent || to > p.Weight*(1+k.Moved) {
				g.Weight = to
			}
			continue
		}
		missing += s
		if s > worst {
			worst, by = s, fmt.Sprintf("%s gets %.2f of the %.2f CPUs it has a right to", p.Name, p.Used, r.Grants[i].Due)
		}
	}
	var order []int
	over := func(i int) float64 { return surplus(parties[i], r.Grants[i]) }
	for i, p := range parties {
		if over(i) > 0 && p.mayQuota() && !r.Grants[i].Recall {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(over(b), over(a)) })
	for _, i := range order {
		if missing <= 0 {
			break
		}
		p, g := parties[i], &r.Grants[i]
		has, take := min(p.Used, p.Quota), over(i)
		if !p.Recalled {
			take = min(take, max(missing, k.MinStep*p.Quota)) // less is not worth a write, and would not come
		}
		missing -= take
		g.Quota, g.Recall, g.Why = max(p.OwnQuota, hundredths(has-take)), true, by
	}
	return short
}

// regains is the weight at which a borrower gets so many CPUs more of those that all containers have
// now: its share over the rest's grows in that proportion. At least so much, as others' weights may
// rise as well; at most its owner's.
func regains(k *policies.Constants, p Party, more, all, least float64) float64 {
	odds := func(cpus float64) float64 { return max(cpus, k.ActiveCPUs) / max(all-cpus, k.ActiveCPUs) }
	return min(p.OwnWeight, math.Ceil(max(least, p.Weight*odds(p.Used+more)/odds(p.Used))))
}

// surplus is what a borrower uses beyond what it has a right to, CPUs.
func surplus(p Party, g Grant) float64 {
	if p.lent() <= 0 {
		return 0
	}
	return min(p.Used, p.Quota) - g.Right
}

// lend divides what is idle among those that ask, by what they have a right to.
func lend(k *policies.Constants, node policies.Node, parties []Party, grants []Grant) {
	free := node.Idle - node.Reserve
	var order []int
	var low, high, weight []float64
	for i, p := range parties {
		if more := min(p.Asks, p.Most) - p.Quota; more > 0 && p.mayQuota() && !p.Recent {
			order = append(order, i)
			low, high, weight = append(low, 0), append(high, more), append(weight, max(grants[i].Right, 1e-3))
		}
	}
	if len(order) == 0 || free < k.ActiveCPUs {
		return
	}
	give, _ := policies.Fill(free, low, high, weight)
	for n, i := range order {
		p, g := parties[i], &grants[i]
		to := hundredths(p.Quota + give[n])
		if give[n] >= k.Dominant { // programs that read their quota reckon in whole CPUs
			to = max(to, min(math.Ceil(to), p.Asks, p.Most))
		}
		if to >= p.Quota*(1+k.MinStep) && to > p.Quota {
			g.Quota = to
			g.Why = fmt.Sprintf("%s; lent %.2f CPUs that nobody uses, %.2f are its own", p.Why, to-p.OwnQuota, p.OwnQuota)
		}
	}
}

// settle shrinks loans to what turned out to be enough.
func settle(k *policies.Constants, parties []Party, grants []Grant) {
	for i, p := range parties {
		g := &grants[i]
		to, why, others := p.Settles, p.Why, p.Settles == 0 && p.Most < p.Quota
		if others {
			to, why = p.Most, p.MostWhy
		}
		if to <= 0 || !p.mayQuota() || p.Recent || g.Recall || g.Quota != p.Quota {
			continue
		}
		if to = max(to, p.OwnQuota); to <= p.Quota*(1-k.MinStep/2) {
			g.Quota, g.Why, g.Recall = hundredths(to), why, others
		}
	}
}

// weigh lowers the weights that go with loans: each to where, if all want all they may, everybody
// gets what the owners' values gave them; level is the CPUs for a unit of the owners' weights. What
// was too low rises by recall. A weight that a trial dealt stands until its return helps who is
// short: the party itself where it was lowered, others where it was raised.
func (r Rights) weigh(k *policies.Constants, parties []Party, level float64, short int) {
	for i, p := range parties {
		g, itself := &r.Grants[i], Short(k, p, r.Grants[i].Due) > 0
		stands := p.Dealt && (short == 0 || itself && short == 1 && p.Weight > p.OwnWeight)
		if p.Fixed || p.FixedWeight || p.Recent && !g.Recall || p.OwnWeight <= 0 || stands || g.Weight != p.Weight {
			continue
		}
		to := p.OwnWeight
		if g.Quota > max(p.OwnQuota, p.Proven)*(1+k.MinStep) && p.OwnQuota > 0 && level > 0 {
			to = max(2, math.Round(min(p.OwnWeight, min(p.OwnQuota, r.full[i])/level)))
		}
		if p.Dealt && !itself && p.Weight < to { // what others are short of, its return would add to
			continue
		}
		if to < p.Weight && !p.Dealt && g.Quota <= p.Quota && p.Waiting >= k.RightMargin { // it would get less at once: what others lack, no more
			to = max(to, regains(k, p, min(0, g.Due-p.Used+r.node.Idle), r.used, 0))
		}
		if to < p.Weight*(1-2*k.MinStep) || to == p.OwnWeight && p.Weight != p.OwnWeight {
			g.Weight = to
		}
	}
}

// hundredths rounds CPUs down to what systemd can set.
func hundredths(cpus float64) float64 { return math.Floor(cpus*100+1e-9) / 100 }
