package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/probes"
)

const (
	cgroupRoot  = "/sys/fs/cgroup"
	limitBytes  = 64 << 20
	oracleTries = 50
)

// figures are what containerd's own library tells of a container too, by our fields' names.
// It has no refaults by kind, no weight, no quota and, on v1, no pressure.
type figures map[string]uint64

// TestReadsWhatContainerdReads holds our reading to that of containerd's library
// (containerd/cgroups), field by field, on a group that has used CPU time, was
// throttled, hit its memory limit, and then stands still.
func TestReadsWhatContainerdReads(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes a control group")
	}
	target, oracle := group(t)
	wasBusy(t, target)
	mayBeZero := []string{"OOMKills", "Shmem", "MajorFaults", "psiCPU", "psiMemory", "psiIO", "psiCPUSome"}
	var diff string
	var zero []string
	for range oracleTries { // until nothing moves between the two, and all is there: charges are settled late, by batches
		before := oracle(t)
		ours := figuresOf(readOf(t, target), before)
		zero = nil
		for field, v := range before {
			if v == 0 && !slices.Contains(mayBeZero, field) {
				zero = append(zero, field)
			}
		}
		if diff = cmp.Diff(before, ours); diff == "" && zero == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	if diff != "" {
		t.Errorf("containerd's library (-) and ours (+):\n%s", diff)
	}
	if zero != nil {
		t.Errorf("%v are 0 on either side: nothing was compared", zero)
	}
}

// readOf is what our probe reads of a group.
func readOf(t *testing.T, target probes.Target) *probes.Cgroup {
	t.Helper()
	p := New()
	if err := p.Watch(target); err != nil {
		t.Fatal(err)
	}
	into := map[string]*probes.Sample{target.Key: {}}
	if err := errors.Join(p.Read(t.Context(), into), p.Close()); err != nil {
		t.Fatal(err)
	}
	return into[target.Key].Cgroup
}

// figuresOf are our figures under the names that are asked for.
func figuresOf(c *probes.Cgroup, names figures) figures {
	all := figures{
		"CPUUsageNs": c.CPUUsageNs, "MemoryBytes": c.MemoryBytes, "MemoryLimit": uint64(c.MemoryLimit), "Anon": c.Anon, "File": c.File,
		"Shmem": c.Shmem, "InactiveFile": c.InactiveFile, "MajorFaults": c.MajorFaults, "EventsMax": c.EventsMax,
		"OOMKills": c.OOMKills, "psiCPU": c.CPU.FullUs, "psiCPUSome": c.CPU.SomeUs, "psiMemory": c.Memory.SomeUs, "psiIO": c.IO.SomeUs,
	}
	if len(c.Throttling) > 0 {
		own := c.Throttling[0]
		all["Periods"], all["Throttled"] = own.Periods, own.Throttled
	}
	for name := range all {
		if _, asked := names[name]; !asked {
			delete(all, name)
		}
	}
	return all
}

// group makes a control group with limits, and tells how our probe and how the oracle find it.
func group(t *testing.T) (probes.Target, func(*testing.T) figures) {
	t.Helper()
	name := fmt.Sprintf("trimtab-oracle-%d", os.Getpid())
	if cgroups.Mode() == cgroups.Unified {
		return groupV2(t, filepath.Join(cgroupRoot, name))
	}
	return groupV1(t, name)
}

func groupV1(t *testing.T, name string) (probes.Target, func(*testing.T) figures) {
	t.Helper()
	dir := func(controller string) string { return filepath.Join(cgroupRoot, controller, name) }
	for _, controller := range []string{"cpu", "cpuacct", "memory", "pids", "cpuset", "blkio"} {
		made(t, dir(controller))
	}
	write(t, dir("cpu"), "cpu.cfs_quota_us", "20000")
	write(t, dir("memory"), "memory.limit_in_bytes", fmt.Sprint(limitBytes))
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		b, err := os.ReadFile(filepath.Join(cgroupRoot, "cpuset", file))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir("cpuset"), file, strings.TrimSpace(string(b)))
	}
	loaded, err := cgroup1.Load(cgroup1.StaticPath("/" + name))
	if err != nil {
		t.Fatal(err)
	}
	oracle := func(t *testing.T) figures {
		m, err := loaded.Stat(cgroup1.IgnoreNotExist)
		if err != nil {
			t.Fatal(err)
		}
		c, mem := m.GetCPU(), m.GetMemory()
		return figures{
			"CPUUsageNs": c.GetUsage().GetTotal(), "Periods": c.GetThrottling().GetPeriods(), "Throttled": c.GetThrottling().GetThrottledPeriods(),
			"MemoryBytes": mem.GetUsage().GetUsage(), "MemoryLimit": mem.GetUsage().GetLimit(),
			"EventsMax": mem.GetUsage().GetFailcnt(), "Anon": mem.GetTotalRSS(), "File": mem.GetTotalCache(), "InactiveFile": mem.GetTotalInactiveFile(),
			"MajorFaults": mem.GetTotalPgMajFault(), "OOMKills": m.GetMemoryOomControl().GetOomKill(),
		}
	}
	return probes.Target{Key: "box", Dir: dir}, oracle
}

func groupV2(t *testing.T, dir string) (probes.Target, func(*testing.T) figures) {
	t.Helper()
	delegate(t)
	made(t, dir)
	write(t, dir, "cpu.max", "20000 100000")
	write(t, dir, "memory.max", fmt.Sprint(limitBytes))
	loaded, err := cgroup2.Load("/" + filepath.Base(dir))
	if err != nil {
		t.Fatal(err)
	}
	oracle := func(t *testing.T) figures {
		m, err := loaded.Stat()
		if err != nil {
			t.Fatal(err)
		}
		c, mem, events := m.GetCPU(), m.GetMemory(), m.GetMemoryEvents()
		return figures{
			"CPUUsageNs": c.GetUsageUsec() * 1000, "Periods": c.GetNrPeriods(), "Throttled": c.GetNrThrottled(),
			"MemoryBytes": mem.GetUsage(), "MemoryLimit": mem.GetUsageLimit(), "Anon": mem.GetAnon(), "File": mem.GetFile(), "Shmem": mem.GetShmem(),
			"InactiveFile": mem.GetInactiveFile(), "MajorFaults": mem.GetPgmajfault(), "EventsMax": events.GetMax(),
			"OOMKills": events.GetOomKill(), "psiCPU": c.GetPSI().GetFull().GetTotal(), "psiCPUSome": c.GetPSI().GetSome().GetTotal(),
			"psiMemory": mem.GetPSI().GetSome().GetTotal(), "psiIO": m.GetIo().GetPSI().GetSome().GetTotal(),
		}
	}
	return probes.Target{Key: "box", Dir: func(string) string { return dir }, Unified: dir, V2: true}, oracle
}

// delegate gives groups below the root the controllers that they lack, until the test ends.
func delegate(t *testing.T) {
	t.Helper()
	const file = cgroupRoot + "/cgroup.subtree_control"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, controller := range []string{"cpu", "memory", "pids", "cpuset", "io"} {
		if slices.Contains(strings.Fields(string(b)), controller) {
			continue
		}
		if err := os.WriteFile(file, []byte("+"+controller), 0o644); err != nil {
			t.Skipf("needs the %s controller: %v", controller, err)
		}
		t.Cleanup(func() { _ = os.WriteFile(file, []byte("-"+controller), 0o644) }) // whoever uses it by now keeps it
	}
}

// made makes a group that ends with the test.
func made(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { // cpu and cpuacct may be one
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range oracleTries {
			if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("%s cannot be removed", dir)
	})
}

func write(t *testing.T, dir, file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// wasBusy runs a process in the group until it was throttled and hit its memory limit, and
// stops it there: it goes on living, and nothing of it moves.
func wasBusy(t *testing.T, target probes.Target) {
	t.Helper()
	// Memory of its own, files beyond the limit, and then a loop without end, once it has joined.
	cmd := exec.Command("sh", "-c", `read go; x=$(head -c 2000000 /dev/zero | tr '\0' x); head -c 100000000 /dev/zero >"$1/a"; cat "$1/a" >/dev/null; while :; do :; done`, "sh", onDisk(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	all := func(s syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, s) } // a slow machine is at head or cat still
	t.Cleanup(func() { _, _ = all(syscall.SIGKILL), cmd.Wait() })
	for _, controller := range []string{"cpu", "cpuacct", "memory", "pids", "cpuset", "blkio"} {
		write(t, target.Dir(controller), "cgroup.procs", fmt.Sprint(cmd.Process.Pid))
	}
	if _, err := fmt.Fprintln(in, "go"); err != nil {
		t.Fatal(err)
	}
	for range 10 * oracleTries {
		if c := readOf(t, target); len(c.Throttling) > 0 && c.Throttling[0].Throttled > 3 && c.EventsMax > 0 && c.Anon > 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := all(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// onDisk is a folder whose files are page cache: those of a file system in memory are shared memory.
func onDisk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "trimtab-oracle-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
