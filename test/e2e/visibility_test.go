package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/tuner/state"
)

// twoGPUs is a container with the nodes of two GPUs.
func twoGPUs(t testing.TB, labels ...string) gpuHolder {
	t.Helper()
	h := holdGPU(t, gpuRule, labels...)
	h.host.Run(t, "exec", h.id, "sh", "-c", "cd /dev && mknod nvidia0 c 195 0 && mknod nvidia1 c 195 1 && mknod /tmp/own1 c 195 1")
	return h
}

// sees is what a process in the container finds: of each node "open", "refused" or
// "gone", and its file.
func (h gpuHolder) sees(t testing.TB) string {
	t.Helper()
	out := h.host.Run(t, "exec", h.id, "sh", "-c", `for f in /dev/nvidia0 /dev/nvidia1 /tmp/own1 /tmp/gpu; do e=$(cat $f 2>&1); case "$e" in
*permitted*) echo refused;; *"No such device"*) echo open;; *"No such file"*) echo gone;; *) echo "$e";; esac; done; cat /run/trimtab/gpus 2>/dev/null || echo none`)
	return strings.Join(strings.Fields(out), " ")
}

func wantSees(t *testing.T, d *daemontest.Daemon, h gpuHolder, when, want string) {
	t.Helper()
	got := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if got = h.sees(t); got == want {
			return
		}
	}
	t.Fatalf("%s: it sees %q, want %q\n%s", when, got, want, d.Log())
}

const (
	seesAll   = "open open open open none"
	seesFirst = "open gone refused open 0"
)

func run(t *testing.T, d *daemontest.Daemon, args ...string) string {
	t.Helper()
	out, err := d.Run(t.Context(), args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, d.Log())
	}
	return out
}

func TestGPUHideAndShow(t *testing.T) {
	h := twoGPUs(t, "trimtab.mode=tune")
	watched := twoGPUs(t, "trimtab.mode=observe")
	before := h.list(t)
	d := daemon(t, daemontest.Options{})
	known(t, d, h)
	wantRules := func(when string) {
		t.Helper()
		if now := h.list(t); !slices.Equal(now, before) {
			t.Errorf("%s: its rules are %v, were %v", when, now, before)
		}
	}
	until(t, d, h.name, "enrolled", func(c state.Container) bool { return c.Enrolment.Mode == "tune" })
	if out, err := d.Run(t.Context(), "gpu", "hide", watched.name, "1"); err == nil || !strings.Contains(out, "not enrolled") {
		t.Errorf("%s, %v", out, err)
	}

	if out := run(t, d, "gpu", "hide", h.name, "nvidia1"); !strings.Contains(out, "hidden: nvidia1") {
		t.Error(out)
	}
	wantSees(t, d, h, "hidden", seesFirst)
	out := run(t, d, "gpu", "ls")
	if !strings.Contains(out, h.name) || !strings.Contains(out, "nvidia1") {
		t.Errorf("%s", out)
	}
	t.Logf("\n%s", out)
	h.host.Run(t, "update", "--cpus", "1.5", h.id) // by somebody else
	time.Sleep(5 * time.Second)                    // several rounds of repair
	wantSees(t, d, h, "looked at for a while", seesFirst)
	status, err := d.Client().Status(t.Context())
	if err != nil || status.Totals.GPUAccessLost > 0 || len(status.Totals.GPURepairs) > 0 {
		t.Errorf("the repair minds: %+v, %v", status.Totals.GPURepairs, err)
	}
	h.loseOne(t, "c 195:255 rwm") // what is taken beside it is repaired, and no more
	wantSees(t, d, h, "repaired", seesFirst)

	run(t, d, "gpu", "show", h.name, "--all")
	wantSees(t, d, h, "shown", "open open open open 0 1")
	wantRules("shown")

	// Killed while it hides: the next daemon gives everything back.
	run(t, d, "gpu", "hide", h.name, "--all")
	wantSees(t, d, h, "all hidden", "gone gone refused refused")
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSees(t, d, h, "after kill -9", seesAll)
	wantRules("after kill -9")

	// Somebody else allows it again: left alone, and told.
	until(t, d, h.name, "enrolled", func(c state.Container) bool { return c.Enrolment.Mode == "tune" })
	run(t, d, "gpu", "hide", h.name, "1")
	if err := os.WriteFile(filepath.Join(h.cgroup.V1["devices"], "devices.allow"), []byte(gpuRule), 0); err != nil {
		t.Fatal(err)
	}
	wantSees(t, d, h, "allowed by somebody else", seesAll)
	wantRules("yielded")

	run(t, d, "gpu", "hide", h.name, "1")
	run(t, d, "disable", h.name)
	wantSees(t, d, h, "opted out", seesAll)
	run(t, d, "enable", h.name)
	run(t, d, "gpu", "hide", h.name, "1")
	if out := run(t, d, "restore", h.name); !strings.Contains(out, "shown again") {
		t.Error(out)
	}
	wantSees(t, d, h, "restored by hand", seesAll)
	run(t, d, "resume", h.name)
	run(t, d, "gpu", "hide", h.name, "1")
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	wantSees(t, d, h, "stopped", seesAll)
	wantRules("stopped")
}

// loseOne takes one rule away.
func (h gpuHolder) loseOne(t testing.TB, rule string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(h.cgroup.V1["devices"], "devices.deny"), []byte(rule), 0); err != nil {
		t.Fatal(err)
	}
}

func TestGPURestoreOffline(t *testing.T) {
	h := twoGPUs(t, "trimtab.mode=tune")
	before := h.list(t)
	d := daemon(t, daemontest.Options{})
	until(t, d, h.name, "enrolled", func(c state.Container) bool { return c.Enrolment.Mode == "tune" })
	run(t, d, "gpu", "hide", h.name, "1")
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	if out := run(t, d, "restore", "--offline", "--state-dir", filepath.Join(d.Dir, "state")); !strings.Contains(out, "shown again") {
		t.Error(out)
	}
	wantSees(t, d, h, "restored offline", seesAll)
	if now := h.list(t); !slices.Equal(now, before) {
		t.Errorf("its rules are %v, were %v", now, before)
	}
}
