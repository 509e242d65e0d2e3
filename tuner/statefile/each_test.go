package statefile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func openEach(t *testing.T, dir string) *Each[string] {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return OpenEach[string](s, "things")
}

func wantAll(t *testing.T, e *Each[string], want map[string]string, unread ...string) {
	t.Helper()
	all, bad, err := e.Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Error(diff)
	}
	for _, key := range unread {
		if corrupt := (*CorruptError)(nil); !errors.As(bad[key], &corrupt) {
			t.Errorf("%s: %v, want a CorruptError", key, bad[key])
		}
	}
	if len(bad) != len(unread) {
		t.Errorf("unread: %v", bad)
	}
}

func TestEach(t *testing.T) {
	dir := t.TempDir()
	e := openEach(t, dir)
	wantAll(t, e, map[string]string{})
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("made without need: %v", entries)
	}
	const odd = "containerd-A_b.json-x-7" // containerd lets people choose such names
	for key, v := range map[string]string{"docker-1": "a", odd: "b"} {
		if err := e.Save(key, v); err != nil {
			t.Fatal(err)
		}
	}
	wantAll(t, openEach(t, dir), map[string]string{"docker-1": "a", odd: "b"})
	for _, key := range []string{"", "../x", "a/b", ".tmp-x", strings.Repeat("a", 129)} {
		if err := e.Save(key, "x"); err == nil {
			t.Errorf("key %q was accepted", key)
		}
	}
	for range 2 {
		if err := e.Remove("docker-1"); err != nil {
			t.Error(err)
		}
	}
	wantAll(t, openEach(t, dir), map[string]string{odd: "b"})
}

// TestEachCorrupt: one that cannot be read costs one key, in later runs too.
func TestEachCorrupt(t *testing.T) {
	dir := t.TempDir()
	e := openEach(t, dir)
	for _, key := range []string{"good", "bad.json-1"} {
		if err := e.Save(key, key); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"bad.json-1.json": "{", ".tmp-left": "half"} {
		if err := os.WriteFile(filepath.Join(dir, "things", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		wantAll(t, openEach(t, dir), map[string]string{"good": "good"}, "bad.json-1")
	}
	if _, err := os.Lstat(filepath.Join(dir, "things", ".tmp-left")); err == nil {
		t.Error("an unfinished copy stays")
	}
}

// TestEachDividesTheOldFile: what an earlier version kept in one file becomes a file
// each, also where a crash cut that short; where nothing can be written it counts.
func TestEachDividesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	old := map[string]string{"A": "old", "B": "old"}
	if err := s.PutState("things", old); err != nil {
		t.Fatal(err)
	}
	blocked := filepath.Join(dir, "things") // it takes no keys, as a full disk takes none
	if err := os.Symlink(filepath.Join(dir, "nowhere"), blocked); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		wantAll(t, OpenEach[string](s, "things"), old)
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	if err := openEach(t, dir).Save("B", "new"); err != nil { // a crash came after this one was divided
		t.Fatal(err)
	}
	wantAll(t, openEach(t, dir), map[string]string{"A": "old", "B": "new"})
	if _, err := os.Lstat(filepath.Join(dir, "things.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old file: %v", err)
	}
	if err := openEach(t, dir).Remove("A"); err != nil {
		t.Fatal(err)
	}
	wantAll(t, openEach(t, dir), map[string]string{"B": "new"})
}

// TestEachForgetsInTheOldFile: a key that was removed while the old file could not be divided
// does not come back at the next start. Where that cannot be made durable, Remove says so.
func TestEachForgetsInTheOldFile(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("needs root and mounting: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutState("things", map[string]string{"A": "old", "B": "old"}); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(dir, "full")
	if err := os.WriteFile(full, make([]byte, 128<<10), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	wantAll(t, openEach(t, dir), map[string]string{"A": "old", "B": "old"})
	if err := openEach(t, dir).Remove("A"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("removed on a full disk, where another is left: %v", err)
	}
	wantAll(t, openEach(t, dir), map[string]string{"A": "old", "B": "old"})
	if err := os.Truncate(full, 48<<10); err != nil { // some space again
		t.Fatal(err)
	}
	e := OpenEach[string](s, "things") // of a daemon that started on the full disk
	if err := e.Remove("A"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, make([]byte, 128<<10), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	wantAll(t, openEach(t, dir), map[string]string{"B": "old"})
	if err := openEach(t, dir).Remove("B"); err != nil {
		t.Errorf("the last one, on a full disk: %v", err)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	wantAll(t, openEach(t, dir), map[string]string{})
}
