// Package rivals holds what trimtab is compared with: allocators that see what
// such tools see, the CPU and memory use of control groups, and set what they would
// set. They are for comparison only and are linked into no daemon. Each is a state
// machine without a clock, so that its rules are tested as rules; Drive runs one of
// them against real containers, by the engine that trimtab itself writes through.
//
// Rates and verdicts of trimtab are hidden from them. Only hill climbing is given the
// jobs' own step rates, since it cannot do without.
package rivals

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trimtab/trimtab/runtime"
)

// Labels by which a mix tells rivals what a cluster's API would tell such tools.
const (
	LabelGPUs       = "regret.gpus"        // devices that the job asked for
	LabelBestEffort = "regret.best-effort" // "true": Koordinator's BE
)

// Seen is one container at one instant.
type Seen struct {
	Key    string
	Name   string
	Labels map[string]string
	Tuned  bool           // may be changed; others are only counted
	Now    runtime.Values // what stands
	// UsedCPUs and Throttled are of the interval since the reading before.
	UsedCPUs  float64
	Throttled bool
	// WorkingSet is memory in use less the page cache that is not in active use.
	WorkingSet float64
	OOMKills   uint64
	// Rate is steps per second, for those that may see it; 0: none yet.
	Rate float64
}

// Node is the machine at that instant.
type Node struct {
	CPUs     float64
	UsedCPUs float64 // by everything
}

// Rival decides. Decide is called once an Every, with all containers by key, and
// answers with the knobs to set, by key. at only grows.
type Rival interface {
	Every() time.Duration
	Decide(at time.Duration, n Node, all []Seen) map[string]runtime.Values
}

// Names lists the rivals in the order in which tables show them.
func Names() []string { return []string{"free", "proportional", "percentile", "burst", "climb"} }

// New makes a rival by its name. speed is how many times faster than published the
// percentile recommender's clock runs; the others have intervals of a second.
func New(name string, speed float64) (Rival, error) {
	switch name {
	case "free":
		return free{}, nil
	case "proportional":
		return proportional{}, nil
	case "percentile":
		return newPercentile(speed), nil
	case "burst":
		return newBurst(), nil
	case "climb":
		return newClimb(), nil
	}
	return nil, fmt.Errorf("rival %q is not known; there is: %s", name, strings.Join(Names(), ", "))
}

// Steady reports whether a rival decides once and for all, so that its effect can be
// measured as soon as it has.
func Steady(name string) bool { return name == "free" || name == "proportional" }

// SeesRates reports whether a rival is given the jobs' rates.
func SeesRates(name string) bool { return name == "climb" }

// equalWeight is Docker's default, and what one CPU is to Kubernetes.
const equalWeight = 1024

// free takes all quotas away and makes weights equal: what any gain must first beat.
type free struct{}

func (free) Every() time.Duration { return time.Second }

func (free) Decide(_ time.Duration, _ Node, all []Seen) map[string]runtime.Values {
	out := map[string]runtime.Values{}
	for _, c := range all {
		if c.Tuned {
			out[c.Key] = runtime.Values{runtime.KnobCPUQuota: runtime.Quota(-1, runtime.DefaultPeriodUs), runtime.KnobCPUWeight: runtime.IntValue(equalWeight)}
		}
	}
	return out
}

// proportional divides the node's CPUs by the devices that containers asked for, as
// quota and as weight; one without a device counts as one. Synergy (Mohan et al.,
// OSDI 2022) calls it the GPU-proportional allocation and is judged against it.
type proportional struct{}

func (proportional) Every() time.Duration { return time.Second }

func (proportional) Decide(_ time.Duration, n Node, all []Seen) map[string]runtime.Values {
	var sum float64
	for _, c := range all {
		sum += parts(c)
	}
	out := map[string]runtime.Values{}
	for _, c := range all {
		if c.Tuned {
			out[c.Key] = runtime.Values{
				runtime.KnobCPUQuota:  runtime.QuotaFromCPUs(n.CPUs*parts(c)/sum, runtime.DefaultPeriodUs),
				runtime.KnobCPUWeight: runtime.IntValue(int64(equalWeight * parts(c))),
			}
		}
	}
	return out
}

func parts(c Seen) float64 {
	if n, err := strconv.Atoi(c.Labels[LabelGPUs]); err == nil && n > 0 {
		return float64(n)
	}
	return 1
}

// byKey sorts what was seen, so that decisions do not hang on the order of reading.
func byKey(all []Seen) []Seen {
	out := slices.Clone(all)
	slices.SortFunc(out, func(a, b Seen) int { return strings.Compare(a.Key, b.Key) })
	return out
}
