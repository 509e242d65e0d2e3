// Package series keeps the last hour of each watched container: what its time went to,
// its rate and its CPUs, one point each ten seconds. What it holds is bounded by MaxBytes,
// whatever runs on the node. It is pure: whoever has a snapshot adds it.
package series

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"unsafe"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

const (
	// EveryNs is the time between two points.
	EveryNs = 10_000_000_000
	// maxStepBackNs is a correction of the clock: points come again when time has caught up.
	maxStepBackNs = 60_000_000_000
	// maxFrames of them are an hour.
	maxFrames = 360
	// maxPoints are those of 364 containers over an hour. Of more containers the oldest
	// points go sooner: 1,000 have 21 minutes.
	maxPoints = 1 << 17
	// MaxBytes bounds the memory of all points.
	MaxBytes = maxPoints*int(unsafe.Sizeof(point{})) + (maxFrames+1)*int(unsafe.Sizeof(frame{}))
)

// Series is what is known of one container, oldest point first.
type Series struct {
	Key     string   `json:"key"`
	Name    string   `json:"name"`
	EveryNs int64    `json:"every"` // between two points
	Parts   []string `json:"parts"` // of each point's Shares, in their order
	Points  []Point  `json:"points"`
}

// Point is one container at one instant, or over the time since the point before.
type Point struct {
	UnixNs int64   `json:"time"`
	Rate   float64 `json:"rate,omitempty"` // a second, at the instant; 0: none
	// Steps: Rate is in steps; else in another event, or by the job's own word.
	Steps bool    `json:"steps,omitempty"`
	Used  float64 `json:"used"`            // CPUs, at the instant
	Quota float64 `json:"quota,omitempty"` // CPUs; 0: no quota
	Lent  float64 `json:"lent,omitempty"`  // CPUs of the quota above its owner's
	Trial bool    `json:"trial,omitempty"` // a plan that touches it was being judged
	// Shares of the slowest rank's time since the point before, which sum to 1. Empty: no
	// window was closed since.
	Shares []float64 `json:"shares,omitempty"`
}

// units is what a point's shares are counted in: they sum to it exactly.
const units = 255

type point struct {
	id                      uint32
	rate, used, quota, lent float32
	shares                  [policies.NumParts]uint8
	flags                   uint8
}

const (
	flagSteps = 1 << iota
	flagTrial
	flagShares
)

// frame is all points of one instant, sorted by id.
type frame struct {
	unixNs int64
	points []point
}

// watched is what must be remembered of a container to make its next point.
type watched struct {
	id    uint32
	parts [policies.NumParts]int64
}

// Store keeps the points. It is safe for concurrent use; its zero value is empty.
type Store struct {
	mu     sync.Mutex
	frames []frame // oldest first
	points int
	known  map[string]watched
	lastID uint32
}

// Add takes a snapshot in if EveryNs went by since the last one that it took, less what a
// tick may come early. If the clock was set back by more than maxStepBackNs what is kept is dropped:
// its times are wrong.
func (s *Store) Add(snap *state.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.frames); n > 0 {
		switch since := snap.UnixNs - s.frames[n-1].unixNs; {
		case since < -maxStepBackNs:
			s.frames, s.points = nil, 0
		case since < EveryNs-EveryNs/20:
			return
		}
	}
	known := make(map[string]watched, len(s.known))
	var points []point
	for i := range snap.Containers {
		c := &snap.Containers[i]
		if !c.Watched || len(points) == maxPoints {
			continue
		}
		w, met := s.known[c.Key]
		if !met {
			s.lastID++
			w.id = s.lastID
		}
		points = append(points, pointOf(c, w))
		w.parts = c.PartNs
		known[c.Key] = w
	}
	points = append(make([]point, 0, len(points)), points...) // exactly: what append leaves over is kept for an hour
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.id, b.id) })
	s.known = known
	if s.frames == nil {
		s.frames = make([]frame, 0, maxFrames+1)
	}
	s.frames = append(s.frames, frame{snap.UnixNs, points})
	s.points += len(points)
	for len(s.frames) > maxFrames || s.points > maxPoints {
		s.points -= len(s.frames[0].points)
		s.frames = slices.Delete(s.frames, 0, 1)
	}
}

func pointOf(c *state.Container, before watched) point {
	p := point{id: before.id, used: float32(finite(c.UsedCPUs))}
	if c.RateWhy == "" { // else nobody shows it
		p.rate = float32(finite(c.Rate.PerSecond))
	}
	if q, limited := c.Now[runtime.KnobCPUQuota].CPUs(); limited {
		p.quota = float32(finite(q))
	}
	if c.Loan != nil {
		p.lent = float32(finite(c.Loan.CPUs))
	}
	if c.Rate.Steps && c.RateWhy == "" {
		p.flags |= flagSteps
	}
	if c.Trial != nil {
		p.flags |= flagTrial
	}
	if shares, ok := sharesOf(c.PartNs, before.parts); ok {
		p.shares = shares
		p.flags |= flagShares
	}
	return p
}

// sharesOf rounds the bounds between parts, not the parts, so that these sum to units.
// Counters that fell are another life of the container's: they count from zero.
func sharesOf(now, before [policies.NumParts]int64) (out [policies.NumParts]uint8, ok bool) {
	var sum float64
	for i := range now {
		if now[i] < before[i] {
			before = [policies.NumParts]int64{}
			break
		}
	}
	for i := range now {
		sum += float64(max(now[i]-before[i], 0))
	}
	if sum <= 0 {
		return out, false
	}
	var upTo, bound float64
	for i := range now {
		upTo += float64(max(now[i]-before[i], 0))
		next := math.Round(units * min(upTo/sum, 1))
		out[i] = uint8(next - bound)
		bound = next
	}
	return out, true
}

// Of returns the points of a container that runs, by its key.
func (s *Store) Of(key string) []Point {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.known[key]
	if !ok {
		return []Point{}
	}
	out := make([]Point, 0, len(s.frames))
	for _, f := range s.frames {
		i, found := slices.BinarySearchFunc(f.points, w.id, func(p point, id uint32) int { return cmp.Compare(p.id, id) })
		if found {
			out = append(out, f.points[i].show(f.unixNs))
		}
	}
	return out
}

func (p point) show(unixNs int64) Point {
	out := Point{UnixNs: unixNs, Rate: rounded(p.rate), Used: rounded(p.used), Quota: rounded(p.quota), Lent: rounded(p.lent),
		Steps: p.flags&flagSteps != 0, Trial: p.flags&flagTrial != 0}
	if p.flags&flagShares != 0 {
		out.Shares = make([]float64, len(p.shares))
		for i, n := range p.shares {
			out.Shares[i] = rounded(float32(n) / units)
		}
	}
	return out
}

// PartNames are the names of Point.Shares, in their order.
func PartNames() []string {
	var out []string
	for p := range policies.NumParts {
		out = append(out, p.String())
	}
	return out
}

// rounded leaves four decimals: more were not measured, and each costs a viewer a byte.
func rounded(x float32) float64 { return math.Round(float64(x)*1e4) / 1e4 }

// finite is x, or 0 where JSON has no word for it.
func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}
