package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/promtest"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/vgpu/vgputest"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/test/workloads/gpu"
	"github.com/trimtab/trimtab/tuner/state"
)

// gpuNode makes a virtual GPU node with two devices.
func gpuNode(t *testing.T) *vgpu.Node {
	t.Helper()
	return vgpuNode(t, vgpu.Options{Devices: 2})
}

func vgpuNode(t *testing.T, o vgpu.Options) *vgpu.Node {
	t.Helper()
	binary(t) // needs root, and says so
	if err := workload.Ready(t.Context()); err != nil {
		t.Skip(err)
	}
	return vgputest.Node(t, o)
}

// heaviest is the largest weight: other work of the machine slows such a job little, and what is built into
// it bounds it.
var heaviest = []string{"--network", "none", "--cpu-shares", "262144"}

// gpuJob starts the C++ trainer on the node's first device.
func gpuJob(t *testing.T, node *vgpu.Node, mode string, args ...string) *workload.Job {
	t.Helper()
	name := fmt.Sprintf("trimtab-e2e-%d-%s-gpu", os.Getpid(), strings.ToLower(t.Name())) // beside one without
	return started(t, workload.Options{Name: name, Script: gpu.Script, Args: append([]string{"/opt/trimtab-vgpu/trainer"}, args...),
		DockerArgs: slices.Concat(node.DockerArgs(), heaviest, []string{"--label", "trimtab.mode=" + mode})})
}

func bound(class policies.Class, cause policies.Cause) func(state.Container) bool {
	return func(c state.Container) bool { return c.Verdict.Class == class && c.Verdict.Cause == cause }
}

// TestGPUErrorsAreTold: what the driver reports of a device is in the history of the job that holds
// it, once, in explain, in doctor and in the metrics. Nothing is changed for it.
func TestGPUErrorsAreTold(t *testing.T) {
	node := gpuNode(t)
	j := gpuJob(t, node, "tune", "--kernels", "20", "--kernel-us", "2000", "--sync", "blocking")
	address := promtest.FreeAddress(t)
	d := daemon(t, daemontest.Options{Env: node.Env(), Metrics: address})
	until(t, d, j.Name, "to be bound by its device", bound(policies.ClassCompute, policies.CauseDevice))
	for _, pair := range [][2]string{{"xid", "94"}, {"ecc", "1"}, {"xid", "79"}} {
		if err := node.Set(t.Context(), 0, pair[0], pair[1]); err != nil {
			t.Fatal(err)
		}
	}
	told := until(t, d, j.Name, "three errors", func(c state.Container) bool { return len(c.GPUErrors) >= 3 })
	time.Sleep(3 * time.Second) // some more readings
	const lost, contained, memory = "GPU 0 reported XID 79: fell off the bus", "GPU 0 reported XID 94: a memory error was contained", "GPU 0 reported memory errors that ECC cannot correct: 1,"
	for args, want := range map[string][]string{"explain " + j.Name: {lost, contained, memory}, "history --output json " + j.Name: {lost, contained, memory},
		"doctor": {"reported XID 79, 1 times since the daemon started"}} {
		out, err := d.Run(t.Context(), strings.Fields(args)...)
		for _, text := range want {
			if n := strings.Count(out, text); n != 1 {
				t.Errorf("trimtab %s says %d times %q: %v\n%s", args, n, text, err, out)
			}
		}
	}
	r, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	page, err := io.ReadAll(r.Body)
	for _, line := range []string{`trimtab_gpu_xid_errors_total{device="0",xid="79"} 1`, `trimtab_gpu_xid_errors_total{device="0",xid="94"} 1`,
		`trimtab_gpu_faults_total{device="0"} 3`, `trimtab_gpu_faults_total{device="1"} 0`, `trimtab_gpu_ecc_errors_total{device="0",kind="uncorrected"} 1`} {
		if !strings.Contains(string(page), line+"\n") {
			t.Errorf("%v: no line %s", err, line)
		}
	}
	if c := until(t, d, j.Name, "a reading", func(state.Container) bool { return true }); len(c.Changed) > 0 || len(c.Trials) > 0 || len(told.GPUErrors) != 3 {
		t.Errorf("changed %v, tried %+v, told %+v", c.Changed, c.Trials, told.GPUErrors)
	}
}

// TestDeviceBoundThenIdle: a job that waits for its device is a donor; once it has
// stopped launching and holds its memory, its device is held idle, by its name.
func TestDeviceBoundThenIdle(t *testing.T) {
	node := gpuNode(t)
	j := gpuJob(t, node, "observe", "--kernels", "20", "--kernel-us", "2000", "--sync", "blocking")
	d := daemon(t, daemontest.Options{Env: node.Env(), Config: "gpu: {idleAfter: 5s}\n"})
	c := until(t, d, j.Name, "to be bound by its device", bound(policies.ClassCompute, policies.CauseDevice))
	if !slices.ContainsFunc(c.Verdict.Evidence, func(e policies.Evidence) bool { return e.Name == "launches" && e.Value > 100 }) {
		t.Errorf("no launches among the evidence: %v", c.Verdict.Evidence)
	}
	if c.Rate.Source == "" || c.Rate.PerSecond < 5 {
		t.Errorf("rate %+v of some 25 steps a second", c.Rate)
	}
	order(t, j, "USR1") // it pauses
	held := func(state.Container) bool {
		devices, err := d.Client().Devices(t.Context())
		if err != nil || len(devices.Devices) != 2 {
			return false
		}
		return slices.ContainsFunc(devices.Devices[0].Holders, func(h state.Holder) bool { return h.Name == j.Name && h.Idle && h.MemBytes > 0 })
	}
	until(t, d, j.Name, "to hold its device idle", held)
	out, err := d.Run(t.Context(), "gpu", "idle")
	if err != nil || !strings.Contains(out, "1 of 2 GPUs is held idle") {
		t.Errorf("trimtab gpu idle: %v\n%s", err, out)
	}
	s, err := d.Client().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !s.Daemon.Virtual {
		t.Error("nobody says that this GPU is virtual")
	}
}

// TestCUDAWithoutNVML: on a host whose daemon finds no NVML a job's launches and waits are counted all the
// same, and say what bounds it. There is no device to show, and nothing is wrong with that.
func TestCUDAWithoutNVML(t *testing.T) {
	node := gpuNode(t)
	j := gpuJob(t, node, "observe", "--kernels", "20", "--kernel-us", "2000", "--sync", "blocking")
	d := daemon(t, daemontest.Options{}) // of the node it is not told
	// On a busy machine its thread queues for a CPU too, and which of the two bounds it may change.
	c := until(t, d, j.Name, "to compute, and to wait for its device most of the time", func(c state.Container) bool {
		return c.Verdict.Class == policies.ClassCompute && 2*c.Breakdown.Ns[policies.PartDevice] > c.Breakdown.WallNs
	})
	if !slices.ContainsFunc(c.Verdict.Evidence, func(e policies.Evidence) bool { return e.Name == "launches" && e.Value > 100 }) || c.Rate.PerSecond < 5 {
		t.Errorf("no launches among the evidence, or no rate: %v, %+v", c.Verdict.Evidence, c.Rate)
	}
	devices, err := d.Client().Devices(t.Context())
	if err != nil || len(devices.Devices) != 0 || !strings.Contains(devices.Why, "no NVIDIA driver") {
		t.Errorf("devices %+v, %v: want none, and why", devices, err)
	}
	s, err := d.Client().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(s.Daemon.Probes, func(p state.Part) bool { return p.Name == "nvml" }); i < 0 || !s.Daemon.Probes[i].OK {
		t.Errorf("NVML that is not there is said to be lost: %+v", s.Daemon.Probes)
	}
}

// TestStarvedLoadersOfAGPUJob: the whole loop before a device: lent, settled, restored.
func TestStarvedLoadersOfAGPUJob(t *testing.T) {
	node := gpuNode(t)
	j := gpuJob(t, node, "tune", "--kernels", "10", "--kernel-us", "2000", "--sync", "blocking", "--loader-threads", "2", "--loader-ms", "30")
	if err := j.SetQuota(t.Context(), starvedCPUs); err != nil {
		t.Fatal(err)
	}
	before, _, err := j.RateFor(t.Context(), 4*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	d := daemon(t, daemontest.Options{Env: node.Env()})
	c := until(t, d, j.Name, "to be helped", settled)
	after, _, err := j.RateFor(t.Context(), 6*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.2f steps/s before, %.2f after; gain %.2f, known %v", before, after, c.Gain, c.HasGain)
	if before <= 0 || after < 1.3*before {
		t.Errorf("the job printed %.2f steps/s before and %.2f after", before, after)
	}
	if c.HasGain && c.Gain < 0.3 { // a loan that came before the first rate was counted has none
		t.Errorf("gain %.2f", c.Gain)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	wantQuota(t, j, starvedCPUs, "after the daemon ended")
}

// TestLostDeviceCostsItsReadings: a device falls off, NVML hangs; everything else goes on.
func TestLostDeviceCostsItsReadings(t *testing.T) {
	node := gpuNode(t)
	j := gpuJob(t, node, "observe", "--kernels", "20", "--kernel-us", "2000", "--sync", "blocking")
	d := daemon(t, daemontest.Options{Env: node.Env()})
	until(t, d, j.Name, "to be bound by its device", bound(policies.ClassCompute, policies.CauseDevice))
	second := func(good func(state.Device) bool) func(state.Container) bool {
		return func(state.Container) bool {
			devices, err := d.Client().Devices(t.Context())
			return err == nil && len(devices.Devices) == 2 && good(devices.Devices[1])
		}
	}
	until(t, d, j.Name, "its neighbour device to be read", second(func(v state.Device) bool { return v.Lost == "" && v.PowerW != nil }))
	for _, fault := range []struct {
		kind string
		met  func(state.Device) bool
	}{
		{"hang=nvmlDeviceGetPowerUsage", func(v state.Device) bool { return v.Lost == "" && v.PowerW == nil && v.MemTotal > 0 }},
		{"lost", func(v state.Device) bool { return v.Lost != "" }},
	} {
		kind := fault.kind
		if err := node.Fault(t.Context(), 1, kind); err != nil {
			t.Fatal(err)
		}
		until(t, d, j.Name, kind+" to be met", second(fault.met))
		c, err := d.Container(t.Context(), j.Name)
		if err != nil {
			t.Fatal(err)
		}
		from := c.Windows
		until(t, d, j.Name, "to be read on with "+kind, func(c state.Container) bool {
			return c.Windows > from+2 && c.Verdict.Class == policies.ClassCompute
		})
		devices, err := d.Client().Devices(t.Context())
		if err != nil || len(devices.Devices) == 0 {
			t.Fatalf("%s: %v, %+v", kind, err, devices)
		}
		if devices.Devices[0].Lost != "" {
			t.Errorf("%s of the second device took the first: %s", kind, devices.Devices[0].Lost)
		}
		if err := node.ClearFaults(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
