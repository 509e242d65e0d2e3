package device

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
)

// migHost is the /proc of a host with two MIG instances on GPU 0 and one on GPU 1, laid out
// as the MIG User Guide has it.
func migHost(t *testing.T) string {
	t.Helper()
	proc := filepath.Join(t.TempDir(), "proc")
	write(t, filepath.Join(proc, "devices"), "Character devices:\n  1 mem\n195 nvidia\n237 nvidia-caps\n511 nvidia-uvm\n\nBlock devices:\n")
	for path, minor := range map[string]int{
		"mig/config": 1, "mig/monitor": 2, "gpu0/mig/gi1/access": 12, "gpu0/mig/gi1/ci0/access": 13,
		"gpu0/mig/gi2/access": 21, "gpu0/mig/gi2/ci0/access": 22, "gpu1/mig/gi0/access": 138, "gpu1/mig/gi0/ci0/access": 139,
	} {
		write(t, filepath.Join(proc, capsFolder, path), fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: 292\nDeviceFileModify: 1\n", minor))
	}
	return proc
}

func TestInstanceMinors(t *testing.T) {
	proc := migHost(t)
	if diff := cmp.Diff([]int{12, 13, 21, 22, 138, 139}, instanceMinors(proc)); diff != "" {
		t.Error(diff)
	}
	for i, text := range []string{"", "DeviceFileMinor: \n", "DeviceFileMinor: -3\n", "DeviceFileMinor: 99999999999999\n", "DeviceFileMode: 3\n", strings.Repeat("x", 4096)} {
		write(t, filepath.Join(proc, capsFolder, "gpu2/mig", fmt.Sprintf("gi%d", i), "access"), text)
	}
	if got := instanceMinors(proc); len(got) != 6 {
		t.Errorf("files without a number give %v", got)
	}
	if got := instanceMinors(t.TempDir()); got != nil {
		t.Errorf("a host without a driver has %v", got)
	}
}

// A container with a MIG instance loses it with the instance's capabilities, though systemd may
// know the GPU's own nodes.
func TestPreflightOfInstance(t *testing.T) {
	const node = "c 195:255 rw\nc 195:0 rw\nc 511:0 rw\n"
	gpu := []Allow{{"/dev/nvidiactl", "rw"}, {"/dev/char/195:0", "rw"}, {"/dev/nvidia-uvm", "rw"}}
	for name, tc := range map[string]struct {
		list   string
		allow  []Allow
		unit   string
		green  bool
		misses string
	}{
		"systemd knows both":                 {list: node + "c 237:12 r\nc 237:13 r\n", allow: []Allow{{"/dev/char/237:12", "r"}, {"/dev/char/237:13", "rw"}}, unit: scope, green: true},
		"systemd knows them by name":         {list: node + "c 237:12 rw\nc 237:13 rw\n", allow: []Allow{{"/dev/nvidia-caps/nvidia-cap12", "rw"}, {"/dev/nvidia-caps/nvidia-cap13", "r"}}, unit: scope, green: true},
		"systemd knows their driver":         {list: node + "c 237:12 r\nc 237:13 r\n", allow: []Allow{{"char-nvidia-caps", "r"}}, unit: scope, green: true},
		"systemd knows NVIDIA's by a glob":   {list: node + "c 237:* r\n", allow: []Allow{{"char-nvidia*", "rw"}}, unit: scope, green: true},
		"the compute instance's is missing":  {list: node + "c 237:12 r\nc 237:13 r\n", allow: []Allow{{"/dev/char/237:12", "r"}}, unit: scope, misses: "237:13"},
		"both are missing":                   {list: node + "c 237:12 r\nc 237:13 r\n", unit: scope, misses: "237:12"},
		"another instance's is known":        {list: node + "c 237:21 r\n", allow: []Allow{{"/dev/char/237:12", "r"}}, unit: scope, misses: "237:21"},
		"a rule for all, some known":         {list: node + "c 237:* r\n", allow: []Allow{{"/dev/char/237:12", "r"}}, unit: scope, misses: "237:*"},
		"one without an instance":            {list: node, unit: scope, green: true},
		"its nodes may be made, no more":     {list: node + "c 237:* m\n", unit: scope, green: true},
		"no systemd, nobody rewrites a rule": {list: node + "c 237:12 r\n", unit: "x", green: true},
	} {
		dir := filepath.Join(t.TempDir(), tc.unit)
		write(t, filepath.Join(dir, "devices.list"), everyContainer+tc.list)
		c := runtime.Container{Name: "c", GPUs: []string{"0:0"}, GPUVia: "device-requests", Cgroup: runtime.Cgroup{Mode: runtime.CgroupHybrid, V1: map[string]string{"devices": dir}}}
		r := Preflight(t.Context(), c, Options{ProcRoot: migHost(t), Units: fakeUnits{allow: map[string][]Allow{scope: slices.Concat(gpu, tc.allow)}}})
		if r.Green != tc.green || r.AtRisk == tc.green || !strings.Contains(r.Why, tc.misses) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	// On v2 its programs tell, and without them nobody knows.
	c := runtime.Container{Name: "c", GPUs: []string{"MIG-a"}, Cgroup: runtime.Cgroup{Mode: runtime.CgroupV2, Unified: filepath.Join(t.TempDir(), scope)}}
	r := Preflight(t.Context(), c, Options{ProcRoot: migHost(t), Units: fakeUnits{allow: map[string][]Allow{scope: slices.Concat(gpu, []Allow{{"char-nvidia-caps", "r"}})}}})
	if r.Green || !r.AtRisk || !strings.Contains(r.Why, "MIG") {
		t.Errorf("programs that cannot be read: %+v", r)
	}
}

// On v2 the programs of a container are asked for each instance that there is.
func TestInstancesOfPrograms(t *testing.T) {
	asked := []int{12, 13, 21, 22}
	for name, tc := range map[string]struct {
		rules []string
		want  []int
	}{
		"one instance":     {[]string{"c 195:* rw", "c 237:12 rw", "c 237:13 r"}, []int{12, 13}},
		"none":             {[]string{"c 195:* rwm", "c 511:* rw"}, nil},
		"all":              {[]string{"c 237:* r"}, asked},
		"nodes to be made": {[]string{"c 237:* m"}, nil},
	} {
		var got []int
		needs, err := openable([]program{{slots: resolved(t, runcLike(rulesFrom(t, tc.rules...)...))}}, 237, asked)
		for _, n := range needs {
			if n.Kind != "c" || n.Major != 237 || n.Access != "r" {
				t.Errorf("%s: %v", name, n)
			}
			got = append(got, n.Minor)
		}
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v: %v", name, got, tc.want, err)
		}
	}
}
