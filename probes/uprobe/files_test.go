package uprobe

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/uprobe/symbols"
	"github.com/trimtab/trimtab/test/uprobetest"
)

// findHere reads in this process: what is tested is who waits for whom.
func findHere(file *os.File, want symbols.Want, limit time.Duration) ([]symbols.Symbol, error) {
	return symbols.Find(file, want, time.Now().Add(limit))
}

// handleOf finds a file as an opener does.
func handleOf(t *testing.T, path string) handle {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return handle{fd: fd, key: fileKey{dev: st.Dev, ino: st.Ino}, stamp: stamp{size: st.Size, changedNs: st.Ctim.Nano()}}
}

// A file whose reading hangs costs the looks that wait for it and nothing else: the
// others are read, and what came of it in the end is found.
func TestAReadingThatHangsKeepsNobody(t *testing.T) {
	dir := t.TempDir()
	var handles []handle
	for _, name := range []string{"hangs", "fine"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("no library"), 0o600); err != nil {
			t.Fatal(err)
		}
		handles = append(handles, handleOf(t, path))
	}
	f := &Finder{known: map[fileKey]known{}, failing: map[fileKey]failing{}, readings: map[fileKey]*reading{}, find: findHere}
	hangs := &reading{stamp: handles[0].stamp, done: make(chan struct{})}
	f.readings[handles[0].key] = hangs
	if _, err := f.lookInto(handles[0], time.Now().Add(10*time.Millisecond)); !errors.Is(err, errOutOfTime) {
		t.Errorf("the file that hangs: %v, want %v", err, errOutOfTime)
	}
	if k, err := f.lookInto(handles[1], time.Now().Add(time.Minute)); err != nil || len(k.symbols) != 0 {
		t.Errorf("the other file: %v, %v", k, err)
	}
	hangs.symbols = []symbols.Symbol{{Name: "cuLaunchKernel"}}
	close(hangs.done)
	k, err := f.lookInto(handles[0], time.Time{})
	if err != nil || len(k.symbols) != 1 || len(f.readings) != 0 {
		t.Errorf("once it is read: %v, %v, %d readings left", k, err, len(f.readings))
	}
}

// No more than maxReadings hang at once, and one of a file that has changed since
// does not count.
func TestReadingsAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := handleOf(t, path)
	f := &Finder{known: map[fileKey]known{}, failing: map[fileKey]failing{}, readings: map[fileKey]*reading{}, find: findHere}
	for i := range maxReadings {
		f.readings[fileKey{ino: uint64(i)}] = &reading{done: make(chan struct{})}
	}
	soon := func() time.Time { return time.Now().Add(time.Minute) }
	if _, err := f.lookInto(h, soon()); !errors.Is(err, errManyReadings) {
		t.Errorf("with %d readings: %v, want %v", maxReadings, err, errManyReadings)
	}
	close(f.readings[fileKey{ino: 0}].done)
	if _, err := f.lookInto(h, soon()); err != nil {
		t.Errorf("when one has ended: %v", err)
	}
	old := &reading{done: make(chan struct{}), symbols: []symbols.Symbol{{Name: "cuLaunchKernel"}}}
	close(old.done)
	f.readings[h.key] = old
	if _, err := f.lookInto(h, soon()); !errors.Is(err, errOutOfTime) {
		t.Errorf("what was read of the file before it changed: %v, want %v", err, errOutOfTime)
	}
	if k, err := f.lookInto(h, soon()); err != nil || len(k.symbols) != 0 {
		t.Errorf("read again: %v, %v", k, err)
	}
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
	f := &Finder{known: map[fileKey]known{}, failing: map[fileKey]failing{}, readings: map[fileKey]*reading{}}
	f.interest.wanted = func(name string) bool { return name == "cuLaunchKernel" }
	f.find = func(*os.File, symbols.Want, time.Duration) ([]symbols.Symbol, error) {
		if tries++; fails {
			return nil, symbols.ErrReader
		}
		return []symbols.Symbol{{Name: "cuLaunchKernel", Offset: 8}}, nil
	}
	look := func() (known, error) { return f.lookInto(h, time.Now().Add(time.Minute)) }
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
