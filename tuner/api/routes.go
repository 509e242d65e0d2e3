package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/advice"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
)

const maxRecording = time.Hour

func (s *Server) snapshot() (*state.Snapshot, error) {
	if snap := s.backend.Snapshot(); snap != nil {
		return snap, nil
	}
	return nil, &Error{http.StatusServiceUnavailable, "the daemon is starting", "ask again in a moment"}
}

// look answers from the latest snapshot.
func (s *Server) look(answer func(*state.Snapshot, *http.Request) (any, error)) answerFunc {
	return func(_ http.ResponseWriter, r *http.Request) (any, error) {
		snap, err := s.snapshot()
		if err != nil {
			return nil, err
		}
		return answer(snap, r)
	}
}

// list is never null in JSON.
func list[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

func healthz(*state.Snapshot, *http.Request) (any, error) { return map[string]bool{"ok": true}, nil }

func containers(snap *state.Snapshot) any {
	return Containers{UnixNs: snap.UnixNs, Containers: withAdvice(snap.Containers, adviceOf(snap))}
}

func container(snap *state.Snapshot, r *http.Request) (any, error) {
	c, err := Find(snap, r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	return withAdvice([]state.Container{c}, advice.OfContainer(policies.DefaultConstants(), snap, c.Key))[0], nil
}

func (s *Server) history(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, err := s.historyQuery(r)
	if err != nil {
		return nil, err
	}
	if snap := s.backend.Snapshot(); snap != nil && q.Name != "" { // an ID names one, a name all that bore it
		if c, err := Find(snap, q.Name); err == nil && c.Name != q.Name {
			q.Name = c.Key
		}
	}
	records, err := s.backend.History(r.Context(), q)
	if err != nil {
		return nil, err
	}
	return History{list(records)}, nil
}

func (s *Server) historyQuery(r *http.Request) (q HistoryQuery, err error) {
	form := r.URL.Query()
	q = HistoryQuery{Name: form.Get("name"), Limit: state.MaxRecords}
	if q.SinceUnixNs, err = s.instant(form, "since"); err != nil {
		return q, err
	}
	if q.UntilUnixNs, err = s.instant(form, "until"); err != nil {
		return q, err
	}
	if text := form.Get("changed"); text != "" {
		if q.Changed, err = strconv.ParseBool(text); err != nil {
			return q, BadRequest(fmt.Sprintf("changed=%q: allowed are true, false", text), "")
		}
	}
	if text := form.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > state.MaxRecords {
			return q, BadRequest(fmt.Sprintf("limit=%q: allowed are 1 to %d", text, state.MaxRecords), "")
		}
		q.Limit = n
	}
	return q, nil
}

// instant reads a parameter that is a time, in unix ns; 0: it is not there.
func (s *Server) instant(form url.Values, name string) (int64, error) {
	text := form.Get(name)
	if text == "" {
		return 0, nil
	}
	t, err := ParseSince(text, s.now())
	if err != nil {
		return 0, BadRequest(fmt.Sprintf("%s=%q: %s", name, text, err), "")
	}
	return t.UnixNano(), nil
}

// ParseSince reads an instant: RFC 3339, a date, or how long ago (2h, 7d).
func ParseSince(text string, now time.Time) (time.Time, error) {
	if d, err := config.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		// Nanoseconds count from 1678 to 2262.
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil && time.Unix(0, t.UnixNano()).Equal(t) {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("allowed are how long ago (2h, 7d), a date (2006-01-02) or a time (2006-01-02T15:04:05Z)")
}

func (s *Server) record(w http.ResponseWriter, r *http.Request) (any, error) {
	seconds, err := strconv.Atoi(r.URL.Query().Get("seconds"))
	d := time.Duration(seconds) * time.Second
	if err != nil || seconds < 1 || seconds > int(maxRecording.Seconds()) {
		return nil, BadRequest(fmt.Sprintf("seconds=%q: allowed are 1 to %d", r.URL.Query().Get("seconds"), int(maxRecording.Seconds())), "")
	}
	out := &stream{w: w}
	if err := s.backend.Record(r.Context(), out, d); err != nil {
		if out.begun { // too late for an answer: break off, so that the file is seen to be cut short
			s.log.Warn("recording broke off", "error", err)
			panic(http.ErrAbortHandler)
		}
		return nil, err
	}
	return nil, nil
}

// stream sends what is written at once, and knows whether anything was.
type stream struct {
	w     http.ResponseWriter
	begun bool
}

func (s *stream) Write(p []byte) (int, error) {
	if !s.begun {
		s.w.Header().Set("Content-Type", "application/octet-stream")
		s.begun = true
	}
	n, err := s.w.Write(p)
	if err == nil {
		err = http.NewResponseController(s.w).Flush()
	}
	return n, err
}

func restore(b Backend, ctx context.Context, req NameRequest) ([]state.ActionResult, error) {
	return b.Restore(ctx, req.Name)
}

func resume(b Backend, ctx context.Context, req NameRequest) ([]state.ActionResult, error) {
	return b.Resume(ctx, req.Name)
}

func pause(b Backend, ctx context.Context, _ struct{}) ([]state.ActionResult, error) {
	return nil, b.Pause(ctx)
}

// series answers GET /v1/series.
func (s *Server) series(snap *state.Snapshot, r *http.Request) (any, error) {
	name := r.URL.Query().Get("name")
	if name == "" {
		return nil, BadRequest("name= is missing", "it takes a container's name, ID or key")
	}
	c, err := Find(snap, name)
	if err != nil {
		return nil, err
	}
	return series.Series{Key: c.Key, Name: c.Name, EveryNs: series.EveryNs, Parts: series.PartNames(), Points: s.backend.Series(c.Key)}, nil
}

// ReportSince is how far a report goes back where nothing is asked.
const ReportSince = 7 * 24 * time.Hour

// ReportQuery selects what a report is of.
type ReportQuery struct {
	SinceUnixNs int64
	By          account.By
}

func (s *Server) report(_ http.ResponseWriter, r *http.Request) (any, error) {
	form, since := r.URL.Query(), s.now().Add(-ReportSince)
	by, err := account.ParseBy(form.Get("by"))
	if err != nil {
		return nil, BadRequest(fmt.Sprintf("by=%q: %s", form.Get("by"), err), "")
	}
	if text := form.Get("since"); text != "" {
		if since, err = ParseSince(text, s.now()); err != nil {
			return nil, BadRequest(fmt.Sprintf("since=%q: %s", text, err), "")
		}
	}
	if since.After(s.now()) {
		return nil, BadRequest(fmt.Sprintf("since=%q is in the future", form.Get("since")), "")
	}
	return s.backend.Report(r.Context(), ReportQuery{SinceUnixNs: since.UnixNano(), By: by})
}

// Advice answers GET /v1/advice.
type Advice struct {
	UnixNs int64           `json:"time"`
	Advice []advice.Advice `json:"advice"` // sorted by container, then what
}

func advices(snap *state.Snapshot, r *http.Request) (any, error) {
	name := r.URL.Query().Get("name")
	if name == "" {
		return Advice{UnixNs: snap.UnixNs, Advice: adviceOf(snap)}, nil
	}
	c, err := Find(snap, name)
	if err != nil {
		return nil, err
	}
	return Advice{UnixNs: snap.UnixNs, Advice: advice.OfContainer(policies.DefaultConstants(), snap, c.Key)}, nil
}

func adviceOf(s *state.Snapshot) []advice.Advice { return advice.Of(policies.DefaultConstants(), s) }

// withAdvice are containers with all that is advised of them, after what policies said,
// and why nothing of them is changed: the page shows the words that explain prints. The snapshot is
// others' to read too: its containers are copied.
func withAdvice(containers []state.Container, all []advice.Advice) []state.Container {
	lines := map[string][]string{}
	for _, a := range all {
		lines[a.Key] = append(lines[a.Key], a.String())
	}
	out := make([]state.Container, len(containers))
	for i, c := range containers {
		if c.Advice = slices.Concat(c.Advice, lines[c.Key]); len(c.Changed) == 0 {
			c.Why = c.Reason()
		}
		out[i] = c
	}
	return out
}

// Fingerprints answers GET /v1/fingerprints.
type Fingerprints struct {
	Fingerprints []state.Fingerprint `json:"fingerprints"`
}

func (s *Server) fingerprints(_ http.ResponseWriter, r *http.Request) (any, error) {
	all, err := s.backend.Fingerprints(r.Context())
	if err != nil {
		return nil, err
	}
	if allowed(r, AccessWrite) != nil {
		all = withoutWords(all)
	}
	return Fingerprints{list(all)}, nil
}

// withoutWords leaves out the hashes of single words and numbers: whoever may start a container with
// words of his choice could tell by them which others were started with.
func withoutWords(all []state.Fingerprint) []state.Fingerprint {
	all = slices.Clone(all)
	for i := range all {
		k := &all[i]
		k.Identities = slices.Clone(k.Identities)
		for j := range k.Identities {
			k.Identities[j].Words, k.Identities[j].Numbers = nil, nil
		}
		k.Ends = k.Ends.Each(func(e *profiles.End) { e.Numbers = nil })
	}
	return all
}
