package page

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/trimtab/trimtab/tuner/httpd"
	"github.com/trimtab/trimtab/tuner/state"
)

const (
	// maxStreams leaves connections for questions.
	maxStreams = httpd.MaxConnections - 8
	lookEvery  = 500 * time.Millisecond
	quietFor   = 15 * time.Second // then a word keeps proxies from ending the stream
	slowFor    = 5 * time.Second  // a viewer that does not read for so long is dropped
	streamFor  = 15 * time.Minute // then the browser asks anew, and who may look is asked again
)

// events streams GET /v1/status, once for each snapshot, encoded once for all viewers.
// A stream reads what was published at its own pace: nobody waits for a viewer.
type events struct {
	looking http.Handler
	latest  func() *state.Snapshot
	limiter *rateLimiter  // which pays for it
	slow    time.Duration // what a write may take
	every   time.Duration // between two looks for a snapshot

	mu      sync.Mutex
	of      int64
	event   []byte
	streams []chan struct{} // oldest first; closed to end one
}

func newEvents(looking http.Handler, latest func() *state.Snapshot, l *rateLimiter) *events {
	return &events{looking: looking, latest: latest, limiter: l, slow: slowFor, every: lookEvery}
}

// now returns the latest event, and the time of its snapshot.
func (e *events) now(r *http.Request) (event []byte, of int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	taken := timeOf(e.latest()) // with the lock: who read an older one would encode it again
	if taken != e.of || e.event == nil {
		var body bytes.Buffer
		rec := httpd.NewRecorder(&body)
		ask := r.Clone(r.Context())
		ask.URL.Path, ask.URL.RawQuery = "/v1/status", ""
		e.limiter.charged(func() { e.looking.ServeHTTP(rec, ask) })
		if rec.Status == http.StatusOK {
			e.of, e.event = taken, fmt.Appendf(nil, "event: status\ndata: %s\n\n", bytes.TrimSpace(body.Bytes()))
		}
	}
	return e.event, e.of
}

// enter takes a place, and where there is none the oldest stream's: its browser asks anew, and
// who holds all places keeps nobody out. What it returns is closed when the stream has to end.
func (e *events) enter() chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.streams) >= maxStreams {
		close(e.streams[0])
		e.streams = slices.Delete(e.streams, 0, 1)
	}
	mine := make(chan struct{})
	e.streams = append(e.streams, mine)
	return mine
}

func (e *events) leave(mine chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.streams = slices.DeleteFunc(e.streams, func(c chan struct{}) bool { return c == mine })
}

func (e *events) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ended := e.enter()
	defer e.leave(ended)
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // the request was read; its deadline would end the stream
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		return
	}
	send := func(what []byte) bool {
		_ = rc.SetWriteDeadline(time.Now().Add(e.slow))
		_, err := w.Write(what)
		return err == nil && rc.Flush() == nil
	}
	ticks := time.Tick(e.every)
	began := time.Now()
	said, last := began, int64(-1)
	for time.Since(began) < streamFor {
		what, of := e.now(r)
		switch {
		case what != nil && of != last:
			last = of
		case time.Since(said) >= quietFor:
			what = []byte(": still here\n\n")
		default:
			what = nil
		}
		if what != nil {
			if !send(what) {
				return
			}
			said = time.Now()
		}
		select {
		case <-r.Context().Done():
			return
		case <-ended:
			return
		case <-ticks:
		}
	}
}
