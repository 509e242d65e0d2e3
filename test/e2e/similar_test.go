package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/test/workloads/gpu"
	"github.com/trimtab/trimtab/tuner/state"
)

// unequalNode has a slow device and one of another model, twice as fast.
func unequalNode(t *testing.T) *vgpu.Node {
	t.Helper()
	return vgpuNode(t, vgpu.Options{Devices: 2, Spec: "/0:name=Slow (trimtab)/1:name=Fast (trimtab),speed-pct=200"})
}

// TestFasterDeviceIsAdvisedToThoseThatItBounds: a job is run on the slow device and on
// the fast one; the next of its kind on the slow one is told what the fast one would
// give it, and so is a job that is bound by its own CPU: nothing. Nobody is moved.
func TestFasterDeviceIsAdvisedToThoseThatItBounds(t *testing.T) {
	node := unequalNode(t)
	d := daemon(t, daemontest.Options{Env: node.Env()})
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		if all, err := d.Client().Fingerprints(context.Background()); err == nil {
			t.Logf("known: %+v", all)
		}
	})
	deviceBound := []string{"--kernels", "20", "--kernel-us", "2000", "--sync", "blocking"}
	hostBound := []string{"--kernels", "20", "--kernel-us", "200", "--host-ms", "60", "--sync", "blocking"}
	start := func(name, device string, args []string) *workload.Job {
		return begun(t, workload.Options{Name: fmt.Sprintf("trimtab-e2e-%d-%s", os.Getpid(), name), Script: gpu.Script,
			Args:       append([]string{"/opt/trimtab-vgpu/trainer", "--device", device}, args...),
			DockerArgs: slices.Concat(node.DockerArgs(), heaviest, []string{"--label", "trimtab.mode=observe"})})
	}
	knows := func(j *workload.Job, model string, n int) {
		t.Helper()
		until(t, d, j.Name, "to be known on "+model, func(state.Container) bool {
			all, err := d.Client().Fingerprints(t.Context())
			return err == nil && slices.ContainsFunc(all, func(k state.Fingerprint) bool { return k.Name == j.Name && len(k.Learned.Devices) >= n })
		})
	}
	const advice = "it should see Fast (trimtab) next"
	for _, job := range []struct {
		name      string
		args      []string
		concluded func(state.Container) bool // the first prediction may come before the verdict that it is read with
	}{
		{"device", deviceBound, func(c state.Container) bool {
			return c.Verdict.Cause == policies.CauseDevice && !c.Devices[0].HostBound
		}},
		{"host", hostBound, func(c state.Container) bool { return c.Verdict.Class != "" && c.Verdict.Class != policies.ClassUnknown }},
	} {
		fast := start(job.name+"-fast", "1", job.args)
		knows(fast, "Fast (trimtab)", 1)
		if err := fast.Stop(); err != nil {
			t.Fatal(err)
		}
		slow := start(job.name+"-slow", "0", job.args)
		c := until(t, d, slow.Name, "what bounds it to be told, and a prediction for the fast device", func(c state.Container) bool { return len(c.Devices) > 0 && job.concluded(c) })
		got := c.Devices[0]
		if job.name == "device" {
			until(t, d, slow.Name, "to be advised the fast device", func(state.Container) bool {
				text, err := d.Run(t.Context(), "explain", slow.Name)
				return err == nil && strings.Contains(text, advice)
			})
		}
		text, err := d.Run(t.Context(), "explain", slow.Name)
		if err != nil {
			t.Fatal(err)
		}
		advised := strings.Contains(text, advice)
		t.Logf("%s: %s of %s, %.2f × predicted, host-bound %v", slow.Name, c.Verdict.Class, got.Model, got.Ratio, got.HostBound)
		switch {
		case got.Model != "Fast (trimtab)":
			t.Errorf("%s: %+v", job.name, got)
		case job.name == "device" && got.Ratio < 1.5:
			t.Errorf("bound by a device of half the speed: %+v, %+v\n%s", got, c.Verdict, text)
		case job.name == "host" && (!got.HostBound || advised):
			t.Errorf("bound by its own CPU: %+v, %+v\n%s", got, c.Verdict, text)
		}
		if err := slow.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}
