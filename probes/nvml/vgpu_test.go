package nvml

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/vgpu/vgputest"
	trainers "github.com/trimtab/trimtab/test/workloads/gpu"
)

// childOn is a child's argv that sees the node.
func childOn(t *testing.T, n *vgpu.Node) []string {
	t.Helper()
	needsChild(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child, err := findChild(self)
	if err != nil {
		t.Fatal(err)
	}
	return append(append([]string{"/usr/bin/env"}, n.Env()...), child...)
}

func readerOn(t *testing.T, n *vgpu.Node, o Options) *Reader {
	t.Helper()
	o.Child, o.Library = childOn(t, n), cmp.Or(o.Library, n.Dir.Lib("libnvidia-ml.so.1"))
	return started(t, o)
}

// runOn runs a trainer with the node until the test ends, and returns its PID.
func runOn(t *testing.T, n *vgpu.Node, args ...string) int32 {
	t.Helper()
	cmd := exec.Command(n.Dir.Lib(trainers.Trainer), append(args, "--seconds", "120")...)
	cmd.Env = append(os.Environ(), n.Env()...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return int32(cmd.Process.Pid)
}

// trainOn keeps a device busy until the test ends, and returns the trainer's PID.
func trainOn(t *testing.T, n *vgpu.Node, device string) int32 {
	t.Helper()
	return runOn(t, n, "--kernels", "4", "--kernel-us", "5000", "--device", device)
}

func order(t *testing.T, n *vgpu.Node, device int, kind string) {
	t.Helper()
	if err := n.Fault(t.Context(), device, kind); err != nil {
		t.Fatal(err)
	}
}

func set(t *testing.T, n *vgpu.Node, device int, key, value string) {
	t.Helper()
	if err := n.Set(t.Context(), device, key, value); err != nil {
		t.Fatal(err)
	}
}

// device waits until one device's reading is as wanted.
func device(t *testing.T, r *Reader, index int, what string, ok func(d probes.Device) bool) probes.Device {
	t.Helper()
	var found probes.Device
	until(t, r, what, func() bool {
		for _, d := range read(r) {
			if d.Index == index && d.Parent == "" && ok(d) {
				found = d
				return true
			}
		}
		return false
	})
	return found
}

func TestReading(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{Spec: "hopper=1,nvlinks=4,temp-c=61/1:numa=1,cpus=2-3"})
	pid := trainOn(t, n, "0")
	r := readerOn(t, n, Options{Owner: func(p int32) string {
		if p == pid {
			return "the job"
		}
		return ""
	}})
	busy := device(t, r, 0, "the trainer's share of device 0", func(d probes.Device) bool {
		return len(d.Processes) == 1 && d.Processes[0].SM != nil && *d.Processes[0].SM > 0.2 && d.SMActive != nil &&
			slices.ContainsFunc(d.Duty, func(s probes.DutySample) bool { return s.Share > 0.8 })
	})
	if p := busy.Processes[0]; p.PID != pid || p.Container != "the job" || p.MemBytes == 0 || p.Graphics {
		t.Errorf("process %+v, want %d of the job", p, pid)
	}
	for i, s := range busy.Duty[1:] {
		if apart := time.Duration(s.AtNs - busy.Duty[i].AtNs); apart < 160*time.Millisecond || apart > 175*time.Millisecond {
			t.Errorf("samples of duty lie %v apart, want 167 ms", apart)
		}
	}
	idle := device(t, r, 1, "device 1", func(d probes.Device) bool { return len(d.Duty) > 0 })
	for _, s := range idle.Duty {
		if s.Share != 0 {
			t.Errorf("device 1 idles, and its duty is %v", s.Share)
		}
	}
	if idle.CPUs != "2-3" || idle.NUMA == nil || *idle.NUMA != 1 || idle.UUID == busy.UUID || len(idle.Processes) != 0 {
		t.Errorf("device 1: %+v", idle)
	}
	for what, v := range map[string]*float64{
		"power": busy.PowerW, "limit": busy.PowerLimitW, "clock": busy.ClockMHz, "max clock": busy.MaxClockMHz, "temperature": busy.TempC,
		"tensor": busy.TensorActive, "DRAM": busy.DRAMActive, "PCIe": busy.PCIeRxBps, "PCIe's most": busy.PCIeMaxBps,
	} {
		if v == nil {
			t.Errorf("%s is absent", what)
		}
	}
	if busy.TempC != nil && *busy.TempC != 61 {
		t.Errorf("%v °C, want 61", *busy.TempC)
	}
	if !busy.Virtual || busy.MemTotal != 80<<30 || busy.MemUsed == 0 || busy.Sharing != "" || busy.Lost != "" || busy.NVLinkRx == nil {
		t.Errorf("device 0: %+v", busy)
	}
	if ok, lost := r.Status(); !ok || lost != "" {
		t.Errorf("status %v, %q", ok, lost)
	}
	if cpu, rss := r.Spent(); cpu == 0 || rss == 0 {
		t.Errorf("it costs nothing: %d ns, %d bytes", cpu, rss)
	}
}

// Why the clock is low, in words.
func TestSlowdownIsTold(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{})
	r := readerOn(t, n, Options{})
	set(t, n, 1, "slowdown", "0x24")
	d := device(t, r, 1, "the reasons", func(d probes.Device) bool { return len(d.Slowdown) > 1 })
	if !slices.Equal(d.Slowdown, []string{"power", "thermal", "idle"}) {
		t.Errorf("%q", d.Slowdown)
	}
}

// One call of one device hangs or ends the process: the child is killed, the call is
// named and left out, the device's other readings and the other device's go on.
func TestDeadlyCall(t *testing.T) {
	for kind, said := range map[string]string{"hang": "gave no answer in", "exit": "ended the process"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			n := vgputest.Node(t, vgpu.Options{})
			var log journal
			r := readerOn(t, n, Options{Logger: log.logger()})
			device(t, r, 0, "power", func(d probes.Device) bool { return d.PowerW != nil })
			order(t, n, 0, kind+"=nvmlDeviceGetPowerUsage")
			d := device(t, r, 0, "a reading without power", func(d probes.Device) bool { return d.PowerW == nil && d.Lost == "" })
			if d.ClockMHz == nil || d.MemTotal == 0 {
				t.Errorf("the rest is gone too: %+v", d)
			}
			other := device(t, r, 1, "the other device", func(probes.Device) bool { return true })
			device(t, r, 1, "its next reading", func(d probes.Device) bool { return d.AtNs > other.AtNs && d.PowerW != nil })
			ok, lost := r.Status()
			if ok || !strings.Contains(lost, "nvmlDeviceGetPowerUsage of GPU-") || !strings.Contains(lost, said) {
				t.Errorf("status %v, %q", ok, lost)
			}
			if c := log.count("level=WARN"); c != 1 {
				t.Errorf("%d warnings for one call:\n%s", c, log.buf.String())
			}
		})
	}
}

// A device that cannot even be named is lost by name; the others are read.
func TestDeviceThatHangs(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{})
	r := readerOn(t, n, Options{SlowDeadline: time.Second})
	uuid := device(t, r, 1, "device 1", func(d probes.Device) bool { return d.Lost == "" }).UUID
	order(t, n, 1, "hang=nvmlDeviceGetUUID")
	order(t, n, 1, "exit=nvmlDeviceGetPowerUsage") // makes the next child ask for it anew
	d := device(t, r, 1, "its loss", func(d probes.Device) bool { return strings.Contains(d.Lost, "nvmlDeviceGetUUID of #1 gave no answer") })
	if d.UUID != uuid || d.MemTotal != 0 {
		t.Errorf("lost as %+v", d)
	}
	was := device(t, r, 0, "device 0", func(d probes.Device) bool { return d.Lost == "" })
	device(t, r, 0, "its next reading", func(d probes.Device) bool { return d.AtNs > was.AtNs && d.Lost == "" })
}

// What the device does not support, and what the driver's library does not have, is absent.
func TestAbsentFunctions(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{})
	order(t, n, -1, "unsupported=nvmlDeviceGetPowerUsage")
	old := t.TempDir()
	missing := []string{"nvmlDeviceGetSamples", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetClockInfo"}
	if err := n.Dir.BuildWithout(t.Context(), old, "libnvidia-ml.so.1", missing...); err != nil {
		t.Fatal(err)
	}
	r := readerOn(t, n, Options{Library: filepath.Join(old, "libnvidia-ml.so.1")})
	until(t, r, "readings", func() bool { return readings(r) > 3 })
	for _, d := range read(r) {
		if d.PowerW != nil || d.ClockMHz != nil || len(d.Duty) != 0 || d.MemTotal == 0 || d.MaxClockMHz == nil || d.Lost != "" {
			t.Errorf("%+v", d)
		}
	}
	if ok, lost := r.Status(); !ok {
		t.Errorf("an older driver is no loss: %q", lost)
	}
}

// The library of a driver before R470 lacks the newest versions of functions.
func TestOldDriver(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{Spec: "slowdown=4,temp-c=50"})
	pid := trainOn(t, n, "0")
	r := readerOn(t, n, Options{Library: n.Dir.Lib("libnvidia-ml-old.so.1")})
	d := device(t, r, 0, "the trainer", func(d probes.Device) bool { return len(d.Processes) == 1 && len(d.Duty) > 0 })
	if d.Processes[0].PID != pid || d.MemTotal != 80<<30 || !slices.Contains(d.Slowdown, "power") || d.TempC == nil || *d.TempC != 50 || d.SMActive != nil {
		t.Errorf("%+v", d)
	}
}

// A device falls off the bus and comes back; the other is read throughout.
func TestLostDevice(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{})
	r := readerOn(t, n, Options{})
	uuid := device(t, r, 1, "device 1", func(d probes.Device) bool { return d.Lost == "" }).UUID
	set(t, n, 1, "lost", "1")
	d := device(t, r, 1, "its loss", func(d probes.Device) bool { return d.Lost == "fell off the bus" })
	if d.UUID != uuid || d.PowerW != nil {
		t.Errorf("lost as %+v", d)
	}
	was := device(t, r, 0, "device 0", func(d probes.Device) bool { return d.Lost == "" })
	device(t, r, 0, "its next reading", func(d probes.Device) bool { return d.AtNs > was.AtNs && d.Lost == "" })
	if ok, lost := r.Status(); ok || !strings.Contains(lost, "GPU 1") {
		t.Errorf("status %v, %q", ok, lost)
	}
	set(t, n, 1, "lost", "0")
	device(t, r, 1, "its return", func(d probes.Device) bool { return d.Lost == "" && d.PowerW != nil })
}

// Under MIG slices are devices of their own, and what does not exist there is absent.
func TestMIG(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{Devices: 1, Spec: "mig=3,hopper=1"})
	r := readerOn(t, n, Options{})
	until(t, r, "readings", func() bool { return readings(r) > 3 })
	list := read(r)
	if len(list) != 4 {
		t.Fatalf("%d devices: %+v", len(list), list)
	}
	for i, d := range list {
		if d.Sharing != "mig" || len(d.Duty) != 0 || d.MemTotal == 0 || (i > 0) != (d.Parent == list[0].UUID) || (i > 0) != strings.HasPrefix(d.UUID, "MIG-") {
			t.Errorf("device %d: %+v", i, d)
		}
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", list[2].UUID)
	pid := trainOn(t, n, "0")
	until(t, r, "a process in its slice alone", func() bool {
		list = read(r)
		return len(list[1].Processes) == 0 && len(list[2].Processes) == 1 && list[2].Processes[0].PID == pid
	})
}

// A driver that leaves out each sample of a process still tells that it holds the device.
func TestSamplesOfProcessesDropOut(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{Devices: 1, Spec: "drop-pct=100"})
	trainOn(t, n, "0")
	r := readerOn(t, n, Options{})
	d := device(t, r, 0, "a busy device", func(d probes.Device) bool {
		return slices.ContainsFunc(d.Duty, func(s probes.DutySample) bool { return s.Share > 0.8 })
	})
	if len(d.Processes) != 1 || d.Processes[0].SM != nil {
		t.Errorf("processes: %+v, want one without a share", d.Processes)
	}
}

// Two processes hold a device: in turns, or by MPS.
func TestSharing(t *testing.T) {
	for want, spec := range map[string]string{"time-slicing": "", "mps": "mps=1"} {
		t.Run(want, func(t *testing.T) {
			n := vgputest.Node(t, vgpu.Options{Devices: 1, Spec: spec})
			trainOn(t, n, "0")
			trainOn(t, n, "0")
			r := readerOn(t, n, Options{})
			device(t, r, 0, want, func(d probes.Device) bool { return len(d.Processes) >= 2 && d.Sharing == want })
		})
	}
}

func TestLook(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{Spec: "hopper=1"})
	order(t, n, 0, "hang=nvmlDeviceGetPowerUsage")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := Look(ctx, fast(Options{Child: childOn(t, n), Library: n.Dir.Lib("libnvidia-ml.so.1")}))
	if err != nil {
		t.Fatal(err)
	}
	if s.Driver == "" || !s.Virtual || len(s.Devices) != 2 || s.Absent != "" || len(s.Silent) != 1 || !strings.Contains(s.Silent[0], "nvmlDeviceGetPowerUsage") {
		t.Errorf("%+v", s)
	}
	calls := s.Answered(s.Devices[1].UUID)
	if !slices.Contains(calls, "DeviceGetPowerUsage") || !slices.Contains(calls, "GpmMetricsGet") {
		t.Errorf("device 1 answered %q", calls)
	}
	if calls := s.Answered(s.Devices[0].UUID); slices.Contains(calls, "DeviceGetPowerUsage") {
		t.Errorf("device 0 answered %q", calls)
	}
}

// A driver is upgraded underneath: the library that runs ends with its driver, the new one
// does not fit what is loaded until the machine's modules are the new ones too. That is
// said meanwhile, and devices are read again as soon as they answer.
func TestDriverUpgradedUnderneath(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{})
	lib := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	copyFile(t, n.Dir.Lib("libnvidia-ml.so.1"), lib)
	r := readerOn(t, n, Options{Library: lib})
	before := device(t, r, 1, "a reading", func(d probes.Device) bool { return d.Lost == "" && d.PowerW != nil })
	copyFile(t, buildLibrary(t, "int nvmlInit_v2(void) { return 18; }"), lib)
	order(t, n, 0, "exit=nvmlDeviceGetPowerUsage")
	until(t, r, "the mismatch", func() bool {
		ok, lost := r.Status()
		return !ok && strings.Contains(lost, "mismatch")
	})
	if list, err := r.Read(t.Context()); err == nil {
		t.Errorf("devices are told with a library that does not fit: %+v", list)
	}
	copyFile(t, n.Dir.Lib("libnvidia-ml.so.1"), lib)
	device(t, r, 1, "the device again", func(d probes.Device) bool { return d.Lost == "" && d.AtNs > before.AtNs && d.PowerW != nil })
}

// A driver that is removed in service leaves what a host without one is, and is found again.
func TestDriverVanishes(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{})
	lib := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	copyFile(t, n.Dir.Lib("libnvidia-ml.so.1"), lib)
	r := readerOn(t, n, Options{Library: lib})
	before := device(t, r, 1, "a reading", func(d probes.Device) bool { return d.Lost == "" && d.PowerW != nil })
	if err := os.Remove(lib); err != nil {
		t.Fatal(err)
	}
	order(t, n, 0, "exit=nvmlDeviceGetPowerUsage") // the next child finds nothing
	until(t, r, "no driver", func() bool {
		ok, lost := r.Status()
		return ok && strings.Contains(lost, "no NVIDIA driver here")
	})
	if list, err := r.Read(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("read of a host without a driver: %+v, %v", list, err)
	}
	copyFile(t, n.Dir.Lib("libnvidia-ml.so.1"), lib)
	device(t, r, 1, "the device again", func(d probes.Device) bool { return d.Lost == "" && d.AtNs > before.AtNs && d.PowerW != nil })
}
