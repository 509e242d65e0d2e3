package api_test

import (
	"context"
	"errors"
	"io"
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

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/api/client"
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

// A socket for members lets in root and the group's, and nobody else.
func TestListenFor(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: peers run as other users")
	}
	socket := filepath.Join(shortDir(t), "members.sock")
	l, err := api.ListenFor(socket, "adm")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }), ReadHeaderTimeout: time.Second}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	const nobody, adm = 65534, 4 // of Debian's base-passwd
	for _, tt := range []struct {
		name     string
		uid, gid uint32
		want     bool
	}{{"root", 0, 0, true}, {"member", nobody, adm, true}, {"stranger", nobody, nobody, false}} {
		cmd := exec.Command(peerBinary(t))
		cmd.Env = []string{peerEnv + "=GET /metrics " + socket}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tt.uid, Gid: tt.gid}}
		if out, _ := cmd.Output(); (string(out) == "200") != tt.want { // a stranger's ends with an error
			t.Errorf("%s gets %q, want an answer: %v", tt.name, out, tt.want)
		}
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
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

// Strangers that hold connections open do not keep an operator out, nor do those who may look.
func TestOthersDoNotCrowdOut(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: others run as another user")
	}
	const nobody, adm = 65534, 4 // of Debian's base-passwd
	for name, gid := range map[string]uint32{"strangers": nobody, "readers": adm} {
		t.Run(name, func(t *testing.T) { crowd(t, gid) })
	}
}

func crowd(t *testing.T, gid uint32) {
	socket := start(t, &fake{snapshot: snapshot()})
	cmd := exec.Command(peerBinary(t))
	cmd.Env = []string{peerEnv + "=HOLD 300 " + socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: gid}}
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

// TestConnectionsAreMetered: what taking them costs is told, whoever makes them.
func TestConnectionsAreMetered(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "sock")
	l, err := api.Listen(socket, api.Groups{})
	if err != nil {
		t.Fatal(err)
	}
	l.Meter = &api.Meter{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close() // only taken
		}
	}()
	for range 100 {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_, err = conn.Read(make([]byte, 1)) // until it is closed
			_ = conn.Close()
		}
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	if spent := l.Meter.Spent(); spent <= 0 || spent > time.Minute {
		t.Errorf("taking 100 took %v of a CPU", spent)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}
