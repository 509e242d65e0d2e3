package uprobe

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

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
	f := &Finder{known: map[fileKey]known{}, readings: map[fileKey]*reading{}}
	hangs := &reading{stamp: handles[0].stamp, done: make(chan struct{})}
	f.readings[handles[0].key] = hangs
	if _, err := f.lookInto(handles[0], time.Now().Add(10*time.Millisecond)); !errors.Is(err, errOutOfTime) {
		t.Errorf("the file that hangs: %v, want %v", err, errOutOfTime)
	}
	if k, err := f.lookInto(handles[1], time.Now().Add(time.Minute)); err != nil || len(k.symbols) != 0 {
		t.Errorf("the other file: %v, %v", k, err)
	}
	hangs.symbols = []Symbol{{Name: "cuLaunchKernel"}}
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
	f := &Finder{known: map[fileKey]known{}, readings: map[fileKey]*reading{}}
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
	old := &reading{done: make(chan struct{}), symbols: []Symbol{{Name: "cuLaunchKernel"}}}
	close(old.done)
	f.readings[h.key] = old
	if _, err := f.lookInto(h, soon()); !errors.Is(err, errOutOfTime) {
		t.Errorf("what was read of the file before it changed: %v, want %v", err, errOutOfTime)
	}
	if k, err := f.lookInto(h, soon()); err != nil || len(k.symbols) != 0 {
		t.Errorf("read again: %v, %v", k, err)
	}
}
