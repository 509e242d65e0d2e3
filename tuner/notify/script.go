package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/tuner/event"
)

// script is a program of the host that is run for each event, one at a time. It is given nothing
// that a container wrote but what is in the JSON on its standard input: no arguments, no environment.
type script struct {
	path    string
	timeout time.Duration
	start   func(cmd *exec.Cmd) (<-chan struct{}, error)
	top     string // nothing above it is looked at
}

const (
	scriptPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// pipesFor is how long the pipes of a script that has ended may be held by what it left running.
	pipesFor = time.Second
)

// check says why nobody but root decides what is run; nil: so it is.
func (s script) check(context.Context) error {
	err := func() error {
		if filepath.Clean(s.path) != s.path {
			return fmt.Errorf("%s: name it without . and ..: what stands behind a link may be another's", s.path)
		}
		info, err := os.Lstat(s.path)
		switch {
		case err != nil:
			return err
		case info.Mode().IsRegular() && info.Mode()&0o100 == 0:
			return fmt.Errorf("%s cannot be executed: chmod u+x it", s.path)
		case !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0:
			return fmt.Errorf("%s is not a file", s.path)
		}
		for p := s.path; ; p = filepath.Dir(p) {
			if err := onlyRoots(p); err != nil || p == s.top || p == "/" {
				return err
			}
		}
	}()
	if err != nil {
		return refusal{error: fmt.Errorf("notify.script.path: not run: %w", err)}
	}
	return nil
}

// onlyRoots refuses what another user could change. An access list shows in the group's bits.
func onlyRoots(p string) error {
	info, err := os.Lstat(p)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a link: name the file that it leads to", p)
	case !ok || stat.Uid != 0:
		return fmt.Errorf("%s is not root's: chown root it", p)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written by others than root (mode %04o): chmod go-w it", p, info.Mode().Perm())
	}
	return nil
}

// deliver runs it. What fails is not run again: half of it may have been done.
func (s script) deliver(ctx context.Context, events []event.Event) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	input, err := json.Marshal(events[0])
	if err != nil {
		return refusal{error: err}
	}
	within, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var output head
	cmd := exec.CommandContext(within, s.path)
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{scriptPath}, "/", pipesFor
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(append(input, '\n')), &output, &output
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // start made it the leader of a group
	ended, err := s.start(cmd)
	if err != nil {
		return refusal{error: fmt.Errorf("notify.script.path: %w", err)}
	}
	// It has the daemon's, by which the kernel would rather end a job; only a hint, and read-only in some sandboxes.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("1000"), 0)
	<-ended
	switch {
	case cmd.ProcessState != nil && cmd.ProcessState.Success():
		return nil
	case ctx.Err() != nil:
		return refusal{error: fmt.Errorf("notify.script.path: %s was ended with the daemon, with what it started", s.path)}
	case within.Err() != nil:
		return refusal{error: fmt.Errorf("notify.script.path: %s ran longer than %s and was ended, with what it started: raise notify.script.timeout, or have it do less", s.path, s.timeout)}
	}
	return refusal{error: failure{fmt.Errorf("notify.script.path: %s: %s", s.path, cmd.ProcessState), string(output.kept)}}
}

// maxHead is what is kept of a script's output.
const maxHead = 512

// head keeps the beginning of what is written to it, and takes all.
type head struct{ kept []byte }

func (h *head) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), maxHead-len(h.kept))]...)
	return len(p), nil
}
