package metrics

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/state"
)

// TestScrapesAreRenderedOnce for each snapshot and format, whoever asks; and again where no snapshot comes.
func TestScrapesAreRenderedOnce(t *testing.T) {
	latest, now, rendered := &state.Snapshot{}, time.Unix(1000, 0), 0
	s := newScrapes(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		rendered++
		w.Header().Set("Content-Type", "text/plain")
		_, _ = fmt.Fprintf(w, "trimtab_up %d\n", rendered)
	}), func() *state.Snapshot { return latest }, func() time.Time { return now })
	ask := func(encoding, accept string) string {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept-Encoding", encoding)
		r.Header.Set("Accept", accept)
		rec := httptest.NewRecorder()
		s.ServeHTTP(rec, r)
		body := io.Reader(rec.Body)
		if rec.Header().Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(rec.Body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		text, err := io.ReadAll(body)
		if err != nil || rec.Code != http.StatusOK || rec.Header().Get("Content-Type") != "text/plain" || (encoding == "gzip") != (rec.Header().Get("Content-Encoding") == "gzip") {
			t.Fatalf("%v, %d, %v", err, rec.Code, rec.Header())
		}
		return string(text)
	}
	const protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
	for i, step := range []struct {
		then             func()
		encoding, accept string
		want             int
	}{
		{nil, "gzip", "", 1}, {nil, "gzip", "", 1}, {nil, "", "text/plain", 1}, {nil, "gzip", protobuf, 2}, {nil, "", protobuf, 2},
		{func() { latest = &state.Snapshot{} }, "gzip", "", 3},
		{func() { now = now.Add(maxAge - 1) }, "", "", 3},
		{func() { now = now.Add(1) }, "", "", 4}, // the loop is stuck: what the process uses still goes on
	} {
		if step.then != nil {
			step.then()
		}
		if got, want := ask(step.encoding, step.accept), fmt.Sprintf("trimtab_up %d\n", step.want); got != want {
			t.Errorf("step %d: %q, want %q", i, got, want)
		}
	}
	for i := range 3 * maxFormats { // a format bears what its reader asked for
		ask("", fmt.Sprintf("text/plain;version=0.0.4;escaping=e%d", i))
	}
	if len(s.answers) > maxFormats {
		t.Errorf("%d answers are kept", len(s.answers))
	}
}

// stuck is a reader that takes nothing until it is let go.
type stuck struct {
	httptest.ResponseRecorder
	writing chan<- struct{}
	goOn    <-chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	s.writing <- struct{}{}
	<-s.goOn
	return len(p), nil
}

// TestSlowReadersKeepNobody: however many do not read, the next has its answer.
func TestSlowReadersKeepNobody(t *testing.T) {
	h := Handler("v1", busy, func() error { return nil }, slog.New(slog.DiscardHandler))
	writing, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	const slow = 60
	for range slow {
		go func() {
			h.ServeHTTP(&stuck{ResponseRecorder: httptest.ResponseRecorder{Body: &bytes.Buffer{}}, writing: writing, goOn: goOn}, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			ended <- struct{}{}
		}()
	}
	for range slow {
		<-writing
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != http.StatusOK || rec.Body.Len() == 0 {
		t.Errorf("%d, %d bytes beside %d that do not read", rec.Code, rec.Body.Len(), slow)
	}
	close(goOn)
	for range slow {
		<-ended
	}
}
