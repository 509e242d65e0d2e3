package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/tuner/event"
)

// start is probes/child's, less what it takes away.
func start(cmd *exec.Cmd) (<-chan struct{}, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		for unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait()
		close(ended)
	}()
	return ended, nil
}

// newScript writes one into a folder that is the top of what is checked.
func newScript(t *testing.T, text string) script {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a script has to be root's")
	}
	dir := filepath.Join(t.TempDir(), "etc")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "on-event")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return script{path: path, timeout: 30 * time.Second, start: start, top: dir}
}

func TestScriptGetsTheEventAndNothingElse(t *testing.T) {
	t.Setenv("SECRET", "s3cret")
	s := newScript(t, `out=$(dirname "$0"); cat >"$out/event"; { pwd; echo "$#"; env; } >"$out/else"`)
	e := hostileEvent()
	if err := s.deliver(t.Context(), []event.Event{e}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(s.top, "event"))
	var back event.Event
	if err != nil || json.Unmarshal(text, &back) != nil || *back.Record != *e.Record || strings.Count(string(text), "\n") != 1 {
		t.Errorf("%v: %s", err, text)
	}
	other, err := os.ReadFile(filepath.Join(s.top, "else"))
	if err != nil || !strings.HasPrefix(string(other), "/\n0\n") || strings.Contains(string(other), "s3cret") || !strings.Contains(string(other), scriptPath) {
		t.Errorf("%v: %s", err, other)
	}
}

// It is not run again, whatever became of it; and the error says what.
func TestScriptsThatFail(t *testing.T) {
	for name, tt := range map[string]struct {
		text    string
		timeout time.Duration
		want    string
		output  string // for the log alone
	}{
		"exit":      {"echo no disk >&2; exit 3", time.Minute, "exit status 3", "no disk\n"},
		"hangs":     {"exec sleep 600", 300 * time.Millisecond, "ran longer than 300ms and was ended", ""},
		"forks":     {"sleep 600 & wait", 300 * time.Millisecond, "ran longer", ""},
		"megabytes": {"head -c 8000000 /dev/zero | tr '\\0' x; exit 1", time.Minute, "exit status 1", strings.Repeat("x", maxHead)},
		"no shell":  {"", time.Minute, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, tt.text)
			s.timeout = tt.timeout
			if name == "no shell" {
				if err := os.WriteFile(s.path, []byte("#!/no/such/shell\n"), 0o755); err != nil {
					t.Fatal(err)
				}
				tt.want = "no such file"
			}
			err := s.deliver(t.Context(), []event.Event{hostileEvent()})
			var no refusal
			if !errors.As(err, &no) || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "notify.script.path: ") || len(err.Error()) > 2*maxHead {
				t.Errorf("%v", err)
			}
			var f failure
			if errors.As(err, &f); f.output != tt.output || tt.output != "" && strings.Contains(err.Error(), tt.output) {
				t.Errorf("%v; its output: %q", err, f.output)
			}
		})
	}
}

// One that the daemon's end broke off did not run too long, and ends with what it started.
func TestScriptEndsWithTheDaemon(t *testing.T) {
	s := newScript(t, "sleep 600 & echo $! >$(dirname $0)/pid; wait")
	pids := filepath.Join(s.top, "pid")
	if err := unix.Mkfifo(pids, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	pid := make(chan string, 1)
	go func() {
		text, _ := os.ReadFile(pids) // waits for the script
		pid <- strings.TrimSpace(string(text))
		cancel()
	}()
	err := s.deliver(ctx, []event.Event{hostileEvent()})
	if err == nil || !strings.HasSuffix(err.Error(), "was ended with the daemon, with what it started") {
		t.Error(err)
	}
	gone(t, <-pid)
}

// Should memory run out, the kernel ends it before the daemon and before jobs.
func TestScriptIsTheFirstToGo(t *testing.T) {
	const own = "/proc/self/oom_score_adj"
	now, err := os.ReadFile(own)
	if err == nil {
		err = os.WriteFile(own, now, 0)
	}
	if err != nil {
		t.Skipf("needs a /proc that can be written: %v", err)
	}
	s := newScript(t, "while [ $(cat /proc/$$/oom_score_adj) != 1000 ]; do sleep 0.01; done")
	if err := s.deliver(t.Context(), []event.Event{hostileEvent()}); err != nil {
		t.Error(err)
	}
}

// However much is written, little is kept of it.
func TestLittleIsKeptOfOutput(t *testing.T) {
	var h head
	for range 100 {
		if n, err := h.Write(make([]byte, 64<<10)); n != 64<<10 || err != nil {
			t.Fatal(n, err)
		}
	}
	if len(h.kept) != maxHead || cap(h.kept) > 2*maxHead {
		t.Errorf("%d bytes are kept", cap(h.kept))
	}
}

// gone waits until a process has ended: a kill is not waited for.
func gone(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d lives", n)
		}
	}
}

// What it leaves running in its group ends with it, and what holds its pipes is not waited for.
func TestScriptLeavesNothing(t *testing.T) {
	s := newScript(t, "sleep 600 & echo $! >$(dirname $0)/pid")
	if err := s.deliver(t.Context(), []event.Event{hostileEvent()}); err != nil {
		t.Fatal(err)
	}
	pid, err := os.ReadFile(filepath.Join(s.top, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	gone(t, strings.TrimSpace(string(pid)))
}

func TestScriptsOfOthersAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(s *script) error
		want   string
	}{
		"good":              {func(*script) error { return nil }, ""},
		"absent":            {func(s *script) error { return os.Remove(s.path) }, "no such file"},
		"of a user":         {func(s *script) error { return os.Chown(s.path, 1000, 0) }, "is not root's: chown root it"},
		"writable":          {func(s *script) error { return os.Chmod(s.path, 0o757) }, "on-event can be written by others than root (mode 0757): chmod go-w it"},
		"of a group":        {func(s *script) error { return os.Chmod(s.path, 0o775) }, "chmod go-w it"},
		"folder of a user":  {func(s *script) error { return os.Chown(s.top, 1000, 0) }, "etc is not root's"},
		"folder of a group": {func(s *script) error { return os.Chmod(s.top, 0o777) }, "etc can be written by others"},
		"not executable":    {func(s *script) error { return os.Chmod(s.path, 0o644) }, "chmod u+x it"},
		"a folder":          {func(s *script) error { s.path = s.top; return nil }, "is not a file"},
		"behind a link": {func(s *script) error {
			elsewhere := filepath.Dir(s.top) + "/tmp/sub"
			if err := errors.Join(os.MkdirAll(elsewhere, 0o755), os.Symlink(elsewhere, s.top+"/link")); err != nil {
				return err
			}
			s.path = s.top + "/link/../on-event" // which is in tmp, and looks as if it were in etc
			return os.WriteFile(filepath.Dir(elsewhere)+"/on-event", []byte("#!/bin/sh\ntouch "+s.top+"/ran"), 0o755)
		}, "name it without . and .."},
		"a link": {func(s *script) error {
			to := s.path
			s.path += "-link"
			return os.Symlink(to, s.path)
		}, "is a link: name the file that it leads to"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, "touch $(dirname $0)/ran")
			if err := tt.change(&s); err != nil {
				t.Fatal(err)
			}
			err := s.deliver(t.Context(), []event.Event{hostileEvent()})
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "notify.script.path: not run: ") {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(filepath.Join(s.top, "ran")); err == nil {
				t.Error("it was run")
			}
		})
	}
}
