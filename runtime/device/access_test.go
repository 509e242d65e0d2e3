package device_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/runtime/device"
	"github.com/trimtab/trimtab/test/runtimetest"
)

// realContainer starts a container and finds its control group.
func realContainer(t *testing.T, host runtimetest.DockerHost, args ...string) runtime.Container {
	t.Helper()
	id := host.Start(t, args...)
	pid, err := strconv.Atoi(host.Run(t, "inspect", "--format", "{{.State.Pid}}", id))
	if err != nil {
		t.Fatal(err)
	}
	cg, err := cgroup.Locate("/proc", cgroup.DefaultRoot, pid)
	if err != nil {
		t.Fatal(err)
	}
	if cg.V1["devices"] == "" {
		t.Skip("needs v1's devices controller")
	}
	return runtime.Container{ID: runtime.ID{Container: id}, Name: id[:12], InitPID: pid, Cgroup: cg, GPUs: []string{"all"}, GPUVia: "devices"}
}

func TestCheckAccess(t *testing.T) {
	host := runtimetest.NeedDocker(t)
	allowed := realContainer(t, host, "--device-cgroup-rule", "c 195:* rwm")
	refused := realContainer(t, host)
	for range 20 { // on many threads, the main one among them by chance
		for c, want := range map[*runtime.Container]device.Access{&allowed: device.AccessAllowed, &refused: device.AccessRefused} {
			if got, err := device.CheckAccess(t.Context(), *c); got != want || err != nil {
				t.Fatalf("%s: %s, %v; want %s", c.Name, got, err, want)
			}
		}
	}
	if r := device.Preflight(t.Context(), allowed, device.Options{}); !r.Green {
		t.Errorf("with the rule: %+v", r)
	}
	if r := device.Preflight(t.Context(), refused, device.Options{}); r.Green || !r.AtRisk {
		t.Errorf("without the rule: %+v", r)
	}
	for _, c := range []runtime.Container{allowed, refused} {
		nobodyLeftInside(t, c)
	}
	if left, _ := filepath.Glob("/dev/.trimtab-*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCheckAccessOfPausedAndGone(t *testing.T) {
	host := runtimetest.NeedDocker(t)
	c := realContainer(t, host, "--device-cgroup-rule", "c 195:* rwm")
	host.Run(t, "pause", c.ID.Container)
	if got, err := device.CheckAccess(t.Context(), c); got != device.AccessAllowed || err != nil {
		t.Errorf("paused: %s, %v", got, err)
	}
	host.Run(t, "unpause", c.ID.Container)
	host.Run(t, "kill", c.ID.Container)
	host.Run(t, "wait", c.ID.Container)
	if got, err := device.CheckAccess(t.Context(), c); got != device.AccessUnknown || err == nil {
		t.Errorf("gone: %s, %v", got, err)
	}
}

func TestCheckAccessWhereItCannot(t *testing.T) {
	c := runtime.Container{Cgroup: runtime.Cgroup{Mode: runtime.CgroupV2, Unified: t.TempDir()}}
	if got, err := device.CheckAccess(t.Context(), c); got != device.AccessUnknown || err == nil {
		t.Errorf("v2: %s, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := device.CheckAccess(ctx, c); got != device.AccessUnknown || err == nil {
		t.Errorf("cancelled: %s, %v", got, err)
	}
}

// nobodyLeftInside checks that no thread of this process is in the container's group.
func nobodyLeftInside(t *testing.T, c runtime.Container) {
	t.Helper()
	tasks, err := os.ReadFile(filepath.Join(c.Cgroup.V1["devices"], "tasks"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tid := range strings.Fields(string(tasks)) {
		if _, err := os.Stat("/proc/self/task/" + tid); err == nil {
			t.Errorf("thread %s of this process is left in %s", tid, c.Name)
		}
	}
}
