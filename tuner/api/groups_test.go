package api

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A file that changed counts at once, one that did not is not read again.
func TestGroupFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "group")
	g := &groupFile{path: path}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(name string, want int, reads int) {
		t.Helper()
		id, err := g.id(name)
		if id != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %d, %v; want %d", name, id, err, want)
		}
		if g.reads != reads {
			t.Errorf("%s: read %d times, want %d", name, g.reads, reads)
		}
	}
	check("trimtab", 0, 0) // no file
	write(path, "root:x:0:\ntrimtab:x:990:me\n")
	check("trimtab", 990, 1)
	check("trimtab", 990, 1)
	check("other", 0, 1)
	write(path, "root:x:0:\ntrimtab:x:990:me\nother:x:991:\n") // by size
	check("other", 991, 2)
	next := path + ".new" // by inode, as groupadd does; its size and time are the old file's
	write(next, "root:x:0:\ntrimtab:x:890:me\nother:x:891:\n")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chtimes(next, info.ModTime(), info.ModTime()), os.Rename(next, path)); err != nil {
		t.Fatal(err)
	}
	check("trimtab", 890, 3)
	write(path, "root:x:0:\ntrimtab:x:790:me\nother:x:791:\n") // by time
	later := info.ModTime().Add(time.Millisecond)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	check("trimtab", 790, 4)
	check("other", 791, 4)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check("trimtab", 0, 4) // nobody is a member of a group that is not there
}

func TestGroupFileConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "group")
	if err := os.WriteFile(path, []byte("trimtab:x:990:\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &groupFile{path: path}
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 100 {
				if id, err := g.id("trimtab"); id != 990 || err != nil {
					t.Error(id, err)
				}
			}
		})
	}
	wait.Wait()
	if g.reads != 1 {
		t.Errorf("read %d times", g.reads)
	}
}

func TestGroupIDs(t *testing.T) {
	got := groupIDs([]byte("root:x:0:\n# note:x:5:\n+nis:x:6:\n::7:\nshort:x:8\nbad:x:-1:\nlarge:x:4294967296:\n a:x:1:m,n\na:x:2:\nlast:x:3:"))
	if diff := cmp.Diff(map[string]int{"root": 0, "a": 1, "last": 3}, got); diff != "" {
		t.Error(diff)
	}
}
