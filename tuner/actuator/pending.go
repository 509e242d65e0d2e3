package actuator

import (
	"context"
	"time"

	"github.com/trimtab/trimtab/tuner/originals"
)

// The pause after a restore that failed, doubled with each: a try is an engine call,
// and what refuses it will mostly refuse it again. A pending restore that waits for memory to
// become free costs a reading, and has no pause.
const (
	firstPause   = 10 * time.Second
	longestPause = 5 * time.Minute
)

// retry is what became of the tries at one container's pending restore.
type retry struct {
	failed int // in a row
	next   time.Time
}

// HasPending reports whether a restore is pending for any container, also for one that ended and
// whose engine's record is not back. It never waits: false while the actuator is at work.
func (a *Actuator) HasPending() bool {
	if !a.mu.TryLock() {
		return false
	}
	defer a.mu.Unlock()
	return len(a.pending) > 0
}

// RestorePending tries again what is pending: memory limits that were not safe to lower,
// undos and restores that failed. It returns results for those that were tried: one
// that failed waits, longer each time, up to five minutes; nothing else is written to
// its container meanwhile. Calling it every few seconds is often enough.
func (a *Actuator) RestorePending(ctx context.Context, lookup Lookup) ([]RestoreResult, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.o.Now()
	results, err := a.restoreWhere(ctx, lookup, "pending restore", func(f originals.File) bool {
		return a.unsettled(f) != "" && !now.Before(a.retries[f.ID.Key()].next)
	})
	for _, r := range results {
		if r.Err == nil && r.Outcome != Failed && r.Outcome != Unavailable {
			delete(a.retries, r.Key)
			continue
		}
		t := a.retries[r.Key]
		t.next = a.o.Now().Add(min(firstPause<<min(t.failed, 8), longestPause))
		t.failed++
		a.retries[r.Key] = t
	}
	return results, err
}
