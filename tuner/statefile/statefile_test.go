package statefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type holds struct {
	Keys map[string]string `json:"keys"`
}

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStateSurvivesReopening(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := open(t, dir)
	var got holds
	if err := s.GetState("holds", &got); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("an empty topic: %v, want fs.ErrNotExist", err)
	}
	want := holds{map[string]string{"a": "by hand", "b": "<&>"}}
	for range 2 {
		if err := s.PutState("holds", want); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(t, dir).GetState("holds", &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestUnreadableFilesAreSetAside(t *testing.T) {
	big := strings.Repeat(" ", maxBytes+1)
	for name, text := range map[string]string{
		"truncated":     `{"format":"trimtab-state","vers`,
		"empty":         "",
		"another thing": `{"format":"x","version":1,"topic":"holds","data":{}}`,
		"another topic": `{"format":"trimtab-state","version":1,"topic":"pause","data":{}}`,
		"no data":       `{"format":"trimtab-state","version":1,"topic":"holds"}`,
		"wrong type":    `{"format":"trimtab-state","version":1,"topic":"holds","data":[1]}`,
		"huge":          big,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "holds.json")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := open(t, dir)
			var corrupt *CorruptError
			if err := s.GetState("holds", &holds{}); !errors.As(err, &corrupt) {
				t.Fatalf("got %v, want a CorruptError", err)
			}
			kept, err := os.ReadFile(corrupt.Aside)
			if err != nil || string(kept) != text {
				t.Errorf("what was set aside is not what stood there: %v", err)
			}
			if err := s.GetState("holds", &holds{}); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("afterwards: %v, want fs.ErrNotExist", err)
			}
		})
	}
}

func TestLinksAndPipesAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("x"), 0o600), os.Symlink(secret, filepath.Join(dir, "holds.json")),
		syscall.Mkfifo(filepath.Join(dir, "pause.json"), 0o600)); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	for _, topic := range []string{"holds", "pause"} {
		var corrupt *CorruptError
		if err := s.GetState(topic, &holds{}); !errors.As(err, &corrupt) {
			t.Errorf("%s: %v, want a CorruptError", topic, err)
		}
	}
	if _, err := os.Stat(secret); err != nil {
		t.Error(err)
	}
}

func TestNewerFormatIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "holds.json")
	text := `{"format":"trimtab-state","version":2,"topic":"holds","data":{}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir).GetState("holds", &holds{}); !errors.Is(err, ErrVersion) {
		t.Fatalf("got %v, want ErrVersion", err)
	}
	if kept, err := os.ReadFile(path); err != nil || string(kept) != text {
		t.Errorf("the file was changed: %q, %v", kept, err)
	}
}

func TestTopicsAreNoPaths(t *testing.T) {
	s := open(t, t.TempDir())
	for _, topic := range []string{"", "../x", "a/b", ".a", strings.Repeat("a", 129)} {
		if err := s.PutState(topic, 1); err == nil {
			t.Errorf("topic %q was accepted", topic)
		}
	}
}

func TestUnfinishedCopiesGo(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, tempPrefix+"123")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the unfinished copy is still there: %v", err)
	}
}

func TestFullDiskKeepsTheStateBefore(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("needs root and mounting: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := open(t, dir)
	if err := s.PutState("holds", "small"); err != nil {
		t.Fatal(err)
	}
	if err := s.PutState("holds", strings.Repeat("x", 128<<10)); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v, want ENOSPC", err)
	}
	var got string
	if err := s.GetState("holds", &got); err != nil || got != "small" {
		t.Errorf("after a full disk: %q, %v", got, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
