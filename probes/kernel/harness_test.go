package kernel

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
)

// box is a bare cgroup that stands for a container: a directory in the v2 tree,
// and on hybrid hosts one in v1's cpu hierarchy, for the quota.
type box struct {
	t       testing.TB
	unified string
	cpu     string // where the quota is set
	blkio   string // where v1 charges block I/O; "" unless asked for
	v2      bool
}

// newBox makes a cgroup below parent (nil: the root), removed at the end.
func newBox(t testing.TB, parent *box, name string) *box {
	t.Helper()
	unified, cpu, v2 := cgroupRoots(t)
	if parent != nil {
		unified, cpu = parent.unified, parent.cpu
	}
	b := &box{t: t, unified: filepath.Join(unified, name), cpu: filepath.Join(cpu, name), v2: v2}
	if v2 {
		_ = os.WriteFile(filepath.Join(unified, "cgroup.subtree_control"), []byte("+cpu"), 0)
	}
	for _, dir := range b.dirs() {
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			t.Skipf("needs a writable cgroup tree: %v", err)
		}
		t.Cleanup(func() { removeCgroup(t, dir) })
	}
	return b
}

func cgroupRoots(t testing.TB) (unified, cpu string, v2 bool) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		switch {
		case f[2] == "cgroup2":
			unified = f[1]
		case f[2] == "cgroup" && strings.Contains(","+f[3]+",", ",cpu,"):
			cpu = f[1]
		}
	}
	if unified == "" {
		t.Skip("needs cgroup2: no v2 tree is mounted")
	}
	if cpu == "" {
		return unified, unified, true
	}
	return unified, cpu, false
}

func removeCgroup(t testing.TB, dir string) {
	for range 100 {
		if err := os.Remove(dir); err == nil || os.IsNotExist(err) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("cgroup %s is still busy", dir)
}

func (b *box) dirs() []string {
	if b.v2 {
		return []string{b.unified}
	}
	if b.blkio != "" {
		return []string{b.unified, b.cpu, b.blkio}
	}
	return []string{b.unified, b.cpu}
}

// chargeBlockIO gives the box a cgroup in v1's blkio hierarchy, as runc does. Without
// one a request is charged by the thread that issues it, and that may be the kernel's.
func (b *box) chargeBlockIO(t testing.TB) {
	t.Helper()
	const root = "/sys/fs/cgroup/blkio"
	if b.v2 {
		return
	}
	dir := filepath.Join(root, filepath.Base(b.unified))
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		t.Skipf("needs v1's blkio hierarchy: %v", err)
	}
	t.Cleanup(func() { removeCgroup(t, dir) })
	b.blkio = dir
}

// quota bounds the box to cpus.
func (b *box) quota(cpus float64) {
	b.t.Helper()
	us := int(cpus * 100000)
	file, value := "cpu.cfs_quota_us", strconv.Itoa(us)
	if b.v2 {
		file, value = "cpu.max", fmt.Sprintf("%d 100000", us)
	}
	if err := os.WriteFile(filepath.Join(b.cpu, file), []byte(value), 0); err != nil {
		b.t.Skipf("needs CFS bandwidth control: %v", err)
	}
}

func (b *box) target(key string) probes.Target {
	b.t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(b.unified, &st); err != nil {
		b.t.Fatal(err)
	}
	dir := func(controller string) string {
		return map[string]string{"blkio": b.blkio}[controller]
	}
	return probes.Target{Key: key, CgroupID: st.Ino, Unified: b.unified, V2: b.v2, Dir: dir}
}

// job is a process in a box.
type job struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

// start runs python code inside the box. The shell joins the cgroups and then
// becomes python, so the process is moved into the container like an exec.
func (b *box) start(code string, args ...string) *job {
	b.t.Helper()
	const python = "/usr/bin/python3" // not by PATH: a shim there starts processes of its own
	if _, err := os.Stat(python); err != nil {
		b.t.Skip("needs python3: workloads are written in it")
	}
	join := ""
	for _, dir := range b.dirs() {
		join += fmt.Sprintf("echo $$ > %s/cgroup.procs && ", dir)
	}
	cmd := exec.Command("sh", append([]string{"-c", join + `exec /usr/bin/python3 -S -c "$@"`, "sh", code}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = &bytes.Buffer{}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	j := &job{t: b.t, cmd: cmd, in: in, out: bufio.NewReader(pipe)}
	b.t.Cleanup(j.stop)
	return j
}

func (j *job) pid() int32 { return int32(j.cmd.Process.Pid) }

// line waits for the next line of the workload.
func (j *job) line() string {
	j.t.Helper()
	s, err := j.out.ReadString('\n')
	if err != nil {
		j.t.Fatalf("workload: %v: %s", err, j.cmd.Stderr)
	}
	return strings.TrimSpace(s)
}

func (j *job) stop() {
	if j.cmd.ProcessState != nil {
		return // it was stopped before
	}
	_ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL)
	_ = j.cmd.Wait()
}

func (j *job) wait() {
	j.t.Helper()
	if err := j.cmd.Wait(); err != nil {
		j.t.Fatalf("workload: %v: %s", err, j.cmd.Stderr)
	}
}

func watch(t testing.TB, p *Probe, b *box, key string) {
	t.Helper()
	if err := p.Watch(b.target(key)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Unwatch(key) })
}

func read(t testing.TB, p *Probe, key string) *probes.Kernel {
	t.Helper()
	into := map[string]*probes.Sample{}
	if err := p.Read(context.Background(), into); err != nil {
		t.Fatal(err)
	}
	if into[key] == nil || into[key].Kernel == nil {
		t.Fatalf("no kernel part for %q in %v", key, into)
	}
	for _, th := range into[key].Kernel.Threads {
		var sum uint64
		for _, ns := range th.Ns {
			sum += ns
		}
		if sum != uint64(th.AtNs-th.SinceNs) {
			t.Errorf("thread %d %q: states sum to %d ns, it was followed for %d", th.TID, th.Comm, sum, th.AtNs-th.SinceNs)
		}
	}
	return into[key].Kernel
}

func threadOf(t testing.TB, k *probes.Kernel, tid int32) probes.Thread {
	t.Helper()
	for _, th := range k.Threads {
		if th.TID == tid {
			return th
		}
	}
	t.Fatalf("thread %d is not in the sample of %d threads", tid, len(k.Threads))
	return probes.Thread{}
}

// over returns what a thread did between two readings d apart.
func over(t testing.TB, p *Probe, key string, tid int32, d time.Duration) probes.Thread {
	t.Helper()
	before := threadOf(t, read(t, p, key), tid)
	time.Sleep(d)
	return delta(before, threadOf(t, read(t, p, key), tid))
}

func delta(before, after probes.Thread) probes.Thread {
	d := after
	d.SinceNs = before.AtNs
	for s := range d.Ns {
		d.Ns[s] -= before.Ns[s]
		d.Count[s] -= before.Count[s]
	}
	return d
}

// share is the part of a delta's wall time in a state.
func share(d probes.Thread, states ...probes.State) float64 {
	var ns uint64
	for _, s := range states {
		ns += d.Ns[s]
	}
	return float64(ns) / float64(d.AtNs-d.SinceNs)
}

func describe(d probes.Thread) string {
	var b strings.Builder
	for s := range probes.NumStates {
		if d.Ns[s] > 0 {
			fmt.Fprintf(&b, "%s %.1f%% (%d) ", s, 100*share(d, s), d.Count[s])
		}
	}
	return b.String()
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }

// stderr waits for the workload's end and returns what it complained of.
func (j *job) stderr() string {
	_ = j.cmd.Wait()
	return j.cmd.Stderr.(*bytes.Buffer).String()
}
