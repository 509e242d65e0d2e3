package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/state"
)

const supportPage = "../../docs/support.md"

// TestSupportPage: what the doctor prints the page says too.
func TestSupportPage(t *testing.T) {
	page, err := os.ReadFile(supportPage)
	if err != nil {
		t.Fatal(err)
	}
	for key, r := range supportRows() {
		if line := fmt.Sprintf("\n| %s | %s | %s | %s | %s |\n", r.situation, r.seen, r.attributed, r.tuned, r.ran); !strings.Contains(string(page), line) {
			t.Errorf("%s has no row of %s:%s", supportPage, key, line)
		}
	}
	_, table, _ := strings.Cut(string(page), "\n|---|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	seen := map[string]bool{}
	for line := range strings.Lines(table) { // those that it does not print, too
		cells := strings.Split(line, "|")
		if len(cells) != 7 || seen[cells[1]] {
			t.Errorf("%s: not five cells, or there twice: %s", supportPage, line)
		}
		seen[cells[1]] = true
	}
	if len(seen) < len(supportRows()) {
		t.Errorf("%s: %d rows are read", supportPage, len(seen))
	}
}

// TestSupportNamesTests: each test that the page rests a claim on is there.
func TestSupportNamesTests(t *testing.T) {
	page, err := os.ReadFile(supportPage)
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z/]+): (Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(page), -1)
	if len(named) == 0 {
		t.Fatalf("%s names no test", supportPage)
	}
	for _, n := range named {
		files, err := filepath.Glob(filepath.Join("../..", n[1], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), "\nfunc "+n[2]+"(")
		}) {
			t.Errorf("%s has no %s", n[1], n[2])
		}
	}
}

func TestExamineGPU(t *testing.T) {
	none, some := uint64(0), uint64(4)
	for name, c := range map[string]struct {
		summary gpuSummary
		err     error
		want    []string // level and the beginning of the text
	}{
		"none":  {gpuSummary{Summary: nvml.Summary{Absent: "no driver is installed"}}, nil, []string{"ok no driver is installed", "ok no GPU, no driver"}},
		"hangs": {gpuSummary{}, errors.New("no answer"), []string{"degraded no answer", "ok a driver, but NVML"}},
		"shared in two ways, one lost": {gpuSummary{Summary: nvml.Summary{Driver: "570.1", Devices: []probes.Device{
			{Index: 0, UUID: "GPU-0", Sharing: "time-slicing"}, {Index: 1, UUID: "GPU-1", Sharing: "mig"}, {Index: 1, UUID: "MIG-1", Parent: "GPU-1", Sharing: "mig"},
			{Index: 2, UUID: "GPU-2", Lost: "fell off the bus"}}}}, nil,
			[]string{"ok GPUs: 3, MIG slices: 1, driver 570.1; shared now: mig, time-slicing", "degraded device 2 (GPU-2) is lost: fell off the bus",
				"ok one container on a GPU", "ok MIG", "ok several processes"}},
		"ill": {gpuSummary{Summary: nvml.Summary{Devices: []probes.Device{
			{UUID: "GPU-0", Errors: probes.DeviceErrors{ECCUncorrected: &none, ECCCorrected: &some, RowsRemapped: &none}},
			{Index: 1, UUID: "GPU-1", Errors: probes.DeviceErrors{ECCUncorrected: &some, RowsRemapped: &some, RowFailed: true}},
			{Index: 2, UUID: "GPU-2", Errors: probes.DeviceErrors{ECCUncorrected: &none, ECCCorrected: &none, RowPending: true}}}}}, nil,
			[]string{"ok GPUs: 3", "ok device 0 (GPU-0), its memory: 4 corrected since the driver was loaded",
				"degraded device 1 (GPU-1), its memory: 4 errors that ECC cannot correct since the driver was loaded, 4 rows remapped, no spare row was left for a bad one",
				"degraded device 2 (GPU-2), its memory: one more row is remapped at the next reset", "ok one container on a GPU"}},
		"virtual": {gpuSummary{Summary: nvml.Summary{Devices: []probes.Device{{UUID: "GPU-0", Virtual: true, Sharing: "mps"}}, Files: "the library opens its own", Silent: []string{"nvmlDeviceGetSamples"}}}, nil,
			[]string{"ok virtual, no real device: GPUs: 1; shared now: mps", "ok the library opens its own", "degraded nvmlDeviceGetSamples did not answer", "ok MPS", "ok trimtab's virtual GPU"}},
		"the host computes too": {gpuSummary{Summary: nvml.Summary{Devices: []probes.Device{{UUID: "GPU-0"}}}, host: true}, nil, []string{"ok GPUs: 1", "ok one container on a GPU", "ok processes of the host"}},
	} {
		got := examineGPU(c.summary, c.err)
		if len(got) != len(c.want) {
			t.Errorf("%s: %d findings, want %d: %v", name, len(got), len(c.want), got)
			continue
		}
		for i, f := range got {
			if line := f.Level + " " + f.Text; !strings.HasPrefix(line, c.want[i]) {
				t.Errorf("%s: finding %d is %q, want %q", name, i, line, c.want[i])
			}
		}
	}
}

// What the daemon heard of is told with what it means, and makes no host less able.
func TestExamineXIDs(t *testing.T) {
	got := examineXIDs([]state.Device{{UUID: "GPU-0"}, {Index: 1, UUID: "GPU-1", Errors: state.DeviceErrors{XIDs: []state.XIDCount{{XID: 0, Count: 2}, {XID: 79, Count: 1}, {XID: 999, Count: 3}}}}})
	want := []string{"device 1 (GPU-1) reported other XIDs, 2 times since the daemon started", "device 1 (GPU-1) reported XID 79, 1 times since the daemon started: fell off the bus", "device 1 (GPU-1) reported XID 999, 3 times since the daemon started"}
	if len(got) != len(want) || !slices.EqualFunc(got, want, func(f finding, text string) bool { return f.Text == text }) || got[0].Level != levelOK {
		t.Errorf("%+v, want %q", got, want)
	}
}

func TestHostProcesses(t *testing.T) {
	proc := t.TempDir()
	for pid, groups := range map[string]string{
		"1": "0::/user.slice/user-1000.slice/session-2.scope\n",
		"2": "12:cpu:/docker/" + strings.Repeat("0a", 32) + "\n0::/\n",
		"3": "0::/system.slice/docker-" + strings.Repeat("0a", 32) + ".scope\n",
		"4": "0::/kubepods.slice/x\n",
		"5": "0::/init.scope\n",
	} {
		if err := os.Mkdir(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "cgroup"), []byte(groups), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	on := func(pids ...int32) (d probes.Device) {
		for _, pid := range pids {
			d.Processes = append(d.Processes, probes.DeviceProcess{PID: pid, Graphics: pid == 5})
		}
		return d
	}
	if !hostComputes(proc, []probes.Device{on(2, 3), on(2, 1)}) {
		t.Error("one of a session is taken for a container's")
	}
	if hostComputes(proc, []probes.Device{on(2, 3), on(4, 5, 6)}) {
		t.Error("one of an engine, one that draws, or one that is gone is taken for the host's")
	}
}

func TestExamineSupport(t *testing.T) {
	cfg := config.Default()
	if len(examineSupport(cfg)) == 0 {
		t.Error("the host has no row")
	}
	cfg.Docker.Host = "unix:///run/user/1000/docker.sock"
	got := examineSupport(cfg)
	if last := got[len(got)-1]; !strings.HasPrefix(last.Text, "rootless Docker") {
		t.Errorf("rootless Docker is not found: %v", got)
	}
}
