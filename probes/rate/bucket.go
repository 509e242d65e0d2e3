package rate

import "time"

// bucket bounds a spending: perS at length, capacity at once.
type bucket struct {
	perS, capacity float64
	level          float64
	at             time.Time
}

func newBucket(perS, capacity float64, now time.Time) *bucket {
	return &bucket{perS: perS, capacity: capacity, level: capacity, at: now}
}

// spend takes n; false: the bucket is empty.
func (b *bucket) spend(n float64, now time.Time) bool {
	b.level = min(b.capacity, b.level+b.perS*now.Sub(b.at).Seconds())
	b.at = now
	b.level -= n
	return b.level >= 0
}
