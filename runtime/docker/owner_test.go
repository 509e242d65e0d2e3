package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/engine"
)

// Users that nobody is; inner is what user 1 in a namespace of rootless's is outside.
const (
	rootless = 54321
	inner    = 254321
)

// spaced starts a process in a user namespace that a user made. With nested it is in a second
// one, which user 1 of the first made: that one belongs to inner.
func spaced(t *testing.T, nested bool) int {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: processes run as other users")
	}
	args := []string{"--user", "sleep", "60"}
	if nested {
		args = []string{"--user", "--keep-caps", "sh", "-c", "read mapped; exec setpriv --reuid 1 unshare --user sleep 60"}
	}
	cmd := exec.Command("unshare", args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: rootless, Gid: rootless}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Skipf("needs unshare, of util-linux: %v", err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }() // it is killed
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	pid, host := cmd.Process.Pid, space(os.Getpid())
	settle(t, ended, &said, func() bool { return !slices.Contains([]string{"", host}, space(pid)) })
	if nested {
		first := space(pid)
		mapping := fmt.Sprintf("0 %d 1\n1 %d 1\n", rootless, inner)
		for _, file := range []string{"uid_map", "gid_map"} {
			if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, file), []byte(mapping), 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.WriteString(in, "\n"); err != nil {
			t.Fatal(err)
		}
		settle(t, ended, &said, func() bool { return !slices.Contains([]string{"", first}, space(pid)) })
	}
	return pid
}

// space names the user namespace of a process.
func space(pid int) string {
	name, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
	return name
}

func settle(t *testing.T, ended <-chan struct{}, said fmt.Stringer, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		select {
		case <-ended:
			t.Skipf("needs user namespaces for all users: %s", said)
		default:
		}
		if time.Now().After(end) {
			t.Fatal("no user namespace within 20 s")
		}
	}
}

func TestOwnsNamespace(t *testing.T) {
	plain, nested := spaced(t, false), spaced(t, true)
	for _, tt := range []struct {
		what string
		pid  int
		uid  uint32
		want bool
	}{
		{"its own", plain, rootless, true},
		{"another user's", plain, rootless + 1, false},
		{"one around it", nested, rootless, true},
		{"a subordinate user's", nested, inner, true},
		{"neither's", nested, inner + 1, false},
		{"the host's", os.Getpid(), rootless, false},
	} {
		if is, err := ownsNamespace("/proc", tt.pid, tt.uid); is != tt.want || err != nil {
			t.Errorf("%s: %v, %v", tt.what, is, err)
		}
	}
	if _, err := ownsNamespace("/proc", 1<<30, rootless); err == nil {
		t.Error("a process that is not there is owned")
	}
}

// fakeEngine answers at a socket that a user listens at; pid is what it says of any container.
func fakeEngine(t *testing.T, uid int, pid *int) (host string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "engine") // t.TempDir's parent is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "docker.sock")
	listener := listenAs(t, uid, socket)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Api-Version", "1.45")
		if strings.HasSuffix(r.URL.Path, "/_ping") {
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"Id": "c0ffee", "Name": "/train", "Config": map[string]any{}, "HostConfig": map[string]any{},
			"State": map[string]any{"Running": true, "Pid": *pid}})
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return "unix://" + socket
}

// listenAs listens as a user: the kernel keeps who called listen. One thread alone changes.
func listenAs(t *testing.T, uid int, socket string) net.Listener {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it listens as another user")
	}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	same := ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
		t.Fatal(errno)
	}
	l, err := net.Listen("unix", socket)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, 0, same); errno != 0 {
		panic("a thread stays another user's: " + errno.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newEngine(t testing.TB, host string) *Engine {
	t.Helper()
	e, err := New(Options{Host: host})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// A user's engine is believed on processes in that user's namespaces, root's on all.
func TestUsersEngine(t *testing.T) {
	theirs := spaced(t, false)
	for _, tt := range []struct {
		uid, pid int
		want     bool
	}{
		{rootless, theirs, true},
		{rootless, os.Getpid(), false},
		{rootless + 1, theirs, false},
		{0, theirs, true},
		{0, os.Getpid(), true},
	} {
		e := newEngine(t, fakeEngine(t, tt.uid, &tt.pid))
		c, err := e.inspect(t.Context(), "c0ffee")
		if tt.want {
			if err != nil || c.InitPID != tt.pid {
				t.Errorf("user %d's word on process %d: %+v, %v", tt.uid, tt.pid, c, err)
			}
			continue
		}
		if !errors.Is(err, engine.ErrNotBelieved) || !strings.Contains(err.Error(), `"train"`) || !strings.Contains(err.Error(), strconv.Itoa(tt.uid)) {
			t.Errorf("user %d's word on process %d: %v", tt.uid, tt.pid, err)
		}
	}
}

// That a container's process ended meanwhile is no fault of the engine's.
func TestUsersEngineIsLate(t *testing.T) {
	e := newEngine(t, "unix:///nonexistent")
	e.owner.uid = rootless
	gone := runtime.Container{Name: "train", InitPID: 1 << 30}
	another := runtime.Container{Name: "train", InitPID: os.Getpid(), ID: runtime.ID{StartTick: 1}}
	for _, c := range []runtime.Container{gone, another} {
		if err := e.owner.check(e.host, c); !errors.Is(err, runtime.ErrGone) {
			t.Errorf("process %d: %v", c.InitPID, err)
		}
	}
}

// Whose an engine is does not change: a restart of trimtab asks again.
func TestEngineKeepsItsOwner(t *testing.T) {
	for _, first := range []int{0, rootless} {
		self, socket := os.Getpid(), ""
		o := &owner{}
		dial := func(uid int) error {
			socket = strings.TrimPrefix(fakeEngine(t, uid, &self), "unix://")
			conn, err := o.dial(t.Context(), "unix", socket)
			if err == nil {
				err = conn.Close()
			}
			return err
		}
		if err := errors.Join(dial(first), dial(first)); err != nil || o.uid != uint32(first) {
			t.Errorf("user %d, %v", o.uid, err)
		}
		for _, other := range []int{0, rootless, rootless + 1} {
			if other == first {
				continue
			}
			if err := dial(other); err == nil || !strings.Contains(err.Error(), socket) || o.uid != uint32(first) {
				t.Errorf("user %d, then %d: user %d, %v", first, other, o.uid, err)
			}
		}
	}
}
