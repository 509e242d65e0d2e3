// Package fusetest mounts file systems that fail when a test says so: one that stops
// answering, as a lazily pulled image's does whose registry is gone, and a disk that is
// slow, broken or read-only.
//
// Another process serves it. One that asks its own server can wait for itself.
package fusetest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// serverCommand is the first argument of the process that serves.
const serverCommand = "fusetest-serve"

// What the two say to each other, a line each.
const (
	sayHang, sayAnswer = "hang", "answer"
	sayDone, sayMet    = "done", "met"
)

// Main serves if this process was started for it; else it returns at once. A test's
// TestMain, or a program's main, calls it first.
func Main() {
	if len(os.Args) > 2 && os.Args[1] == serverCommand {
		exit(serve(os.Args[2], os.Args[3:]))
	}
	if len(os.Args) == 4 && os.Args[1] == diskCommand {
		exit(serveDisk(os.Args[2], os.Args[3]))
	}
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "fusetest:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Layer is a directory of files on FUSE.
type Layer struct {
	Dir string
	t   testing.TB
	to  io.Writer
	// done and met are what the server says.
	done, met chan struct{}
}

// Mount mounts a layer that holds a copy of each file. Before the test ends it answers
// again, and is taken away.
func Mount(t testing.TB, files ...string) *Layer {
	t.Helper()
	l := &Layer{Dir: t.TempDir(), t: t, done: make(chan struct{}), met: make(chan struct{}, 64)}
	cmd := exec.Command("/proc/self/exe", append([]string{serverCommand, l.Dir}, files...)...)
	cmd.Stderr = os.Stderr
	to, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l.to = to
	go l.listen(from)
	t.Cleanup(func() {
		_ = to.Close() // it ends, and with it the connection
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	if _, ok := <-l.done; !ok {
		t.Skip("needs FUSE and root")
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(l.Dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *Layer) listen(from io.Reader) {
	defer close(l.done)
	for lines := bufio.NewScanner(from); lines.Scan(); {
		if lines.Text() == sayMet {
			l.met <- struct{}{}
		} else {
			l.done <- struct{}{}
		}
	}
}

func (l *Layer) say(what string) {
	if _, err := fmt.Fprintln(l.to, what); err != nil {
		l.t.Error(err)
	}
	<-l.done
}

// Hang keeps whoever opens or reads a file from now on, and forgets what was read
// before.
func (l *Layer) Hang() { l.say(sayHang) }

// Met says whether somebody has begun to wait since the last Hang.
func (l *Layer) Met() bool { return len(l.met) > 0 }

// Answer ends it.
func (l *Layer) Answer() {
	l.say(sayAnswer)
	for len(l.met) > 0 {
		<-l.met
	}
}

// Overlay mounts an overlay over the layer, as engines do; it is taken away with the test.
func (l *Layer) Overlay(t testing.TB) (dir string) {
	t.Helper()
	root := t.TempDir()
	for _, sub := range []string{"upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(root, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir = filepath.Join(root, "merged")
	options := "lowerdir=" + l.Dir + ",upperdir=" + filepath.Join(root, "upper") + ",workdir=" + filepath.Join(root, "work")
	if err := syscall.Mount("overlay", dir, "overlay", 0, options); err != nil {
		t.Skipf("needs overlayfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
