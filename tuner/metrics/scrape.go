package metrics

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/trimtab/trimtab/tuner/httpd"
	"github.com/trimtab/trimtab/tuner/state"
)

const (
	maxAge     = 5 * time.Second // of an answer while no newer snapshot comes
	maxFormats = 8               // that are kept
)

// scrapes answers /metrics: rendered once for each snapshot and format, whoever asks and how often. Who reads
// slowly holds a connection and nothing else.
type scrapes struct {
	render http.Handler
	latest func() *state.Snapshot
	now    func() time.Time

	mu      sync.Mutex
	answers map[expfmt.Format]*answer
}

type answer struct {
	of           *state.Snapshot
	made         time.Time
	status       int
	header       http.Header
	body, zipped []byte // zipped is nil until somebody takes it
}

func newScrapes(render http.Handler, latest func() *state.Snapshot, now func() time.Time) *scrapes {
	return &scrapes{render: render, latest: latest, now: now, answers: map[expfmt.Format]*answer{}}
}

func (s *scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	zips := strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
	status, header, body := s.answer(r, zips)
	for key, values := range header {
		w.Header()[key] = values
	}
	w.Header().Set("Vary", "Accept, Accept-Encoding")
	if zips {
		w.Header().Set("Content-Encoding", "gzip")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // a peer that went away needs no answer
}

// answer is what stands, or made now: who asks meanwhile waits for it.
func (s *scrapes) answer(r *http.Request, zips bool) (status int, header http.Header, body []byte) {
	format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultAcceptedFormats()...)
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.answers[format]
	if now, latest := s.now(), s.latest(); a == nil || a.of != latest || now.Sub(a.made) >= maxAge {
		if len(s.answers) >= maxFormats {
			clear(s.answers)
		}
		a = &answer{of: latest, made: now}
		var body bytes.Buffer
		rec := httpd.NewRecorder(&body)
		s.render.ServeHTTP(rec, r)
		a.status, a.header, a.body = rec.Status, rec.Header(), body.Bytes()
		s.answers[format] = a
	}
	if !zips {
		return a.status, a.header, a.body
	}
	if a.zipped == nil {
		a.zipped = httpd.Zip(1, func(to io.Writer) { _, _ = to.Write(a.body) }) // memory takes all
	}
	return a.status, a.header, a.zipped
}
