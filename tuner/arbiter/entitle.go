package arbiter

import (
	"fmt"

	"github.com/trimtab/trimtab/policies"
)

// Entitle returns the CPUs that each claim has a right to: the larger of its floor
// and its weighted fair share, and no more than its owner's quota. A job's floor is
// what its owner asked for, else the quota that stood at first. Among enrolled jobs
// those with more GPUs in use have a right to more of what enrolled jobs have a right
// to together; nobody else loses by it.
//
// Rights beyond the machine are no rights: where they sum above it, floors that
// owners asked for come first, then weights decide, as the kernel would. short: the
// floors alone exceed the machine, and each is cut in proportion.
func Entitle(node policies.Node, claims []Claim) (cpus []float64, short bool, why string) {
	n := len(claims)
	cpus = make([]float64, n)
	if !(node.CPUs > 0) {
		return cpus, n > 0, "the node has no CPU to deal"
	}
	var sum, pool, pooled float64
	for _, c := range claims {
		if c.Active {
			sum += c.ownWeight()
		}
	}
	for _, c := range claims {
		if c.Active && c.Enrolled {
			pool += c.ownWeight() / sum
			pooled += c.ownWeight() * max(1, c.GPUs)
		}
	}
	low, weight := make([]float64, n), make([]float64, n)
	var rights, floors float64
	for i, c := range claims {
		fair := node.CPUs
		weight[i] = c.ownWeight()
		switch {
		case !c.Active || sum <= 0:
		case c.Enrolled:
			fair = node.CPUs * pool * weight[i] * max(1, c.GPUs) / pooled
		default:
			fair = node.CPUs * weight[i] / sum
		}
		cpus[i] = c.right(fair)
		if c.Active {
			low[i] = min(c.Floor, cpus[i])
			rights, floors = rights+cpus[i], floors+low[i]
		}
	}
	if rights <= node.CPUs*(1+1e-9) {
		return cpus, false, ""
	}
	high := make([]float64, n)
	for i, c := range claims {
		if c.Active {
			high[i] = cpus[i]
			if c.Enrolled {
				weight[i] *= max(1, c.GPUs)
			}
		}
	}
	dealt, short := fill(node.CPUs, low, high, weight)
	for i, c := range claims {
		if c.Active {
			cpus[i] = dealt[i]
		}
	}
	if short {
		why = fmt.Sprintf("floors ask for %.2f CPUs and the node has %.2f: each is entitled to %.0f %% of its floor", floors, node.CPUs, 100*node.CPUs/floors)
	}
	return cpus, short, why
}

// right bounds a fair share by quota and floor.
func (c Claim) right(fair float64) float64 {
	floor := c.Floor
	if c.OwnQuota > 0 {
		fair = min(fair, c.OwnQuota)
		if floor <= 0 {
			floor = c.OwnQuota
		}
	}
	return max(fair, floor)
}
