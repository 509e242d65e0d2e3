package cgroup

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/runtime"
)

func TestQuotaAbove(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		cpus  float64
		group string
	}{
		"none":             {map[string]string{"a/cgroup.procs": "", "a/cpu.max": "max 100000\n"}, 0, ""},
		"the group's own":  {map[string]string{"a/cgroup.procs": "", "a/cpu.max": "250000 100000\n"}, 2.5, "a"},
		"the least of two": {map[string]string{"cgroup.procs": "", "cpu.max": "100000 100000\n", "a/cgroup.procs": "", "a/cpu.max": "250000 100000\n"}, 1, "."},
		"of two, the near": {map[string]string{"cgroup.procs": "", "cpu.max": "400000 100000\n", "a/cgroup.procs": "", "a/cpu.max": "250000 100000\n"}, 2.5, "a"},
		"v1":               {map[string]string{"a/cgroup.procs": "", "a/cpu.cfs_quota_us": "50000\n", "a/cpu.cfs_period_us": "100000\n"}, 0.5, "a"},
		"v1, none":         {map[string]string{"a/cgroup.procs": "", "a/cpu.cfs_quota_us": "-1\n", "a/cpu.cfs_period_us": "100000\n"}, 0, ""},
		"not a group":      {map[string]string{"a/cpu.max": "50000 100000\n"}, 0, ""},
	} {
		c.files["a/own/cpu.max"] = "10000 100000\n" // the container's own is not above it
		root := tree(t, c.files)
		cg := runtime.Cgroup{Mode: runtime.CgroupV2, Unified: filepath.Join(root, "a/own")}
		if strings.HasPrefix(name, "v1") {
			cg = runtime.Cgroup{Mode: runtime.CgroupV1, V1: map[string]string{"cpu": filepath.Join(root, "a/own")}}
		}
		want := ""
		if c.group != "" {
			want = filepath.Join(root, c.group)
		}
		if cpus, group, err := QuotaAbove(cg); err != nil || cpus != c.cpus || group != want {
			t.Errorf("%s: %g by %q (%v), want %g by %q", name, cpus, group, err, c.cpus, want)
		}
	}
	files := map[string]string{"a/cgroup.procs": "", "a/memory.max": "2147483648\n", "a/own/memory.max": "1048576\n"}
	root := tree(t, files)
	if bytes, group, err := MemoryAbove(runtime.Cgroup{Mode: runtime.CgroupV2, Unified: filepath.Join(root, "a/own")}); err != nil || bytes != 2<<30 || group != filepath.Join(root, "a") {
		t.Errorf("%g bytes by %q, %v", bytes, group, err)
	}
	files["a/memory.max"] = "max\n"
	if _, group, err := MemoryAbove(runtime.Cgroup{Mode: runtime.CgroupV2, Unified: filepath.Join(tree(t, files), "a/own")}); err != nil || group != "" {
		t.Errorf("%q bounds it, %v", group, err)
	}
	if cpus, group, err := QuotaAbove(runtime.Cgroup{}); err != nil || cpus != 0 || group != "" {
		t.Errorf("without a control group: %g by %q, %v", cpus, group, err)
	}
}
