package device

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// pathOnly opens a directory as makeNode is given one.
func pathOnly(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// watch tells, when asked, what happened to one name in a directory.
func watch(t *testing.T, dir, name string) func() (events []string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_ATTRIB|unix.IN_MOVED_TO); err != nil {
		t.Fatal(err)
	}
	return func() (events []string) {
		buf := make([]byte, 1<<16)
		n, err := unix.Read(fd, buf)
		if err != nil {
			t.Fatal(err)
		}
		for buf = buf[:n]; len(buf) > 0; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[0]))
			of := buf[unix.SizeofInotifyEvent : unix.SizeofInotifyEvent+int(e.Len)]
			if string(bytes.TrimRight(of, "\x00")) == name {
				events = append(events, map[uint32]string{unix.IN_CREATE: "created", unix.IN_ATTRIB: "changed", unix.IN_MOVED_TO: "moved here"}[e.Mask])
			}
			buf = buf[unix.SizeofInotifyEvent+int(e.Len):]
		}
		return events
	}
}

// TestNodeIsWholeBeforeItHasItsName: whenever the daemon is killed, a node of that name is as it was.
func TestNodeIsWholeBeforeItHasItsName(t *testing.T) {
	dir := t.TempDir()
	n := Node{Name: "nvidia0", Major: nvidiaMajor, Mode: 0o666, UID: 7, GID: 8}
	number := int(unix.Mkdev(nvidiaMajor, 0))
	// What a kill left, with another mode.
	if err := unix.Mknod(filepath.Join(dir, ".trimtab-nvidia0"), unix.S_IFCHR|0o600, number); err != nil {
		t.Skipf("needs root: mknod: %v", err)
	}
	old := unix.Umask(0o027) // the unit's
	defer unix.Umask(old)
	happened := watch(t, dir, n.Name)
	dev := pathOnly(t, dir)
	if err := makeNode(dev, n, []int{nvidiaMajor}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"moved here"}, happened()); diff != "" {
		t.Errorf("what happened to its name (-want +got):\n%s", diff)
	}
	if got, ok, err := nodeOf(dev, n.Name, []int{nvidiaMajor}); got != n || !ok || err != nil {
		t.Errorf("it is %+v, %v; want %+v", got, err, n)
	}
	if names := namesIn(t, dir); !cmp.Equal(names, []string{"nvidia0"}) {
		t.Errorf("left: %v", names)
	}
}

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestNodeThatStands is somebody else's, and stays as it is; what a kill left beside it goes.
func TestNodeThatStands(t *testing.T) {
	n := Node{Name: "nvidia0", Major: nvidiaMajor, Mode: 0o666}
	for name, tc := range map[string]struct {
		make func(path string) error
		ok   bool
	}{
		"the node": {func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(nvidiaMajor, 0))) }, true},
		"a file":   {func(path string) error { return os.WriteFile(path, nil, 0o600) }, false},
		"a link":   {func(path string) error { return os.Symlink("/dev/null", path) }, false},
		"a device": {func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) }, false},
		"a folder": {func(path string) error { return os.Mkdir(path, 0o600) }, false},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, n.Name)
		if err := tc.make(path); err != nil {
			t.Skipf("needs root: %s: %v", name, err)
		}
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, ".trimtab-nvidia0"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := makeNode(pathOnly(t, dir), n, []int{nvidiaMajor}); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
		after, err := os.Lstat(path)
		if err != nil || !os.SameFile(before, after) || before.Mode() != after.Mode() {
			t.Errorf("%s: it was touched: %v, %v", name, after, err)
		}
		if names := namesIn(t, dir); !cmp.Equal(names, []string{"nvidia0"}) {
			t.Errorf("%s: left: %v", name, names)
		}
	}
}
