package nvml

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/vgpu/vgputest"
)

// A library that was taken over reaches no socket and no process, and works all the same.
func TestLibraryReachesNoSocket(t *testing.T) {
	source, err := os.ReadFile("testdata/reach.c")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "reach") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	engine := filepath.Join(dir, "engine.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: engine, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // a test's
	r := started(t, Options{Library: buildLibrary(t, "#define SOCKET \""+engine+"\"\n#line 1\n"+string(source))})
	var lost string
	until(t, r, "a word on it", func() bool { _, lost = r.Status(); return !strings.Contains(lost, "no reading yet") })
	if !strings.Contains(lost, "the driver is not loaded") { // else 1000 and the line
		t.Errorf("testdata/reach.c: %s", lost)
	}
	if err := l.SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the engine was reached: %v", err)
	}
}

// needsLandlock skips where the kernel has none; it returns its ABI.
func needsLandlock(t *testing.T) int {
	t.Helper()
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		t.Skipf("needs a kernel with Landlock: %v", errno)
	}
	return int(abi)
}

// A library that was taken over opens no file of the daemon's, writes none, and works all the same.
func TestLibraryOpensOnlyItsOwnFiles(t *testing.T) {
	needsLandlock(t)
	source, err := os.ReadFile("testdata/files.c")
	if err != nil {
		t.Fatal(err)
	}
	state, own := t.TempDir(), filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	secret := filepath.Join(state, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	copyFile(t, buildLibrary(t, "#define STATE \""+state+"\"\n#define OWN \""+own+"\"\n#line 1\n"+string(source)), own)
	r := started(t, Options{Library: own})
	var lost string
	until(t, r, "a word on it", func() bool { _, lost = r.Status(); return !strings.Contains(lost, "no reading yet") })
	if !strings.Contains(lost, "the driver is not loaded") { // else 1000 and the line
		t.Errorf("testdata/files.c: %s", lost)
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	if list, err := os.ReadDir(state); err != nil || len(list) != 1 {
		t.Errorf("the folder holds %v, %v", list, err)
	}
}

// The virtual GPU is read under the same rules, and what holds is told and logged once.
func TestConfinementIsTold(t *testing.T) {
	abi := needsLandlock(t)
	want := fmt.Sprintf("NVIDIA's library opens no files but its own (Landlock, ABI %d)", abi)
	n := vgputest.Node(t, vgpu.Options{})
	var log journal
	r := readerOn(t, n, Options{Logger: log.logger()})
	order(t, n, 0, "exit=nvmlDeviceGetPowerUsage") // a second child
	device(t, r, 0, "a reading without power", func(d probes.Device) bool { return d.Lost == "" && d.ClockMHz != nil && d.PowerW == nil })
	if s, _, _ := r.summary(); s.Files != want {
		t.Errorf("told is %q, want %q", s.Files, want)
	}
	if c := log.count(want); c != 1 {
		t.Errorf("logged %d times:\n%s", c, log.buf.String())
	}
}

// Where the kernel refuses Landlock the child goes on without, and says why.
func TestWithoutLandlock(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{})
	r := started(t, Options{Child: under(t, refusedCommand, childOn(t, n)), Library: n.Dir.Lib("libnvidia-ml.so.1")})
	device(t, r, 0, "a reading", func(d probes.Device) bool { return d.Lost == "" && d.ClockMHz != nil })
	if s, _, _ := r.summary(); !strings.HasPrefix(s.Files, "NVIDIA's library may open any file of root's") || !strings.Contains(s.Files, "a filter of system calls refuses Landlock") {
		t.Errorf("told is %q", s.Files)
	}
}

// Where the rules cannot be had the child does not load the library: readings are lost, and the cause is named.
func TestRulesThatCannotBe(t *testing.T) {
	needsLandlock(t)
	n := vgputest.Node(t, vgpu.Options{})
	r := started(t, Options{Child: under(t, layersCommand, childOn(t, n)), Library: n.Dir.Lib("libnvidia-ml.so.1")})
	var lost string
	until(t, r, "a word on it", func() bool { _, lost = r.Status(); return !strings.Contains(lost, "no reading yet") })
	if ok, _ := r.Status(); ok || !strings.Contains(lost, "the library is not loaded: landlock: restrict: argument list too long") {
		t.Errorf("status %v, %q", ok, lost)
	}
}

// These commands make the test binary execute the rest of its arguments with less of Landlock.
const (
	refusedCommand = "nvml-landlock-refused" // by a filter of system calls, as a service's
	layersCommand  = "nvml-landlock-layers"  // with as many rulesets as the kernel stacks
)

// under is a child's argv that is started by one of the commands.
func under(t *testing.T, command string, argv []string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{self, command}, argv...)
}

// asChild runs such a command; it returns where there is none.
func asChild(args []string) {
	if len(args) < 3 || args[1] != refusedCommand && args[1] != layersCommand {
		return
	}
	goruntime.LockOSThread()
	must := func(trap, a, b, c uintptr) uintptr {
		r, _, errno := unix.Syscall(trap, a, b, c)
		if errno != 0 {
			fmt.Fprintln(os.Stderr, args[1], trap, errno)
			os.Exit(1)
		}
		return r
	}
	if args[1] == refusedCommand {
		filter := []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_LANDLOCK_CREATE_RULESET, Jf: 1},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		}
		program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		must(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	} else {
		for range 16 {
			const handled = unix.LANDLOCK_ACCESS_FS_MAKE_FIFO
			attr := unix.LandlockRulesetAttr{Handled_access_fs: handled}
			fd := must(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.Handled_access_fs), 0)
			must(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
			_ = unix.Close(int(fd))
		}
	}
	fmt.Fprintln(os.Stderr, args[1], unix.Exec(args[2], args[2:], os.Environ()))
	os.Exit(1)
}
