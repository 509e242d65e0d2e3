package notify

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/santhosh-tekuri/jsonschema/v6"
	collectorlogs "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	collectormetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	logspb "go.opentelemetry.io/proto/slim/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/event"
	"github.com/trimtab/trimtab/tuner/state"
)

// hostileName is cleaned by event.Of of what moves a cursor; its markup is the receiver's to escape.
const hostileName = "\x1b[2J\u202e<img src=x onerror=alert(1)>🚀\n"

func hostileEvent() event.Event {
	return event.Of(state.Record{UnixNs: 1767225600123456789, Kind: state.RecordTrial, Outcome: state.OutcomeKept, Key: "docker-a", Name: hostileName + strings.Repeat("x", 4096), Team: "vision",
		Knob: "cpu.quota", From: "100000 100000", To: "250000 100000", Before: 10, After: 20, Low: 1.9, High: 2.1, Gain: 1, Text: "<b>kept</b>"}, "node7")
}

// request is what a server was sent.
type request struct {
	method, path, query string
	header              http.Header
	body                []byte
}

// serve answers as it is told, and keeps the latest request.
func serve(t *testing.T, answer http.HandlerFunc) (*httptest.Server, *request) {
	t.Helper()
	got := new(request)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		*got = request{r.Method, r.URL.Path, r.URL.RawQuery, r.Header, body}
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s, got
}

func tokenFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func endpointAt(t *testing.T, c config.Receiver) *endpoint {
	t.Helper()
	e := newEndpoint("notify.webhook", c, "1.2.3")
	t.Cleanup(func() {
		if e.made != nil {
			e.made.CloseIdleConnections()
		}
	})
	return e
}

func TestWebhook(t *testing.T) {
	s, got := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	w := webhook{endpointAt(t, config.Receiver{URL: s.URL + "/hooks/a?b=c", TokenFile: tokenFile(t, " s3cret\n"), Headers: map[string]string{"X-Team": "ml"}})}
	e := hostileEvent()
	if err := w.deliver(t.Context(), []event.Event{e}); err != nil {
		t.Fatal(err)
	}
	h := got.header
	if got.method != "POST" || got.path != "/hooks/a" || got.query != "b=c" || h.Get("Authorization") != "Bearer s3cret" || h.Get("X-Team") != "ml" ||
		h.Get("Content-Type") != "application/json" || h.Get("User-Agent") != "trimtab/1.2.3" {
		t.Errorf("%+v", got)
	}
	var back event.Event
	if err := json.Unmarshal(got.body, &back); err != nil || back.Kind != event.Kept || back.Host != "node7" || *back.Record != *e.Record {
		t.Errorf("%v: %s", err, got.body)
	}
	if strings.ContainsAny(string(got.body), "\x1b\u202e<>\n") || len(got.body) > 8<<10 {
		t.Errorf("%q", got.body)
	}
}

// What is sent fits the API's description, of a record and of the daemon itself.
func TestWebhookFitsItsDescription(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(api.OpenAPI()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("openapi.json#/webhooks/event/post/requestBody/content/application~1json/schema")
	if err != nil {
		t.Fatal(err)
	}
	s, got := serve(t, func(http.ResponseWriter, *http.Request) {})
	w := webhook{endpointAt(t, config.Receiver{URL: s.URL})}
	for _, e := range []event.Event{hostileEvent(), {Kind: event.Unwell, Host: "node7", UnixNs: 5, Text: "trimtab: stuck"}} {
		if err := w.deliver(t.Context(), []event.Event{e}); err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(got.body)))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%v\n%s", err, got.body)
		}
	}
	if err := schema.Validate(map[string]any{"event": "kept"}); err == nil {
		t.Error("an event without host, time and text fits")
	}
}

// Each trouble names the key, what happened and the fix; it says whether another try is worth it;
// and it holds no secret.
func TestTroubles(t *testing.T) {
	// What Express and Apache answer, and what an echo does, which is no HTTP at all.
	express := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, "<pre>Cannot POST %s</pre>\n%s %s", r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("X-Key"))
	}
	apache := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "https://"+r.Host+r.URL.Path+"/")
		w.WriteHeader(http.StatusMovedPermanently)
		_, _ = fmt.Fprintf(w, `<p>The document has moved <a href="https://%s%s/">here</a>.</p>`, r.Host, r.URL.Path)
	}
	raw := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(c, strings.ReplaceAll(text, "PATH", r.URL.Path))
			_ = c.Close()
		}
	}
	status := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); _, _ = io.WriteString(w, text) }
	}
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		token  string // of a file; "-": one that is not there
		final  bool
		after  time.Duration
		want   []string
	}{
		"fault": {answer: status(500, "\x1b[2Jdisk full"), want: []string{`"500 Internal Server Error"`}},
		"busy": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "99999")
			w.WriteHeader(503)
		}, after: maxRetryAfter, want: []string{"503"}},
		"too many":  {answer: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "7"); w.WriteHeader(429) }, after: 7 * time.Second, want: []string{"429"}},
		"no token":  {answer: status(401, `{"message":"Unauthorized"}`), final: true, want: []string{"Unauthorized", "notify.webhook.tokenFile"}},
		"not found": {answer: status(404, ""), final: true, want: []string{"is notify.webhook.url right?"}},
		"redirect": {answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere.example/hidden", http.StatusFound)
		}, final: true, want: []string{"redirects to http://elsewhere.example,", "not followed", "correct notify.webhook.url"}},
		"huge":       {answer: status(502, strings.Repeat("y", 4<<20)), want: []string{"502"}},
		"page":       {answer: express, final: true, want: []string{`"404 Not Found"`, "is notify.webhook.url right?"}},
		"moved":      {answer: apache, final: true, want: []string{`"301 Moved Permanently"`, "redirects to https://127.0.0.1", "not followed"}},
		"phrase":     {answer: raw("HTTP/1.1 404 no PATH here\r\n\r\n"), final: true, want: []string{`"404 Not Found"`}},
		"echo":       {answer: raw("POST PATH HTTP/1.1\r\n\r\n"), want: []string{"malformed answer"}},
		"field":      {answer: raw("HTTP/1.1 200 OK\r\nPATH\r\n\r\n"), want: []string{"malformed answer"}},
		"garbage":    {answer: raw(strings.Repeat("x", 60<<10) + "\r\n\r\n"), want: []string{"malformed answer"}},
		"hung up":    {answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: []string{"EOF"}},
		"slow":       {answer: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, want: []string{"did not answer"}},
		"token gone": {answer: status(200, ""), token: "-", want: []string{"notify.webhook.tokenFile", "no such file", "mode 0600"}},
		"empty":      {answer: status(200, ""), token: " \n", want: []string{"notify.webhook.tokenFile", "is empty"}},
		"two lines":  {answer: status(200, ""), token: "s3cret\nhidden: yes", want: []string{"notify.webhook", "header"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := serve(t, tt.answer)
			c := config.Receiver{URL: strings.Replace(s.URL, "://", "://hidden:s3cret@", 1) + "/hidden/s3cret?hidden=s3cret", Headers: map[string]string{"X-Key": "hidden"}}
			switch tt.token {
			case "":
				c.TokenFile = tokenFile(t, "s3cret")
			case "-":
				c.TokenFile = filepath.Join(t.TempDir(), "token")
			default:
				c.TokenFile = tokenFile(t, tt.token)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := webhook{endpointAt(t, c)}.deliver(ctx, []event.Event{hostileEvent()})
			if err == nil {
				t.Fatal("no error")
			}
			var no refusal
			var word later
			if errors.As(err, &no) != tt.final || errors.As(err, &word) && word.after != tt.after || word.after != tt.after {
				t.Errorf("final %v, later %v: %v", errors.As(err, &no), word.after, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("not told: %q in %v", want, err)
				}
			}
			if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "\x1b") || len(err.Error()) > 1000 {
				t.Errorf("too much is told: %v", err)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "soon": 0, "-1": 0, "0": 0, "7": 7 * time.Second, "301": maxRetryAfter, "9223372036854775807": maxRetryAfter, "9223372036": maxRetryAfter,
		"Thu, 01 Jan 2026 00:01:00 GMT": time.Minute, "Thu, 01 Jan 2026 00:00:00 GMT": 0, "Wed, 31 Dec 2025 00:00:00 GMT": 0, "Thu, 01 Jan 2099 00:00:00 GMT": maxRetryAfter,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	err = webhook{endpointAt(t, config.Receiver{URL: "http://" + addr + "/s3cret"})}.deliver(t.Context(), []event.Event{hostileEvent()})
	if err == nil || !strings.Contains(err.Error(), "nothing listens there: start it, or correct notify.webhook.url") || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
}

// A certificate is verified, against the system's authorities and the one that the config names.
func TestTLSIsVerified(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that are to fail
	s.StartTLS()
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	c := config.Receiver{URL: s.URL}
	tell := func() error { return webhook{endpointAt(t, c)}.deliver(t.Context(), []event.Event{hostileEvent()}) }
	if err := tell(); err == nil || !strings.Contains(err.Error(), "name the CA that signed its certificate in notify.webhook.caFile") {
		t.Error(err)
	}
	c.CAFile = ca
	if err := tell(); err == nil || !strings.Contains(err.Error(), "notify.webhook.caFile: open") {
		t.Error(err)
	}
	if err := os.WriteFile(ca, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tell(); err == nil || !strings.Contains(err.Error(), "holds no certificate") {
		t.Error(err)
	}
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tell(); err != nil {
		t.Error(err)
	}
}

// What Grafana's HTTP API documents of POST /api/annotations, and its answers.
func TestGrafana(t *testing.T) {
	s, got := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"message":"Annotation added","id":1}`)
	})
	g := grafana{endpointAt(t, config.Receiver{URL: s.URL + "/grafana/", TokenFile: tokenFile(t, "glsa_x")})}
	if err := g.deliver(t.Context(), []event.Event{hostileEvent()}); err != nil {
		t.Fatal(err)
	}
	if got.method != "POST" || got.path != "/grafana/api/annotations" || got.header.Get("Authorization") != "Bearer glsa_x" {
		t.Errorf("%+v", got)
	}
	var a annotation
	if err := json.Unmarshal(got.body, &a); err != nil || a.Time != 1767225600123 || strings.ContainsAny(a.Text, "<>") || !strings.Contains(a.Text, "&lt;b&gt;kept") {
		t.Errorf("%v: %+v", err, a)
	}
	if len(a.Tags) != 4 || !slices.Equal(a.Tags[:3], []string{"trimtab", "event:kept", "host:node7"}) || !strings.HasPrefix(a.Tags[3], "container:") || len(a.Tags[3]) > len("container:")+maxTag {
		t.Errorf("%q", a.Tags)
	}
	if err := g.check(t.Context()); err != nil || got.method != "GET" || got.query != "limit=1" {
		t.Errorf("%v %+v", err, got)
	}
}

// TestGrafanaPagesAskWhatIsWritten: each packaged page asks for annotations, by tags that one has.
func TestGrafanaPagesAskWhatIsWritten(t *testing.T) {
	files, err := filepath.Glob("../../packaging/grafana/*.json")
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	written := annotationOf(event.Event{Kind: event.Kept, Host: "node7", Record: &state.Record{Name: "train"}}).Tags
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var page struct {
			Annotations struct {
				List []struct {
					Enable     bool
					Datasource struct{ Type, UID string }
					Target     struct {
						Type     string
						Tags     []string
						MatchAny *bool
					}
				}
			}
		}
		if err := json.Unmarshal(text, &page); err != nil || len(page.Annotations.List) != 1 {
			t.Fatalf("%s: %v: %d queries of annotations", file, err, len(page.Annotations.List))
		}
		q := page.Annotations.List[0]
		if !q.Enable || q.Datasource.UID != "-- Grafana --" || q.Target.Type != "tags" || q.Target.MatchAny == nil || *q.Target.MatchAny || !slices.Contains(q.Target.Tags, "trimtab") {
			t.Errorf("%s: %+v", file, q)
		}
		for _, tag := range q.Target.Tags {
			if tag = strings.ReplaceAll(tag, "$container", "train"); !slices.Contains(written, tag) {
				t.Errorf("%s asks for %q; written are %q", file, tag, written)
			}
		}
		if strings.HasSuffix(file, "-job.json") != (len(q.Target.Tags) == 2) {
			t.Errorf("%s asks for %q", file, q.Target.Tags)
		}
	}
}

func TestChecksTellNothing(t *testing.T) {
	for _, tt := range []struct {
		status int
		ok     map[string]bool
	}{
		{200, map[string]bool{"webhook": true, "grafana": true, "otlp": true}}, {405, map[string]bool{"webhook": true}}, {501, map[string]bool{"webhook": true}},
		{401, nil}, {403, map[string]bool{"grafana": true}}, {302, nil}, {500, nil},
	} {
		s, got := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tt.status) })
		c := config.Receiver{URL: s.URL, TokenFile: tokenFile(t, "x")}
		for name, r := range map[string]receiver{"webhook": webhook{endpointAt(t, c)}, "grafana": grafana{endpointAt(t, c)}, "otlp": logs{endpointAt(t, c), Options{}}} {
			err := r.check(t.Context())
			if (err == nil) != tt.ok[name] {
				t.Errorf("%s answers %d: %v", name, tt.status, err)
			}
			var sent collectorlogs.ExportLogsServiceRequest
			if name != "otlp" && len(got.body) > 0 || name == "otlp" && (proto.Unmarshal(got.body, &sent) != nil || len(sent.ResourceLogs[0].ScopeLogs[0].LogRecords) > 0) {
				t.Errorf("%s was told %q", name, got.body)
			}
		}
	}
}

func TestLogRecords(t *testing.T) {
	var answer collectorlogs.ExportLogsServiceResponse
	s, got := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		b, err := proto.Marshal(&answer)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(b)
	})
	l := logs{endpointAt(t, config.Receiver{URL: s.URL}), Options{Host: "node7", Version: "1.2.3"}}
	events := []event.Event{hostileEvent(), {Kind: event.Unwell, Host: "node7", UnixNs: 5, Text: "trimtab: stuck"}}
	if err := l.deliver(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	var sent collectorlogs.ExportLogsServiceRequest
	if err := proto.Unmarshal(got.body, &sent); err != nil || got.path != "/v1/logs" || got.header.Get("Content-Type") != protobuf {
		t.Fatalf("%v %+v", err, got.header)
	}
	r := sent.ResourceLogs[0].ScopeLogs[0].LogRecords
	if len(r) != 2 || r[0].EventName != "trimtab.kept" || r[0].TimeUnixNano != 1767225600123456789 || r[0].SeverityNumber != logspb.SeverityNumber_SEVERITY_NUMBER_INFO ||
		r[0].Body.GetStringValue() != "<b>kept</b>" || r[1].EventName != "trimtab.unwell" || r[1].SeverityText != "WARN" || len(r[1].Attributes) > 0 {
		t.Errorf("%v", r)
	}
	have := map[string]string{}
	for _, a := range append(r[0].Attributes, sent.ResourceLogs[0].Resource.Attributes...) {
		have[a.Key] = a.Value.GetStringValue()
		if a.Value.GetStringValue() == "" {
			have[a.Key] = fmt.Sprint(a.Value.GetDoubleValue())
		}
	}
	for key, want := range map[string]string{"service.name": "trimtab", "service.version": "1.2.3", "host.name": "node7", "trimtab.knob": "cpu.quota", "trimtab.to": "250000 100000", "trimtab.outcome": "kept", "trimtab.ratio.low": "1.9", "trimtab.team": "vision"} {
		if have[key] != want {
			t.Errorf("%s is %q, want %q", key, have[key], want)
		}
	}
	if name := have["container.name"]; !strings.Contains(name, "<img src=x onerror=alert(1)>🚀") || len(name) > 1024 || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("a hostile name was sent as %q", name)
	}
	answer.PartialSuccess = &collectorlogs.ExportLogsPartialSuccess{RejectedLogRecords: 1, ErrorMessage: "too old\x1b"}
	var no refusal
	if err := l.deliver(t.Context(), events); !errors.As(err, &no) || no.of != 1 || !strings.Contains(err.Error(), `1 of 2 records were rejected: "too old`) {
		t.Errorf("%v", err)
	}
}

func TestMetricsAreWhatPrometheusGets(t *testing.T) {
	s, got := serve(t, func(http.ResponseWriter, *http.Request) {})
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "trimtab_trials_total", Help: "Trials."}, []string{"result"})
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "trimtab_apply_duration_seconds", Help: "Applying.", Buckets: []float64{1, 2}})
	old := prometheus.NewGauge(prometheus.GaugeOpts{Name: "trimtab_old", Help: "Deprecated, for one release."})
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "trimtab_paused", Help: "Paused."})
	reg.MustRegister(c, h, old, g)
	c.WithLabelValues("kept").Add(3)
	for _, v := range []float64{0.5, 0.6, 1.5, 9} {
		h.Observe(v)
	}
	m := metricsExport{endpointAt(t, config.Receiver{URL: s.URL}), Options{Metrics: reg, Latest: func() *state.Snapshot { return &state.Snapshot{Daemon: state.Daemon{StartedUnixNs: 42}} }}}
	if err := m.deliver(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(strings.NewReader(string(got.body)))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var sent collectormetrics.ExportMetricsServiceRequest
	if err := proto.Unmarshal(body, &sent); err != nil || got.path != "/v1/metrics" || got.header.Get("Content-Encoding") != "gzip" {
		t.Fatal(err, got.header)
	}
	all := sent.ResourceMetrics[0].ScopeMetrics[0].Metrics
	if len(all) != 3 {
		t.Fatalf("%v", all)
	}
	hist, paused, trials := all[0].GetHistogram().DataPoints[0], all[1].GetGauge().DataPoints[0], all[2].GetSum()
	if hist.Count != 4 || *hist.Sum != 11.6 || !slices.Equal(hist.BucketCounts, []uint64{2, 1, 1}) || !slices.Equal(hist.ExplicitBounds, []float64{1, 2}) {
		t.Errorf("%v", hist)
	}
	if p := trials.DataPoints[0]; !trials.IsMonotonic || p.GetAsDouble() != 3 || p.StartTimeUnixNano != 42 || p.Attributes[0].Key != "result" || p.Attributes[0].Value.GetStringValue() != "kept" || paused.GetAsDouble() != 0 {
		t.Errorf("%v, %v", trials, paused)
	}
}
