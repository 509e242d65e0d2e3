package symbols

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/probes/uprobe/uprobetest"
)

// confinedCommand makes the test binary say what a confined process may still do.
const confinedCommand = "confined"

func TestMain(m *testing.M) {
	ChildMain()
	if len(os.Args) > 1 && os.Args[1] == confinedCommand {
		os.Exit(tryAll())
	}
	goleak.VerifyTestMain(m)
}

// tryAll prints a line for each thing that a confined process must not do and could.
func tryAll() int {
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		return 1
	}
	if err := confine(); err != nil {
		fmt.Println(err)
		return 1
	}
	for what, try := range map[string]func() error{
		"open": func() error { _, err := os.Open("/etc/passwd"); return err },
		"make": func() error { return os.WriteFile("/tmp/trimtab-confined", nil, 0o600) },
		"dial": func() error { _, err := net.Dial("unix", "/run/docker.sock"); return err },
		"run":  func() error { return exec.Command("/bin/true").Run() },
		"kill": func() error { return syscall.Kill(os.Getppid(), 0) },
	} {
		if err := try(); !errors.Is(err, syscall.EPERM) {
			fmt.Printf("%s: %v\n", what, err)
		}
	}
	if _, err := file.ReadAt(make([]byte, 4), 0); err != nil {
		fmt.Println("reading its file:", err)
	}
	return 0
}

func TestConfined(t *testing.T) {
	out, err := exec.Command("/proc/self/exe", confinedCommand).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
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

// A child finds what Find does, in more packets than one.
func TestReaderFinds(t *testing.T) {
	var code strings.Builder
	for i := range 3 * packetSymbols {
		fmt.Fprintf(&code, "int probed_%03d(void) { return %d; }\n", i, i)
	}
	file := open(t, uprobetest.BuildCode(t, t.TempDir(), "lib.so", code.String(), "-shared", "-fPIC"))
	want, err := Find(file, probed(), soon())
	if err != nil || len(want) != 3*packetSymbols {
		t.Fatalf("%d found, %v", len(want), err)
	}
	r := newReader(t)
	for range 2 { // the second time by the same child
		got, err := r.Find(file, probed(), time.Minute)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v %s", err, diff)
		}
	}
	if len(r.idle) != 1 {
		t.Errorf("%d children are kept, want one", len(r.idle))
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
	if _, err := r.Find(open(t, text), probed(), time.Minute); err == nil || errors.Is(err, ErrReader) {
		t.Errorf("no library: %v", err)
	}
	if _, err := r.Find(open(t, other), probed(), time.Minute); !errors.Is(err, ErrNone) {
		t.Errorf("nothing wanted: %v", err)
	}
	if _, err := r.Find(open(t, other), Want{Prefixes: []string{"other"}}, -time.Second); !errors.Is(err, ErrOutOfTime) {
		t.Errorf("without time: %v", err)
	}
	r.Close()
	if _, err := r.Find(open(t, other), probed(), time.Minute); !errors.Is(err, ErrReader) {
		t.Errorf("closed: %v", err)
	}
	r = newReader(t)
	r.argv = []string{"/nonexistent"}
	if _, err := r.Find(open(t, other), probed(), time.Minute); !errors.Is(err, ErrReader) {
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

// The child holds no capability, and this process keeps its own.
func TestChildHasNoPrivileges(t *testing.T) {
	before, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(t)
	if _, err := r.Find(open(t, "/proc/self/exe"), probed(), time.Minute); !errors.Is(err, ErrNone) {
		t.Fatal(err)
	}
	status := statusOf(t, r.idle[0], "status")
	for _, line := range []string{
		"NoNewPrivs:\t1", "CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000", "Seccomp:\t2",
	} {
		if !strings.Contains(status, line+"\n") {
			t.Errorf("no %q in its status:\n%s", line, status)
		}
	}
	if adj := strings.TrimSpace(statusOf(t, r.idle[0], "oom_score_adj")); adj != victimFirst {
		t.Errorf("oom_score_adj %s, want %s", adj, victimFirst)
	}
	after, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"CapEff:", "CapBnd:", "NoNewPrivs:"} {
		if was, is := lineOf(string(before), name), lineOf(string(after), name); was != is {
			t.Errorf("this process had %s, has %s", was, is)
		}
	}
}

func lineOf(text, begin string) string {
	_, rest, _ := strings.Cut(text, begin)
	line, _, _ := strings.Cut(rest, "\n")
	return begin + line
}

// A child that was ended while it was idle is made good by another one.
func TestReaderOutlivesItsChildren(t *testing.T) {
	r := newReader(t)
	file := open(t, "/proc/self/exe")
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
	file := open(t, "/proc/self/exe")
	if _, err := r.Find(file, probed(), time.Minute); !errors.Is(err, ErrNone) {
		t.Fatal(err)
	}
	hangs := r.idle[0]
	hangs.fresh = true // else another one is asked
	if err := hangs.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.patience = 100 * time.Millisecond
	if _, err := r.Find(file, probed(), 0); !errors.Is(err, ErrReader) || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a child that hangs: %v", err)
	}
	<-hangs.ended
}

// Children that have nothing to read end.
func TestIdleChildrenEnd(t *testing.T) {
	r := newReader(t)
	r.idleFor = time.Millisecond
	if _, err := r.Find(open(t, "/proc/self/exe"), probed(), time.Minute); !errors.Is(err, ErrNone) {
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
		want    error
	}{
		"fine":         {[]any{answer{Symbols: many(64), More: true}, answer{Symbols: many(1)}}, nil},
		"too many":     {[]any{answer{Symbols: many(maxNames + 1)}}, ErrReader},
		"for ever":     {[]any{answer{More: true}, answer{More: true}}, ErrReader},
		"a long name":  {[]any{answer{Symbols: []Symbol{{Name: strings.Repeat("x", maxNameBytes+1)}}}}, ErrReader},
		"outside":      {[]any{answer{Symbols: []Symbol{{Name: "x", Offset: 1000}}}}, ErrReader},
		"no JSON":      {[]any{1}, ErrReader},
		"ended early":  {[]any{answer{Symbols: many(64), More: true}}, io.EOF},
		"nothing":      {[]any{answer{None: true}}, ErrNone},
		"out of time":  {[]any{answer{OutOfTime: true}}, ErrOutOfTime},
		"last of more": {[]any{answer{Symbols: many(64), More: true}, answer{OutOfTime: true}}, ErrOutOfTime},
	} {
		rest := tc.packets
		_, err := gather(func() ([]byte, error) {
			if len(rest) == 0 {
				return nil, io.EOF
			}
			b, err := json.Marshal(rest[0])
			rest = rest[1:]
			return b, err
		}, 1000)
		if !errors.Is(err, tc.want) || (tc.want == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// A binary that does not serve does not start more of its kind.
func TestReaderNeedsAServer(t *testing.T) {
	defer func(args []string) { os.Args = args }(os.Args)
	os.Args = []string{os.Args[0], ChildCommand}
	if _, err := start([]string{"/proc/self/exe", ChildCommand}); !errors.Is(err, errLost) {
		t.Errorf("%v, want %v", err, errLost)
	}
}
