package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/state"
)

// counts asks CUDA for its devices again and again, in one process, and keeps the latest answer. It
// waits for its nodes first.
const counts = `
import ctypes, os, time
while not os.path.exists("/tmp/begin"):
    time.sleep(0.05)
cuda, n, said = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.create_string_buffer(64)
while True:
    r = cuda.cuInit(0)
    cuda.cuDeviceGetCount(ctypes.byref(n))
    names = []
    for i in range(n.value):
        cuda.cuDeviceGetName(said, 64, i)
        names.append(said.value.decode().split()[2])
    with open("/tmp/said.new", "w") as f:
        f.write("%d: %s" % (r, " ".join(names)))
    os.rename("/tmp/said.new", "/tmp/said")
    time.sleep(0.05)
`

// TestShownGPUIsUsableByARunningProgram: a program that was running before sees fewer devices once one
// is hidden, none without any, and all of them once they are shown: the same process, by cuInit again.
func TestShownGPUIsUsableByARunningProgram(t *testing.T) {
	node := gpuNode(t)
	host := runtimetest.NeedDocker(t)
	const name = "trimtab-test-shown-gpu"
	host.Remove(t, name) // of a run that was killed
	t.Cleanup(func() { host.Remove(t, name) })
	id := host.Run(t, slices.Concat([]string{"run", "-d", "--network", "none", "--name", name, "--label", "trimtab.mode=tune", "--device-cgroup-rule", gpuRule,
		"-e", "TRIMTAB_VGPU_DEVICE_NODES=/dev"}, node.DockerArgs(), []string{"--entrypoint", "python3", workload.Image, "-c", counts})...)
	h := holderOf(t, host, id)
	h.host.Run(t, "exec", h.id, "sh", "-c", "mknod /dev/nvidia0 c 195 0 && mknod /dev/nvidia1 c 195 1 && touch /tmp/begin")
	pid := h.host.Run(t, "inspect", "--format", "{{.State.Pid}} {{.State.StartedAt}}", h.id)
	d := daemon(t, daemontest.Options{Env: node.Env()})
	known(t, d, h)
	until(t, d, h.name, "enrolled", func(c state.Container) bool { return c.Enrolment.Mode == "tune" })
	says := func(when, want string) {
		t.Helper()
		got := ""
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			if got = strings.TrimSpace(h.host.Run(t, "exec", h.id, "sh", "-c", "cat /tmp/said || true")); got == want {
				return
			}
		}
		t.Fatalf("%s: CUDA says %q, want %q\n%s\n%s", when, got, want, d.Log(), h.host.Run(t, "logs", h.id))
	}
	says("at first", "0: 0 1")
	run(t, d, "gpu", "hide", h.name, "nvidia0")
	says("one is hidden", "0: 1")
	run(t, d, "gpu", "hide", h.name, "--all")
	says("all are hidden", "100:")
	run(t, d, "gpu", "show", h.name, "nvidia1")
	says("one is shown", "0: 1")
	run(t, d, "gpu", "show", h.name, "--all")
	says("all are shown", "0: 0 1")
	if now := h.host.Run(t, "inspect", "--format", "{{.State.Pid}} {{.State.StartedAt}}", h.id); now != pid {
		t.Errorf("the program is another one: %s, was %s", now, pid)
	}
}
