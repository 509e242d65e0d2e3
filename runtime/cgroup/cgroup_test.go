package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
)

// tree makes files below a fresh directory and returns it.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const hostMount = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n25 1 8:1 / /mnt/with\\040space rw - ext4 /dev/sda1 rw\n"

// layouts are the three kinds of host, each with one container limited in all ways.
var layouts = []struct {
	mode       runtime.CgroupMode
	membership string
	mountinfo  string
	files      map[string]string // below the cgroup root
	unified    string            // where the container's group is, "" if nowhere
	v1         map[string]string
	values     runtime.Values
	parentCPUs runtime.Value
}{
	{
		mode:       runtime.CgroupV2,
		membership: "0::/system.slice/docker-abc.scope\n",
		mountinfo:  "24 23 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
		files: map[string]string{
			"cgroup.controllers":                               "cpu memory\n",
			"system.slice/cpuset.cpus.effective":               "0-7\n",
			"system.slice/docker-abc.scope/cpu.weight":         "39\n",
			"system.slice/docker-abc.scope/cpu.max":            "150000 100000\n",
			"system.slice/docker-abc.scope/cpu.max.burst":      "0\n",
			"system.slice/docker-abc.scope/cpuset.cpus":        "\n",
			"system.slice/docker-abc.scope/memory.max":         "1073741824\n",
			"system.slice/docker-abc.scope/memory.swap.max":    "max\n",
			"system.slice/docker-abc.scope/init/cgroup.procs":  "",
			"system.slice/docker-abc.scope/init/cpuset.cpus":   "0\n",
			"system.slice/docker-abc.scope/init/cpu.max":       "max 100000\n",
			"system.slice/docker-abc.scope/cpu.idle":           "0\n",
			"system.slice/docker-abc.scope/cpu.weight.nice":    "4\n",
			"system.slice/docker-abc.scope/memory.events":      "low 0\n",
			"system.slice/docker-abc.scope/cgroup.controllers": "cpu\n",
		},
		unified: "system.slice/docker-abc.scope",
		values: runtime.Values{
			runtime.KnobCPUWeight: "39", runtime.KnobCPUQuota: "150000 100000", runtime.KnobCpuset: "",
			runtime.KnobMemoryLimit: "1073741824", runtime.KnobMemorySwap: "max",
		},
		parentCPUs: "0-7",
	},
	{
		mode:       runtime.CgroupV1,
		membership: "5:name=systemd:/docker/abc\n4:memory:/docker/abc\n3:cpuset:/docker/abc\n2:cpu,cpuacct:/docker/abc\n1:blkio:/docker/abc\n",
		mountinfo: hostMount +
			"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n" +
			"33 31 0:30 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n" +
			"34 31 0:31 / /sys/fs/cgroup/memory rw,relatime shared:5 - cgroup cgroup rw,memory\n" +
			"35 31 0:32 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio\n" +
			"36 31 0:33 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n",
		files: map[string]string{
			"cpu,cpuacct/cgroup.procs":                     "",
			"cpu,cpuacct/docker/abc/cpu.shares":            "1024\n",
			"cpu,cpuacct/docker/abc/cpu.cfs_quota_us":      "-1\n",
			"cpu,cpuacct/docker/abc/cpu.cfs_period_us":     "100000\n",
			"cpuset/docker/cpuset.cpus":                    "0-3\n",
			"cpuset/docker/abc/cpuset.cpus":                "1,3\n",
			"memory/docker/abc/memory.limit_in_bytes":      "9223372036854771712\n",
			"memory/docker/abc/memory.usage_in_bytes":      "4096\n",
			"blkio/docker/abc/blkio.bfq.weight":            "300\n",
			"systemd/docker/abc/cgroup.procs":              "1\n",
			"cpu,cpuacct/docker/abc/cpu.rt_runtime_us":     "0\n",
			"memory/docker/abc/memory.soft_limit_in_bytes": "9223372036854771712\n",
		},
		v1: map[string]string{
			"cpu": "cpu,cpuacct/docker/abc", "cpuacct": "cpu,cpuacct/docker/abc", "cpuset": "cpuset/docker/abc",
			"memory": "memory/docker/abc", "blkio": "blkio/docker/abc",
		},
		values: runtime.Values{
			runtime.KnobCPUWeight: "1024", runtime.KnobCPUQuota: "max 100000", runtime.KnobCpuset: "1,3",
			runtime.KnobMemoryLimit: "max",
		},
		parentCPUs: "0-3",
	},
	{
		mode:       runtime.CgroupHybrid,
		membership: "3:memory:/docker/abc\n2:cpu:/docker/abc\n1:cpuset:/\n0::/docker/abc\n",
		mountinfo: hostMount +
			"32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n" +
			"33 31 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n" +
			"41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
		files: map[string]string{
			"unified/cgroup.procs":                          "1\n",
			"unified/docker/abc/cgroup.procs":               "1\n",
			"cpu/docker/abc/cpu.shares":                     "512\n",
			"cpu/docker/abc/cpu.cfs_quota_us":               "50000\n",
			"cpu/docker/abc/cpu.cfs_period_us":              "100000\n",
			"cpu/docker/abc/cpu.cfs_burst_us":               "0\n",
			"memory/docker/abc/memory.limit_in_bytes":       "67108864\n",
			"memory/docker/abc/memory.memsw.limit_in_bytes": "134217728\n",
		},
		unified: "unified/docker/abc",
		v1:      map[string]string{"cpu": "cpu/docker/abc", "memory": "memory/docker/abc"},
		values: runtime.Values{
			runtime.KnobCPUWeight: "512", runtime.KnobCPUQuota: "50000 100000",
			runtime.KnobMemoryLimit: "67108864", runtime.KnobMemorySwap: "134217728",
		},
	},
}

func TestLayouts(t *testing.T) {
	for _, layout := range layouts {
		t.Run(string(layout.mode), func(t *testing.T) {
			root := tree(t, layout.files)
			proc := tree(t, map[string]string{"42/cgroup": layout.membership, "self/mountinfo": layout.mountinfo})
			cg, err := Locate(proc, root, 42)
			if err != nil {
				t.Fatal(err)
			}
			want := runtime.Cgroup{Mode: layout.mode, ID: cg.ID}
			if layout.unified != "" {
				want.Unified = filepath.Join(root, layout.unified)
			}
			for controller, dir := range layout.v1 {
				if want.V1 == nil {
					want.V1 = map[string]string{}
				}
				want.V1[controller] = filepath.Join(root, dir)
			}
			if diff := cmp.Diff(want, cg); diff != "" {
				t.Errorf("Locate (-want +got):\n%s", diff)
			}
			if cg.ID == 0 {
				t.Error("no inode")
			}
			values, err := ReadValues(cg)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(layout.values, values); diff != "" {
				t.Errorf("ReadValues (-want +got):\n%s", diff)
			}
			cpus, err := ParentCPUs(cg)
			if cpus != layout.parentCPUs || (err == nil) != (layout.parentCPUs != "") {
				t.Errorf("ParentCPUs: %q, %v", cpus, err)
			}
		})
	}
}

func TestEnclosing(t *testing.T) {
	layout := layouts[0]
	root := tree(t, layout.files)
	proc := tree(t, map[string]string{"42/cgroup": "0::/system.slice/docker-abc.scope/init\n", "self/mountinfo": layout.mountinfo})
	inner, err := Locate(proc, root, 42)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := Enclosing(inner, "abc", "")
	if err != nil {
		t.Fatal(err)
	}
	if outer.Unified != filepath.Join(root, layout.unified) || outer.ID == inner.ID {
		t.Errorf("Enclosing: %+v of %+v", outer, inner)
	}
	if same, err := Enclosing(inner, "nowhere", ""); err != nil || same.ID != inner.ID {
		t.Errorf("Enclosing without the ID: %+v, %v", same, err)
	}
}

// A container may make groups of any name below its own, and people choose IDs of containerd's.
func TestEnclosingIsTheOutermost(t *testing.T) {
	const root = "/sys/fs/cgroup"
	for dir, tc := range map[string]struct{ id, asked, want string }{
		"/system.slice/docker-abc.scope/docker-abc.scope/init": {"abc", "", "/system.slice/docker-abc.scope"},
		"/docker/abc/x/abc/y":                       {"abc", "", "/docker/abc"},
		"/docker/abcdef":                            {"abc", "", "/docker/abcdef"},
		"/system.slice/cri-containerd-a.scope/init": {"a", "", "/system.slice/cri-containerd-a.scope"},
		"/default/default/init":                     {"default", "/default/default", "/default/default"},
		"/default/a/default/a":                      {"a", "/default/a", "/default/a"},
		"/system.slice/nerdctl-system.scope/init":   {"system", "system.slice:nerdctl:system", "/system.slice/nerdctl-system.scope"},
		"/elsewhere/a":                              {"a", "/default/a", "/elsewhere/a"},
		"/somewhere":                                {"", "", "/somewhere"},
	} {
		if got := enclosingDir(root+dir, namedBy(tc.id, tc.asked)); got != root+tc.want {
			t.Errorf("%s of %q, asked for %q: %s, want %s", dir, tc.id, tc.asked, got, root+tc.want)
		}
	}
}

func TestIsKubernetes(t *testing.T) {
	for path, want := range map[string]bool{
		"/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/cri-containerd-1.scope": true,
		"/sys/fs/cgroup/kubepods/burstable/pod1/2":                                      true,
		"/sys/fs/cgroup/system.slice/docker-kubepods.scope":                             false,
		"/sys/fs/cgroup/docker/mykubepods":                                              false,
	} {
		if got := IsKubernetes(runtime.Cgroup{Unified: path}); got != want {
			t.Errorf("%s: %v", path, got)
		}
		if got := IsKubernetes(runtime.Cgroup{V1: map[string]string{"cpu": path}}); got != want {
			t.Errorf("v1 %s: %v", path, got)
		}
	}
}

func TestNothingThere(t *testing.T) {
	if mode, err := Detect(t.TempDir()); err == nil {
		t.Errorf("an empty root is %q", mode)
	}
	layout := layouts[2]
	root := tree(t, layout.files)
	proc := tree(t, map[string]string{"42/cgroup": "2:cpu:/docker/gone\n0::/docker/gone\n", "43/cgroup": "nonsense\n", "self/mountinfo": layout.mountinfo})
	for pid, what := range map[int]string{41: "no process", 42: "no directory"} {
		if _, err := Locate(proc, root, pid); !errors.Is(err, runtime.ErrGone) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := Locate(proc, root, 43); err == nil || errors.Is(err, runtime.ErrGone) {
		t.Errorf("malformed: %v", err)
	}
	if _, err := ReadValues(runtime.Cgroup{Unified: filepath.Join(root, "gone")}); !errors.Is(err, runtime.ErrGone) {
		t.Errorf("values of a group that is gone: %v", err)
	}
	bad := tree(t, map[string]string{"cpu.cfs_quota_us": "lots", "cpu.cfs_period_us": "100000"})
	if v, err := ReadValues(runtime.Cgroup{V1: map[string]string{"cpu": bad}}); err == nil {
		t.Errorf("a malformed quota gave %v", v)
	}
}

func TestIdleGroupHasNoWeight(t *testing.T) {
	dir := tree(t, map[string]string{"cpu.weight": "0\n", "cpu.max": "max 100000\n"})
	v, err := ReadValues(runtime.Cgroup{Mode: runtime.CgroupV2, Unified: dir})
	if err != nil {
		t.Fatal(err)
	}
	if weight, ok := v[runtime.KnobCPUWeight]; ok {
		t.Errorf("weight %q under cpu.idle", weight)
	}
}

func TestStartTick(t *testing.T) {
	fields := " S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 2\n"
	proc := tree(t, map[string]string{
		"1/stat": "1 (a b) S 4) x)" + fields, "2/stat": "2 (z) Z" + fields[2:], "3/stat": "3 (short) S 1 2\n", "4/stat": "4",
		"5/stat":                    "5 (ending) R" + strings.Replace(fields[2:], " 4194560 ", " 4194564 ", 1),
		"sys/kernel/random/boot_id": "5f0c2d1e-0000-4000-8000-000000000001\n",
	})
	if tick, err := StartTick(proc, 1); err != nil || tick != 987654 {
		t.Errorf("tick %d, %v", tick, err)
	}
	for _, pid := range []int{2, 5, 9} {
		if _, err := StartTick(proc, pid); !errors.Is(err, runtime.ErrGone) {
			t.Errorf("process %d: %v", pid, err)
		}
	}
	for _, pid := range []int{3, 4} {
		if _, err := StartTick(proc, pid); err == nil {
			t.Errorf("process %d: no error", pid)
		}
	}
	if id, err := BootID(proc); err != nil || id != "5f0c2d1e-0000-4000-8000-000000000001" {
		t.Errorf("boot %q, %v", id, err)
	}
}

func TestRealHost(t *testing.T) {
	if _, err := os.Stat(DefaultRoot); err != nil {
		t.Skipf("needs control groups: %v", err)
	}
	mode, err := Detect(DefaultRoot)
	if err != nil {
		t.Fatal(err)
	}
	cg, err := Locate("/proc", DefaultRoot, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if cg.Mode != mode || cg.ID == 0 || (mode != runtime.CgroupV1 && cg.Unified == "") {
		t.Errorf("%+v", cg)
	}
	if tick, err := StartTick("/proc", os.Getpid()); err != nil || tick == 0 {
		t.Errorf("start %d, %v", tick, err)
	}
}
