package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/test/runtimetest"
)

// TestHostileDev: access is taken in any case; nodes are touched only where they are what they are called.
func TestHostileDev(t *testing.T) {
	host, c := gpuContainer(t)
	sh := func(script string) { host.Run(t, "exec", c.ID.Container, "sh", "-c", script) }
	sh("rm /dev/nvidia0; mknod /dev/nvidia0 c 1 3; mkdir /run/trimtab; ln -s /etc/hosts /run/trimtab/gpus; ln -s /etc/hosts /run/trimtab/.gpus.new; mknod /tmp/own0 c 195 0")
	v := hider(t, &memRecords{}, fakeUnits{})
	notes, err := v.Hide(t.Context(), c, runtime.GPUView{Hidden: []int{0}})
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "left alone") {
		t.Errorf("%v, %v", notes, err)
	}
	wantFinds(t, host, c, map[string]string{"/tmp/own0": "refused"})
	if out := host.Run(t, "exec", c.ID.Container, "sh", "-c", "grep -c localhost /etc/hosts | sed s/[0-9]/many/; cat /run/trimtab/gpus; stat -c %T /dev/nvidia0"); out != "many\n1\n3" {
		t.Errorf("%q", out)
	}
	sh("rm -rf /run/trimtab; ln -s /etc /run/trimtab")
	if notes, err = v.Hide(t.Context(), c, runtime.GPUView{}); err != nil || len(notes) != 1 || !strings.Contains(notes[0], "not told") {
		t.Errorf("%v, %v", notes, err)
	}
	if out := host.Run(t, "exec", c.ID.Container, "sh", "-c", "ls /etc/gpus 2>&1; true"); !strings.Contains(out, "No such file") {
		t.Errorf("a link was followed: %s", out)
	}
	if _, _, err := v.Restore(t.Context(), c.Key()); err != nil {
		t.Error(err)
	}
}

// TestNodesBelowALink works on a made-up root: /dev is a link to elsewhere.
func TestNodesBelowALink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/dev", filepath.Join(dir, "dev")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	v := hider(t, &memRecords{}, fakeUnits{})
	if _, _, err := v.nodesToRemove(root, Hidden{Minors: []int{0}}, Hidden{}); !errors.Is(err, unix.ELOOP) {
		t.Errorf("%v", err)
	}
	dev, err := os.OpenFile(t.TempDir(), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, n := range []Node{{Name: "nvidia0", Major: 8}, {Name: "../nvidia0", Major: 195}, {Name: "sda", Major: 195}, {Name: "nvidia0", Major: 509}} {
		if err := makeNode(dev, n, []int{195}); err == nil {
			t.Errorf("%+v was made", n)
		}
	}
	if entries, _ := os.ReadDir(dev.Name()); len(entries) > 0 {
		t.Errorf("%v", entries)
	}
	if err := removeView(root); err != nil {
		t.Errorf("no /run: %v", err)
	}
}

func TestReadOnlyContainer(t *testing.T) {
	host := runtimetest.NeedDocker(t)
	c := dockerContainer(t, "--read-only", "--device-cgroup-rule", "c 195:* rwm")
	c.GPUs = []string{"0"}
	c.ID.StartTick, _ = cgroup.StartTick("/proc", c.InitPID)
	v := hider(t, &memRecords{}, fakeUnits{})
	rules := listOf(t, c)
	notes, err := v.Hide(t.Context(), c, runtime.GPUView{Hidden: []int{0}})
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "read-only") {
		t.Errorf("%v, %v", notes, err)
	}
	if access, _ := CheckAccess(t.Context(), c); access != AccessRefused {
		t.Errorf("access %s", access)
	}
	restore(t, v, c)
	if diff := cmp.Diff(rules, listOf(t, c)); diff != "" {
		t.Error(diff)
	}
	if _, err := v.Hide(t.Context(), c, runtime.GPUView{Hidden: []int{0}}); err != nil {
		t.Fatal(err)
	}
	host.Run(t, "kill", c.ID.Container)
	host.Run(t, "wait", c.ID.Container)
	if _, err := v.Hide(t.Context(), c, runtime.GPUView{}); !errors.Is(err, runtime.ErrGone) {
		t.Errorf("%v", err)
	}
	if _, _, err := v.Restore(t.Context(), c.Key()); err != nil || len(v.Hiding()) > 0 {
		t.Errorf("%v, %v", err, v.Hiding())
	}
}

// TestHidePrivileged: v1's list of a container that may use everything does not show
// what was taken from it. A bare group stands for one.
// TestHidePrivilegedWithGroupsBelow: what v1 takes from the groups below does not come back to them.
func TestHidePrivilegedWithGroupsBelow(t *testing.T) {
	dir, err := os.MkdirTemp("/sys/fs/cgroup/devices", "trimtab-test-")
	if err != nil {
		t.Skipf("needs root: and v1's devices controller: %v", err)
	}
	below := filepath.Join(dir, "below")
	t.Cleanup(func() { os.Remove(below); os.Remove(dir) })
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	c := runtime.Container{Name: "c", GPUs: []string{"0", "1"}, Cgroup: runtime.Cgroup{V1: map[string]string{"devices": dir}}}
	v := hider(t, &memRecords{}, fakeUnits{})
	if _, err := v.Hide(t.Context(), c, runtime.GPUView{Hidden: []int{0}}); err == nil || !strings.Contains(err.Error(), "control groups of its own") {
		t.Errorf("%v", err)
	}
	inner := c
	inner.Cgroup = runtime.Cgroup{V1: map[string]string{"devices": below}}
	if access, err := tryOpen(t.Context(), inner, []int{0}); access != AccessAllowed {
		t.Errorf("the group below: %s, %v", access, err)
	}
}

func TestHidePrivileged(t *testing.T) {
	dir, err := os.MkdirTemp("/sys/fs/cgroup/devices", "trimtab-test-")
	if err != nil {
		t.Skipf("needs root: and v1's devices controller: %v", err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	c := runtime.Container{Name: "c", GPUs: []string{"0", "1"}, Cgroup: runtime.Cgroup{V1: map[string]string{"devices": dir}}}
	v := hider(t, &memRecords{}, fakeUnits{})
	had, _ := look(t, v, c, nil)
	wantOpen := func(when string, want map[int]bool) {
		t.Helper()
		for minor, open := range want {
			if access, err := tryOpen(t.Context(), c, []int{minor}); (access == AccessAllowed) != open {
				t.Errorf("%s: %d is %s, %v", when, minor, access, err)
			}
		}
		v.Forget(c.Key())
		if _, lost := look(t, v, c, had); len(lost) > 0 {
			t.Errorf("%s: a repair would find %v lost", when, lost)
		}
		if how, err := v.Repair(t.Context(), c, had); how != "" || err != nil {
			t.Errorf("%s: the repair fights: %q, %v", when, how, err)
		}
	}
	for _, hidden := range [][]int{{0}, {0, 1}, {1}, {}} {
		notes, err := v.Hide(t.Context(), c, runtime.GPUView{Hidden: hidden})
		if err != nil || len(notes) != 1 { // it has no process, so no files
			t.Fatalf("%v, %v", notes, err)
		}
		wantOpen(fmt.Sprint("hidden ", hidden), map[int]bool{0: !slices.Contains(hidden, 0), 1: !slices.Contains(hidden, 1), 255: len(hidden) < 2})
	}
	if _, err := v.Hide(t.Context(), c, runtime.GPUView{Hidden: []int{1}}); err != nil {
		t.Fatal(err)
	}
	deny(t, c, "c 195:255 rwm") // somebody takes more
	v.Forget(c.Key())
	if _, lost := look(t, v, c, had); len(lost) == 0 {
		t.Error("nothing lost")
	}
	if how, err := v.Repair(t.Context(), c, had); how == "" || err != nil {
		t.Errorf("%q, %v", how, err)
	}
	wantOpen("repaired", map[int]bool{0: true, 1: false, 255: true})
	if _, _, err := v.Restore(t.Context(), c.Key()); err != nil {
		t.Fatal(err)
	}
	wantOpen("restored", map[int]bool{0: true, 1: true, 255: true})
	deny(t, c, "c 195:1 rwm") // what somebody else took is not given back by showing it
	if _, err := v.Hide(t.Context(), c, runtime.GPUView{Hidden: []int{1}}); err == nil || !strings.Contains(err.Error(), "nothing to hide") || len(v.Hiding()) > 0 {
		t.Errorf("%v, %v", err, v.Hiding())
	}
	if access, err := tryOpen(t.Context(), c, []int{1}); access != AccessRefused {
		t.Errorf("%s, %v", access, err)
	}
}

// TestHostsDev: a /dev that is the host's too keeps its nodes.
func TestHostsDev(t *testing.T) {
	dir, host := t.TempDir(), t.TempDir() // on one file system, as a bind mount is
	node := filepath.Join(dir, "dev", "nvidia0")
	if err := os.Mkdir(filepath.Dir(node), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(nvidiaMajor, 0))); err != nil {
		t.Skipf("needs root: mknod: %v", err)
	}
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	v, target := hider(t, &memRecords{}, fakeUnits{}), Hidden{Minors: []int{0}}
	v.hostDev = host
	nodes, _, err := v.nodesToRemove(root, target, Hidden{})
	if !errors.Is(err, errHostsDev) || len(nodes) > 0 {
		t.Errorf("%v, %v", nodes, err)
	}
	own := Node{Name: "nvidia0", Major: nvidiaMajor, Mode: 0o666}
	if _, notes := v.moveNodes(t.Context(), root, target, []Node{own}); len(notes) != 1 || !strings.Contains(notes[0], "host's") {
		t.Errorf("%v", notes)
	}
	if _, err := os.Lstat(node); err != nil {
		t.Errorf("the node: %v", err)
	}
	v.hostDev = "/proc" // another file system: the container's own /dev
	if left, notes := v.moveNodes(t.Context(), root, target, []Node{own}); len(left) != 1 || len(notes) > 0 {
		t.Errorf("%v, %v", left, notes)
	}
	if _, err := os.Lstat(node); err == nil {
		t.Error("a node of its own /dev stays")
	}
}

// TestManyEntries: a directory that a container filled is gone through piece by piece, and
// no longer than there is time.
func TestManyEntries(t *testing.T) {
	dir := t.TempDir()
	const many = 1000
	for i := range many {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	count := func(most int) func(os.DirEntry) bool {
		return func(os.DirEntry) bool { seen++; return seen < most }
	}
	if err := eachEntry(t.Context(), dir, count(2*many)); err != nil || seen != many {
		t.Errorf("%d of %d entries, %v", seen, many, err)
	}
	seen = 0
	if err := eachEntry(t.Context(), dir, count(3)); err != nil || seen != 3 {
		t.Errorf("%d entries, %v; 3 sufficed", seen, err)
	}
	seen = 0
	ended, end := context.WithCancel(t.Context())
	end()
	if err := eachEntry(ended, dir, count(2*many)); !errors.Is(err, context.Canceled) || seen >= many {
		t.Errorf("%d entries without time, %v", seen, err)
	}
	if err := eachEntry(t.Context(), filepath.Join(dir, "none"), count(1)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is none: %v", err)
	}
}
