package page

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/httpd"
	"github.com/trimtab/trimtab/tuner/state"
)

const (
	maxAnswers  = 64               // that are kept
	maxKept     = 16 << 20         // bytes of them, compressed
	maxStale    = time.Minute      // an answer serves while nothing newer may be made, but for reports
	maxAge      = 10 * time.Second // the same of one that failed
	maxRecords  = 2000             // of history at once
	someRecords = 500              // unless the viewer says
)

// reportTimes are those that report.js offers: each costs a report, and nobody else's are made.
func reportTimes() []string { return []string{"1h", "24h", "7d", "30d"} }

// shared answers as the API does. Each answer is made and compressed once for all viewers,
// and serves until there is a newer snapshot and its limiter may make another. So what the page
// costs does not grow with who looks, nor with what is asked.
type shared struct {
	looking  http.Handler
	latest   func() *state.Snapshot
	now      func() time.Time
	snapshot *rateLimiter
	disk     *rateLimiter // history is read from a file: who waits for it keeps nobody else
	reports  *rateLimiter

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
	status   int
	mimeType string
	tag      string
	zipped   []byte
}

func newShared(looking http.Handler, latest func() *state.Snapshot) *shared {
	return &shared{looking: looking, latest: latest, now: time.Now, snapshot: newLimiter(snapshotFactor), disk: newLimiter(diskFactor), reports: newReportLimiter(), answers: map[string]*answer{}}
}

func (s *shared) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := asked(r); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a, err := s.get(r)
	if err != nil {
		busy(w)
		return
	}
	w.Header().Set("Content-Type", a.mimeType)
	sendZipped(w, r, a.status, a.tag, a.zipped, func() (plain []byte, err error) {
		err = s.snapshot.do(r.Context(), func() { plain = unzip(a.zipped) })
		return plain, err
	})
}

func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "10")
	http.Error(w, errBusy.Error(), http.StatusServiceUnavailable)
}

// asked leaves of a question what its route knows, in one order: a question that is written
// in another way has the same answer. History is not asked for all of it, and reports are those
// that the page offers.
func asked(r *http.Request) error {
	form, known := r.URL.Query(), map[string][]string{"/v1/history": {"since", "until", "changed", "name", "limit"}, "/v1/series": {"name"}, "/v1/report": {"since", "by"}}[r.URL.Path]
	clean := url.Values{}
	for name, values := range form {
		if !slices.Contains(known, name) || len(values) != 1 {
			return fmt.Errorf("%.80q: the page takes each of these at most once: %s", name, cmp.Or(strings.Join(known, ", "), "none"))
		}
		clean.Set(name, values[0])
	}
	switch r.URL.Path {
	case "/v1/history":
		switch n, err := strconv.Atoi(clean.Get("limit")); {
		case clean.Get("limit") == "":
			clean.Set("limit", strconv.Itoa(someRecords))
		case err == nil && n > maxRecords:
			clean.Set("limit", strconv.Itoa(maxRecords))
		}
	case "/v1/report":
		by, err := account.ParseBy(clean.Get("by"))
		since := cmp.Or(clean.Get("since"), "7d") // api.ReportSince
		if err != nil || !slices.Contains(reportTimes(), since) {
			return fmt.Errorf("since=%.20q, by=%.20q: the page takes of since: %s; of by: team, image, container, cause", since, clean.Get("by"), strings.Join(reportTimes(), ", "))
		}
		clean.Set("since", since)
		clean.Set("by", string(by))
	}
	r.URL.RawQuery, r.URL.ForceQuery, r.URL.RawPath, r.URL.Fragment = clean.Encode(), false, "", ""
	return nil
}

// limiterOf is where a question waits for its turn.
func (s *shared) limiterOf(path string) *rateLimiter {
	switch path {
	case "/v1/history":
		return s.disk
	case "/v1/report":
		return s.reports
	}
	return s.snapshot
}

// get returns the answer to a question, made by now or by another viewer's wish.
func (s *shared) get(r *http.Request) (*answer, error) {
	question, limiter := r.URL.RequestURI(), s.limiterOf(r.URL.Path)
	for {
		a, mine := s.claim(question, limiter)
		if mine {
			return a, s.makeIt(r, limiter, a)
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
func (s *shared) claim(question string, l *rateLimiter) (a *answer, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := timeOf(s.latest()) // with the lock: who read an older one would make its answer again
	if a, ok := s.answers[question]; ok && a.serves(of, s.now(), l) {
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
func (a *answer) serves(of int64, now time.Time, l *rateLimiter) bool {
	if a.made.IsZero() {
		return true // being made
	}
	most, least, unpaid := l.most, l.least, l.unpaidAnew
	if a.status != http.StatusOK {
		most, least, unpaid = maxAge, 0, l.unpaid
	}
	age := now.Sub(a.made)
	return age < most && (age < least || a.of == of || l.owes(unpaid) > 0)
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

// wanted is an answer that is to be made, and what it is asked with.
type wanted struct {
	r *http.Request
	*answer
}

// makeIt asks the API. The answer is everybody's, so it does not end with the viewer that asked
// first. After a report those of the same time, sorted otherwise, are made: most of what they cost
// is reading the accounts once, and what a view compares is of the same minute. Nobody waits for these.
func (s *shared) makeIt(r *http.Request, l *rateLimiter, a *answer) error {
	if l != s.reports {
		return s.makeAll(r.Context(), l, wanted{r, a})
	}
	others := s.sortedOtherwise(r, l)
	err := s.makeAll(r.Context(), l, wanted{r, a})
	if err != nil || a.status != http.StatusOK { // nor would the others be
		for _, w := range others {
			s.settle(w)
		}
		return err
	}
	go func() { _ = s.makeAll(context.WithoutCancel(r.Context()), l, others...) }()
	return nil
}

// makeAll makes answers in one turn, and lets go who waits for them.
func (s *shared) makeAll(ctx context.Context, l *rateLimiter, all ...wanted) error {
	defer func() {
		for _, w := range all {
			s.settle(w)
		}
	}()
	return l.do(ctx, func() {
		for _, w := range all {
			s.answer(w)
		}
	})
}

// sortedOtherwise are the other reports of a time that have to be made.
func (s *shared) sortedOtherwise(r *http.Request, l *rateLimiter) (out []wanted) {
	for _, by := range account.AllBy() {
		form, other := r.URL.Query(), r.Clone(r.Context())
		form.Set("by", string(by))
		other.URL.RawQuery = form.Encode()
		if a, mine := s.claim(other.URL.RequestURI(), l); mine {
			out = append(out, wanted{other, a})
		}
	}
	return out
}

// answer makes one.
func (s *shared) answer(w wanted) {
	rec, began := httpd.NewRecorder(nil), s.now()
	zipped := httpd.Zip(answerLevel, func(to io.Writer) {
		rec.To = to
		s.looking.ServeHTTP(rec, w.r.Clone(context.WithoutCancel(w.r.Context())))
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	w.status, w.mimeType, w.tag = rec.Status, rec.Header().Get("Content-Type"), fmt.Sprintf("%q", fmt.Sprintf("%x-%x", began.UnixNano(), s.serial))
	w.zipped, w.made = zipped, s.now()
	if s.answers[w.r.URL.RequestURI()] == w.answer {
		s.kept += len(zipped)
	}
}

// settle lets go who waits. What was not made, whatever the reason, whoever waits makes.
func (s *shared) settle(w wanted) {
	s.mu.Lock()
	if question := w.r.URL.RequestURI(); w.zipped == nil && s.answers[question] == w.answer {
		delete(s.answers, question)
	}
	s.mu.Unlock()
	close(w.ready)
}
