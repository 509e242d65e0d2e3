// Package repair decides when GPU access that a container lost is repaired: at once,
// at a bounded rate where somebody takes it away again and again, and after growing
// pauses where repairing fails. It is pure: who looks and who repairs is the agent's.
package repair

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/runtime"
)

const (
	// MaxPerMinute bounds the repairs of one container: a writer that resyncs every
	// second must not be met with a write each second, and whoever looks at the
	// container sees a fight in the records, not a flood.
	MaxPerMinute = 6

	firstPauseNs   = int64(time.Second) // after a repair that failed; doubles
	longestPauseNs = int64(time.Minute)
	minuteNs       = int64(time.Minute)

	// UnknownAfterNs is how long a container that holds a GPU may be without any
	// access before that is called lost: its runtime may still be at work.
	UnknownAfterNs = 5 * int64(time.Second)
)

// Backoff paces the repairs of one container's access; the zero value has it. Times
// are of one monotonic clock, in ns.
type Backoff struct {
	lost    bool
	sinceNs int64
	starts  []int64 // of repairs, in the last minute
	failed  int     // in a row
	nextNs  int64   // no repair before
	said    string  // the obstacle that was told last
}

// Step is what to do after a look.
type Step struct {
	Found    bool   // lost since the look before
	Returned bool   // back, and not by trimtab
	Repair   bool   // now; Done tells how it ended
	Obstacle string // why it stays lost for now; told once, until it changes
	Standing string // of a loss found anew: the obstacle that was told of the one before
}

// Lost reports whether access was lost at the last look and has not been repaired.
func (c *Backoff) Lost() bool { return c.lost }

// See takes in one look. mayNot is why this container is not to be repaired; "" if it is.
func (c *Backoff) See(nowNs int64, lost bool, mayNot string) Step {
	if !lost {
		s := Step{Returned: c.lost}
		c.back()
		return s
	}
	s := Step{Found: !c.lost}
	if s.Found {
		c.lost, c.sinceNs = true, nowNs
	}
	c.starts = slices.DeleteFunc(c.starts, func(at int64) bool { return nowNs-at >= minuteNs })
	switch {
	case mayNot != "":
		s.Obstacle = c.tell(mayNot)
	case nowNs < c.nextNs:
	case len(c.starts) >= MaxPerMinute:
		if s.Obstacle = c.tell(Limited); s.Obstacle == "" && s.Found {
			s.Standing = Limited
		}
	default:
		if len(c.starts) == 0 && c.said == Limited {
			c.said = "" // that fight is over; the next one is told again
		}
		s.Repair = true
		c.starts = append(c.starts, nowNs)
	}
	return s
}

// Limited is the obstacle of a container that loses its access again and again.
const Limited = "somebody takes it away again and again: it is repaired at most 6 times a minute; find who writes its device rules"

// back: access is back. A fight goes on while it comes and goes, and is told once.
func (c *Backoff) back() {
	c.lost, c.failed, c.nextNs = false, 0, 0
	if c.said != Limited {
		c.said = ""
	}
}

func (c *Backoff) tell(obstacle string) string {
	if c.said == obstacle {
		return ""
	}
	c.said = obstacle
	return obstacle
}

// Outcome is how a repair ended.
type Outcome struct {
	Repaired bool
	TookNs   int64  // since it was found
	Obstacle string // of a failure; told once, until it changes
}

// Done takes in the end of a repair; failure "" is success.
func (c *Backoff) Done(nowNs int64, failure string) Outcome {
	if failure == "" {
		c.back()
		return Outcome{Repaired: true, TookNs: nowNs - c.sinceNs}
	}
	c.nextNs = nowNs + min(firstPauseNs<<min(c.failed, 6), longestPauseNs)
	c.failed++
	return Outcome{Obstacle: c.tell(failure)}
}

// Remember adds the rules that stand to those that a container is known to have had;
// changed is false if one of those says as much already. While a part of a rule is
// lost, what is left of it is no news.
func Remember(had, stand []runtime.DeviceRule) (all []runtime.DeviceRule, changed bool) {
	all = slices.Clone(had)
	for _, r := range stand {
		if !slices.ContainsFunc(all, func(known runtime.DeviceRule) bool { return known.Contains(r) }) {
			all, changed = append(all, r), true
		}
	}
	return all, changed
}

// Names is a short list of rules for people.
func Names(rules []runtime.DeviceRule) string {
	const most = 4
	var out []string
	for _, r := range rules[:min(len(rules), most)] {
		out = append(out, r.String())
	}
	if more := len(rules) - most; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ", ")
}
