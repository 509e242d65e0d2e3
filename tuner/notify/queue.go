package notify

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/trimtab/trimtab/tuner/event"
	"github.com/trimtab/trimtab/tuner/state"
)

// Bounds of a queue.
const (
	maxWaiting = 256
	otlpBatch  = 64 // records in one request
	maxTries   = 10 // some five minutes
	firstPause = time.Second
	maxPause   = time.Minute
	tryTimeout = 10 * time.Second // of a request; a script has its own
)

// refusal is an error that another try would not mend. Of is how many events it is of; 0: all.
type refusal struct {
	error
	of int
}

func (r refusal) Unwrap() error { return r.error }

// later is an error with the receiver's own word on when to come again.
type later struct {
	error
	after time.Duration
}

func (l later) Unwrap() error { return l.error }

// failure is an error with what a script wrote: root's log may hold that, the status that everybody sees may not.
type failure struct {
	error
	output string
}

func (f failure) Unwrap() error { return f.error }

// queue holds what one receiver is still to be told.
type queue struct {
	name    string
	to      receiver
	batch   int
	kinds   map[event.Kind]bool // none: all
	limit   *rate.Limiter
	waiting chan event.Event
	log     *slog.Logger
	pause   time.Duration // before the next try; the worker's

	instead string // where what it is not told can be found

	mu       sync.Mutex
	shown    state.Receiver
	drops    rate.Sometimes
	troubles rate.Sometimes
	logged   bool // the log has that it cannot be told now
}

// sayEvery is the least time between two lines of the log on the same: one that comes and goes would fill it.
const sayEvery = 10 * time.Minute

func newQueue(name string, to receiver, batch int, kinds []string, perMinute int, log *slog.Logger) *queue {
	q := &queue{name: name, to: to, batch: batch, kinds: map[event.Kind]bool{}, waiting: make(chan event.Event, maxWaiting), pause: firstPause, log: log.With("receiver", name), instead: "trimtab history has them",
		limit: rate.NewLimiter(rate.Limit(float64(perMinute)/60), perMinute), drops: rate.Sometimes{Interval: sayEvery}, troubles: rate.Sometimes{Interval: sayEvery}}
	for _, k := range kinds {
		q.kinds[event.Kind(k)] = true
	}
	q.shown = state.Receiver{Part: state.Part{Name: name, OK: true, Since: time.Now().UnixNano()}}
	return q
}

// offer queues an event, or drops and counts it: above the rate, and where too many wait.
func (q *queue) offer(e event.Event) {
	if len(q.kinds) > 0 && !q.kinds[e.Kind] {
		return
	}
	why := "more events than perMinute allows"
	if q.limit.Allow() {
		select {
		case q.waiting <- e:
			return
		default:
			why = "too many events wait for it"
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shown.Dropped++
	q.drops.Do(func() {
		q.log.Warn("some is not told, said once in 10 minutes: "+why+"; "+q.instead+", trimtab_receiver_events_total counts them", "dropped", q.shown.Dropped)
	})
}

func (q *queue) state() state.Receiver {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.shown
	s.Queued = len(q.waiting)
	return s
}

// run tells until closing is closed and nothing waits, or ctx ends.
func (q *queue) run(ctx context.Context, closing <-chan struct{}) {
	for ctx.Err() == nil {
		events := q.next(closing)
		if events == nil {
			return
		}
		q.tell(ctx, closing, events)
	}
}

// next waits for events; nil: it is closing, and none is left.
func (q *queue) next(closing <-chan struct{}) (events []event.Event) {
	select {
	case e := <-q.waiting:
		events = append(events, e)
	case <-closing:
	}
	for len(events) < q.batch {
		select {
		case e := <-q.waiting:
			events = append(events, e)
		default:
			return events
		}
	}
	return events
}

// tell tries until the events are taken, refused, or tried often enough. The pause that came of
// failures is the next events' too: one that is away is not asked more often for having more to be told.
func (q *queue) tell(ctx context.Context, closing <-chan struct{}, events []event.Event) {
	for try := 1; ; try++ {
		err := q.to.deliver(ctx, events)
		if err == nil {
			q.pause = firstPause
			q.taken(len(events))
			return
		}
		var no refusal
		refused := errors.As(err, &no)
		if refused || try == maxTries || isClosed(closing) || ctx.Err() != nil {
			q.failed(err, len(events), no.of)
			return
		}
		q.failed(err, 0, 0)
		wait := q.pause
		var word later
		if errors.As(err, &word) {
			wait = max(wait, word.after)
		}
		q.pause = min(2*q.pause, maxPause)
		select {
		case <-time.After(wait):
		case <-closing: // one more try
		case <-ctx.Done():
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (q *queue) taken(events int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shown.Sent += uint64(events)
	if !q.shown.OK {
		q.turn(true)
	}
	if q.logged {
		q.logged = false
		q.log.Info("takes events again", "waiting", len(q.waiting))
	}
}

// failed notes why, and how many events are given up: of them only as many as were refused, where that was told.
func (q *queue) failed(err error, events, refused int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if refused > 0 && refused < events {
		q.shown.Sent += uint64(events - refused)
		events = refused
	}
	q.shown.Failed += uint64(events)
	if q.shown.OK {
		q.turn(false)
	}
	if !q.logged {
		q.troubles.Do(func() {
			q.logged = true
			about := []any{"error", event.Clean(err.Error(), maxSaid), "waiting", len(q.waiting)}
			var f failure
			if errors.As(err, &f) {
				about = append(about, "output", event.Clean(f.output, maxSaid))
			}
			q.log.Error("cannot be told; said once until it can, and once in 10 minutes", about...)
		})
	}
	q.shown.Lost = event.Clean(err.Error(), maxSaid)
}

// maxSaid is what is shown of an error, bytes.
const maxSaid = 1024

func (q *queue) turn(ok bool) {
	q.shown.OK, q.shown.Since, q.shown.Lost = ok, time.Now().UnixNano(), ""
}
