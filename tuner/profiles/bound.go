package profiles

import (
	"cmp"
	"math"
	"slices"
)

// worth orders known jobs by age and use, in Unix nanoseconds: one that was met as twice as many
// containers, or whose trials were kept twice as often, is worth a week more. A single run of which
// nothing else was learned goes before all that was: whoever starts containers makes as many as they like.
func (k *Known) worth() float64 {
	const week = 7 * 24 * 3600e9
	if k.Host != "" {
		return float64(k.LastUnixNs) - math.MaxInt64 // never before one of this host
	}
	if k.Print.Unit == "" && k.Ends.Len() < 2 {
		return float64(k.LastUnixNs) - math.MaxInt64/2
	}
	return float64(k.LastUnixNs) + week*math.Log2(float64(k.Jobs+k.Learned.Kept+k.Learned.Right))
}

// Divide takes those apart that are worth the most by age and use, at most so many. Both parts are
// in the order in which they were.
func Divide(all []Known, most int) (first, rest []Known) {
	if len(all) <= most {
		return all, nil
	}
	goes := least(all, len(all)-most)
	for i, k := range all {
		if goes[i] {
			rest = append(rest, k)
		} else {
			first = append(first, k)
		}
	}
	return first, rest
}

// least tells which so many are worth the least: of several that are worth as much the first ones.
func least(all []Known, many int) []bool {
	worths, order := make([]float64, len(all)), make([]int, len(all))
	for i := range all {
		worths[i], order[i] = all[i].worth(), i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Or(cmp.Compare(worths[i], worths[j]), cmp.Compare(i, j)) })
	goes := make([]bool, len(all))
	for _, i := range order[:many] {
		goes[i] = true
	}
	return goes
}

// bound holds the Store within its age and a count.
func (b *Store) bound(nowUnixNs int64, most int) {
	b.nowUnixNs = max(b.nowUnixNs, nowUnixNs)
	b.known = slices.DeleteFunc(b.known, func(k Known) bool { return nowUnixNs-k.LastUnixNs > MaxAgeNs })
	if over := len(b.known) - most; over > 0 {
		goes, i := least(b.known, over), -1
		b.known = slices.DeleteFunc(b.known, func(Known) bool { i++; return goes[i] })
	}
	b.rebuilt()
}

// rebuilt follows entries that came, went or moved.
func (b *Store) rebuilt() {
	b.marks = b.marks[:0]
	for i := range b.known {
		b.marks = append(b.marks, markOf(&b.known[i]))
	}
	b.changes = len(b.known)
	b.changed()
}

// rangesOf is how many entries are gone through for each change of one, on average: in a large
// Store one job more or less moves the ranges little, and looking at all each time would cost
// more than all else.
const rangesOf = 256

func (b *Store) changed() {
	b.revision++
	if b.changes++; b.changes*rangesOf < len(b.known) {
		return
	}
	var own []*Print // others' must not move what is alike here
	for i := range b.known {
		if k := &b.known[i]; k.Host == "" {
			own = append(own, &k.Print)
		}
	}
	b.changes, b.ranges = 0, RangesOf(own...)
}
