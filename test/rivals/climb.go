package rivals

import (
	"time"

	"github.com/trimtab/trimtab/runtime"
)

// Hill climbing: one container after the other is given more, then less, CPU quota;
// what made the sum of rates (each over its first) better stays and is tried again,
// what did not goes back. No published rules: a plain climb, with times that let the
// prefetch of loaders pass.
const (
	climbEvery  = time.Second
	climbSettle = 2 // readings after a move that do not count
	climbCount  = 3 // readings that do
	climbStep   = 1.3
	climbGain   = 1.01 // the least improvement that is believed
)

type climb struct {
	first  map[string]float64 // rate at the start, by key
	score  float64            // of what stands
	sum    float64
	n      int
	turn   int // over containers and directions
	back   map[string]runtime.Values
	moving bool
}

func newClimb() *climb { return &climb{first: map[string]float64{}} }

func (*climb) Every() time.Duration { return climbEvery }

func (c *climb) Decide(_ time.Duration, n Node, all []Seen) map[string]runtime.Values {
	all = byKey(all)
	if c.n++; c.n > climbSettle {
		c.sum += c.measure(all)
	}
	if c.n < climbSettle+climbCount {
		return nil
	}
	score := c.sum / climbCount
	c.n, c.sum = 0, 0
	back := c.back
	c.back = nil
	switch {
	case !c.moving: // the start
		c.score = score
	case score >= c.score*climbGain:
		c.score = score // and on in the same direction
	default:
		c.turn++
		c.moving = false
		return back
	}
	return c.move(n, all)
}

func (c *climb) measure(all []Seen) float64 {
	var sum float64
	for _, s := range all {
		if s.Rate <= 0 {
			continue
		}
		if c.first[s.Key] == 0 {
			c.first[s.Key] = s.Rate
		}
		sum += s.Rate / c.first[s.Key]
	}
	return sum
}

// move tries the next step: of those containers that have a quota, up and then down.
func (c *climb) move(n Node, all []Seen) map[string]runtime.Values {
	var own []Seen
	for _, s := range all {
		if _, limited := s.Now[runtime.KnobCPUQuota].CPUs(); limited && s.Tuned {
			own = append(own, s)
		}
	}
	for range 2 * len(own) {
		s := own[c.turn/2%len(own)]
		now, _ := s.Now[runtime.KnobCPUQuota].CPUs()
		to := min(now*climbStep, n.CPUs)
		if c.turn%2 == 1 {
			to = max(now/climbStep, vpaMinCPU)
		}
		if to == now {
			c.turn++
			continue
		}
		c.back = map[string]runtime.Values{s.Key: {runtime.KnobCPUQuota: s.Now[runtime.KnobCPUQuota]}}
		c.moving = true
		return map[string]runtime.Values{s.Key: {runtime.KnobCPUQuota: runtime.QuotaFromCPUs(to, runtime.DefaultPeriodUs)}}
	}
	return nil
}
