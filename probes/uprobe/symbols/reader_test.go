package symbols

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/test/uprobetest"
)

func TestMain(m *testing.M) {
	ChildMain()
	if len(os.Args) > 1 && os.Args[1] == confinedCommand {
		os.Exit(tryAll())
	}
	goleak.VerifyTestMain(m)
}

func newReader(t *testing.T) *Reader {
	t.Helper()
	r := NewReader()
	t.Cleanup(r.Close)
	return r
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// file is a file for a Reader.
func file(t *testing.T, path string) File {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	lend := func(_ int, send func(int) error) error {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		return send(int(file.Fd()))
	}
	return File{Lend: lend, Size: info.Size()}
}

// A child finds what Find does, in more packets than one.
func TestReaderFinds(t *testing.T) {
	var code strings.Builder
	for i := range 3 * packetSymbols {
		fmt.Fprintf(&code, "int probed_%03d(void) { return %d; }\n", i, i)
	}
	path := uprobetest.BuildCode(t, t.TempDir(), "lib.so", code.String(), "-shared", "-fPIC")
	want, err := Find(open(t, path), probed(), soon())
	if err != nil || len(want) != 3*packetSymbols {
		t.Fatalf("%d found, %v", len(want), err)
	}
	r := newReader(t)
	for range 2 { // the second time by the same child
		got, err := r.Find(file(t, path), probed(), time.Minute)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v %s", err, diff)
		}
	}
	if len(r.idle) != 1 {
		t.Errorf("%d children are kept, want one", len(r.idle))
	}
	gone := File{Lend: func(int, func(int) error) error { return os.ErrNotExist }}
	if _, err := r.Find(gone, probed(), time.Minute); !errors.Is(err, ErrReader) || len(r.idle) != 1 {
		t.Errorf("a file that cannot be opened: %v, want %v; %d children are kept", err, ErrReader, len(r.idle))
	}
}

// What is wrong with a file is told from what is wrong with a child.
func TestReaderSaysWhyNot(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := uprobetest.BuildCode(t, dir, "other.so", "int other(void) { return 1; }", "-shared", "-fPIC")
	r := newReader(t)
	if _, err := r.Find(file(t, text), probed(), time.Minute); err == nil || errors.Is(err, ErrReader) {
		t.Errorf("no library: %v", err)
	}
	if _, err := r.Find(file(t, other), probed(), time.Minute); !errors.Is(err, ErrNone) {
		t.Errorf("nothing wanted: %v", err)
	}
	if _, err := r.Find(file(t, other), Want{Names: []string{"other"}}, -time.Second); !errors.Is(err, ErrOutOfTime) {
		t.Errorf("without time: %v", err)
	}
	r.Close()
	if _, err := r.Find(file(t, other), probed(), time.Minute); !errors.Is(err, ErrReader) {
		t.Errorf("closed: %v", err)
	}
	r = newReader(t)
	r.argv = []string{"/nonexistent"}
	if _, err := r.Find(file(t, other), probed(), time.Minute); !errors.Is(err, ErrReader) {
		t.Errorf("no such program: %v", err)
	}
}

func statusOf(t *testing.T, p *process, file string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A child that was ended while it was idle is made good by another one.
func TestReaderOutlivesItsChildren(t *testing.T) {
	r := newReader(t)
	file := file(t, "/proc/self/exe")
	for range 3 {
		if _, err := r.Find(file, probed(), time.Minute); !errors.Is(err, ErrNone) {
			t.Fatal(err)
		}
		if err := r.idle[0].cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-r.idle[0].ended
	}
	if r.Spent() <= 0 {
		t.Error("those that have ended took no time")
	}
}

// A child that hangs is ended in its time.
func TestReaderEndsWhatHangs(t *testing.T) {
	r := newReader(t)
	file := file(t, "/proc/self/exe")
	if _, err := r.Find(file, probed(), time.Minute); !errors.Is(err, ErrNone) {
		t.Fatal(err)
	}
	hangs := r.idle[0]
	hangs.fresh = true // else another one is asked
	if err := hangs.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitStopped(t, hangs.cmd.Process.Pid)
	r.patience = 100 * time.Millisecond
	if _, err := r.Find(file, probed(), 0); !errors.Is(err, ErrReader) || !strings.Contains(fmt.Sprint(err), "no answer") {
		t.Errorf("a child that hangs: %v", err)
	}
	<-hangs.ended
	if len(r.idle) != 0 {
		t.Errorf("%d children are idle", len(r.idle))
	}
}

// waitStopped waits until each thread of a process has stopped: one that has not may still answer.
func waitStopped(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		running := func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && !strings.Contains(string(text), "State:\tT")
		}
		if len(files) > 0 && !slices.ContainsFunc(files, running) {
			return
		}
	}
	t.Fatalf("process %d does not stop", pid)
}

// Children that hang in the kernel are counted: others are not started without end.
func TestChildrenAreBounded(t *testing.T) {
	r := newReader(t)
	for range maxChildren {
		r.all = append(r.all, &process{ended: make(chan struct{})})
	}
	if _, err := r.Find(file(t, "/proc/self/exe"), probed(), time.Minute); !errors.Is(err, ErrReader) || !strings.Contains(fmt.Sprint(err), errMany.Error()) {
		t.Errorf("%v, want %v", err, errMany)
	}
	r.all = nil
}

// A child that hangs keeps who asked for its file, and nobody else: not from the last
// place either.
func TestAChildThatHangsKeepsItsCallerAlone(t *testing.T) {
	r := newReader(t)
	r.patience = 100 * time.Millisecond
	for range maxBusy - 1 {
		r.busy <- struct{}{}
	}
	hangs := &process{cmd: exec.Command("sleep", "1000"), ended: make(chan struct{})}
	if err := hangs.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	hangs.ended = ended
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fds[1])
	if hangs.conn, err = packets(os.NewFile(uintptr(fds[0]), "parent")); err != nil {
		t.Fatal(err)
	}
	r.idle, r.all = []*process{hangs}, []*process{hangs}
	hangs.fresh = true
	file := file(t, "/proc/self/exe")
	found := make(chan error, 1)
	go func() {
		_, err := r.Find(file, probed(), 0)
		found <- err
	}()
	for taken := false; !taken; time.Sleep(time.Millisecond) {
		r.mu.Lock()
		taken = len(r.idle) == 0
		r.mu.Unlock()
	}
	if _, err := r.Find(file, probed(), time.Minute); !errors.Is(err, ErrNone) {
		t.Errorf("another file: %v", err)
	}
	select {
	case err := <-found:
		t.Errorf("it was not waited for: %v", err)
	default:
	}
	_ = hangs.cmd.Wait() // it was killed
	close(ended)
	if err := <-found; !errors.Is(err, ErrReader) {
		t.Errorf("%v", err)
	}
	for range maxBusy - 1 {
		<-r.busy
	}
}

// Files that cannot even be opened keep their callers, and give their places back.
func TestFilesThatCannotBeLentKeepTheirCallersAlone(t *testing.T) {
	r := newReader(t)
	r.patience = 3 * time.Second // all are to hang at once, on a busy machine too
	open, ended := make(chan struct{}), make(chan error)
	hangs := File{Lend: func(int, func(int) error) error { <-open; return os.ErrNotExist }}
	for range maxBusy {
		go func() {
			_, err := r.Find(hangs, probed(), 0)
			ended <- err
		}()
	}
	for len(r.busy) < maxBusy {
		time.Sleep(time.Millisecond)
	}
	if _, err := r.Find(file(t, "/proc/self/exe"), probed(), time.Minute); !errors.Is(err, ErrNone) {
		t.Errorf("another file: %v", err)
	}
	close(open)
	for range maxBusy {
		if err := <-ended; !errors.Is(err, ErrReader) {
			t.Error(err)
		}
	}
}

// Why a child ended is told by what it said.
func TestLastWords(t *testing.T) {
	r := newReader(t)
	r.argv = []string{"/bin/sh", "-c", "echo out of patience >&2"}
	if _, err := r.Find(file(t, "/proc/self/exe"), probed(), time.Minute); !errors.Is(err, ErrReader) || !strings.HasSuffix(fmt.Sprint(err), ": out of patience") {
		t.Errorf("%v", err)
	}
}

// Closed while a file is being read: nothing is left.
func TestCloseEndsBusyChildren(t *testing.T) {
	r := newReader(t)
	file := file(t, "/proc/self/exe")
	if _, err := r.Find(file, probed(), time.Minute); !errors.Is(err, ErrNone) {
		t.Fatal(err)
	}
	hangs := r.idle[0]
	if err := hangs.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitStopped(t, hangs.cmd.Process.Pid)
	found := make(chan error, 1)
	go func() {
		_, err := r.Find(file, probed(), time.Minute)
		found <- err
	}()
	for busy := false; !busy; time.Sleep(time.Millisecond) {
		r.mu.Lock()
		busy = len(r.idle) == 0
		r.mu.Unlock()
	}
	r.Close()
	<-hangs.ended
	if err := <-found; !errors.Is(err, ErrReader) {
		t.Errorf("%v", err)
	}
}

// Children that have nothing to read end.
func TestIdleChildrenEnd(t *testing.T) {
	r := newReader(t)
	r.idleFor = time.Millisecond
	if _, err := r.Find(file(t, "/proc/self/exe"), probed(), time.Minute); !errors.Is(err, ErrNone) {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); r.Spent() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not end")
		}
	}
}

// What a child says is held to what Find may say.
func TestGather(t *testing.T) {
	many := func(n int) (list []Symbol) {
		for i := range n {
			list = append(list, Symbol{Name: fmt.Sprint(i)})
		}
		return list
	}
	for name, tc := range map[string]struct {
		packets []any
		want    error // broken, or of the file
	}{
		"fine":         {[]any{answer{Symbols: many(64), More: true}, answer{Symbols: many(1)}}, nil},
		"too many":     {[]any{answer{Symbols: many(2*maxSymbols + 1)}}, errNonsense},
		"for ever":     {[]any{answer{More: true}, answer{More: true}}, errNonsense},
		"a long name":  {[]any{answer{Symbols: []Symbol{{Name: strings.Repeat("x", maxNameBytes+1)}}}}, errNonsense},
		"outside":      {[]any{answer{Symbols: []Symbol{{Name: "x", Offset: 1000}}}}, errNonsense},
		"no JSON":      {[]any{1}, errNonsense},
		"ended early":  {[]any{answer{Symbols: many(64), More: true}}, io.EOF},
		"nothing":      {[]any{answer{None: true}}, ErrNone},
		"out of time":  {[]any{answer{OutOfTime: true}}, ErrOutOfTime},
		"last of more": {[]any{answer{Symbols: many(64), More: true}, answer{OutOfTime: true}}, ErrOutOfTime},
	} {
		rest := tc.packets
		_, broken, err := gather(func() ([]byte, error) {
			if len(rest) == 0 {
				return nil, io.EOF
			}
			b, err := json.Marshal(rest[0])
			rest = rest[1:]
			return b, err
		}, 1000)
		if err = errors.Join(broken, err); !errors.Is(err, tc.want) || (tc.want == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// A binary that does not serve does not start more of its kind.
func TestReaderNeedsAServer(t *testing.T) {
	defer func(args []string) { os.Args = args }(os.Args)
	os.Args = []string{os.Args[0], childCommand}
	if _, err := start([]string{"/proc/self/exe", childCommand}); !errors.Is(err, errLost) {
		t.Errorf("%v, want %v", err, errLost)
	}
}
