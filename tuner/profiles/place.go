package profiles

import (
	"cmp"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
)

const (
	// NearAt is the distance at which nothing is left of the confidence.
	NearAt = 0.3
	// maxNear known jobs at the most are asked.
	maxNear = 3
	// sameDemand is the ratio of CPU seconds per step beyond which jobs are not alike,
	// however alike the rest: what is taken over hangs on it. Starvation alone makes it 1.2
	// [measured by the demo: 68 ms against 61 ms; wider under harder quotas].
	sameDemand = 1.4
	// sameCPUs is the difference in CPUs below which demands are alike whatever their
	// ratio. Of a job that leaves all to its device (0.004 to 0.012 CPUs, test/e2e) one
	// odd first reading told 0.050: ticks of the kernel decide more than the job. Twice as
	// much would call a job alike that needs a tenth of a CPU.
	sameCPUs = 0.05
)

// match is a known job and how alike it is.
type match struct {
	known *Known
	Likeness
}

// nearest returns the known jobs within reach, the most alike first.
func (b *Store) nearest(p Print, cost policies.Cost) []match {
	var out []match
	for k := range b.candidates(p, cost) {
		l := compare(&p, &k.Print, &b.ranges)
		if l.Distance >= NearAt || l.Attributes < minAttributes || !k.Shape && !sameCost(cost, k.costOn(p.Device)) {
			continue
		}
		if k.Shape {
			k = k.shapedTo(p.Device, cost.CPU())
		}
		out = append(out, match{k, l})
	}
	slices.SortFunc(out, func(x, y match) int {
		return cmp.Or(cmp.Compare(x.Distance, y.Distance), cmp.Compare(x.known.ID, y.known.ID))
	})
	return out
}

// sameCost reports whether steps ask for as much CPU.
func sameCost(a, b policies.Cost) bool {
	x, y := a.CPU(), b.CPU()
	if math.Abs(x-y) <= sameCPUs*max(a.Floor(), b.Floor()) {
		return a.Floor() > 0 && b.Floor() > 0
	}
	return x > 0 && y > 0 && x <= y*sameDemand && y <= x*sameDemand
}

// same is the known job, but for one, that a print is one more of; nil if there is none.
func (b *Store) same(p Print, cost policies.Cost, but uint64) *Known {
	near := slices.DeleteFunc(b.nearest(p, cost), func(m match) bool { return m.known.ID == but || m.known.Host != "" })
	if len(near) == 0 || near[0].Distance > MergeAt {
		return nil
	}
	return b.find(near[0].known.ID)
}

// trusted is how far what was taken from an entry is taken for right, by how often it was.
func (k *Known) trusted(right, wrong int) float64 {
	doubt := 1.0
	if k.Host != "" {
		doubt += foreignDoubt
	}
	return float64(right+1) / (float64(right+2*wrong) + doubt)
}

// confidence is what is left of certainty by distance, by what could not be
// compared, and by how first allocations from the entry fared.
func (m match) confidence() float64 {
	return max(0, 1-m.Distance/NearAt) * m.Compared * m.known.trusted(m.known.Learned.Right, m.known.Learned.Wrong)
}

// Place says what the known jobs most like a print, of which a step costs so much
// as far as is known yet, were found to need; from are their entries. ok is false
// where none is like it. An entry that the job alone has updated, own, is no neighbour.
func (b *Store) Place(p Print, cost policies.Cost, own uint64) (s policies.Similar, from []uint64, ok bool) {
	near := slices.DeleteFunc(b.nearest(p, cost), func(m match) bool { return m.known.ID == own && m.known.Jobs == 1 })
	if near = ownFirst(near); len(near) == 0 {
		return policies.Similar{}, nil, false
	}
	near = near[:min(len(near), maxNear)]
	best := near[0]
	s = policies.Similar{Name: best.known.Name, Distance: best.Distance, Compared: best.Compared, Confidence: best.confidence(),
		Cost: best.known.costOn(p.Device), Correction: best.known.Learned.Correction}
	var sum, weights, low, high float64
	for i, m := range near {
		w, knee := m.confidence(), math.Log(m.known.costOn(p.Device).Knee())
		if i > 0 && m.Distance > 2*best.Distance+MergeAt/2 {
			break // so much less alike that it has no say
		}
		if i == 0 {
			low, high = knee, knee
		}
		low, high = min(low, knee), max(high, knee)
		sum, weights = sum+w*knee, weights+w
		s.Jobs += m.known.Jobs
		from = append(from, m.known.ID)
	}
	if weights <= 0 {
		return policies.Similar{}, nil, false
	}
	s.Knee = math.Exp(sum / weights)
	s.Confidence /= 1 + (high - low) // where they disagree, none is to be trusted
	return s, from, true
}
