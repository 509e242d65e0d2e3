package nvml

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const hangsAtInit = "int nvmlInit_v2(void) { for (;;) pause(); }"

// childrenOf lists the children of a process, of whatever thread.
func childrenOf(t *testing.T, pid int) (list []int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, _ := os.ReadFile(f) // the thread may have ended
		for _, s := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(s); err == nil {
				list = append(list, n)
			}
		}
	}
	return list
}

// ours tells the NVML children apart from gcc and other children of tests.
func ours(t *testing.T, pid int) (list []int) {
	for _, c := range childrenOf(t, pid) {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c)); err == nil && strings.Contains(string(b), ChildName) {
			list = append(list, c)
		}
	}
	return list
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within 20 s: %s", what)
}

// A child that hangs in a call goes when the daemon is killed.
func TestChildDiesWithParent(t *testing.T) {
	needsChild(t)
	parent := exec.Command("/proc/self/exe", parentCommand, buildLibrary(t, hangsAtInit))
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var child int
	eventually(t, "the child without privileges", func() bool {
		if list := ours(t, parent.Process.Pid); len(list) == 1 {
			child = list[0]
		}
		return child != 0
	})
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed, as it should be
	eventually(t, "the child's end", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		return err != nil || strings.Contains(string(b), ") Z ")
	})
}

// mayDropBounds: this process has CAP_SETPCAP, as a service that is bounded to a few has not.
func mayDropBounds() bool {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	return unix.Capget(&head, &sets[0]) == nil && sets[0].Effective&(1<<unix.CAP_SETPCAP) != 0
}

// A child opens the nodes that were there at its start. MIG's may be made later: another child then opens those.
func TestNewNodesRenewTheChild(t *testing.T) {
	source, err := os.ReadFile("testdata/clock.c")
	if err != nil {
		t.Fatal(err)
	}
	var made atomic.Int64
	r := started(t, Options{Library: buildLibrary(t, string(source)), nodes: func() string { return strconv.FormatInt(made.Load(), 10) }})
	reads := func(more int) (child int) {
		n := readings(r)
		until(t, r, "more readings", func() bool { return readings(r) >= n+more })
		if list := ours(t, os.Getpid()); len(list) == 1 {
			child = list[0]
		}
		return child
	}
	first := reads(1)
	if still := reads(20); first == 0 || still != first {
		t.Fatalf("child %d after %d, with no other nodes", still, first)
	}
	made.Add(1)
	eventually(t, "another child", func() bool { list := ours(t, os.Getpid()); return len(list) == 1 && list[0] != first })
	second := reads(1)
	if still := reads(20); second == 0 || still != second {
		t.Errorf("child %d after %d, with the same nodes", still, second)
	}
}

// A node that comes, or another in its place, is told; the same is the same.
func TestNodesOf(t *testing.T) {
	node := filepath.Join(t.TempDir(), "nvidia0")
	patterns := []string{filepath.Join(filepath.Dir(node), "none"), filepath.Join(filepath.Dir(node), "nvidia*")}
	seen := map[string]bool{nodesOf(patterns): true}
	for range 2 {
		_ = os.Rename(node, node+"-uvm") // so that no inode comes again
		if err := os.WriteFile(node, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		seen[nodesOf(patterns)], seen[nodesOf(patterns)] = true, true
	}
	if len(seen) != 3 {
		t.Errorf("%d different, want 3: %v", len(seen), seen)
	}
}

// The child holds no capability, can gain none, and no file but its own.
func TestChildHasNoPrivileges(t *testing.T) {
	started(t, Options{Library: buildLibrary(t, hangsAtInit), SlowDeadline: time.Minute})
	var child int
	eventually(t, "the child inside nvmlInit_v2", func() bool {
		for _, c := range ours(t, os.Getpid()) {
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c)); err == nil && strings.Contains(string(b), "libnvidia-ml") {
				child = c
			}
		}
		return child != 0
	})
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", child))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"NoNewPrivs:\t1", "CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000"}
	if mayDropBounds() {
		want = append(want, "CapBnd:\t0000000000000000")
	}
	for _, line := range want {
		if !strings.Contains(string(b), line+"\n") {
			t.Errorf("no %q in its status:\n%s", line, b)
		}
	}
}

// Readers that come and go, with children that end by themselves, leave no file open.
func TestNoFilesLeak(t *testing.T) {
	needsChild(t)
	dies := buildLibrary(t, "int nvmlInit_v2(void) { abort(); }")
	turn := func() {
		var log journal
		r := New(fast(Options{Library: dies, Logger: log.logger()}))
		until(t, r, "a death or two", func() bool { return log.count("ended the process") > 0 })
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	turn()
	before := openFiles()
	for range 10 {
		turn()
	}
	if after := openFiles(); after > before {
		t.Errorf("%d files open before, %d after ten readers", before, after)
	}
}
