package uprobe

import (
	"errors"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/uprobe/symbols"
	"github.com/trimtab/trimtab/test/uprobetest"
)

// handleOf finds a file as an opener does.
func handleOf(t *testing.T, path string) handle {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	h, err := stat(fd)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A file that could not be read to its end is not taken for one without symbols: it is
// tried again, more and more rarely.
func TestAReaderThatFailsIsNoAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := handleOf(t, path)
	tries, fails := 0, true
	f := newFiles()
	in := interest{wanted: func(name string) bool { return name == "cuLaunchKernel" }}
	find := func(symbols.File, symbols.Want, time.Duration) ([]symbols.Symbol, error) {
		if tries++; fails {
			return nil, symbols.ErrReader
		}
		return []symbols.Symbol{{Name: "cuLaunchKernel", Offset: 8}}, nil
	}
	look := func() (known, error) { return f.lookInto(h, nil, in, find) }
	due := func() time.Duration {
		late := f.failing[h.key]
		late.until = time.Time{}
		f.failing[h.key] = late
		return late.wait
	}
	for _, want := range []time.Duration{minFailing, 2 * minFailing, 4 * minFailing} {
		for range 3 { // the first is a try
			if _, err := look(); !errors.Is(err, symbols.ErrReader) {
				t.Fatalf("%v, want %v", err, symbols.ErrReader)
			}
		}
		if wait := due(); wait != want {
			t.Errorf("it waits %v, want %v", wait, want)
		}
	}
	if tries != 3 {
		t.Errorf("%d tries, want 3", tries)
	}
	fails = false
	if k, err := look(); err != nil || len(k.symbols) != 1 || len(f.failing) != 0 {
		t.Errorf("%+v, %v, %d are failing", k, err, len(f.failing))
	}
}

// Of the names that begin as wanted those are kept that are wanted, and of one
// function one name.
func TestChoose(t *testing.T) {
	in := interest{
		Want:   symbols.Want{Marks: []string{"cuMark"}},
		wanted: func(name string) bool { return name == "cuA" || name == "cuAlias" || name == "cuB" },
	}
	got := in.choose([]symbols.Symbol{
		{Name: "cu0", Offset: 8}, {Name: "cuA", Offset: 8}, {Name: "cuAlias", Offset: 8}, {Name: "cuB", Offset: 16}, {Name: "cuMark"}, {Name: "cuX", Offset: 24},
	})
	want := []symbols.Symbol{{Name: "cuA", Offset: 8}, {Name: "cuB", Offset: 16}, {Name: "cuMark"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Files that could not be read by no fault of theirs are one line, in the reader's words.
func TestAReaderThatFailsIsTold(t *testing.T) {
	target := uprobetest.Cgroup(t, "reader")
	c := newCounter(t, func(f *Finder) {
		closed := symbols.NewReader()
		closed.Close()
		f.find = closed.Find
	})
	job(t, target, t.TempDir())
	c.watch(target)
	c.until("told", func() bool { return len(c.client.Missing(target.Key)) > 0 })
	want := []string{"libraries: the process that reads symbols: it is closed"}
	if diff := cmp.Diff(want, c.client.Missing(target.Key)); diff != "" {
		t.Error(diff)
	}
}

// A thread with a table of files of its own still has those that Go's runtime waits by: a
// garbage collection that ends in it asks them, and ends the program where they are gone.
func TestReadApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, s := handleOf(t, path), newFiles()
	lent, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer lent.Close()
	for range 20 {
		var text [7]byte
		err := h.apart(s.kept, func(d descriptor) error {
			goruntime.GC()
			if _, err := unix.FcntlInt(lent.Fd(), unix.F_GETFD, 0); int(d) != int(lent.Fd()) && !errors.Is(err, unix.EBADF) {
				t.Errorf("a file of the process is there as well: %v", err)
			}
			_, err := d.ReadAt(text[:], 0)
			return err
		})
		if err != nil || string(text[:]) != "content" {
			t.Errorf("%q, %v", text, err)
		}
	}
	if _, err := unix.FcntlInt(lent.Fd(), unix.F_GETFD, 0); err != nil {
		t.Errorf("the process has lost a file: %v", err)
	}
}

// One build of a library is told from another in whatever process, and not by which it is.
func TestBuildsAreTold(t *testing.T) {
	c := newCounter(t, func(f *Finder) { f.HashLibraries(func(text string) string { return "hash of " + text }) })
	target, dir := uprobetest.Cgroup(t, "builds"), t.TempDir()
	builds := []string{
		uprobetest.BuildCode(t, dir, "libone.so", probedCode+"int version(void) { return 1; }\n", "-shared", "-fPIC", "-Wl,-soname,libx.so,--build-id"),
		uprobetest.BuildCode(t, dir, "libgomp-two.so", probedCode+"int version(void) { return 2; }\n", "-shared", "-fPIC", "-Wl,-soname,libx.so,--build-id"),
	}
	of := func(j *uprobetest.Job) string { return c.client.Libraries(j.PID) }
	jobs := make([]*uprobetest.Job, 3)
	for i := range jobs {
		jobs[i] = job(t, target, dir)
		jobs[i].Do("load %s", builds[i/2])
	}
	c.watch(target)
	c.until("looked at", func() bool { return of(jobs[0]) != "" && of(jobs[1]) != "" && of(jobs[2]) != "" })
	if one, same, two := of(jobs[0]), of(jobs[1]), of(jobs[2]); one != same || one == two || !strings.HasPrefix(one, "hash of ") {
		t.Errorf("%q and %q of one build, %q of another", one, same, two)
	}
	if c.client.OpenMP(jobs[0].PID) || !c.client.OpenMP(jobs[2].PID) {
		t.Error("OpenMP is told by the name of its library")
	}
	before := of(jobs[1])
	jobs[1].Do("load %s", builds[1])
	c.until("looked at again", func() bool { return of(jobs[1]) != before })
	jobs[2].End()
	c.until("forgotten", func() bool { return of(jobs[2]) == "" })
}

// A file that shrinks, or cannot be read, is touched all the same.
func TestTouch(t *testing.T) {
	if a, b := touch(strings.NewReader("x"), 1), touch(strings.NewReader("x"), 2); a == b {
		t.Error("files of two sizes are one build")
	}
	if a, b := touch(strings.NewReader("x"), 9), touch(strings.NewReader("y"), 9); a == b {
		t.Error("files of two contents are one build")
	}
	touch(strings.NewReader(""), 0)
}
