package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/api/client"
	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
)

// fake remembers what it was asked.
type fake struct {
	snapshot *state.Snapshot
	asked    []any
	err      error
	known    []state.Fingerprint
	// late: of how many times that it is asked the same snapshot is shown; then, and without it, each time another.
	late int
}

func (f *fake) Snapshot() *state.Snapshot {
	if f.snapshot == nil || f.late > 0 {
		f.late--
		return f.snapshot
	}
	another := *f.snapshot
	return &another
}

func (f *fake) History(_ context.Context, q api.HistoryQuery) ([]state.Record, error) {
	f.asked = append(f.asked, q)
	return []state.Record{{Kind: state.RecordChange, Name: "train"}}, f.err
}

func (f *fake) Series(key string) []series.Point {
	return []series.Point{{UnixNs: 7, Used: float64(len(key))}}
}

func (f *fake) Report(_ context.Context, q api.ReportQuery) (state.Report, error) {
	f.asked = append(f.asked, q)
	return state.Report{By: string(q.By), Groups: []state.ReportGroup{{Name: "vision", LentCPUSeconds: 5}}}, f.err
}

func (f *fake) act(what any) ([]state.ActionResult, error) {
	f.asked = append(f.asked, what)
	return []state.ActionResult{{Name: "train", OK: true, Text: "done"}}, f.err
}

func (f *fake) Enable(_ context.Context, r state.EnableRequest) ([]state.ActionResult, error) {
	return f.act(r)
}

func (f *fake) Disable(_ context.Context, r state.EnableRequest) ([]state.ActionResult, error) {
	return f.act(r)
}

func (f *fake) Restore(_ context.Context, name string) ([]state.ActionResult, error) {
	return f.act("restore " + name)
}

func (f *fake) Resume(_ context.Context, name string) ([]state.ActionResult, error) {
	return f.act("resume " + name)
}

func (f *fake) Pause(_ context.Context) error {
	_, err := f.act("pause")
	return err
}

func (f *fake) Fingerprints(context.Context) ([]state.Fingerprint, error) { return f.known, nil }

func (f *fake) Forget(_ context.Context, r state.ForgetRequest) ([]state.ActionResult, error) {
	return f.act(r)
}

func (f *fake) GPUs(context.Context) ([]state.GPUVisibility, error) { return nil, nil }

func (f *fake) HideGPU(_ context.Context, r state.GPURequest) ([]state.ActionResult, error) {
	return f.act(r)
}

func (f *fake) ShowGPU(_ context.Context, r state.GPURequest) ([]state.ActionResult, error) {
	return f.act(r)
}

func (f *fake) Record(_ context.Context, w io.Writer, d time.Duration) error {
	if _, err := w.Write([]byte("a recording of " + d.String())); err != nil {
		return err
	}
	return f.err
}

func snapshot() *state.Snapshot {
	return &state.Snapshot{UnixNs: 5, Daemon: state.Daemon{Version: "v1"}, Containers: []state.Container{
		{Key: "k1", ID: "abcd11", Name: "a", Watched: true, Pending: "memory", Enrolment: policies.Enrolment{Mode: policies.ModeTune}},
		{Key: "k2", ID: "abcd22", Name: "odd name/../?", Watched: true},
		{Key: "k3", ID: "ffff33", Name: "c"},
	}}
}

// start serves a backend until the test ends, and returns the socket.
func start(t *testing.T, b api.Backend) string {
	t.Helper()
	socket := filepath.Join(shortDir(t), "t.sock")
	l, err := api.Listen(socket, api.Groups{Read: "adm", Write: "sudo"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	now := func() time.Time { return time.Unix(1_000_000, 0) }
	go func() { ended <- api.NewServer(b, slog.New(slog.DiscardHandler), now).Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left behind: %v", err)
		}
	})
	return socket
}

// TestAnActionIsSeen: who acts and then looks sees what came of it: the answer waits for what is shown next.
func TestAnActionIsSeen(t *testing.T) {
	f := &fake{snapshot: snapshot(), late: 5}
	if err := client.New(start(t, f)).Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.late > 0 {
		t.Errorf("it answered while the same was shown, which was to last for %d looks more", f.late)
	}
}

// TestALateDaemonAnswers: one that shows nothing new answers all the same.
func TestALateDaemonAnswers(t *testing.T) {
	f := &fake{snapshot: snapshot(), late: math.MaxInt}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := client.New(start(t, f)).Pause(ctx); err != nil {
		t.Fatal(err)
	}
}

// shortDir is a folder that a socket's path fits into, and that others may enter.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "trimtab")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestLooking(t *testing.T) {
	b := &fake{snapshot: snapshot()}
	c := client.New(start(t, b))
	ctx := context.Background()

	status, err := c.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if want := (api.Numbers{Running: 3, Watched: 2, Tuned: 1, Pending: 1}); status.Containers != want || status.Daemon.Version != "v1" {
		t.Errorf("status %+v", status)
	}
	all, err := c.Containers(ctx)
	if diff := cmp.Diff(snapshot().Containers, all.Containers, cmpopts.IgnoreFields(state.Container{}, "Why")); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for name, want := range map[string]string{"a": "k1", "abcd22": "k2", "ffff": "k3", "k2": "k2", "odd name/../?": "k2"} {
		if got, err := c.Container(ctx, name); err != nil || got.Key != want {
			t.Errorf("%q is %q, %v", name, got.Key, err)
		}
	}
	for name, want := range map[string]int{"abcd": http.StatusConflict, "none": http.StatusNotFound, "fff": http.StatusNotFound} {
		_, err := c.Container(ctx, name)
		var e *api.Error
		if !errors.As(err, &e) || e.Status != want || e.Hint == "" {
			t.Errorf("%q: %v, want status %d and a hint", name, err, want)
		}
	}
	q := api.HistoryQuery{SinceUnixNs: 7, UntilUnixNs: 8, Changed: true, Name: "a b", Limit: 3}
	if records, err := c.History(ctx, q); err != nil || len(records) != 1 {
		t.Errorf("history %v, %v", records, err)
	}
	if diff := cmp.Diff([]any{q}, b.asked); diff != "" {
		t.Error(diff)
	}
	var recording strings.Builder
	if err := c.Record(ctx, &recording, 2*time.Second); err != nil || recording.String() != "a recording of 2s" {
		t.Errorf("recording %q, %v", recording.String(), err)
	}
}

// TestHistoryIsOfWhoIsNamed: a name is of all that bore it, an ID of the one that has it.
func TestHistoryIsOfWhoIsNamed(t *testing.T) {
	b := &fake{snapshot: snapshot()}
	c := client.New(start(t, b))
	var want []any
	for name, asked := range map[string]string{"a": "a", "k1": "k1", "abcd22": "k2", "ffff": "k3", "abcd": "abcd", "ended": "ended"} {
		want = append(want, api.HistoryQuery{Name: asked, Limit: state.MaxRecords})
		if _, err := c.History(t.Context(), api.HistoryQuery{Name: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if diff := cmp.Diff(want, b.asked); diff != "" {
		t.Error(diff)
	}
}

// TestFindOfOneName: who bears the name of another is not shown for it; the key tells the two.
func TestFindOfOneName(t *testing.T) {
	id := strings.Repeat("0a", 32)
	s := &state.Snapshot{Containers: []state.Container{{Key: "k1", ID: "train", Name: "other"}, {Key: "k2", ID: id, Name: "train"}, {Key: "k3", ID: id[:12], Name: "k2"},
		{Key: "k4", ID: "resnet50-train-2"}, {Key: "k5", ID: "resnet50-train"}}}
	for name, want := range map[string]string{"resnet50-train": "k5", "k1": "k1", "k2": "k2", "k3": "k3", "other": "k1", id: "k2", "train": "", id[:12]: ""} {
		got, err := api.Find(s, name)
		var e *api.Error
		if got.Key != want || want == "" && (!errors.As(err, &e) || e.Status != http.StatusConflict || !strings.Contains(e.Hint, "key")) {
			t.Errorf("%q is %q, %v", name, got.Key, err)
		}
	}
}

// TestFindTellsOfLostEngines: what is not found may run where nobody can look.
func TestFindTellsOfLostEngines(t *testing.T) {
	s := &state.Snapshot{Daemon: state.Daemon{Engines: []state.Part{{Name: "containerd", OK: true}, {Name: "docker", Lost: "connection refused"}}}}
	var e *api.Error
	if _, err := api.Find(s, "train"); !errors.As(err, &e) || !strings.Contains(e.Hint, "docker runs is not known: connection refused") || strings.Contains(e.Hint, "containerd") {
		t.Errorf("%v", err)
	}
}

func TestReport(t *testing.T) {
	b := &fake{snapshot: snapshot()}
	socket := start(t, b)
	c := client.New(socket)
	q := api.ReportQuery{SinceUnixNs: 7, By: account.ByCause}
	if r, err := c.Report(t.Context(), q); err != nil || r.By != "cause" || r.Groups[0].LentCPUSeconds != 5 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := c.Report(t.Context(), api.ReportQuery{}); err != nil {
		t.Error(err)
	}
	week := api.ReportQuery{SinceUnixNs: time.Unix(1_000_000, 0).Add(-api.ReportSince).UnixNano(), By: account.ByTeam}
	if diff := cmp.Diff([]any{q, week}, b.asked); diff != "" {
		t.Error(diff)
	}
	var e *api.Error
	if _, err := c.Report(t.Context(), api.ReportQuery{By: "moon"}); !errors.As(err, &e) || e.Status != http.StatusBadRequest || !strings.Contains(e.Text, "allowed are team") {
		t.Errorf("by the moon: %v", err)
	}
	future := api.ReportQuery{SinceUnixNs: time.Unix(1_000_001, 0).UnixNano()}
	if _, err := c.Report(t.Context(), future); !errors.As(err, &e) || e.Status != http.StatusBadRequest || !strings.Contains(e.Text, "in the future") {
		t.Errorf("of the future: %v", err)
	}
}

func TestActing(t *testing.T) {
	b := &fake{snapshot: snapshot()}
	c := client.New(start(t, b))
	ctx := context.Background()
	req := state.EnableRequest{Image: "x/*", Knobs: []string{"cpu"}, ForNs: 5}
	for _, do := range []func() ([]state.ActionResult, error){
		func() ([]state.ActionResult, error) { return c.Enable(ctx, req) },
		func() ([]state.ActionResult, error) { return c.Disable(ctx, req) },
		func() ([]state.ActionResult, error) { return c.Restore(ctx, "a") },
		func() ([]state.ActionResult, error) { return c.Resume(ctx, "") },
	} {
		if got, err := do(); err != nil || len(got) != 1 || got[0].Text != "done" {
			t.Errorf("%v, %v", got, err)
		}
	}
	if err := c.Pause(ctx); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]any{req, req, "restore a", "resume ", "pause"}, b.asked); diff != "" {
		t.Error(diff)
	}
}

func TestErrorsOfTheBackend(t *testing.T) {
	b := &fake{snapshot: snapshot()}
	c := client.New(start(t, b))
	ctx := context.Background()
	for _, tt := range []struct {
		err    error
		status int
	}{
		{api.NotFound("x"), http.StatusNotFound},
		{errors.New("disk full"), http.StatusInternalServerError},
		{context.DeadlineExceeded, http.StatusGatewayTimeout},
	} {
		b.err = tt.err
		_, err := c.Restore(ctx, "x")
		var e *api.Error
		if !errors.As(err, &e) || e.Status != tt.status || !strings.Contains(e.Text, strings.SplitN(tt.err.Error(), ":", 2)[0]) {
			t.Errorf("%v came as %v", tt.err, err)
		}
	}
	b.err = errors.New("broken")
	if err := c.Record(ctx, io.Discard, time.Second); err == nil {
		t.Error("a recording that broke off looks whole")
	}
	b.snapshot = nil
	var e *api.Error
	if _, err := c.Status(ctx); !errors.As(err, &e) || e.Status != http.StatusServiceUnavailable {
		t.Errorf("while starting: %v", err)
	}
}

func TestBadRequests(t *testing.T) {
	b := &fake{snapshot: snapshot()}
	h := rawClient(start(t, b))
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/v2/status", "", 404},
		{"DELETE", "/v1/status", "", 405},
		{"GET", "/v1/pause", "", 405},
		{"GET", "/v1/history?since=yesterday", "", 400},
		{"GET", "/v1/history?until=never", "", 400},
		{"GET", "/v1/history?changed=perhaps", "", 400},
		{"GET", "/v1/history?limit=0", "", 400},
		{"GET", "/v1/history?limit=10001", "", 400},
		{"GET", "/v1/record?seconds=0", "", 400},
		{"GET", "/v1/record?seconds=3601", "", 400},
		{"GET", "/v1/record", "", 400},
		{"POST", "/v1/restore", `{"nam":"x"}`, 400},
		{"POST", "/v1/restore", `{"name":"x"}{}`, 400},
		{"POST", "/v1/restore", `[`, 400},
		{"POST", "/v1/enable", `{"name":"` + strings.Repeat("x", 70<<10) + `"}`, 413},
	} {
		r, err := http.NewRequestWithContext(context.Background(), tt.method, "http://x"+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := h.Do(r)
		if err != nil {
			t.Errorf("%s %s: %v", tt.method, tt.path, err)
			continue
		}
		var e api.Error
		err = json.NewDecoder(answer.Body).Decode(&e)
		_ = answer.Body.Close()
		if answer.StatusCode != tt.status || err != nil || e.Text == "" {
			t.Errorf("%s %s: status %d, want %d; %+v %v", tt.method, tt.path, answer.StatusCode, tt.status, e, err)
		}
	}
	if len(b.asked) != 0 {
		t.Errorf("a bad request reached the daemon: %v", b.asked)
	}
}

func rawClient(socket string) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
}

func TestSinceIsRelativeToTheDaemonsClock(t *testing.T) {
	b := &fake{snapshot: snapshot()}
	h := rawClient(start(t, b))
	answer, err := h.Get("http://x/v1/history?since=2h&until=1h")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	want := api.HistoryQuery{SinceUnixNs: (1_000_000 - 7200) * 1e9, UntilUnixNs: (1_000_000 - 3600) * 1e9, Limit: 10_000}
	if diff := cmp.Diff([]any{want}, b.asked); diff != "" {
		t.Error(diff)
	}
}

func TestNoDaemon(t *testing.T) {
	c := client.New(filepath.Join(t.TempDir(), "none.sock"))
	if _, err := c.Status(context.Background()); !errors.Is(err, client.ErrNoDaemon) {
		t.Errorf("got %v", err)
	}
}

func TestDocsListEveryRoute(t *testing.T) {
	doc, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range api.Routes() {
		if !strings.Contains(string(doc), "## "+route+"\n") {
			t.Errorf("docs/api.md has no heading for %s", route)
		}
	}
	if got := strings.Count(string(doc), "\n## GET ") + strings.Count(string(doc), "\n## POST "); got != len(api.Routes()) {
		t.Errorf("docs/api.md has %d routes, the server %d", got, len(api.Routes()))
	}
}

func TestAnswerThatIsNoJSON(t *testing.T) {
	b := &fake{snapshot: snapshot()}
	b.snapshot.Containers[0].Gain = math.NaN()
	_, err := client.New(start(t, b)).Containers(context.Background())
	var e *api.Error
	if !errors.As(err, &e) || e.Status != http.StatusInternalServerError || !strings.Contains(e.Text, "NaN") {
		t.Errorf("got %v", err)
	}
}
