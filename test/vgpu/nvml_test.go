package vgpu

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// What testdata/gonvml prints.
type nvmlDevice struct {
	Name, UUID, Bus string
	Total           uint64
	Used, UsedV2    uint64
	Duty            []struct{ Us, Value uint64 }
	Processes       []struct {
		PID   uint32
		Mem   uint64
		Slice uint32
	}
	Uses         []struct{ PID, SM uint32 }
	Rates        uint32
	Power, Limit uint32
	Clock        uint32
	MaxClock     uint32
	Reasons      uint64
	Temp         uint32
	PCIeRx       uint32
	CPUs, Numa   []uint
	Mig          int
	Slices       []nvmlDevice
	SM           float64
	Errors       map[string]int
}

// NVML's codes.
const (
	notSupported = 3
	isLost       = 15
)

// goNVML builds the program that reads NVML through go-nvml, which needs cgo.
func goNVML(t *testing.T) string {
	t.Helper()
	program := filepath.Join(libraries(t), "gonvml") // linked once: go build leaves what is up to date
	cmd := exec.Command("go", "build", "-o", program, ".")
	cmd.Dir = filepath.Join("testdata", "gonvml")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_CFLAGS=-O1 -Wno-deprecated-declarations", "GOFLAGS=-mod=readonly", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil && (strings.Contains(string(out), "dial tcp") || strings.Contains(string(out), "module lookup disabled")) {
		t.Skipf("needs go-nvml, which cannot be downloaded: %s", out)
	}
	if err != nil {
		t.Fatalf("building testdata/gonvml: %v\n%s", err, out)
	}
	return program
}

func (r rig) nvml(t *testing.T, program string) []nvmlDevice {
	t.Helper()
	cmd := exec.Command(program, r.Dir.Lib("libnvidia-ml.so.1"))
	cmd.Env = append(os.Environ(), r.Env()...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("gonvml: %v\n%s", err, out)
	}
	var all []nvmlDevice
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// call makes one call with a library for some seconds at the most, and returns what it
// said and how it ended.
func (r rig) call(t *testing.T, program, library, call string, limit time.Duration) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, library, call)
	cmd.Env = append(os.Environ(), r.Env()...)
	out, err := cmd.Output()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return strings.TrimSpace(string(out)), err
}

// Samples of ~167 ms and per-process figures agree with the load.
func TestNVMLReportsTheLoad(t *testing.T) {
	program := goNVML(t)
	r := newRig(t, Options{Spec: "hopper=1,drop-pct=0"})
	cmd, _ := r.start(t, nil, "run", "4000", "60", "50")
	time.Sleep(1500 * time.Millisecond)
	before, began := r.show(t).Devices[0].BusyNs, time.Now()
	time.Sleep(2 * time.Second)
	busy := float64(r.show(t).Devices[0].BusyNs-before) / float64(time.Since(began)) // what the box gave the load while the samples below were taken
	d := r.nvml(t, program)[0]

	n := len(d.Duty)
	if n < 15 || n > 40 {
		t.Fatalf("%d samples in about 4 s, want 6 a second", n)
	}
	var sum float64
	for i, s := range d.Duty[n-12:] {
		sum += float64(s.Value) / 100 / 12
		if before := d.Duty[n-13+i].Us; s.Us-before < 160e3 || s.Us-before > 175e3 {
			t.Errorf("samples lie %d µs apart, want 167 ms", s.Us-before)
		}
	}
	within(t, "mean of the samples", sum, busy/2, min(1, busy*2))
	within(t, "age of the last sample in s", time.Since(time.UnixMicro(int64(d.Duty[n-1].Us))).Seconds(), 0, 5)
	within(t, "SM activity by GPM", d.SM, busy*100*0.85/2, min(85, busy*170))
	if len(d.Processes) != 1 || d.Processes[0].PID != uint32(cmd.Process.Pid) || d.Processes[0].Mem != 420<<20 {
		t.Errorf("processes: %+v, want one with PID %d", d.Processes, cmd.Process.Pid)
	}
	if len(d.Uses) != 1 || d.Uses[0].PID != uint32(cmd.Process.Pid) {
		t.Fatalf("process utilisation: %+v", d.Uses)
	}
	within(t, "its part of the device", float64(d.Uses[0].SM), busy*50, min(100, busy*200))
	if d.Power <= 60000 || d.Power >= d.Limit || d.Clock != d.MaxClock || d.Reasons != 0 || d.Used != 420<<20 || d.UsedV2 != d.Used {
		t.Errorf("a busy device reads %+v", d)
	}
}

// Every sample of a process drops out where the node is made so.
func TestNVMLProcessSamplesDropOut(t *testing.T) {
	program := goNVML(t)
	r := newRig(t, Options{Spec: "drop-pct=100"})
	r.start(t, nil, "run", "4000", "60")
	time.Sleep(2200 * time.Millisecond)
	d := r.nvml(t, program)[0]
	if len(d.Uses) != 0 || len(d.Processes) != 1 {
		t.Errorf("%d processes and %d of their samples, want 1 and 0", len(d.Processes), len(d.Uses))
	}
}

func TestNVMLFacts(t *testing.T) {
	program := goNVML(t)
	r := newRig(t, Options{Devices: 3, Spec: "mem-mib=1024/1:cpus=1,3-4,numa=1/2:mig=2"})
	all := r.nvml(t, program)
	if len(all) != 3 || all[0].Name != "Virtual GPU 0 (trimtab)" || all[0].UUID == all[1].UUID || all[0].Bus == all[1].Bus {
		t.Fatalf("devices: %+v", all)
	}
	idle, near, mig := all[0], all[1], all[2]
	if idle.Total != 1<<30 || idle.Clock != 210 || idle.Reasons != 1 || idle.SM != -1 || idle.Errors["nvlink"] != notSupported || idle.Errors["numa"] != notSupported {
		t.Errorf("an idle device reads %+v", idle)
	}
	if near.CPUs[0] != 1<<1|1<<3|1<<4 || near.Numa[0] != 1<<1 {
		t.Errorf("affinity reads %v %v", near.CPUs, near.Numa)
	}
	if mig.Mig != 1 || len(mig.Slices) != 2 || mig.Errors["uses"] != notSupported || mig.Errors["samples"] != notSupported {
		t.Fatalf("a sliced device reads %+v", mig)
	}
	if s := mig.Slices[1]; s.Total != 512<<20 || !strings.HasPrefix(s.UUID, "MIG-") || s.UUID == mig.Slices[0].UUID {
		t.Errorf("a slice reads %+v", s)
	}
}

// A process in one slice is not seen in the other.
func TestNVMLSlices(t *testing.T) {
	program := goNVML(t)
	r := newRig(t, Options{Devices: 1, Spec: "mig=2"})
	uuid := r.nvml(t, program)[0].Slices[1].UUID
	_, _ = r.start(t, []string{"CUDA_VISIBLE_DEVICES=" + uuid}, "hold", "64")
	d := r.nvml(t, program)[0]
	if len(d.Slices[0].Processes) != 0 || len(d.Slices[1].Processes) != 1 || len(d.Processes) != 1 || d.Processes[0].Slice != 1 {
		t.Errorf("processes: %v, %v, of the whole %v", d.Slices[0].Processes, d.Slices[1].Processes, d.Processes)
	}
}

func TestNVMLSettings(t *testing.T) {
	program := goNVML(t)
	r := newRig(t, Options{})
	for key, value := range map[string]string{"slowdown": "0x24", "clock-mhz": "700", "power-mw": "299000", "temp-c": "91"} {
		if err := r.Set(t.Context(), 1, key, value); err != nil {
			t.Fatal(err)
		}
	}
	d := r.nvml(t, program)
	if hot := d[1]; hot.Reasons&0x24 != 0x24 || hot.Clock != 700 || hot.Power != 299000 || hot.Temp != 91 {
		t.Errorf("device 1 reads %+v", hot)
	}
	if d[0].Temp == 91 {
		t.Error("device 0 was set too")
	}
	if err := r.Set(t.Context(), 0, "colour", "red"); err == nil || !strings.Contains(err.Error(), "no such key") {
		t.Errorf("an unknown key: %v", err)
	}
}

// ---- faults ----

func TestFaultUnsupported(t *testing.T) {
	program := goNVML(t)
	r := newRig(t, Options{})
	if err := r.Fault(t.Context(), 0, "unsupported=nvmlDeviceGetSamples"); err != nil {
		t.Fatal(err)
	}
	d := r.nvml(t, program)
	if d[0].Errors["samples"] != notSupported || d[1].Errors["samples"] == notSupported {
		t.Errorf("errors: %v, %v", d[0].Errors, d[1].Errors)
	}
	if err := r.ClearFaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := r.nvml(t, program)[0]; d.Errors["samples"] == notSupported {
		t.Errorf("after clearing: %v", d.Errors)
	}
}

func TestFaultHang(t *testing.T) {
	program, lib := goNVML(t), ""
	r := newRig(t, Options{})
	lib = r.Dir.Lib("libnvidia-ml.so.1")
	if err := r.Fault(t.Context(), -1, "hang=nvmlDeviceGetTemperature"); err != nil {
		t.Fatal(err)
	}
	if out, err := r.call(t, program, lib, "temperature", time.Second); err != context.DeadlineExceeded {
		t.Errorf("a call that hangs ended: %q, %v", out, err)
	}
	if out, err := r.call(t, program, lib, "processes", 10*time.Second); err != nil || out != "0 0" {
		t.Errorf("another call: %q, %v", out, err)
	}
	go func() {
		time.Sleep(300 * time.Millisecond)
		_ = r.ClearFaults(context.Background())
	}()
	if out, err := r.call(t, program, lib, "temperature", 10*time.Second); err != nil || !strings.HasSuffix(out, " 0") {
		t.Errorf("a call that hung goes on when the fault is cleared: %q, %v", out, err)
	}
}

func TestFaultEndsTheProcess(t *testing.T) {
	program := goNVML(t)
	r := newRig(t, Options{})
	if err := r.Fault(t.Context(), -1, "exit=nvmlDeviceGetTemperature"); err != nil {
		t.Fatal(err)
	}
	out, err := r.call(t, program, r.Dir.Lib("libnvidia-ml.so.1"), "temperature", 10*time.Second)
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 127 || out != "" {
		t.Errorf("ended with %v, %q; want status 127", err, out)
	}
}

// A symbol that the library lacks ends the process that calls it, through go-nvml.
func TestFaultMissingSymbol(t *testing.T) {
	program := goNVML(t)
	r := newRig(t, Options{})
	dst := filepath.Join(t.TempDir(), "old")
	if err := r.Dir.BuildWithout(t.Context(), dst, "libnvidia-ml.so.1", "nvmlDeviceGetTemperature", "nvmlDeviceGetComputeRunningProcesses_v3"); err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(dst, "libnvidia-ml.so.1")
	if out, err := r.call(t, program, lib, "processes", 10*time.Second); err != nil || out != "0 0" {
		t.Errorf("processes by an older version of the call: %q, %v", out, err)
	}
	if out, err := r.call(t, program, lib, "temperature", 10*time.Second); err == nil || out != "" {
		t.Errorf("a call to a missing symbol went on: %q", out)
	}
	if out, err := r.call(t, program, r.Dir.Lib("libnvidia-ml-old.so.1"), "reasons", 10*time.Second); err == nil {
		t.Errorf("the old library has the new name: %q", out)
	}
}

func TestFaultLost(t *testing.T) {
	program := goNVML(t)
	r := newRig(t, Options{})
	cmd, out := r.start(t, nil, "lost")
	if err := r.Fault(t.Context(), 0, "lost"); err != nil {
		t.Fatal(err)
	}
	if f := finish(t, cmd, out); f["error"] != 719 {
		t.Errorf("CUDA's error is %v, want 719", f["error"])
	}
	d := r.nvml(t, program)
	if d[0].Errors["power"] != isLost || d[0].Errors["memory"] != isLost || d[1].Errors["power"] != 0 {
		t.Errorf("errors: %v, %v", d[0].Errors, d[1].Errors)
	}
}

// Faults of CUDA's calls go by the driver's names.
func TestFaultInCUDA(t *testing.T) {
	r := newRig(t, Options{})
	if err := r.Fault(t.Context(), -1, "unsupported=cuMemAlloc_v2"); err != nil {
		t.Fatal(err)
	}
	out, err := r.command("hold", "1").CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), "failed 801 ") {
		t.Errorf("%v, %s", err, out)
	}
}

// A fault for a call that there is not would never be met.
func TestFaultOfNoCall(t *testing.T) {
	r := newRig(t, Options{})
	for _, call := range []string{"nvmlDeviceGetTemprature", "cudaMalloc", "read", "vgpuFault", ""} {
		if err := r.Fault(t.Context(), -1, "hang="+call); err == nil || !strings.Contains(err.Error(), "no such call") {
			t.Errorf("%q: %v", call, err)
		}
	}
	for _, call := range []string{"nvmlDeviceGetTemperature", "cuMemAlloc_v2", "ncclAllReduce"} {
		if err := r.Fault(t.Context(), -1, "unsupported="+call); err != nil {
			t.Errorf("%q: %v", call, err)
		}
	}
}

// Each library says what it is.
func TestLibrariesAreMarked(t *testing.T) {
	dir := libraries(t)
	for _, lib := range []string{"libcuda.so.1", "libcudart.so.12", "libnvidia-ml.so.1", "libnccl.so.2"} {
		out, err := exec.Command("nm", "-D", "--defined-only", filepath.Join(dir, lib)).Output()
		if err != nil {
			t.Skip("needs nm: ", err)
		}
		fields := strings.Fields(strings.ReplaceAll(string(out), "@@", " "))
		if !slices.Contains(fields, "trimtab_vgpu_version") {
			t.Errorf("%s has no trimtab_vgpu_version", lib)
		}
	}
}
