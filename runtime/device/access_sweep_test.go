package device

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// What a process killed between making a node and removing it left behind goes; what
// may be in use, or is somebody else's, stays.
func TestSweepsNodes(t *testing.T) {
	dir := t.TempDir()
	long := time.Now().Add(-time.Hour)
	for name, mode := range map[string]os.FileMode{".trimtab-stale": 0o700, ".trimtab-open": 0o755, "other": 0o700, ".trimtab-young": 0o700} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, "node"), nil, 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		if name != ".trimtab-young" {
			if err := os.Chtimes(path, long, long); err != nil {
				t.Fatal(err)
			}
		}
	}
	sweepNodes(dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{".trimtab-open", ".trimtab-young", "other"}; !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
}
