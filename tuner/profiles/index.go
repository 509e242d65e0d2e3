package profiles

import (
	"hash/fnv"
	"iter"
	"math"
	"sort"

	"github.com/trimtab/trimtab/policies"
)

// mark is what of a known job rules most others out at once. A Store keeps them beside the jobs,
// in the same order: ten thousand are 320 KB, and gone through in microseconds, where the jobs
// themselves are megabytes.
type mark struct {
	unit uint32 // hash of its print's unit
	// low and high are the least and the most CPU seconds that a step costs on any device; floor
	// the longest of its floors.
	low, high, floor float32
	jobs             [maxIdentities]uint32 // hashes of what its identities have in common from run to run
}

// slack covers what rounding to 32 bits takes away.
const slack = 1e-6

func markOf(k *Known) mark {
	m := mark{unit: hash32(k.Print.Unit), low: math.MaxFloat32}
	for i, id := range k.Identities[:min(len(k.Identities), maxIdentities)] {
		m.jobs[i] = hash32(id.Job)
	}
	take := func(c policies.Cost) {
		x := float32(c.CPU())
		m.low, m.high, m.floor = min(m.low, x), max(m.high, x), max(m.floor, float32(c.Floor()))
	}
	if k.Shape { // its times are of another host
		m.low, m.high = 0, math.MaxFloat32
		return m
	}
	take(k.Learned.Cost)
	for _, on := range k.Learned.Devices {
		take(on.cost)
	}
	return m
}

func hash32(s string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(s))
	return h.Sum32()
}

// maxCandidates of one unit and cost are held against a print: more than a host has jobs of a kind, and so
// few that a look-up takes less than a millisecond.
const maxCandidates = 3000

// candidates are the known jobs that can be alike at all: steps counted in the same unit, which
// ask for about as much CPU (see sameCost). All that are alike are among them, but of
// more than maxCandidates only the latest of this host's, then others'.
func (b *Store) candidates(p Print, cost policies.Cost) iter.Seq[*Known] {
	return func(yield func(*Known) bool) {
		unit, x, floor := hash32(p.Unit), cost.CPU(), cost.Floor()
		own, left := sort.Search(len(b.known), func(i int) bool { return b.known[i].ID >= foreignID }), maxCandidates
		for at := range b.marks {
			i := at
			if at < own { // numbers grow with time
				i = own - 1 - at
			}
			m := &b.marks[i]
			if m.unit != unit {
				continue
			}
			low, high, near := float64(m.low)*(1-slack), float64(m.high)*(1+slack), sameCPUs*max(floor, float64(m.floor)*(1+slack))
			if x < min(low/sameDemand, low-near) || x > max(high*sameDemand, high+near) {
				continue
			}
			if left--; left < 0 {
				return
			}
			if !yield(&b.known[i]) {
				return
			}
		}
	}
}
