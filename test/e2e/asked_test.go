package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/test/workloads/gpu"
	"github.com/trimtab/trimtab/tuner/state"
)

// onGPU starts the trainer on one device of a node, in a container that was given both.
func onGPU(t *testing.T, node *vgpu.Node, role string, labels []string, args ...string) *workload.Job {
	t.Helper()
	dockerArgs := slices.Concat(node.DockerArgs(), heaviest, []string{"--device-cgroup-rule", gpuRule, "--label", "trimtab.mode=tune"})
	for _, l := range labels {
		dockerArgs = append(dockerArgs, "--label", l)
	}
	j := started(t, workload.Options{Name: fmt.Sprintf("trimtab-e2e-%d-%s", os.Getpid(), role), Script: gpu.Script,
		Args: append([]string{"/opt/trimtab-vgpu/trainer"}, args...), DockerArgs: dockerArgs})
	runtimetest.NeedDocker(t).Run(t, "exec", j.Name, "sh", "-c", "cd /dev && mknod nvidia0 c 195 0 && mknod nvidia1 c 195 1 && mknod nvidiactl c 195 255")
	return j
}

// TestPolicyHidesWhatAJobLeftAlone: a job that may be told, and works on one of its two
// devices, is kept from the other while somebody is bound by that; it gets it back as soon
// as it is short of devices itself.
func TestPolicyHidesWhatAJobLeftAlone(t *testing.T) {
	if _, err := os.Stat("/sys/fs/cgroup/devices"); err != nil {
		t.Skip("needs v1's devices controller: by systemd's driver on v2 these containers are not known to hold a GPU")
	}
	node := gpuNode(t)
	// WINCH ends nobody who has no handler for it.
	left := onGPU(t, node, "left", []string{"trimtab.knobs=gpu", "trimtab.gpu.signal=WINCH"}, "--device", "0", "--sync", "blocking",
		"--kernels", "20", "--kernel-us", "200", "--host-ms", "60", "--kernel-us2", "10000", "--host-ms2", "1")
	needs := onGPU(t, node, "needs", nil, "--device", "1", "--sync", "blocking", "--kernels", "20", "--kernel-us", "2000")
	d := daemon(t, daemontest.Options{Env: node.Env(), Config: "gpu: {idleAfter: 5s, signal: true, hideAfter: 10s, showAfter: 10s}\n"})
	until(t, d, needs.Name, "to be bound by its device", bound(policies.ClassCompute, policies.CauseDevice))

	host := runtimetest.NeedDocker(t)
	nodes := func() string { // by the shell alone: ls fails where one is hidden while it looks
		return strings.Join(strings.Fields(host.Run(t, "exec", left.Name, "sh", "-c", "cd /dev; echo nvidia*")), " ")
	}
	wantNodes := func(when, want string) {
		t.Helper()
		got := ""
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(300 * time.Millisecond) {
			if got = nodes(); got == want {
				return
			}
		}
		c, err := d.Container(t.Context(), left.Name)
		t.Fatalf("%s: it has %q, want %q; why not: %s (%v), verdict %s/%s", when, got, want, c.WhyNot, err, c.Verdict.Class, c.Verdict.Cause)
	}
	wantNodes("left alone", "nvidia0 nvidiactl")
	if out := run(t, d, "gpu", "ls"); !strings.Contains(out, "policy") {
		t.Errorf("gpu ls does not say who hid it:\n%s", out)
	}
	if n := len(strings.Fields(host.Run(t, "exec", left.Name, "cat", "/run/trimtab/gpus"))); n != 1 {
		t.Errorf("its file names %d devices, want one", n)
	}
	if got := host.Run(t, "exec", needs.Name, "sh", "-c", "ls /dev/nvidia* | wc -l"); strings.TrimSpace(got) != "3" {
		t.Errorf("the job that works on it has %s nodes, want 3", got)
	}

	// Else its new phase is what the trial tells.
	until(t, d, left.Name, "what was hidden to have been tried", func(c state.Container) bool { return c.Trial == nil })
	wantNodes("tried", "nvidia0 nvidiactl")
	order(t, left, "USR2") // its device bounds it from now on
	wantNodes("short of devices itself", "nvidia0 nvidia1 nvidiactl")
	records, err := d.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	told := func(texts ...string) {
		t.Helper()
		if !slices.ContainsFunc(records, func(r state.Record) bool {
			return r.Name == left.Name && slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(r.Text, text) })
		}) {
			t.Errorf("no record says %q: %+v", texts, records)
		}
	}
	told("GPUs hidden: nvidia1 by policy knee")
	if i := slices.IndexFunc(records, func(r state.Record) bool {
		return r.Name == left.Name && strings.Contains(r.Text, "the hypervisor takes")
	}); i >= 0 {
		t.Skipf("needs a machine whose CPU time is its own: %s", records[i].Text) // it was taken back for that
	}
	told("short of devices itself", "its rate fell") // whichever shows first
}
