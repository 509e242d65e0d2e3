package device

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/runtime"
)

type fakeUnits struct {
	allow map[string][]Allow
	err   error
}

func (f fakeUnits) DeviceAllow(_ context.Context, unit string) ([]Allow, error) {
	return f.allow[unit], f.err
}

// everyContainer is what Docker gives each container, GPU or not.
const everyContainer = "b *:* m\nc *:* m\nc 1:3 rwm\nc 136:* rwm\n"

func (f fakeUnits) AddDeviceAllow(context.Context, string, []Allow) error { return f.err }
func (f fakeUnits) SetDeviceAllow(context.Context, string, []Allow) error { return f.err }

const scope = "docker-0123.scope"

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestPreflight(t *testing.T) {
	both := []Allow{{"/dev/nvidiactl", "rw"}, {"/dev/char/195:0", "rwm"}, {"/dev/nvidia-uvm", "rw"}}
	cases := []struct {
		name   string
		unit   string // the control group's directory
		list   string // v1's devices.list; "": v2
		gpus   []string
		units  fakeUnits
		green  bool
		atRisk bool
		why    string // part of it
	}{
		{name: "no GPU", unit: "x", list: everyContainer, green: true, why: "no GPU"},
		{name: "v1, rules there", unit: "x", list: everyContainer + "c 195:* rwm\n", gpus: []string{"all"}, green: true, why: "holds the rules"},
		{name: "v1, each node", unit: "x", list: everyContainer + "c 195:255 rw\nc 195:0 rw\n", gpus: []string{"0"}, green: true},
		{name: "v1, privileged", unit: "x", list: "a *:* rwm\n", gpus: []string{"all"}, green: true},
		{name: "v1, rules lost", unit: "x", list: everyContainer, gpus: []string{"0"}, atRisk: true, why: "refuses the GPU now"},
		{name: "v1, nodes may be made but not opened", unit: "x", list: "c 195:* m\n", gpus: []string{"0"}, atRisk: true},
		{name: "v2 without systemd, rules unreadable", unit: "x", gpus: []string{"0"}, why: "cannot be read"},
		{name: "systemd knows", unit: scope, gpus: []string{"0"}, units: fakeUnits{allow: map[string][]Allow{scope: both}}, green: true},
		{name: "systemd knows by group", unit: scope, gpus: []string{"3"}, green: true,
			units: fakeUnits{allow: map[string][]Allow{scope: {{"char-nvidia-frontend", "rwm"}, {"char-nvidia-uvm", "rw"}}}}},
		{name: "systemd knows by glob", unit: scope, gpus: []string{"3"}, green: true,
			units: fakeUnits{allow: map[string][]Allow{scope: {{"char-nvidia*", "rwm"}}}}},
		{name: "systemd misses the GPU's own node", unit: scope, gpus: []string{"1"}, atRisk: true, why: "195:1",
			units: fakeUnits{allow: map[string][]Allow{scope: both}}},
		{name: "systemd misses unified memory", unit: scope, gpus: []string{"0"}, atRisk: true, why: "511:0",
			units: fakeUnits{allow: map[string][]Allow{scope: both[:2]}}},
		{name: "systemd knows nothing: the legacy hook", unit: scope, gpus: []string{"all"}, atRisk: true, why: "daemon-reload",
			units: fakeUnits{allow: map[string][]Allow{scope: {{"/dev/char/1:3", "rwm"}}}}},
		{name: "systemd would let it be read only", unit: scope, gpus: []string{"all"}, atRisk: true,
			units: fakeUnits{allow: map[string][]Allow{scope: {{"char-nvidia*", "r"}}}}},
		{name: "v1, systemd knows less than the group allows", unit: scope, list: "c 195:255 rw\nc 195:2 rw\n", gpus: []string{"all"}, atRisk: true, why: "195:2",
			units: fakeUnits{allow: map[string][]Allow{scope: both}}},
		{name: "systemd is away", unit: scope, gpus: []string{"all"}, atRisk: true, why: "no bus", units: fakeUnits{err: errors.New("no bus")}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, filepath.Join(root, "proc/devices"), "Character devices:\n  1 mem\n195 nvidia-frontend\n511 nvidia-uvm\n\nBlock devices:\n195 odd\n")
			dir := filepath.Join(root, tc.unit)
			c := runtime.Container{Name: "c", GPUs: tc.gpus, GPUVia: "devices", Cgroup: runtime.Cgroup{Mode: runtime.CgroupV2, Unified: dir}}
			if tc.list != "" {
				write(t, filepath.Join(dir, "devices.list"), tc.list)
				c.Cgroup = runtime.Cgroup{Mode: runtime.CgroupHybrid, V1: map[string]string{"devices": dir}}
			}
			r := Preflight(t.Context(), c, Options{ProcRoot: filepath.Join(root, "proc"), Units: tc.units})
			if r.Green != tc.green || r.AtRisk != tc.atRisk || !strings.Contains(r.Why, tc.why) || r.Why == "" {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestPreflightHint: who asked for each node already is not told to.
func TestPreflightHint(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "proc/devices"), "Character devices:\n195 nvidia-frontend\n")
	for via, asks := range map[string]bool{"devices": false, "cdi": false, "legacy-hook": true, "device-requests": true} {
		c := runtime.Container{GPUs: []string{"0"}, GPUVia: via, Cgroup: runtime.Cgroup{Mode: runtime.CgroupV2, Unified: filepath.Join(root, scope)}}
		units := fakeUnits{allow: map[string][]Allow{scope: {{"/dev/char/1:3", "rwm"}}}}
		r := Preflight(t.Context(), c, Options{ProcRoot: filepath.Join(root, "proc"), Units: units})
		if strings.Contains(r.Hint, "--device") != asks || !strings.Contains(r.Hint, "/dev/char") {
			t.Errorf("%s: %q", via, r.Hint)
		}
	}
}

func TestPreflightOfLostGroup(t *testing.T) {
	c := runtime.Container{GPUs: []string{"0"}, Cgroup: runtime.Cgroup{V1: map[string]string{"devices": t.TempDir()}}}
	if r := Preflight(t.Context(), c, Options{}); r.Green || r.Why == "" {
		t.Errorf("%+v", r)
	}
	if r := Preflight(t.Context(), runtime.Container{GPUs: []string{"0"}}, Options{}); r.Green || r.Why == "" {
		t.Errorf("%+v", r)
	}
}
