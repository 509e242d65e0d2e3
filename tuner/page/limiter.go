package page

import (
	"context"
	"errors"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/trimtab/trimtab/tuner/api"
)

// What answers may cost together: less than a third of the daemon's own budget of 0.02 CPUs
// (overhead.cpu), so that no viewer makes it read its containers less often. What is unpaid is
// ahead of that: a page's first answers come at once, also where its list is dear. It is less than what
// makes the daemon read its containers less often: 0.6 s of ten. A report alone takes more than that:
// the agent leaves reports out of what decides it.
const (
	snapshotFactor = 250                    // 0.4 % of a CPU for answers from the snapshot
	diskFactor     = 1000                   // 0.1 % for records of the history, and as much for reports
	maxUnpaid      = 400 * time.Millisecond // of CPU
	anewUnpaid     = 100 * time.Millisecond // of it, for what was answered already
	reportUnpaid   = 3 * time.Second        // a report of each of reportTimes, of 1,000 containers
	patience       = 20 * time.Second       // below httpd's time for a whole answer
)

var errBusy = errors.New("too much is asked at once")

// rateLimiter makes answers one after the other. After each it stands still for factor times the CPU
// time that it took, but for unpaid.
type rateLimiter struct {
	slot   chan struct{}
	factor time.Duration
	// What may be unpaid when an answer is made: to a question that has none, and to one whose
	// answer still serves.
	unpaid, unpaidAnew time.Duration
	// An answer serves for least, and where there is something newer that may not be made yet for most.
	least, most time.Duration
	clock       func() time.Duration // CPU time of the calling thread

	mu   sync.Mutex
	paid time.Time // when all that was made is paid for
}

func newLimiter(factor time.Duration) *rateLimiter {
	return &rateLimiter{slot: make(chan struct{}, 1), factor: factor, unpaid: maxUnpaid, unpaidAnew: anewUnpaid, most: maxStale, clock: api.ThreadCPU}
}

// newReportLimiter is that of reports: they are dear, and what they are made from is stored once a
// minute. One that serves is made anew when all is paid for: not before factor times its own cost is
// over, and a question that nobody asked yet finds what may be unpaid untouched.
func newReportLimiter() *rateLimiter {
	l := newLimiter(diskFactor)
	l.unpaid, l.unpaidAnew, l.least, l.most = reportUnpaid, 0, time.Minute, time.Hour
	return l
}

// do runs work in its turn. It returns an error, and work was not run, if ctx ends before or
// the turn does not come within patience.
func (l *rateLimiter) do(ctx context.Context, work func()) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errBusy)
	defer cancel()
	select {
	case l.slot <- struct{}{}:
		defer func() { <-l.slot }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for wait := l.owes(l.unpaid); wait > 0; wait = l.owes(l.unpaid) {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	l.charged(work)
	return nil
}

// charged runs work now: what others wait for pays for it.
func (l *rateLimiter) charged(work func()) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	before := l.clock()
	defer func() {
		cost := max(l.clock()-before, 0)
		l.mu.Lock()
		defer l.mu.Unlock()
		if now := time.Now(); l.paid.Before(now) {
			l.paid = now
		}
		l.paid = l.paid.Add(l.factor * cost)
	}()
	work()
}

// owes is how long nothing may be made, if so much may be unpaid.
func (l *rateLimiter) owes(unpaid time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(time.Until(l.paid), 0) - l.factor*unpaid // the zero time is further away than a Duration
}
