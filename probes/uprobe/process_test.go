package uprobe

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/uprobe/symbols"
)

func TestExecutableMaps(t *testing.T) {
	maps := "55e0-55e1 r--p 00000000 fe:00 11 /usr/bin/python3\n" +
		"55e1-55e2 r-xp 00001000 fe:00 11 /usr/bin/python3\n" +
		"7f00-7f01 r-xp 00000000 fe:00 12    /usr/lib/lib other.so (deleted)\n" +
		"7f02-7f03 r-xp 00000000 fe:00 13 /opt/libtorch_cpu.so\n" +
		"7f04-7f05 r-xp 00000000 00:00 0 [vdso]\n7f06-7f07 rwxp 00000000 00:00 0 \n\nnonsense\n"
	want := []mapping{
		{"55e1-55e2", "fe:00", 11, "/usr/bin/python3"}, {"7f02-7f03", "fe:00", 13, "/opt/libtorch_cpu.so"},
		{"7f00-7f01", "fe:00", 12, "/usr/lib/lib other.so (deleted)"},
	}
	if diff := cmp.Diff(want, executableMaps([]byte(maps), []string{"torch"}), cmp.AllowUnexported(mapping{})); diff != "" {
		t.Error(diff)
	}
	// A program at a fixed address, which most that are linked statically are.
	fixed := executableMaps([]byte("00401000-00479000 r-xp 00001000 fe:00 14 /bin/static\n"), nil)
	if len(fixed) != 1 || fixed[0].addresses != "401000-479000" {
		t.Errorf("%+v", fixed)
	}
}

// Of a hook's libraries in one process each has a number of its own, and a number that is free again is
// the next one's.
func TestPlacesOfLibraries(t *testing.T) {
	hook := Hook{Functions: map[string]Point{"step": {}}}
	with, without := []symbols.Symbol{{Name: "step", Offset: 64}}, []symbols.Symbol{{Name: "other", Offset: 64}}
	a, b, c, other := &library{symbols: with}, &library{symbols: with}, &library{symbols: with}, &library{symbols: without}
	m := member{hooks: make([]hookState, 1)}
	state := &m.hooks[0]
	got := []uint8{state.place(&hook, a), state.place(&hook, other), state.place(&hook, b), state.place(&hook, a)}
	m.drop(func(lib *library) bool { return lib != a })
	if got = append(got, state.place(&hook, c), state.place(&hook, b)); !slices.Equal(got, []uint8{0, 0, 1, 0, 0, 1}) {
		t.Errorf("places %v", got)
	}
}

// An overlay is the host's by the mounts that stand once its file is open: numbers of devices are used again.
func TestHostsOverlay(t *testing.T) {
	proc := t.TempDir()
	mount := func(pid, text string) {
		if err := os.MkdirAll(filepath.Join(proc, pid), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "mountinfo"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mount("7", "")
	mount("1", "30 1 0:50 / /a rw - overlay overlay rw\n31 1 0:51 / /b rw - overlay overlay rw\n32 1 0:52 / /c rw - tmpfs tmpfs rw\n")
	m, err := readMounts(proc, 7)
	if err != nil {
		t.Fatal(err)
	}
	if kind, err := m.kind("00:32"); kind != "overlay" || err != nil {
		t.Fatalf("%s, %v", kind, err)
	}
	mount("1", "31 1 0:51 / /b rw - overlay overlay rw\n32 1 0:52 / /c rw - tmpfs tmpfs rw\n")
	for minor, want := range map[uint32]bool{50: false, 51: true, 52: false, 53: false} {
		for range 2 {
			if got := m.hostsOverlay(unix.Mkdev(0, minor)); got != want {
				t.Errorf("device 0:%d: %v", minor, got)
			}
		}
	}
}

func TestRemoteDevices(t *testing.T) {
	own := "22 1 0:50 / / rw shared:1 master:2 - overlay overlay rw\n" +
		"23 22 0:171 / /data rw,nosuid - fuse.sshfs host:/ rw\n24 22 254:1 /x /y rw - ext4 /dev/vda1 rw\nnonsense\n" +
		"25 22 0:16 / /home rw - nfs4 host:/ rw\n26 22 0:17 / /n rw - nfsd nfsd rw\n27 22 0:18 / /l rw - lustre x rw\n28 22 0:19 / /f rw - fuse f rw\n"
	host := "30 1 0:99 / / rw - btrfs /dev/sda rw\n31 1 0:98 / /v rw - virtiofs v rw\n32 1 0:50 / / rw - fuse x rw\n"
	asked := 0
	m := mounts{own: mountTypes([]byte(own)), host: func() map[string]string { asked++; return mountTypes([]byte(host)) }}
	for device, want := range map[string]string{
		"00:32": "overlay", "fe:01": "ext4", "00:11": "nfsd", // the process's word goes first
		"00:ab": "fuse!", "00:10": "nfs4!", "00:12": "lustre!", "00:13": "fuse!",
		"00:63": "btrfs", "00:62": "virtiofs", "00:61": "!",
	} {
		kind, err := m.kind(device)
		if err != nil {
			kind += "!"
		}
		if kind != want {
			t.Errorf("%s: %s (%v), want %s", device, kind, err, want)
		}
	}
	if asked != 3 {
		t.Errorf("the host was asked %d times, want 3: for what the process does not show", asked)
	}
}

// A process that has ended and waits for its parent, as a forked worker does, is nothing to tell of.
func TestLookAtEnded(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	l := &look{procRoot: "/proc", pid: int32(cmd.Process.Pid)}
	if l.run(); !errors.Is(l.err, errEnded) {
		t.Errorf("got %v, want %v", l.err, errEnded)
	}
}

// TestListingIsBounded: a container that may make control groups makes any number of them; its own
// processes are listed, those of some groups, and a look costs no more than a bound.
func TestListingIsBounded(t *testing.T) {
	dir := t.TempDir()
	group := func(name, pids string) {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "cgroup.procs"), []byte(pids), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, buf := newRoom(), []byte(nil)
	list := func() []int32 { return (&listing{dir: dir}).list(&r, &buf) }
	group("", "7\n8\n")
	group("a/b", "9\n")
	if pids := list(); !slices.Equal(pids, []int32{7, 8, 9}) {
		t.Errorf("listed %v", pids)
	}
	const groups = 3000
	for i := range groups {
		if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var pids []int32
	if n := testing.AllocsPerRun(1, func() { pids = list() }); n > groups {
		t.Errorf("%.0f allocations to list a container of %d groups", n, groups)
	}
	if len(pids) < 2 || pids[0] != 7 || pids[1] != 8 {
		t.Errorf("its own processes are not listed: %v", pids)
	}
}
