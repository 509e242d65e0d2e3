package nvml

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// a library that fails, hangs, or ends its process before there is any device.
func TestNothingToRead(t *testing.T) {
	for name, c := range map[string]struct {
		source string // "": there is no library
		ok     bool
		why    string
	}{
		"no library":     {"", true, "no NVIDIA driver here"},
		"not a library":  {"int nothing;", false, "is not NVML"},
		"no driver":      {"int nvmlInit_v2(void) { return 9; }", true, "the driver is not loaded"},
		"mismatch":       {"int nvmlInit_v2(void) { return 18; }", false, "driver/library version mismatch"},
		"no device":      {"int nvmlInit_v2(void) { return 0; } int nvmlDeviceGetCount_v2(unsigned *n) { *n = 0; return 0; }", true, "no device"},
		"unknown error":  {"int nvmlInit_v2(void) { return 999; }", false, "nvmlInit_v2: error 999"},
		"init hangs":     {"int nvmlInit_v2(void) { for (;;) pause(); }", false, "nvmlInit_v2 gave no answer in 1s"},
		"init ends it":   {"int nvmlInit_v2(void) { abort(); }", false, "nvmlInit_v2 ended the process"},
		"loading hangs":  {"__attribute__((constructor)) static void c(void) { for (;;) pause(); }", false, "dlopen gave no answer in 1s"},
		"only old names": {"int nvmlInit(void) { return 9; }", true, "the driver is not loaded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lib := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
			if c.source != "" {
				lib = buildLibrary(t, c.source)
			}
			deadline := time.Minute // a busy host may take a second to load what answers at once
			if strings.Contains(c.why, "no answer in 1s") {
				deadline = time.Second
			}
			var log journal
			r := started(t, Options{Library: lib, Logger: log.logger(), SlowDeadline: deadline})
			until(t, r, "a word on it", func() bool { _, lost := r.Status(); return strings.Contains(lost, c.why) })
			ok, _ := r.Status()
			list, err := r.Read(context.Background())
			if ok != c.ok || (err == nil) != c.ok || list != nil {
				t.Fatalf("Status is %v, Read gives %v, %v; want ok %v", ok, list, err, c.ok)
			}
			time.Sleep(5 * r.o.LookAgain / 2) // two more tries
			if n := log.count("level="); n != 1 {
				t.Errorf("%d lines of log for one state:\n%s", n, log.buf.String())
			}
		})
	}
}

// A driver that is installed later is found without a restart of the daemon.
func TestDriverAppears(t *testing.T) {
	dir := t.TempDir()
	lib := filepath.Join(dir, "libnvidia-ml.so.1")
	r := started(t, Options{Library: lib})
	until(t, r, "no driver", func() bool { ok, lost := r.Status(); return ok && lost != "" })
	built := buildLibrary(t, "int nvmlInit_v2(void) { return 18; }")
	copyFile(t, built, lib)
	until(t, r, "the library found", func() bool { _, lost := r.Status(); return strings.Contains(lost, "mismatch") })
}

func TestLookWithoutDriver(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s, err := Look(ctx, fast(Options{Library: filepath.Join(t.TempDir(), "none.so")}))
	if err != nil || !strings.Contains(s.Absent, "no NVIDIA driver here") {
		t.Fatalf("%+v, %v", s, err)
	}
}

// A child that cannot be started is said, not a panic, and not a loop.
func TestNoChild(t *testing.T) {
	r := started(t, Options{Child: []string{"/nonexistent/trimtab"}})
	until(t, r, "a word on it", func() bool { _, lost := r.Status(); return strings.Contains(lost, "start the child") })
}

// The child lies beside the program, or in the packages' libexec; a folder without one is named.
func TestWhereTheChildIs(t *testing.T) {
	root := t.TempDir()
	bin, libexec := filepath.Join(root, "bin"), filepath.Join(root, "libexec/trimtab")
	for _, dir := range []string{bin, libexec} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := findChild(bin); err == nil || !strings.Contains(err.Error(), bin) || !strings.Contains(err.Error(), "make build") {
		t.Errorf("no child: %v", err)
	}
	for _, dir := range []string{libexec, bin} { // the nearer one is taken
		path := filepath.Join(dir, ChildName)
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if argv, err := findChild(bin); err != nil || len(argv) != 1 || argv[0] != path {
			t.Errorf("%v, %v; want %s", argv, err, path)
		}
	}
}

// On a host of another C library the child cannot start; the fix is said.
func TestChildWithoutItsLoader(t *testing.T) {
	dir := t.TempDir()
	source, path := filepath.Join(dir, "child.c"), filepath.Join(dir, ChildName)
	if err := os.WriteFile(source, []byte("int main(void) { return 0; }"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-Wl,--dynamic-linker=/nonexistent/ld.so", "-o", path, source).CombinedOutput(); err != nil {
		t.Skipf("needs gcc: %v %s", err, out)
	}
	r := started(t, Options{Child: []string{path}})
	until(t, r, "a word on it", func() bool { _, lost := r.Status(); return strings.Contains(lost, "needs glibc 2.34") })
}
