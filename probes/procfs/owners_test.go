package procfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/probes"
)

// procTree writes /proc/PID/cgroup, stat and comm for some processes.
func procTree(t *testing.T, root string, pid int, start, cgroup string) {
	t.Helper()
	dir := filepath.Join(root, fmt.Sprint(pid))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	stat := fmt.Sprintf("%d (a) b) S 1 %s %s 0 0\n", pid, strings.Repeat("0 ", 17), start)
	for name, text := range map[string]string{"cgroup": cgroup, "stat": stat, "comm": "python3\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// v1dir is a Target.Dir of a v1 host.
func v1dir(path string) func(string) string {
	return func(controller string) string {
		if controller == "pids" {
			return "" // not limited by that one
		}
		if controller == "cpu" {
			controller = "cpu,cpuacct"
		}
		return "/sys/fs/cgroup/" + controller + path
	}
}

func TestOwners(t *testing.T) {
	proc := t.TempDir()
	v1 := func(p string) string {
		return "12:pids:" + p + "\n3:cpu,cpuacct:" + p + "\n2:memory:" + p + "\n1:name=systemd:" + p + "\n"
	}
	procTree(t, proc, 100, "7", "0::/system.slice/docker-abc.scope\n")
	procTree(t, proc, 101, "7", "0::/system.slice/docker-abc.scope/deep/down\n")
	procTree(t, proc, 102, "7", "0::/system.slice/docker-abcd.scope\n")
	procTree(t, proc, 103, "7", "0::/system.slice/sshd.service\n")
	procTree(t, proc, 104, "7", "0::/system.slice/docker-evil.scope/system.slice/docker-abc.scope\n")
	procTree(t, proc, 105, "7", "0::/docker-abc.scope\n")
	procTree(t, proc, 106, "7", "no cgroup at all\n0::\n0::relative\n")
	procTree(t, proc, 200, "7", v1("/docker/v1/init.scope")+"0::/\n")
	procTree(t, proc, 201, "7", v1("/docker/v1"))
	procTree(t, proc, 202, "7", v1("/docker/other"))
	o := NewOwners(proc)
	if err := o.Set([]probes.Target{
		{Key: "abc", InitPID: 100, Unified: "/sys/fs/cgroup/system.slice/docker-abc.scope", V2: true},
		{Key: "v1", InitPID: 200, Dir: v1dir("/docker/v1")},
	}); err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[int32]string{100: "abc", 101: "abc", 102: "", 103: "", 104: "", 105: "", 106: "", 200: "v1", 201: "v1", 202: "", 999: ""} {
		if got := o.Key(pid); got != want {
			t.Errorf("process %d: container %q, want %q", pid, got, want)
		}
	}
}

// A PID that is used again is another process, and a container that ended owns nothing.
func TestOwnersChange(t *testing.T) {
	proc := t.TempDir()
	procTree(t, proc, 10, "7", "0::/docker/abc\n")
	procTree(t, proc, 11, "7", "0::/docker/abc\n")
	o := NewOwners(proc)
	abc := probes.Target{Key: "abc", InitPID: 10, Unified: "/sys/fs/cgroup/unified/docker/abc"}
	if err := o.Set([]probes.Target{abc}); err != nil {
		t.Fatal(err)
	}
	if got := o.Key(11); got != "abc" {
		t.Fatalf("container %q", got)
	}
	procTree(t, proc, 11, "8", "0::/user.slice\n")
	if got := o.Key(11); got != "" {
		t.Errorf("the PID was used again by a process of the host, and is still of %q", got)
	}
	gone := probes.Target{Key: "gone", InitPID: 12, Unified: "/sys/fs/cgroup/unified/docker/gone"}
	if err := o.Set([]probes.Target{abc, gone}); err == nil || !strings.Contains(err.Error(), `"gone"`) {
		t.Errorf("init is gone: %v", err)
	}
	if got := o.Key(10); got != "abc" {
		t.Errorf("one container's trouble costs the other: %q", got)
	}
	if err := o.Set(nil); err != nil || o.Key(10) != "" {
		t.Errorf("%v; a container that ended owns %q", err, o.Key(10))
	}
}

// The kernel's own files: a process in a cgroup made for this test.
func TestOwnersOfThisKernel(t *testing.T) {
	dir := ""
	for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		if _, err := os.Stat(root + "/cgroup.procs"); err == nil {
			dir = filepath.Join(root, fmt.Sprintf("trimtab-owner-test-%d", os.Getpid()))
			break
		}
	}
	if dir == "" || os.Mkdir(dir, 0o755) != nil {
		t.Skip("needs root and a v2 cgroup tree")
	}
	defer os.Remove(dir)
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	if err := os.WriteFile(dir+"/cgroup.procs", []byte(fmt.Sprint(cmd.Process.Pid)), 0o600); err != nil {
		t.Skip("needs root: " + err.Error())
	}
	o := NewOwners("/proc")
	if err := o.Set([]probes.Target{{Key: "box", InitPID: cmd.Process.Pid, Unified: dir}}); err != nil {
		t.Fatal(err)
	}
	if got := o.Key(int32(cmd.Process.Pid)); got != "box" {
		t.Errorf("the process is of %q", got)
	}
	if got := o.Key(int32(os.Getpid())); got != "" {
		t.Errorf("the test itself is of %q", got)
	}
}
