package main

import (
	"fmt"
	"math"
	"time"
)

// The law of rights. A container that always wants all of its quota has a right to it
// while the CPUs that containers had, and those that idled, hold the quotas of all. It is
// judged only where a shortfall can be trimtab's: where loans took as much as it lacks,
// and next to nothing runs outside of these containers. All else a machine with other
// work on it does by itself.
const (
	rightGoal    = 0.97
	rightsWithin = 5 * time.Second
	// maxOutside is how many CPUs may be used outside of the containers: two bursts of that
	// leave each container its 100 ms.
	maxOutside = 0.15
)

// share is one container in one reading.
type share struct {
	name  string
	quota float64 // its owner's, CPUs
	used  float64 // CPUs
	wants bool    // all of its quota, always
}

// rightsReading is what became of the CPUs between two instants.
type rightsReading struct {
	length time.Duration
	cpus   float64 // the machine's
	idle   float64 // CPUs
	shares []share // all that run
}

// lent is what was used above owners' quotas.
func (r rightsReading) lent() (sum float64) {
	for _, s := range r.shares {
		sum += max(0, s.used-s.quota)
	}
	return sum
}

// fair says whether the reading can be judged.
func (r rightsReading) fair() bool {
	var used, due float64
	for _, s := range r.shares {
		used += s.used
		due += s.quota
	}
	return r.cpus-r.idle-used <= maxOutside && used+r.idle >= due
}

// short are those below their right, each with what it lacks.
func (r rightsReading) short() map[string]float64 {
	out := map[string]float64{}
	if !r.fair() {
		return out
	}
	for _, s := range r.shares {
		if lacks := rightGoal*s.quota - s.used; s.wants && lacks > 0 && r.lent() >= lacks {
			out[s.name] = lacks
		}
	}
	return out
}

// rights follows readings. The zero value is ready.
type rights struct {
	since          map[string]time.Duration // how long each has been short
	told           map[string]bool
	judged, unsure time.Duration
}

// next takes in a reading, and returns who has been short for longer than the law allows,
// once for each time.
func (r *rights) next(now rightsReading) (out []breach) {
	if r.since == nil {
		r.since, r.told = map[string]time.Duration{}, map[string]bool{}
	}
	if now.fair() {
		r.judged += now.length
	} else {
		r.unsure += now.length
	}
	short := now.short()
	for name := range r.since {
		if _, still := short[name]; !still {
			delete(r.since, name)
			delete(r.told, name)
		}
	}
	for _, s := range now.shares {
		lacks, is := short[s.name]
		if !is {
			continue
		}
		if r.since[s.name] += now.length; r.since[s.name] > rightsWithin && !r.told[s.name] {
			r.told[s.name] = true
			out = append(out, breach{lawRights, s.name, fmt.Sprintf("it had %.3f CPUs of its %.3f for %s, and lacks %.3f while loans use %.3f; %.2f idle",
				s.used, s.quota, r.since[s.name].Round(time.Millisecond), lacks, now.lent(), math.Max(0, now.idle))})
		}
	}
	return out
}
