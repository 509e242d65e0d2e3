// Package vgputest makes nodes of the virtual GPU for tests.
package vgputest

import (
	"errors"
	"os"
	"testing"

	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/workloads/gpu"
)

// Node makes a node that goes with the test, its libraries and trainers built; without
// a compiler the test is skipped.
func Node(t testing.TB, o vgpu.Options) *vgpu.Node {
	t.Helper()
	dir, err := gpu.Build(t.Context())
	if errors.Is(err, vgpu.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	shm, err := os.MkdirTemp("/dev/shm", "trimtab-vgpu-test-") // short: it is part of containers' mounts
	if err != nil {
		t.Skipf("needs /dev/shm: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(shm); err != nil {
			t.Error(err)
		}
	})
	n, err := vgpu.NewNode(t.Context(), dir, shm, o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Without is the node's environment with one of its libraries replaced by a build that
// lacks symbols, as an older version of it does.
func Without(t testing.TB, n *vgpu.Node, library string, symbols ...string) []string {
	t.Helper()
	dir := t.TempDir()
	if err := n.Dir.BuildWithout(t.Context(), dir, library, symbols...); err != nil {
		t.Fatal(err)
	}
	return []string{"TRIMTAB_VGPU_NODE=" + n.Path, "LD_LIBRARY_PATH=" + dir + ":" + string(n.Dir)}
}
