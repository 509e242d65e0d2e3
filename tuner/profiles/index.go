package profiles

import (
	"iter"
	"math"
	"math/bits"
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

// hash32 is FNV-1a.
func hash32(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h
}

// asked is a print that many are held against.
type asked struct {
	*Print
	// scales are each attribute's weight over its range.
	scales, weights [NumAttributes]float64
	// most differences that one within NearAt can have: on the same model of device, and on another.
	most, mostElsewhere float64
}

// deviceOnly are the attributes that are left out between different models of device.
const deviceOnly = 1<<DeviceWait | 1<<StepTime | 1<<Activity | 1<<SyncShare

func askedOf(p *Print, ranges *Ranges) *asked {
	q := &asked{Print: p, most: imageWeight, mostElsewhere: imageWeight}
	for a, how := range attributes() {
		q.scales[a], q.weights[a] = how.weight/ranges[a], how.weight
		if p.has&(1<<a) == 0 {
			continue
		}
		if q.most += how.weight; !how.device {
			q.mostElsewhere += how.weight
		}
	}
	q.most, q.mostElsewhere = q.most*NearAt*(1+slack), q.mostElsewhere*NearAt*(1+slack)
	return q
}

// far reports whether a print is certainly not within NearAt: what is compared of it already is too
// different, whatever the rest.
func (q *asked) far(p *Print) bool {
	both, most, sum := q.has&p.has, q.most, 0.0
	if q.Device != p.Device {
		both, most = both&^deviceOnly, q.mostElsewhere
	}
	for ; both != 0; both &= both - 1 {
		a := bits.TrailingZeros32(both)
		d := math.Abs(float64(q.logs[a]-p.logs[a])) * q.scales[a]
		if d > q.weights[a] {
			d = q.weights[a]
		}
		if sum += d; sum > most {
			return true
		}
	}
	return false
}

// maxCandidates of one unit and cost are held against a print: more than a host has jobs of a kind, and so
// few that a look-up takes less than a millisecond.
const maxCandidates = 3000

// candidates are the known jobs that can be alike at all: steps counted in the same unit, which
// ask for about as much CPU (see sameCost), and not certainly far. All that are alike are among them, but of
// more than maxCandidates only the latest of this host's, then others'.
func (b *Store) candidates(p Print, cost policies.Cost) iter.Seq[*Known] {
	return func(yield func(*Known) bool) {
		unit, x, floor := hash32(p.Unit), cost.CPU(), cost.Floor()
		asked := askedOf(&p, &b.ranges)
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
			if k := &b.known[i]; !asked.far(&k.Print) && !yield(k) {
				return
			}
		}
	}
}
