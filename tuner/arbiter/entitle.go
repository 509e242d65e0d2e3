package arbiter

import (
	"fmt"

	"github.com/trimtab/trimtab/policies"
)

// Entitle returns the CPUs that each claim has a right to: the larger of its floor
// and its weighted fair share, and no more than its owner's quota. A floor is what its
// owner asked for, or the quota that stood at first as far as owners' weights and quotas
// would leave it that much if all wanted all they may: a quota is no promise. Among
// enrolled jobs those with more GPUs in use have a right to more of what enrolled jobs
// have a right to together; nobody else loses by it.
//
// The rights never sum above the machine. short: the floors that owners asked for do,
// and each is cut in proportion.
func Entitle(node policies.Node, claims []Claim) (cpus []float64, short bool, why string) {
	n := len(claims)
	cpus = make([]float64, n)
	if !(node.CPUs > 0) {
		return cpus, n > 0, "the node has no CPU to deal"
	}
	weight, sum := worth(claims)
	low, high := make([]float64, n), make([]float64, n)
	var floors float64
	for i, c := range claims {
		if c.Active {
			low[i], high[i] = min(c.Floor, node.CPUs), node.CPUs
			if c.OwnQuota > 0 {
				high[i] = max(min(c.OwnQuota, node.CPUs), low[i])
			}
			floors += low[i]
		}
	}
	dealt, short := fill(node.CPUs, low, high, weight)
	for i, c := range claims {
		switch {
		case !c.Active: // as if it were alone with what it may use
			cpus[i] = node.CPUs
			if c.OwnQuota > 0 {
				cpus[i] = max(min(cpus[i], c.OwnQuota), min(c.Floor, node.CPUs))
			}
		case c.OwnQuota > 0:
			cpus[i] = dealt[i]
		default: // what others' quotas leave it beyond its share is a gift
			cpus[i] = min(dealt[i], max(node.CPUs*weight[i]/sum, low[i]))
		}
	}
	if short {
		why = fmt.Sprintf("floors ask for %.2f CPUs and the node has %.2f: each is entitled to %.0f %% of its floor", floors, node.CPUs, 100*node.CPUs/floors)
	}
	return cpus, short, why
}

// worth is each claim's weight as rights are dealt by it, and the sum over the active
// ones: the owners', with those of enrolled jobs dealt anew among them by GPUs in use.
func worth(claims []Claim) (weight []float64, sum float64) {
	var plain, byGPUs float64
	for _, c := range claims {
		if c.Active {
			sum += c.ownWeight()
		}
		if c.Active && c.Enrolled {
			plain, byGPUs = plain+c.ownWeight(), byGPUs+c.ownWeight()*max(1, c.GPUs)
		}
	}
	for _, c := range claims {
		w := c.ownWeight()
		if c.Active && c.Enrolled {
			w *= max(1, c.GPUs) * plain / byGPUs
		}
		weight = append(weight, w)
	}
	return weight, sum
}
