package symbols

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// confinedCommand makes the test binary say what a confined process may still do.
const confinedCommand = "confined"

// tryAll prints a line for each thing that a confined process must not do and could.
func tryAll() int {
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		return 1
	}
	before, err := seccompMode()
	if err != nil || before != "0" {
		fmt.Println("before:", before, err)
		return 1
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return 1
	}
	var path [16]byte
	copy(path[:], "/bin/true")
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil { // as child.Start has done
		return 1
	}
	if err := confine(); err != nil {
		fmt.Println(err)
		return 1
	}
	call := func(number, a, b, c uintptr) error {
		if _, _, e := unix.RawSyscall(number, a, b, c); e != 0 {
			return e
		}
		return nil
	}
	parent := uintptr(os.Getppid())
	for what, try := range map[string]func() error{
		"open":   func() error { _, err := os.Open("/etc/passwd"); return err },
		"socket": func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
		"exec":   func() error { return call(unix.SYS_EXECVE, uintptr(unsafe.Pointer(&path)), 0, 0) },
		"fork":   func() error { return call(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0) },
		"kill":   func() error { return unix.Kill(int(parent), 0) },
		"tgkill": func() error { return call(unix.SYS_TGKILL, parent, parent, 0) },
		"owner":  func() error { _, err := unix.FcntlInt(uintptr(ends[0]), unix.F_SETOWN, int(parent)); return err },
		"lease":  func() error { _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_RDLCK); return err },
		"ptrace": func() error { return call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, parent, 0) },
		"prctl":  func() error { return unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0) },
	} {
		if err := try(); !errors.Is(err, unix.EPERM) {
			fmt.Printf("%s: %v\n", what, err)
		}
	}
	if err := work(file); err != nil {
		fmt.Println("what it is for:", err)
	}
	return 0
}

// work does what a child must be able to, and makes the run time do what it does: new
// threads, signals to them, a heap that grows and is collected.
func work(file *os.File) error {
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			goruntime.LockOSThread()
			defer goruntime.UnlockOSThread()
			var kept [][]byte
			for range 64 {
				kept = append(kept, make([]byte, 64<<10))
			}
			goruntime.GC()
			goruntime.KeepAlive(kept)
			for begin := time.Now(); time.Since(begin) < 20*time.Millisecond; { // is preempted
				goruntime.Gosched()
			}
		})
	}
	wait.Wait()
	debug.FreeOSMemory()
	if _, err := Find(file, probed(), soon()); !errors.Is(err, ErrNone) {
		return err
	}
	return nil
}

func seccompMode() (string, error) {
	b, err := os.ReadFile("/proc/self/status")
	return strings.TrimSpace(strings.TrimPrefix(lineOf(string(b), "Seccomp:"), "Seccomp:")), err
}

func TestConfined(t *testing.T) {
	out, err := exec.Command("/proc/self/exe", confinedCommand).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// The child is started without privileges (package child), is confined, makes no
// core and is the first to go.
func TestChildIsConfined(t *testing.T) {
	r := newReader(t)
	if _, err := r.Find(file(t, "/proc/self/exe"), probed(), time.Minute); !errors.Is(err, ErrNone) {
		t.Fatal(err)
	}
	status := statusOf(t, r.idle[0], "status")
	for _, line := range []string{"NoNewPrivs:\t1", "CapEff:\t0000000000000000", "Seccomp:\t2"} {
		if !strings.Contains(status, line+"\n") {
			t.Errorf("no %q in its status:\n%s", line, status)
		}
	}
	if adj := strings.TrimSpace(statusOf(t, r.idle[0], "oom_score_adj")); adj != victimFirst {
		t.Errorf("oom_score_adj %s, want %s", adj, victimFirst)
	}
	limits := strings.Join(strings.Fields(statusOf(t, r.idle[0], "limits")), " ")
	for _, limit := range []string{"Max core file size 0 0 bytes", fmt.Sprintf("Max data size %[1]d %[1]d bytes", maxDataBytes)} {
		if !strings.Contains(limits, limit) {
			t.Errorf("no %q in its limits: %s", limit, limits)
		}
	}
}

func lineOf(text, begin string) string {
	_, rest, _ := strings.Cut(text, begin)
	line, _, _ := strings.Cut(rest, "\n")
	return begin + line
}
