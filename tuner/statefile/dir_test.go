package statefile

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestMakeDir(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "a", "b", "c")
	for range 2 { // again: it is there
		if err := MakeDir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode() != os.ModeDir|0o700 {
		t.Errorf("made as %v, %v", info, err)
	}
	file := filepath.Join(top, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := MakeDir(filepath.Join(file, "below"), 0o700); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("below a file: %v", err)
	}
	if err := SyncDir(filepath.Join(top, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}
