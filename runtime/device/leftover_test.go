package device

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// sweep is Sweep without an error; what it returns are the notes, as one text.
func sweep(t *testing.T, v *Visibility, c runtime.Container, wantDone bool) string {
	t.Helper()
	known := runtime.GPUView{Names: map[int][]string{0: {"0", "GPU-a"}, 1: {"1", "GPU-b", "MIG-b"}}}
	done, notes, err := v.Sweep(t.Context(), c, known)
	if err != nil || done != wantDone {
		t.Errorf("done %v, %v, want %v", done, err, wantDone)
	}
	return strings.Join(notes, "; ")
}

// hostNodes gives a Visibility a host's /dev with GPUs.
func hostNodes(t *testing.T, v *Visibility) {
	t.Helper()
	v.hostDev = t.TempDir()
	for name, minor := range map[string]uint32{"nvidia0": 0, "nvidia1": 1, "nvidiactl": 255} {
		if err := unix.Mknod(filepath.Join(v.hostDev, name), unix.S_IFCHR|0o666, int(unix.Mkdev(nvidiaMajor, minor))); err != nil {
			t.Skipf("needs root: mknod: %v", err)
		}
		if err := os.Chmod(filepath.Join(v.hostDev, name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSweepAfterARestart: a container's /run outlives its restart, and would tell it of
// GPUs as they were hidden in a life before.
func TestSweepAfterARestart(t *testing.T) {
	host, c := gpuContainer(t)
	records := &memRecords{}
	hide(t, hider(t, records, fakeUnits{}), c, 0)
	host.Run(t, "restart", "-t", "0", c.ID.Container)
	again := c
	pid, err := strconv.Atoi(host.Run(t, "inspect", "--format", "{{.State.Pid}}", c.ID.Container))
	if err != nil {
		t.Fatal(err)
	}
	again.InitPID = pid
	if again.ID.StartTick, err = cgroup.StartTick("/proc", pid); err != nil {
		t.Fatal(err)
	}
	if again.Cgroup, err = cgroup.Locate("/proc", cgroup.DefaultRoot, pid); err != nil {
		t.Fatal(err)
	}
	if text := host.Run(t, "exec", c.ID.Container, "cat", "/run/trimtab/gpus"); text != "GPU-b" {
		t.Fatalf("the file says %q: nothing is tested", text)
	}
	v := hider(t, records, fakeUnits{})
	hostNodes(t, v)
	if text := sweep(t, v, again, true); !strings.Contains(text, "removed") || strings.Contains(text, "nodes") {
		t.Errorf("%q", text)
	}
	if out := host.Run(t, "exec", c.ID.Container, "sh", "-c", "ls /run/trimtab /dev/nvidia0 2>&1; true"); strings.Count(out, "No such file") != 2 {
		t.Errorf("%q: a new life has the nodes that its runtime makes, and no others", out)
	}
	if text := sweep(t, v, again, true); text != "" {
		t.Errorf("a second time: %q", text)
	}
}

// TestSweepWithoutRecords: what was hidden, and whose records are gone, comes back as
// far as what is left of it tells.
func TestSweepWithoutRecords(t *testing.T) {
	host, c := gpuContainer(t)
	c.GPUVia = "device-requests" // all, by its engine
	had, _ := look(t, hider(t, &memRecords{}, fakeUnits{}), c, nil)
	hide(t, hider(t, &memRecords{}, fakeUnits{}), c, 0, 1)
	v := hider(t, &memRecords{}, fakeUnits{})
	hostNodes(t, v)
	sweep(t, v, c, false) // v1's rules are the repair's
	if _, err := v.Repair(t.Context(), c, had); err != nil {
		t.Fatal(err)
	}
	if text := sweep(t, v, c, true); !strings.Contains(text, "3 nodes") {
		t.Errorf("%q", text)
	}
	wantFinds(t, host, c, map[string]string{"/dev/nvidia0": "open", "/dev/nvidia1": "open", "/dev/nvidiactl": "open", "/run/trimtab/gpus": "gone"})
}

func TestSweepWithoutRecordsV2(t *testing.T) {
	host, c := gpuContainer(t)
	c.GPUVia = "device-requests"
	c.Cgroup = runtime.Cgroup{Mode: runtime.CgroupV2, Unified: c.Cgroup.Unified} // as a v2 host shows it
	attach(t, c.Cgroup.Unified, runcLike(rulesFrom(t, "c *:* m", "c 1:3 rwm", "c 195:* rwm", "c 509:* rwm")...))
	hide(t, hider(t, &memRecords{}, fakeUnits{}), c, 0)
	v := hider(t, &memRecords{}, fakeUnits{})
	hostNodes(t, v)
	if text := sweep(t, v, c, true); !strings.Contains(text, "refusal") || !strings.Contains(text, "1 nodes") {
		t.Errorf("%q", text)
	}
	if got := openedIn(t, c.Cgroup.Unified, [2]int{195, 0}); !got[0] {
		t.Error("it stays refused")
	}
	wantFinds(t, host, c, map[string]string{"/dev/nvidia0": "open"})
}

// TestSweepLeavesWhatARecordTells, and what is hostile.
func TestSweepLeavesWhatARecordTells(t *testing.T) {
	host, c := gpuContainer(t)
	records := &memRecords{}
	v := hider(t, records, fakeUnits{})
	hide(t, v, c, 0)
	if text := sweep(t, v, c, true); text != "" {
		t.Errorf("%q", text)
	}
	wantFinds(t, host, c, map[string]string{"/dev/nvidia0": "gone"})
	unreadable := hider(t, &memRecords{unread: map[string]error{c.Key(): os.ErrInvalid}}, fakeUnits{})
	if text := sweep(t, unreadable, c, true); text != "" {
		t.Errorf("%q", text)
	}
	if _, err := unreadable.Hide(t.Context(), c, runtime.GPUView{Hidden: []int{1}}); err == nil {
		t.Error("hidden over a record that cannot be read")
	}
	restore(t, v, c)
	host.Run(t, "exec", c.ID.Container, "sh", "-c", "mkdir -p /run/trimtab; ln -s /etc/hosts /run/trimtab/gpus")
	if text := sweep(t, v, c, true); text != "" {
		t.Errorf("a link: %q", text)
	}
}

// TestGiven: whose node a container has by its engine.
func TestGiven(t *testing.T) {
	for name, tc := range map[string]struct {
		via   string
		gpus  []string
		minor int
		names []string
		want  bool
	}{
		"none":                    {"", nil, 0, []string{"0"}, false},
		"all":                     {"legacy-hook", []string{"all"}, 7, nil, true},
		"all, by a plain rule":    {"devices", []string{"all"}, 7, []string{"7"}, false},
		"its node":                {"devices", []string{"7"}, 7, nil, true},
		"another's node":          {"devices", []string{"7"}, 0, []string{"7"}, false},
		"its place":               {"device-requests", []string{"7"}, 0, []string{"7", "GPU-a"}, true},
		"its place, not its node": {"device-requests", []string{"7"}, 7, []string{"0", "GPU-a"}, false},
		"nothing is known yet":    {"device-requests", []string{"7"}, 7, nil, false},
		"its UUID":                {"legacy-hook", []string{"GPU-A"}, 0, []string{"0", "GPU-a"}, true},
		"another's UUID":          {"legacy-hook", []string{"GPU-a"}, 1, []string{"1", "GPU-ab"}, false},
		"a slice by place":        {"legacy-hook", []string{"1:0"}, 1, []string{"1", "GPU-b"}, true},
		"a slice by UUID":         {"cdi", []string{"MIG-b"}, 1, []string{"1", "GPU-b", "MIG-b"}, true},
		"CDI, both":               {"cdi", []string{"1"}, 1, []string{"1"}, true},
		"CDI, its node":           {"cdi", []string{"1"}, 1, []string{"0"}, false},
		"CDI, its place":          {"cdi", []string{"1"}, 0, []string{"1"}, false},
	} {
		if got := given(runtime.Container{GPUs: tc.gpus, GPUVia: tc.via}, tc.minor, tc.names); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestSweepMakesNoNodeThatWasNotGiven: anybody in a container writes such a file, and its
// rule may be for more GPUs than it was given.
func TestSweepMakesNoNodeThatWasNotGiven(t *testing.T) {
	host, c := gpuContainer(t)
	v := hider(t, &memRecords{}, fakeUnits{})
	hostNodes(t, v)
	for _, tc := range []struct {
		name, via string
		gpus      []string
		done      bool
		want      string
	}{
		{"none", "", nil, true, "none"},
		{"a broad rule", "devices", []string{"all"}, true, "none"},
		{"one that is not known", "legacy-hook", []string{"GPU-c"}, false, "none"},
		{"a node", "devices", []string{"1"}, true, "/dev/nvidia1"},
		{"one by its place", "device-requests", []string{"0"}, true, "/dev/nvidia0"},
		{"one by its UUID", "device-requests", []string{"GPU-b"}, true, "/dev/nvidia1"},
	} {
		host.Run(t, "exec", c.ID.Container, "sh", "-c", "rm -f /dev/nvidia[0-9]; rm -f /dev/.trimtab-nvidia0; mknod /dev/.trimtab-nvidia0 c 195 0; mkdir -p /run/trimtab; echo GPU-a > /run/trimtab/gpus")
		c.GPUs, c.GPUVia = tc.gpus, tc.via
		notes := sweep(t, v, c, tc.done)
		if got := host.Run(t, "exec", c.ID.Container, "sh", "-c", "ls /dev/nvidia[0-9] 2>/dev/null || echo none"); got != tc.want {
			t.Errorf("%s: nodes %q, want %q; %s", tc.name, got, tc.want, notes)
		}
		if got := finds(t, host, c, "/dev/.trimtab-nvidia0"); tc.done && got != "gone" {
			t.Errorf("%s: what a kill left is %s", tc.name, got)
		}
	}
}

// TestSweepMakesNoControlNodeThatIsRefused: a node without a GPU of its own comes back where the
// container's rules are for it, too.
func TestSweepMakesNoControlNodeThatIsRefused(t *testing.T) {
	for rule, want := range map[string]string{"c 195:255 rwm": "/dev/nvidiactl", "c 195:254 rwm": "none"} {
		host, c := gpuContainer(t, "--device-cgroup-rule", "c 195:0 rwm", "--device-cgroup-rule", rule)
		c.GPUVia = "device-requests"
		v := hider(t, &memRecords{}, fakeUnits{})
		hostNodes(t, v)
		host.Run(t, "exec", c.ID.Container, "sh", "-c", "rm -f /dev/nvidia*; mkdir -p /run/trimtab; echo GPU-a > /run/trimtab/gpus")
		notes := sweep(t, v, c, true)
		if got := host.Run(t, "exec", c.ID.Container, "sh", "-c", "ls /dev/nvidiactl 2>/dev/null || echo none"); got != want {
			t.Errorf("%s: %q, want %q; %s", rule, got, want, notes)
		}
		wantFinds(t, host, c, map[string]string{"/dev/nvidia0": "open"})
	}
}
