package nvml

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/built"
)

// parentCommand makes the test binary a parent that TestChildDiesWithParent can kill.
const parentCommand = "nvml-parent"

// noChild says why there is no child to test; nil: it lies beside the test's binary, where a reader looks for it.
var noChild error

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == parentCommand {
		New(Options{Library: os.Args[2]})
		time.Sleep(time.Minute)
		os.Exit(1)
	}
	asChild(os.Args)
	asLeaving(os.Args)
	if self, err := os.Executable(); err == nil {
		noChild = built.NVMLChild(context.Background(), filepath.Dir(self))
	}
	if noChild != nil && !errors.Is(noChild, built.ErrNoCompiler) {
		fmt.Fprintln(os.Stderr, noChild)
		os.Exit(1)
	}
	before := openFiles()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		if after := openFiles(); after > before+2 { // the runtime's poller takes two, for good
			fmt.Fprintf(os.Stderr, "files leak: %d open before the tests, %d after\n", before, after)
			code = 1
		}
	}
	os.Exit(code)
}

func openFiles() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(list)
}

// buildLibrary compiles a library of a few functions.
func buildLibrary(t *testing.T, source string) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc: apt-get install gcc libc6-dev")
	}
	dir := t.TempDir()
	c, so := filepath.Join(dir, "nvml.c"), filepath.Join(dir, "libnvidia-ml.so.1")
	if err := os.WriteFile(c, []byte("#include <unistd.h>\n#include <stdlib.h>\n"+source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", so, c).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return so
}

// journal is a logger whose lines can be counted.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

func (j *journal) count(sub string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.buf.String(), sub)
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// patient is a call's deadline where no call hangs.
const patient = 20 * time.Second

// fast are deadlines for tests in which calls hang. Half a second is long enough on most loaded machines.
func fast(o Options) Options {
	o.Every, o.Deadline, o.LookAgain = 50*time.Millisecond, cmp.Or(o.Deadline, 500*time.Millisecond), 300*time.Millisecond
	if o.SlowDeadline == 0 {
		o.SlowDeadline = 10 * time.Second
	}
	return o
}

func needsChild(t *testing.T) {
	t.Helper()
	if noChild != nil {
		t.Skip(noChild)
	}
}

// started is a reader that ends with the test.
func started(t *testing.T, o Options) *Reader {
	t.Helper()
	needsChild(t)
	r := New(fast(o))
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// until waits for a state of the reader's.
func until(t *testing.T, r *Reader, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		r.mu.Lock()
		news := r.news
		r.mu.Unlock()
		if ok() {
			return
		}
		select {
		case <-news:
		case <-time.After(100 * time.Millisecond): // what grows stale makes no news
		}
	}
	_, lost := r.Status()
	t.Fatalf("not within a minute: %s; status %q, %d readings", what, lost, readings(r))
}

func readings(r *Reader) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.turn
}

// read is what there is now; why there is nothing is for Status.
func read(r *Reader) []probes.Device {
	list, _ := r.Read(context.Background())
	return list
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to+".new", b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(to+".new", to); err != nil {
		t.Fatal(err)
	}
}
