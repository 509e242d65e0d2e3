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
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/api/client"
	"github.com/trimtab/trimtab/tuner/view"
)

// peerEnv makes the test binary a peer: it gets one path and prints the status.
const peerEnv = "TRIMTAB_TEST_PEER"

func TestMain(m *testing.M) {
	if job := os.Getenv(peerEnv); job != "" {
		method, rest, _ := strings.Cut(job, " ")
		path, socket, _ := strings.Cut(rest, " ")
		os.Exit(bePeer(method, path, socket))
	}
	goleak.VerifyTestMain(m)
}

func bePeer(method, path, socket string) int {
	if method == "HOLD" {
		return holdConnections(path, socket)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	h := &http.Client{Transport: &http.Transport{DialContext: dial}}
	r, err := http.NewRequestWithContext(context.Background(), method, "http://x"+path, nil)
	if err != nil {
		return 2
	}
	answer, err := h.Do(r)
	if err != nil {
		_, _ = os.Stdout.WriteString(err.Error())
		return 1
	}
	_ = answer.Body.Close()
	_, _ = os.Stdout.WriteString(strconv.Itoa(answer.StatusCode))
	return 0
}

// holdConnections keeps so many open until its input ends.
func holdConnections(count, socket string) int {
	n, err := strconv.Atoi(count)
	if err != nil {
		return 2
	}
	var held []net.Conn
	for range n {
		if conn, err := net.Dial("unix", socket); err == nil {
			held = append(held, conn)
		}
	}
	_, _ = os.Stdout.WriteString("!")
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, conn := range held {
		_ = conn.Close()
	}
	return 0
}

// fake remembers what it was asked.
type fake struct {
	snapshot *view.Snapshot
	asked    []any
	err      error
	peer     api.Peer
}

func (f *fake) Snapshot() *view.Snapshot { return f.snapshot }

func (f *fake) History(_ context.Context, q api.HistoryQuery) ([]view.Record, error) {
	f.asked = append(f.asked, q)
	return []view.Record{{Kind: view.RecordChange, Name: "train"}}, f.err
}

func (f *fake) act(ctx context.Context, what any) ([]view.ActionResult, error) {
	f.asked = append(f.asked, what)
	f.peer, _ = api.PeerFrom(ctx)
	return []view.ActionResult{{Name: "train", OK: true, Text: "done"}}, f.err
}

func (f *fake) Enable(ctx context.Context, r view.EnableRequest) ([]view.ActionResult, error) {
	return f.act(ctx, r)
}

func (f *fake) Disable(ctx context.Context, r view.EnableRequest) ([]view.ActionResult, error) {
	return f.act(ctx, r)
}

func (f *fake) Restore(ctx context.Context, name string) ([]view.ActionResult, error) {
	return f.act(ctx, "restore "+name)
}

func (f *fake) Resume(ctx context.Context, name string) ([]view.ActionResult, error) {
	return f.act(ctx, "resume "+name)
}

func (f *fake) Pause(ctx context.Context) error {
	_, err := f.act(ctx, "pause")
	return err
}

func (f *fake) Record(_ context.Context, w io.Writer, d time.Duration) error {
	if _, err := w.Write([]byte("a recording of " + d.String())); err != nil {
		return err
	}
	return f.err
}

func snapshot() *view.Snapshot {
	return &view.Snapshot{UnixNs: 5, Daemon: view.Daemon{Version: "v1"}, Containers: []view.Container{
		{Key: "k1", ID: "abcd11", Name: "a", Watched: true, Owed: "memory", Enrolment: policies.Enrolment{Mode: policies.ModeTune}},
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
	if want := (api.Numbers{Running: 3, Watched: 2, Tuned: 1, Owed: 1}); status.Containers != want || status.Daemon.Version != "v1" {
		t.Errorf("status %+v", status)
	}
	all, err := c.Containers(ctx)
	if diff := cmp.Diff(snapshot().Containers, all.Containers); diff != "" || err != nil {
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
		if !errors.As(err, &e) || e.Status != want || e.Mend == "" {
			t.Errorf("%q: %v, want status %d and a mend", name, err, want)
		}
	}
	q := api.HistoryQuery{SinceUnixNs: 7, Changed: true, Name: "a b", Limit: 3}
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

func TestActing(t *testing.T) {
	b := &fake{snapshot: snapshot()}
	c := client.New(start(t, b))
	ctx := context.Background()
	req := view.EnableRequest{Image: "x/*", Knobs: []string{"cpu"}, ForNs: 5}
	for _, do := range []func() ([]view.ActionResult, error){
		func() ([]view.ActionResult, error) { return c.Enable(ctx, req) },
		func() ([]view.ActionResult, error) { return c.Disable(ctx, req) },
		func() ([]view.ActionResult, error) { return c.Restore(ctx, "a") },
		func() ([]view.ActionResult, error) { return c.Resume(ctx, "") },
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
	if b.peer.UID != os.Getuid() || b.peer.PID != os.Getpid() {
		t.Errorf("peer %+v", b.peer)
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
		{"GET", "/v1/history?changed=perhaps", "", 400},
		{"GET", "/v1/history?limit=0", "", 400},
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
	answer, err := h.Get("http://x/v1/history?since=2h")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	want := api.HistoryQuery{SinceUnixNs: (1_000_000 - 7200) * 1e9, Limit: 100_000}
	if diff := cmp.Diff([]any{want}, b.asked); diff != "" {
		t.Error(diff)
	}
}

// Access by the kernel's word: a real process with other credentials.
func TestAccess(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: peers run as other users")
	}
	socket := start(t, &fake{snapshot: snapshot()})
	const nobody, adm, sudo = 65534, 4, 27 // of Debian's base-passwd
	for _, tt := range []struct {
		name   string
		gid    uint32
		groups []uint32
		job    string
		want   string
	}{
		{"stranger may not look", nobody, nil, "GET /v1/status", "403"},
		{"stranger may not act", nobody, nil, "POST /v1/pause", "403"},
		{"stranger may ask for health", nobody, nil, "GET /healthz", "200"},
		{"reader may look", nobody, []uint32{1, adm}, "GET /v1/status", "200"},
		{"reader by primary group", adm, nil, "GET /v1/status", "200"},
		{"reader may not act", nobody, []uint32{adm}, "POST /v1/pause", "403"},
		{"writer may look", nobody, []uint32{sudo}, "GET /v1/status", "200"},
		{"writer may act", nobody, []uint32{sudo}, "POST /v1/pause", "200"},
		{"member of a hundred groups", nobody, append(many(100), sudo), "POST /v1/pause", "200"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command(peerBinary(t))
			cmd.Env = []string{peerEnv + "=" + tt.job + " " + socket}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: tt.gid, Groups: tt.groups}}
			out, err := cmd.Output()
			if err != nil || string(out) != tt.want {
				t.Errorf("got %s, want %s (%v)", out, tt.want, err)
			}
		})
	}
}

// peerBinary is the test's own, where others may run it.
func peerBinary(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(shortDir(t), "peer")
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func many(n uint32) (out []uint32) {
	for i := range n {
		out = append(out, 5000+i)
	}
	return out
}

func TestListen(t *testing.T) {
	dir := shortDir(t)
	socket := filepath.Join(dir, "run", "t.sock")
	l, err := api.Listen(socket, api.Groups{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(socket)
	if err != nil || info.Mode() != os.ModeSocket|0o666 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := api.Listen(socket, api.Groups{}); !errors.Is(err, api.ErrRunning) {
		t.Errorf("a second daemon: %v", err)
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "run", "*"))
	if diff := cmp.Diff([]string{socket + ".lock"}, left); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestListenMeetsWhatIsThere(t *testing.T) {
	dir := shortDir(t)
	stale := filepath.Join(dir, "stale")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := api.Listen(stale, api.Groups{})
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	_ = l.Close()

	alive := filepath.Join(dir, "alive") // somebody who does not know of the lock
	other, err := net.Listen("unix", alive)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close() //nolint:errcheck // a test's
	if _, err := api.Listen(alive, api.Groups{}); !errors.Is(err, api.ErrRunning) {
		t.Errorf("a socket that answers: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Listen(file, api.Groups{}); err == nil || errors.Is(err, api.ErrRunning) {
		t.Errorf("a file in the way: %v", err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "precious" {
		t.Errorf("the file in the way is now %q, %v", data, err)
	}
}

// Strangers that hold connections open do not keep an operator out.
func TestStrangersDoNotCrowdOut(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: strangers run as another user")
	}
	socket := start(t, &fake{snapshot: snapshot()})
	cmd := exec.Command(peerBinary(t))
	cmd.Env = []string{peerEnv + "=HOLD 300 " + socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.New(socket).Status(context.Background()); err != nil {
		t.Error(err)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
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
