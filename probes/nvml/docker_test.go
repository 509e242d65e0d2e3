package nvml

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/procfs"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/vgpu/vgputest"
	trainers "github.com/trimtab/trimtab/test/workloads/gpu"
)

const trainImage = "trimtab-train:1"

// docker runs the client, and skips where there is none.
func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).Output()
	if err != nil {
		t.Skipf("needs Docker and %s (make image): docker %s: %v", trainImage, args[0], err)
	}
	return strings.TrimSpace(string(out))
}

// The host PID that NVML tells of a process in a container leads to that container.
func TestContainerHoldsDevice(t *testing.T) {
	docker(t, "image", "inspect", trainImage)
	n := vgputest.Node(t, vgpu.Options{Devices: 1})
	if _, err := trainers.Build(t.Context()); err != nil {
		t.Skip(err.Error())
	}
	args := append([]string{"run", "-d", "--rm", "--network", "none"}, n.DockerArgs()...)
	id := docker(t, append(args, trainImage, "/opt/trimtab-vgpu/"+trainers.Trainer, "--kernels", "4", "--kernel-us", "5000", "--seconds", "60")...)
	t.Cleanup(func() { _ = exec.Command("docker", "kill", id).Run() }) // it may have ended
	pid, err := strconv.Atoi(docker(t, "inspect", "-f", "{{.State.Pid}}", id))
	if err != nil {
		t.Fatal(err)
	}
	owners := procfs.NewOwners("/proc")
	if err := owners.Set([]probes.Target{{Key: id, InitPID: pid, Unified: unifiedOf(t, pid), Dir: func(controller string) string { return "/sys/fs/cgroup/" + controller + "/docker/" + id }}}); err != nil {
		t.Fatal(err)
	}
	r := readerOn(t, n, Options{Owner: owners.Key})
	d := device(t, r, 0, "the trainer in the container", func(d probes.Device) bool { return len(d.Processes) == 1 })
	if p := d.Processes[0]; p.Container != id || p.MemBytes == 0 {
		t.Errorf("%+v is not of container %s", p, id)
	}
}

// unifiedOf is a process's directory in the v2 tree, "" on pure v1.
func unifiedOf(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
				if _, err := os.Stat(root + path + "/cgroup.procs"); err == nil {
					return root + path
				}
			}
		}
	}
	return ""
}
