package nvml

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A library that was taken over reaches no socket and no process, and works all the same.
func TestLibraryReachesNoSocket(t *testing.T) {
	source, err := os.ReadFile("testdata/reach.c")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "reach") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	engine := filepath.Join(dir, "engine.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: engine, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // a test's
	r := started(t, Options{Library: buildLibrary(t, "#define SOCKET \""+engine+"\"\n#line 1\n"+string(source))})
	var lost string
	until(t, r, "a word on it", func() bool { _, lost = r.Status(); return !strings.Contains(lost, "no reading yet") })
	if !strings.Contains(lost, "the driver is not loaded") { // else 1000 and the line
		t.Errorf("testdata/reach.c: %s", lost)
	}
	if err := l.SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the engine was reached: %v", err)
	}
}
