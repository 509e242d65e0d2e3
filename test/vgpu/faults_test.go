package vgpu

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What NVML tells of a node is held in probes/nvml, which reads it as the daemon does.

func TestUnknownSetting(t *testing.T) {
	if err := newRig(t, Options{}).Set(t.Context(), 0, "colour", "red"); err == nil || !strings.Contains(err.Error(), "no such key") {
		t.Errorf("an unknown key: %v", err)
	}
}

func TestFaultLost(t *testing.T) {
	r := newRig(t, Options{})
	cmd, out := r.start(t, nil, "lost")
	if err := r.Fault(t.Context(), 0, "lost"); err != nil {
		t.Fatal(err)
	}
	if f := finish(t, cmd, out); f["error"] != 719 {
		t.Errorf("CUDA's error is %v, want 719", f["error"])
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
