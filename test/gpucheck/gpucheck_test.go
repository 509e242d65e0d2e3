package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/trimtab/trimtab/test/built"
	"github.com/trimtab/trimtab/test/runtimetest/ctrd"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/workloads/gpu"
)

// build makes the check's own binary.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := built.NVMLChild(t.Context(), dir); errors.Is(err, built.ErrNoCompiler) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "gpucheck")
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// runCheck returns what the check printed and its exit status.
func runCheck(t *testing.T, limit time.Duration, binary string, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func TestWithoutAGPUItSaysWhatIsMissing(t *testing.T) {
	if len(gpuNodes()) > 0 {
		t.Skip("needs a machine without an NVIDIA device")
	}
	binary := build(t)
	alone, code := runCheck(t, time.Minute, binary)
	if code != exitMissing {
		t.Errorf("exit status %d, want %d", code, exitMissing)
	}
	// As docs/gpu.md has it: make gpu-check; make has a status of its own.
	made, code := runCheck(t, time.Minute, "make", "-C", "../..", "gpu-check", "GPU_CHECK="+binary)
	if code == 0 || !strings.Contains(made, fmt.Sprintf("Error %d", exitMissing)) {
		t.Errorf("make gpu-check: exit status %d\n%s", code, made)
	}
	for _, out := range []string{alone, made} {
		for _, want := range []string{"cannot run on a real device", "missing: an NVIDIA device", "missing: NVIDIA's driver", "train.py: make gpu-bundle", "gpu-check: not run"} {
			if !strings.Contains(out, want) {
				t.Errorf("it does not say %q:\n%s", want, out)
			}
		}
	}
}

func TestMisuse(t *testing.T) {
	binary := build(t)
	for _, args := range [][]string{{"-bogus"}, {"argument"}, {"-only", "nvml,nothing"}} {
		if out, code := runCheck(t, time.Minute, binary, args...); code != exitUsage {
			t.Errorf("%v: exit status %d, want %d\n%s", args, code, exitUsage, out)
		}
	}
}

// bundleOf lays out what make gpu-bundle packs; containerd and runc are this machine's.
func bundleOf(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: containers and uprobes")
	}
	for _, name := range ctrd.Programs() {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("needs containerd: no %s", name)
		}
	}
	libs, err := gpu.Build(t.Context())
	if errors.Is(err, vgpu.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(build(t))
	if err := os.Mkdir(filepath.Join(dir, "vgpu"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libcuda.so.1", "libcudart.so.12", "libnvidia-ml.so.1", "libnccl.so.2", "vgpu-node", "trainer"} {
		copyFile(t, libs.Lib(name), filepath.Join(dir, "vgpu", name))
	}
	copyFile(t, libs.Lib(gpu.Plain), filepath.Join(dir, gpu.Plain))
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The road works on the virtual GPU, without a network.
func TestVirtual(t *testing.T) {
	const made = "/run/trimtab-gpucheck-*"
	before, err := filepath.Glob(made) // of a run that was killed
	if err != nil {
		t.Fatal(err)
	}
	dir := bundleOf(t)
	report := filepath.Join(t.TempDir(), "report.md")
	out, code := runCheck(t, 10*time.Minute, "unshare", "-n", filepath.Join(dir, "gpucheck"), "-virtual", "-short", "-only", "nvml,launches,access", "-report", report)
	if code != 0 {
		t.Fatalf("exit status %d\n%s", code, out)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"virtual GPU", "short run", "| ok | launches |", "| ok | access | the container reaches nvidiactl |", "| ok | access | hidden on purpose |", "| ok | access | shown again |", "left out: jobs, rate, tuning, programs"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	for _, mode := range plain() {
		if want := "| ok | launches | " + mode.name + ", against its own count |"; !strings.Contains(string(text), want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	log, err := os.ReadFile(strings.TrimSuffix(report, ".md") + ".log")
	if err != nil || !strings.Contains(string(log), "launches") || strings.Contains(string(text), "\n== ") || strings.Count(string(text), "\n") > 130 {
		t.Errorf("the page is not apart from the log: %v\n%s", err, text)
	}
	if !strings.Contains(out, "VIRTUAL GPU") || !strings.Contains(out, "gpu-check: ok") {
		t.Errorf("it does not say that it is virtual and well:\n%s", out)
	}
	left, err := filepath.Glob(made)
	left = slices.DeleteFunc(left, func(path string) bool { return slices.Contains(before, path) })
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// The parts that measure run to their end and leave nothing changed. What they find is no
// matter here: a busy machine may not fail a test.
func TestVirtualMeasures(t *testing.T) {
	dir := bundleOf(t)
	report := filepath.Join(t.TempDir(), "report.md")
	out, code := runCheck(t, 15*time.Minute, filepath.Join(dir, "gpucheck"), "-virtual", "-short", "-only", "jobs,rate,tuning", "-report", report)
	if code != 0 && code != exitProblems {
		t.Fatalf("exit status %d\n%s", code, out)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| symbols | libcuda.so.1 |", "| ok | symbols | launches are probed and counted |", "| verdicts | device |", "| activity | input |", "| verdicts | plain-staged |",
		"| rate | launch: with trimtab over without |", "| rate | launch: while each launch is counted |", "| tuning | the quota is raised |", "| ok | tuning | restored at the end |", "left out: nvml, launches, programs, access"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "the part runs to its end") {
		t.Errorf("a part broke off:\n%s", text)
	}
}

func TestInterval(t *testing.T) {
	mean, low, high := interval([]float64{0.98, 1.00, 1.02})
	if math.Abs(mean-1) > 0.001 || low > 0.97 || high < 1.03 || low < 0.93 || high > 1.07 {
		t.Errorf("%v (%v to %v)", mean, low, high)
	}
}

func TestReport(t *testing.T) {
	var out bytes.Buffer
	r := report{out: &out}
	r.judge(true, "launches", "a|b", "1", "1")
	if got := r.verdict(); got != "gpu-check: ok" {
		t.Errorf("%q", got)
	}
	r.judge(false, "launches", "c", "1", "2")
	r.row(note, "nvml", "d", "", "e")
	r.virtual = true
	if n := r.finish(); n != 1 || !strings.Contains(out.String(), "gpu-check: 1 problems - on the VIRTUAL GPU") {
		t.Errorf("%d problems:\n%s", n, out.String())
	}
	for _, want := range []string{`a\|b`, "| PROBLEM | launches | c | 1 | 2 |", "says nothing about a real device"} {
		if page := r.markdown("report.log"); !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}

// What a run says of a machine with sixteen devices and a hundred findings is still one page: an
// issue takes 65,536 characters. No problem is cut off for what is well, and the log has all.
func TestReportIsOnePage(t *testing.T) {
	const most, lines = 60_000, 130
	r := report{out: io.Discard}
	for i := range 40 {
		r.machine = append(r.machine, fmt.Sprintf("device %d: %s", i, strings.Repeat("long name|", 100)))
	}
	for i := range 300 {
		r.judge(i%10 != 9, "jobs", fmt.Sprintf("finding %d of %s", i, strings.Repeat("é|", 500)), strings.Repeat("w\n", 500), strings.Repeat("t", 5000))
	}
	file := filepath.Join(t.TempDir(), "report.md")
	if err := r.keep(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	if n := strings.Count(page, "\n"); len([]rune(page)) > most || n > lines || !utf8.ValidString(page) {
		t.Errorf("%d characters and %d lines, want at most %d and %d", len([]rune(page)), n, most, lines)
	}
	if n := strings.Count(page, "| PROBLEM |"); n != 30 {
		t.Errorf("%d of 30 problems are on it", n)
	}
	if !strings.Contains(page, "220 rows more are in the log") || !strings.Contains(page, "gpu-check: 30 problems") || !strings.Contains(page, "report.log") {
		t.Errorf("it does not say what it leaves out:\n%s", page[max(0, len(page)-500):])
	}
	log, err := os.ReadFile(strings.TrimSuffix(file, ".md") + ".log")
	if err != nil || strings.Count(string(log), "finding ") != 300 {
		t.Errorf("the log has %d of 300 findings, %v", strings.Count(string(log), "finding "), err)
	}
}
