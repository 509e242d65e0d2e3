package uprobe

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/trimtab/trimtab/test/uprobetest"
)

// Containers of one image have a file of the same layer, each by its own overlay: the calls
// of each count for it alone, and once.
func TestSharedImageLayer(t *testing.T) {
	c := newCounter(t)
	lower := t.TempDir()
	uprobetest.BuildCode(t, lower, "libshared.so", probedCode, "-shared", "-fPIC")
	dir := t.TempDir()
	var jobs []*uprobetest.Job
	for _, name := range []string{"layer-a", "layer-b"} {
		root := t.TempDir()
		for _, sub := range []string{"upper", "work", "merged"} {
			if err := os.Mkdir(filepath.Join(root, sub), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		merged := filepath.Join(root, "merged")
		if err := syscall.Mount("overlay", merged, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%[2]s/work", lower, root)); err != nil {
			t.Skipf("needs overlayfs: %v", err)
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(merged, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		target := uprobetest.Cgroup(t, name)
		c.watch(target)
		j := job(t, target, dir)
		j.Do("load %s", filepath.Join(merged, "libshared.so"))
		jobs = append(jobs, j)
	}
	c.until("found", func() bool { return c.has(jobs[0].PID)() && c.has(jobs[1].PID)() })
	jobs[0].Do("call probed 10")
	jobs[1].Do("call probed 7")
	if a, b := c.count(jobs[0].PID), c.count(jobs[1].PID); a != 10 || b != 7 {
		t.Errorf("counted %d and %d, want 10 and 7", a, b)
	}
}
