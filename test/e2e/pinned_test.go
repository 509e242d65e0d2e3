package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/test/workloads/gpu"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestPageableCopiesAreAdvisedToBePinned: two jobs on the virtual GPU differ in the memory that their
// asynchronous copies are from. The one whose copies block is told, the other is not.
func TestPageableCopiesAreAdvisedToBePinned(t *testing.T) {
	node := vgpuNode(t, vgpu.Options{Devices: 2})
	job := func(name string, device int, more ...string) *workload.Job {
		return started(t, workload.Options{Name: fmt.Sprintf("trimtab-e2e-%d-%s", os.Getpid(), name), Script: gpu.Script,
			Args: slices.Concat([]string{"/opt/trimtab-vgpu/trainer", "--device", fmt.Sprint(device), "--kernels", "4", "--kernel-us", "2000", "--h2d-mib", "64", "--sync", "blocking"}, more),
			// A device's DMA takes no time of the caller.
			DockerArgs: slices.Concat(node.DockerArgs(), heaviest, []string{"--label", "trimtab.mode=observe", "--env", "TRIMTAB_VGPU_COPY_MAX=4096"})})
	}
	pageable, pinned := job("pageable", 0, "--staged"), job("pinned", 1)
	d := daemon(t, daemontest.Options{Env: node.Env()})
	advised := func(j *workload.Job) string {
		text, err := d.Run(t.Context(), "advice", j.Name)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return text
	}
	c := until(t, d, pageable.Name, "to be told of pinned memory", func(state.Container) bool { return strings.Contains(advised(pageable), "loader.pinned") })
	t.Logf("%+v\n%s", c.Staging, advised(pageable))
	if s := c.Staging; s.CallSeconds < 64.0*(1<<20)/12e9 || s.Share < 0.2 || s.Idle < 0.2 {
		t.Errorf("copies of 64 MiB at 12 GB/s, for four parts of ten: %+v", s)
	}
	other := until(t, d, pinned.Name, "copies from pinned memory", func(c state.Container) bool { return c.Staging.Calls > 0 && c.Windows >= 3 })
	t.Logf("%+v: %s", other.Staging, other.Verdict.Cause)
	if text := advised(pinned); strings.Contains(text, "loader.pinned") || other.Staging.Share > 0.1 {
		t.Errorf("copies from pinned memory are taken for others: %+v\n%s", other.Staging, text)
	}
}
