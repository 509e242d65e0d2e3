package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/runtime"
)

func TestLowReaches(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"below a slice that protects nothing": {map[string]string{"system.slice/memory.low": "0\n", "system.slice/cgroup.type": "domain\n", "system.slice/a.scope/memory.low": "0\n"}, false},
		"below one that protects":             {map[string]string{"system.slice/memory.low": "1073741824\n", "system.slice/cgroup.type": "domain\n", "system.slice/a.scope/memory.low": "0\n"}, true},
		"the controller is not handed down":   {map[string]string{"system.slice/cgroup.type": "domain\n", "system.slice/a.scope/cgroup.type": "domain\n"}, false},
	} {
		root := tree(t, c.files)
		cg := runtime.Cgroup{Mode: runtime.CgroupV2, Unified: filepath.Join(root, "system.slice/a.scope")}
		if got := LowReaches(cg); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		cg.Mode = runtime.CgroupHybrid
		if LowReaches(cg) {
			t.Errorf("%s: on v1", name)
		}
	}
	root := tree(t, map[string]string{"a.scope/memory.low": "0\n"})
	if !LowReaches(runtime.Cgroup{Mode: runtime.CgroupV2, Unified: filepath.Join(root, "a.scope")}) {
		t.Error("right below the root")
	}
}

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

func TestPinned(t *testing.T) {
	group := tree(t, map[string]string{"cpuset.cpus.effective": "0-3\n", "cgroup.procs": "10\n", "inner/cgroup.procs": "11\n12\n"})
	cg := runtime.Cgroup{Mode: runtime.CgroupV2, Unified: group}
	status := func(list string) string { return "Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t" + list + "\n" }
	for want, files := range map[string]map[string]string{
		"":                                {"10/task/10/status": status("0-3"), "11/task/11/status": status("0-3"), "12/task/12/status": status("0-3")},
		"thread 13 pins itself to 2 of 4": {"10/task/10/status": status("0-3"), "11/task/11/status": status("0-3"), "11/task/13/status": status("1-2")},
	} {
		why, err := Pinned(tree(t, files), cg)
		if err != nil || !strings.HasPrefix(why, want) || (want == "") != (why == "") {
			t.Errorf("%q, %v; want %q", why, err, want)
		}
	}
	crowd := t.TempDir()
	for i := range maxPinned + 1 {
		if err := os.MkdirAll(filepath.Join(crowd, "10", "task", fmt.Sprint(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if why, err := Pinned(crowd, cg); err != nil || !strings.Contains(why, "not known") {
		t.Errorf("of too many threads: %q, %v", why, err)
	}
	if _, err := Pinned(t.TempDir(), runtime.Cgroup{Mode: runtime.CgroupV2, Unified: t.TempDir()}); err == nil {
		t.Error("a group without a CPU set can be told")
	}
}

// TestGroupsAreBounded: a container that makes groups without end keeps nobody waiting.
func TestGroupsAreBounded(t *testing.T) {
	for name, group := range map[string]func(i int) string{
		"side by side": func(i int) string { return fmt.Sprintf("g%d", i) },
		"a few deep":   func(i int) string { return fmt.Sprintf("a%d/b%d", i%30, i/30) },
	} {
		files := map[string]string{"cgroup.procs": "1\n"}
		for i := range 3 * maxGroups {
			files[group(i)+"/cgroup.procs"] = fmt.Sprintf("%d\n", i+2)
		}
		got := groupPIDs(tree(t, files))
		if len(got) < maxGroups/2 || len(got) > maxGroups || got[0] != "1" {
			t.Errorf("%s: %d processes of %d groups, the first %s; want its own first, and at most %d", name, len(got), 3*maxGroups+1, got[0], maxGroups)
		}
	}
	few := groupPIDs(tree(t, map[string]string{"cgroup.procs": "1\n", "a/cgroup.procs": "2\n3\n", "a/b/c/cgroup.procs": "4\n", "d/other": ""}))
	if strings.Join(few, " ") != "1 2 3 4" {
		t.Errorf("%v, want all of a few", few)
	}
}

func TestForgetsPins(t *testing.T) {
	for release, want := range map[string]bool{"5.15.0-91-generic": true, "6.1.0-18-amd64": true, "6.2.0": false, "6.18.44-fc-v657": false, "10.0": false, "7.1-rc1": false, "odd": true, "": true, "6": true} {
		if got := ForgetsPins(release); got != want {
			t.Errorf("%q: %v", release, got)
		}
	}
}

func TestNodesWithCPUs(t *testing.T) {
	for text, want := range map[string]int{"0\n": 1, "0-1\n": 2, "0,2-3\n": 3, "x\n": 0} {
		if got := NodesWithCPUs(tree(t, map[string]string{"devices/system/node/has_cpu": text})); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
	if got := NodesWithCPUs(t.TempDir()); got != 0 {
		t.Errorf("no file: %d", got)
	}
}
