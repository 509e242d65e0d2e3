package page

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/trimtab/trimtab/tuner/state"
)

const (
	maxAnswers  = 64               // that are kept
	maxKept     = 16 << 20         // bytes of them, compressed
	maxMaking   = 2                // answers made at once: what viewers can make the daemon do
	maxAge      = 10 * time.Second // of an answer while there is no newer snapshot
	dutyFactor  = 50               // an answer serves for so many times what it cost: 2 % of a CPU for each,
	maxStale    = 5 * time.Second  // but not for longer than this: a busy host makes all dear
	maxRecords  = 2000             // of history at once
	someRecords = 500              // unless the viewer says
)

// shared answers as the API does. Each answer is made and compressed once for all
// viewers, and serves until there is a newer snapshot; one that was dear to make serves
// for longer. So what the page costs does not grow with who looks.
type shared struct {
	looking http.Handler
	latest  func() *state.Snapshot
	now     func() time.Time
	making  chan struct{}

	mu      sync.Mutex
	answers map[string]*answer
	kept    int
	serial  uint64
}

// answer is one encoding. ready is closed when it is made.
type answer struct {
	ready    chan struct{}
	of       int64 // its snapshot's time
	made     time.Time
	cost     time.Duration
	status   int
	mimeType string
	tag      string
	zipped   []byte
}

func newShared(looking http.Handler, latest func() *state.Snapshot) *shared {
	return &shared{looking: looking, latest: latest, now: time.Now, making: make(chan struct{}, maxMaking), answers: map[string]*answer{}}
}

func (s *shared) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bounded(r)
	a, err := s.get(r)
	if err != nil {
		http.Error(w, "too much is asked at once", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", a.mimeType)
	sendZipped(w, r, a.status, a.tag, a.zipped)
}

// bounded keeps a question about history from asking for all of it.
func bounded(r *http.Request) {
	if r.URL.Path != "/v1/history" {
		return
	}
	form := r.URL.Query()
	var n int
	if _, err := fmt.Sscan(form.Get("limit"), &n); form.Get("limit") == "" || err == nil && n > maxRecords {
		if n = min(n, maxRecords); n == 0 {
			n = someRecords
		}
		form.Set("limit", fmt.Sprint(n))
		r.URL.RawQuery = form.Encode()
	}
}

// get returns the answer to a question, made by now or by another viewer's wish.
func (s *shared) get(r *http.Request) (*answer, error) {
	question := r.URL.RequestURI()
	for {
		a, mine := s.claim(question)
		if mine {
			return a, s.makeIt(r, question, a)
		}
		select {
		case <-a.ready:
			if a.zipped != nil {
				return a, nil
			}
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// claim returns the answer that serves, or a new one that the caller has to make.
func (s *shared) claim(question string) (a *answer, mine bool) {
	of := timeOf(s.latest())
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.answers[question]; ok && a.serves(of, s.now()) {
		return a, false
	}
	s.drop(question)
	for len(s.answers) >= maxAnswers || s.kept > maxKept {
		if !s.dropOldest() {
			break
		}
	}
	a = &answer{ready: make(chan struct{}), of: of}
	s.answers[question] = a
	return a, true
}

// timeOf is when a snapshot was taken; 0: the daemon starts.
func timeOf(s *state.Snapshot) int64 {
	if s == nil {
		return 0
	}
	return s.UnixNs
}

// serves is called with the lock held: who makes the answer takes it to say so.
func (a *answer) serves(of int64, now time.Time) bool {
	if a.made.IsZero() {
		return true // being made
	}
	age := now.Sub(a.made)
	return a.of == of && age < maxAge || age < min(dutyFactor*a.cost, maxStale)
}

func (s *shared) drop(question string) {
	if a, ok := s.answers[question]; ok {
		s.kept -= len(a.zipped)
		delete(s.answers, question)
	}
}

func (s *shared) dropOldest() bool {
	oldest := ""
	for question, a := range s.answers {
		if !a.made.IsZero() && (oldest == "" || a.made.Before(s.answers[oldest].made)) {
			oldest = question
		}
	}
	s.drop(oldest)
	return oldest != ""
}

// makeIt asks the API. The answer is everybody's, so it does not end with the viewer
// that asked first.
func (s *shared) makeIt(r *http.Request, question string, a *answer) error {
	defer close(a.ready)
	defer func() { // not made, whatever the reason: whoever waits makes one
		s.mu.Lock()
		defer s.mu.Unlock()
		if a.zipped == nil && s.answers[question] == a {
			delete(s.answers, question)
		}
	}()
	select {
	case s.making <- struct{}{}:
		defer func() { <-s.making }()
	case <-r.Context().Done():
		return r.Context().Err()
	}
	began := s.now()
	rec := &recorder{header: http.Header{}, status: http.StatusOK}
	s.looking.ServeHTTP(rec, r.Clone(context.WithoutCancel(r.Context())))
	zipped, err := zip(rec.body.Bytes())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	a.status, a.mimeType, a.tag = rec.status, rec.header.Get("Content-Type"), fmt.Sprintf("%q", fmt.Sprintf("%x-%x", began.UnixNano(), s.serial))
	a.zipped, a.made = zipped, s.now()
	a.cost = a.made.Sub(began)
	if s.answers[question] == a {
		s.kept += len(zipped)
	}
	return nil
}

// recorder keeps what a handler answers.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

// copyTo sends what a viewer may have stopped to read.
func copyTo(w http.ResponseWriter, from io.Reader) { _, _ = io.Copy(w, from) }
