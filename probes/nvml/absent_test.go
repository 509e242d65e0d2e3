package nvml

import (
	"context"
	"errors"
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

// installed makes an installation, and returns where its program and its child are.
func installed(t *testing.T, sub string) (program, child string) {
	t.Helper()
	root := t.TempDir()
	program, child = filepath.Join(root, "bin/trimtab"), filepath.Join(root, sub, ChildName)
	for _, path := range []string{program, child} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return program, child
}

// The child lies beside the program, or in the packages' libexec; a folder without one is named.
func TestWhereTheChildIs(t *testing.T) {
	for _, sub := range []string{"bin", "libexec/trimtab"} {
		program, child := installed(t, sub)
		if argv, err := findChild(program); err != nil || len(argv) != 1 || argv[0] != child {
			t.Errorf("%v, %v; want %s", argv, err, child)
		}
		if err := os.Remove(child); err != nil {
			t.Fatal(err)
		}
		if _, err := findChild(program); err == nil || !strings.Contains(err.Error(), filepath.Dir(program)) || !strings.Contains(err.Error(), "make build") {
			t.Errorf("no child: %v", err)
		}
	}
}

// What others may have put there is not started by root.
func TestChildOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: chown")
	}
	for what, change := range map[string]func(child string) error{
		"a folder for all":        func(child string) error { return os.Chmod(filepath.Dir(child), 0o1777) },
		"a file for all":          func(child string) error { return os.Chmod(child, 0o777) },
		"another's file":          func(child string) error { return os.Chown(child, 65534, 65534) },
		"another's folder":        func(child string) error { return os.Chown(filepath.Dir(child), 65534, 65534) },
		"a folder in its place":   func(child string) error { return errors.Join(os.Remove(child), os.Mkdir(child, 0o755)) },
		"a link to another's one": func(child string) error { return errors.Join(os.Remove(child), os.Symlink(strangers(t), child)) },
	} {
		program, child := installed(t, "libexec/trimtab")
		if err := change(child); err != nil {
			t.Fatal(err)
		}
		if argv, err := findChild(program); err == nil || !strings.Contains(err.Error(), "is not started") {
			t.Errorf("%s: %v, %v", what, argv, err)
		}
	}
}

func strangers(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "theirs")
	if err := errors.Join(os.WriteFile(path, nil, 0o755), os.Chown(path, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	return path
}

// Without a child nothing is wrong where there is no driver; where there is one, the fix is said.
func TestNoChildInstalled(t *testing.T) {
	program, child := installed(t, "bin")
	if err := os.Remove(child); err != nil {
		t.Fatal(err)
	}
	for _, driver := range []bool{false, true} {
		proc := t.TempDir()
		if driver {
			if err := errors.Join(os.MkdirAll(proc+"/driver/nvidia", 0o755), os.WriteFile(proc+"/driver/nvidia/version", nil, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		r := started(t, Options{program: program, ProcRoot: proc})
		until(t, r, "a word on it", func() bool { _, lost := r.Status(); return lost != "" && lost != "no reading yet" })
		if ok, lost := r.Status(); ok == driver || strings.Contains(lost, "make build") != driver {
			t.Errorf("driver %v: status %v, %q", driver, ok, lost)
		}
	}
}

// program compiles a child of another making.
func program(t *testing.T, source string, flags ...string) string {
	t.Helper()
	c, path := filepath.Join(t.TempDir(), "child.c"), filepath.Join(t.TempDir(), ChildName)
	if err := os.WriteFile(c, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", append(flags, "-o", path, c)...).CombinedOutput(); err != nil {
		t.Skipf("needs gcc: %v %s", err, out)
	}
	return path
}

// On a host of another C library the child cannot start, or its loader ends it; the fix is said
// where there is a driver.
func TestChildWithoutItsLibrary(t *testing.T) {
	r := started(t, Options{Child: []string{program(t, "int main(void) { return 0; }", "-Wl,--dynamic-linker=/nonexistent/ld.so")}})
	until(t, r, "a word on it", func() bool { _, lost := r.Status(); return strings.Contains(lost, "needs glibc 2.34") })

	dies := program(t, "#include <stdio.h>\nint main(void) { fputs(\"version GLIBC_2.34 not found\\n\", stderr); return 1; }")
	r = started(t, Options{Child: []string{dies}, ProcRoot: t.TempDir()})
	until(t, r, "a word on it", func() bool { ok, lost := r.Status(); return ok && strings.Contains(lost, "no NVIDIA driver") })

	proc := t.TempDir()
	if err := errors.Join(os.MkdirAll(proc+"/driver/nvidia", 0o755), os.WriteFile(proc+"/driver/nvidia/version", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	r = started(t, Options{Child: []string{dies}, ProcRoot: proc})
	until(t, r, "a word on it", func() bool {
		ok, lost := r.Status()
		return !ok && strings.Contains(lost, "GLIBC_2.34 not found") && strings.Contains(lost, "needs glibc")
	})
}

// A package was upgraded under a daemon that runs: its child says something else.
func TestChildOfAnotherVersion(t *testing.T) {
	other := program(t, "#include <unistd.h>\nint main(void) { char b[4096]; read(0, b, sizeof b); "+
		"static const char hello[] = \"{\\\"hello\\\":{\\\"driver\\\":\\\"1\\\"}}\\n\"; write(4, hello, sizeof hello - 1); sleep(60); return 0; }")
	r := started(t, Options{Child: []string{other}})
	until(t, r, "a word on it", func() bool { ok, lost := r.Status(); return !ok && strings.Contains(lost, "restart trimtab") })
}
