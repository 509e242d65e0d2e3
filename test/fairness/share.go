package main

import (
	"slices"
	"time"
)

// goal is the part of its own that a neighbour must have.
const goal = 0.97

// result is one run.
type result struct {
	least  share   // of neighbours' own, in any window from `within` on
	nobody share   // the same while nothing was lent
	mean   float64 // of all neighbours' own together, over all of that time
	back   float64 // seconds from when its owner's value was called for until the loan was cut; negative: it was not
	lacked float64 // seconds from the neighbour's first work until then: of CPUs none, of memory until the host is short
	taken  float64 // the most that others took of the host's CPU time in a stretch, beyond what they always take
}

// share is the least in any window, over what is due: of the neighbour that has the least, and
// of all together.
type share struct{ each, together float64 }

// holds reports whether everybody had what is theirs, as far as the machine's own noise lets one
// tell: floor is the least that anybody had in any run of the case while nothing was lent. How
// the kernel spreads ten neighbours over two CPUs differs by a tenth from one time to another.
func (r result) holds(floor share) bool {
	return r.least.each >= min(goal, floor.each) && r.least.together >= min(goal, floor.together)
}

// amount is what is compared, between two samples.
func (b *bench) amount(x *other, from, to int) float64 {
	a, z := x.sample[from], x.sample[to]
	seconds, used, steps := (z.at - a.at).Seconds(), (z.used - a.used).Seconds(), float64(z.steps-a.steps)
	switch {
	case seconds <= 0:
		return 0
	case b.c.by == byCPU:
		return used / seconds
	case b.c.by == byRate:
		return steps / seconds
	case b.c.by == byHeld:
		return float64(a.held+z.held) / 2
	case used <= 0:
		return 0
	}
	return steps / used
}

// least is the least of their own that neighbours have in any window that begins after an
// instant: each, and all together.
func (b *bench) least(due []float64, together float64, after time.Duration) share {
	least := share{2, 2}
	for from := range b.others[0].sample {
		at := b.others[0].sample[from].at
		to := slices.IndexFunc(b.others[0].sample, func(r reading) bool { return r.at >= at+window })
		if at < after || to < 0 {
			continue
		}
		sum := 0.0
		for i, x := range b.others {
			has := b.amount(x, from, to)
			sum += has
			least.each = min(least.each, has/max(due[i], 1e-9))
		}
		least.together = min(least.together, sum/max(together, 1e-9))
	}
	return least
}

// mean is what neighbours have together from an instant on, over what is due.
func (b *bench) mean(together float64, after time.Duration) float64 {
	sum := 0.0
	for _, x := range b.others {
		from := slices.IndexFunc(x.sample, func(r reading) bool { return r.at >= after })
		if from < 0 {
			return 0
		}
		sum += b.amount(x, from, len(x.sample)-1)
	}
	return sum / max(together, 1e-9)
}
