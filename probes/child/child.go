// Package child starts processes of this program's that have no privileges: what
// they call or read is not trusted.
package child

import (
	"bytes"
	"fmt"
	"os/exec"
	goruntime "runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// securebits of linux/securebits.h: user ID 0 gains nothing at exec, for good.
const secureNoRoot = 1<<0 | 1<<1

// Start starts a process that holds no capability and may gain none. It is in a
// process group of its own, since what a terminal sends is for its parent, and the
// kernel kills it when its parent ends. It still has its parent's user ID. What it
// left running in its group ends with it. The channel is closed when the process has
// ended and was waited for.
func Start(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started, done := make(chan error, 1), make(chan struct{})
	go OnThread(func() { keep(cmd, started, done) })
	if err := <-started; err != nil {
		return nil, err
	}
	return done, nil
}

// OnThread runs f on a thread that ends with it: whatever f did to the thread is gone. It is not the main
// thread, which shows the whole program's privileges and open files and cannot end.
func OnThread(f func()) {
	done := make(chan struct{})
	go onThread(f, done)
	<-done
}

func onThread(f func(), done chan<- struct{}) {
	defer close(done)
	goruntime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		OnThread(f) // while this one is locked, another goroutine is on another thread
		goruntime.UnlockOSThread()
		return
	}
	f() // it stays locked, so the runtime ends the thread
}

// keep gives up the privileges of its thread, starts the process from it and stays
// on it: the process has what its thread had, and the kernel's "parent died" means
// the thread.
func keep(cmd *exec.Cmd, started chan<- error, done chan struct{}) {
	defer close(done)
	err := drop()
	if err == nil {
		err = cmd.Start()
	}
	started <- err
	if err == nil {
		// Not waited for yet, its ID is still its group's and nobody else's.
		for unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait() // how it ended is for the caller to tell, from cmd.ProcessState
	}
}

// drop takes all capabilities from the present thread and from what it executes.
func drop() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	// These need CAP_SETPCAP; without it there is less to give up, and NO_NEW_PRIVS with the empty sets below suffices.
	_ = unix.Prctl(unix.PR_SET_SECUREBITS, secureNoRoot, 0, 0, 0)
	for c := uintptr(0); unix.Prctl(unix.PR_CAPBSET_READ, c, 0, 0, 0) == nil; c++ {
		if unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) != nil {
			break
		}
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// tailBytes is how much of a child's standard error is kept.
const tailBytes = 2 << 10

// Tail keeps the end of what is written to it: a child's last words. Its methods may
// be called from any goroutine.
type Tail struct {
	mu  sync.Mutex
	buf []byte
}

// Write never fails.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

// LastLine is the last line that says something.
func (t *Tail) LastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(t.buf), []byte("\n"))
	return strings.ToValidUTF8(string(bytes.TrimSpace(lines[len(lines)-1])), "")
}
