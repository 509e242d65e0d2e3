package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trimtab/trimtab/tuner/state"
)

// Bounds of what a peer can make the daemon hold.
const (
	maxBodyBytes   = 64 << 10
	maxHeaderBytes = 16 << 10
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	idleTimeout    = 30 * time.Second
	stopTimeout    = 3 * time.Second
	shownPatience  = 3 * time.Second // of a daemon that publishes each second, if it is well
	shownEvery     = 20 * time.Millisecond
	// largeAnswers are made at once for those who may look, and as many for those who act: each is
	// some 20 MiB for as long as its reader takes. That is largeSending at the most, for others wait
	// no longer than largePatience.
	largeAnswers  = 4
	largePatience = 10 * time.Second
	largeSending  = 5 * time.Second
)

// Within these the server answers. A recording takes LookTimeout more than its length.
const (
	LookTimeout = 30 * time.Second
	ActTimeout  = 2 * time.Minute // of a change: a restore of a whole host takes its time
)

// Server answers on a Listener.
type Server struct {
	backend Backend
	log     *slog.Logger
	now     func() time.Time
	placing chan struct{}            // taken while a place without a hold is worked out
	large   map[Access]chan struct{} // taken while a large answer is made and sent
	shared  encodings
}

// NewServer makes a server; now is the clock that relative times count from.
func NewServer(b Backend, log *slog.Logger, now func() time.Time) *Server {
	return &Server{backend: b, log: log, now: now, placing: make(chan struct{}, 1),
		large: map[Access]chan struct{}{AccessRead: make(chan struct{}, largeAnswers), AccessWrite: make(chan struct{}, largeAnswers)}}
}

// Run answers until ctx ends, then lets open requests end for a short while. It
// closes l. It returns nil if it ended because of ctx.
func (s *Server) Run(ctx context.Context, l *Listener) error {
	h := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, peerKey{}, c) },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	err := Serve(ctx, h, stopTimeout, func() error { return h.Serve(l) })
	if closeErr := l.Close(); closeErr != nil && err == nil {
		s.log.Warn("API socket left behind", "error", closeErr)
	}
	if err != nil {
		return fmt.Errorf("API: %w", err)
	}
	return nil
}

// Serve serves until ctx ends, then lets open requests end for so long. It returns nil if it
// ended because of ctx.
func Serve(ctx context.Context, h *http.Server, grace time.Duration, serve func() error) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if h.Shutdown(bound) != nil {
			_ = h.Close() // those that did not end in time
		}
	})
	err := serve()
	if !stop() { // ctx ended: the shutdown runs
		<-stopped
		return nil
	}
	return err
}

// answerFunc returns what is sent as JSON; nil, nil: it has answered.
type answerFunc func(w http.ResponseWriter, r *http.Request) (any, error)

// Handler is the API without its socket: without a peer in the request's context
// nothing but /healthz is allowed.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, r := range s.routes() {
		mux.HandleFunc(r.Method+" "+r.Path, s.handle(r))
		methods[r.Path] = append(methods[r.Path], r.Method)
	}
	for path, allowed := range methods {
		list := strings.Join(allowed, ", ")
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", list)
			fail(w, &Error{http.StatusMethodNotAllowed, fmt.Sprintf("%s is not for %s", r.URL.Path, r.Method), "allowed are " + list})
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, &Error{http.StatusNotFound, fmt.Sprintf("there is no %q", r.URL.Path), "docs/api.md lists the routes; an older daemon has fewer"})
	})
	return mux
}

// Looking answers the routes that the page shows, for a listener that knows by itself who
// may look: it asks for no peer. Nothing else of the API can be reached through it.
func (s *Server) Looking() http.Handler {
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		if slices.Contains(shownRoutes(), r.Path) {
			r.large = false // nobody waits for its place
			mux.HandleFunc(r.Method+" "+r.Path, s.answer(r))
		}
	}
	return mux
}

// shownRoutes are those of Looking: what changes nothing, and is soon answered.
func shownRoutes() []string {
	return []string{"/v1/status", "/v1/list", "/v1/containers", "/v1/containers/{name}", "/v1/devices", "/v1/history", "/v1/series", "/v1/report"}
}

// handle guards one route: who may, and how many at once.
func (s *Server) handle(rt Operation) http.HandlerFunc {
	answer := s.answer(rt)
	return func(w http.ResponseWriter, r *http.Request) {
		if err := allowed(r, rt.access); err != nil {
			fail(w, err)
			return
		}
		if rt.large { // the wait is a part of the time that the route has
			ctx, cancel := context.WithTimeout(r.Context(), rt.timeout)
			defer cancel()
			r = r.WithContext(ctx)
			leave, err := s.enter(r)
			if err != nil {
				fail(w, err)
				return
			}
			defer leave()
		}
		answer(w, r)
	}
}

// enter takes one of the places for large answers, and waits for it a while.
func (s *Server) enter(r *http.Request) (leave func(), err *Error) {
	ctx, cancel := context.WithTimeout(r.Context(), largePatience)
	defer cancel()
	places := s.large[accessOf(r)]
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, &Error{http.StatusServiceUnavailable, "others ask for as much at this moment", "ask again in a while"}
	}
}

// answer guards one route for whoever may: deadlines, the size of the body.
func (s *Server) answer(rt Operation) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), rt.timeout)
		defer cancel()
		// No server-wide write timeout: a recording takes as long as was asked for.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(rt.timeout + LookTimeout))
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		answer, err := rt.answer(w, r.WithContext(ctx))
		if err != nil {
			s.log.Debug("API request failed", "path", rt.Path, "error", err)
			fail(w, asError(err))
			return
		}
		if rt.access == AccessWrite {
			s.shown(ctx)
		}
		if rt.large {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(largeSending))
		}
		if answer != nil {
			reply(w, http.StatusOK, answer)
		}
	}
}

// shown waits until what the daemon shows was read after an action, so that who acts and then
// looks sees what came of it. A daemon that is late with that keeps nobody.
func (s *Server) shown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, shownPatience)
	defer cancel()
	before := s.backend.Snapshot()
	for before != nil && s.backend.Snapshot() == before {
		select {
		case <-ctx.Done():
			return
		case <-time.After(shownEvery):
		}
	}
}

// allowed holds a request against what its peer may do.
func allowed(r *http.Request, need Access) *Error {
	switch have := accessOf(r); {
	case have >= need:
		return nil
	case need == AccessRead:
		return &Error{http.StatusForbidden, "you may not look", "ask root to add you to the group of api.readGroup (trimtab-read by default), then log in anew"}
	}
	return &Error{http.StatusForbidden, "you may not change anything", "be root, or in the group of api.writeGroup (trimtab by default)"}
}

// accessOf is what a request's peer may do.
func accessOf(r *http.Request) Access {
	if conn, _ := r.Context().Value(peerKey{}).(*peerConn); conn != nil {
		return conn.access
	}
	return AccessNone
}

func reply(w http.ResponseWriter, status int, v any) {
	body, err := encode(v)
	if err != nil { // a NaN in a view: a defect, told rather than hidden
		status = http.StatusInternalServerError
		body, _ = json.Marshal(&Error{Text: err.Error()}) // texts alone always can
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a peer that went away needs no answer
	_, _ = io.WriteString(w, "\n")
}

// fail also names the hint as the version before did: fields of /v1 are only ever added.
func fail(w http.ResponseWriter, e *Error) {
	reply(w, e.Status, struct {
		*Error
		Mend string `json:"mend,omitempty"`
	}{e, e.Hint})
}

// decode reads a JSON body strictly; an empty one leaves v as it is.
func decode(r *http.Request, v any) error {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	var tooLong *http.MaxBytesError
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.As(err, &tooLong):
		return &Error{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", maxBodyBytes), ""}
	case err != nil:
		return BadRequest("the body is not what this route takes: "+err.Error(), "docs/api.md has an example; a newer command line may know more than this daemon")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) { // More takes a stray } or ] for the end
		return BadRequest("the body holds more than one value", "")
	}
	return nil
}

// encodedFor is how long answers are kept that nobody may ask for again.
const encodedFor = 5 * time.Second

// encoded is an answer that is JSON already.
type encoded []byte

func encode(v any) (encoded, error) {
	if body, ok := v.(encoded); ok {
		return body, nil
	}
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("the answer cannot be written as JSON: %w", err)
	}
	return body, nil
}

// encodings are the answers of one snapshot, by path: each is made once for all who ask.
type encodings struct {
	mu   sync.Mutex
	of   *state.Snapshot
	made map[string]func() (encoded, error)
}

// whole answers from the latest snapshot, and from nothing else: neither who asks nor what for beside
// the path makes a difference. Fifty who follow a thousand containers cost one encoding a snapshot.
func (s *Server) whole(path string, answer func(*state.Snapshot) any) answerFunc {
	return func(http.ResponseWriter, *http.Request) (any, error) {
		body, err := s.encoding(path, answer)
		if err != nil {
			return nil, err
		}
		return body()
	}
}

// encoding returns what makes an answer, or waits for it and returns what another made.
func (s *Server) encoding(path string, answer func(*state.Snapshot) any) (func() (encoded, error), error) {
	e := &s.shared
	e.mu.Lock()
	defer e.mu.Unlock()
	snap, err := s.snapshot() // with the lock: who read an older one would have it encoded again
	if err != nil {
		return nil, err
	}
	if e.of != snap {
		e.of, e.made = snap, map[string]func() (encoded, error){}
		time.AfterFunc(encodedFor, func() { e.drop(snap) })
	}
	if e.made[path] == nil {
		e.made[path] = sync.OnceValues(func() (encoded, error) { return encode(answer(snap)) })
	}
	return e.made[path], nil
}

func (e *encodings) drop(snap *state.Snapshot) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of == snap {
		e.of, e.made = nil, nil
	}
}
