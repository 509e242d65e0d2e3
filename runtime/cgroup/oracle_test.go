package cgroup

import (
	"testing"

	"github.com/containerd/cgroups/v3"

	"github.com/trimtab/trimtab/runtime"
)

// What containerd's own library takes this host's layout for is what we take it for.
func TestModeIsWhatContainerdSays(t *testing.T) {
	want, known := map[cgroups.CGMode]runtime.CgroupMode{
		cgroups.Legacy: runtime.CgroupV1, cgroups.Hybrid: runtime.CgroupHybrid, cgroups.Unified: runtime.CgroupV2,
	}[cgroups.Mode()]
	if !known {
		t.Skip("needs control groups at " + DefaultRoot)
	}
	if got, err := Detect(DefaultRoot); got != want || err != nil {
		t.Errorf("%q, %v; containerd's library says %q", got, err, want)
	}
}
