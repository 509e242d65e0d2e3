// Package uprobetest makes processes that call functions by the names of CUDA's,
// NCCL's and PyTorch's, for tests of the probes on them.
package uprobetest

import (
	"bufio"
	"embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
)

//go:embed testdata/*.c
var sources embed.FS

// Build compiles a source of this package, by name without ".c", to the path dir/out.
func Build(t testing.TB, dir, out, source string, flags ...string) string {
	t.Helper()
	code, err := sources.ReadFile("testdata/" + source + ".c")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "."+source+fmt.Sprint(time.Now().UnixNano())+".c")
	if err := os.WriteFile(path, code, 0o600); err != nil {
		t.Fatal(err)
	}
	return compile(t, dir, out, append(flags, path)...)
}

// BuildCode compiles C code to the path dir/out.
func BuildCode(t testing.TB, dir, out, code string, flags ...string) string {
	t.Helper()
	path := filepath.Join(dir, ".code"+fmt.Sprint(time.Now().UnixNano())+".c")
	if err := os.WriteFile(path, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	return compile(t, dir, out, append(flags, path)...)
}

func compile(t testing.TB, dir, out string, args ...string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc: builds libraries with the names that are probed")
	}
	path := filepath.Join(dir, out)
	cmd := exec.Command(gcc, append([]string{"-O1", "-w", "-fno-optimize-sibling-calls", "-o", path}, append(args, "-ldl", "-lpthread")...)...)
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v: %s", out, err, msg)
	}
	return path
}

// Library builds a source as a shared object.
func Library(t testing.TB, dir, out, source string, flags ...string) string {
	t.Helper()
	return Build(t, dir, out, source, append([]string{"-shared", "-fPIC"}, flags...)...)
}

// Until waits until ok says so, two minutes at the most: looks are seconds apart, and further on a busy machine.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// late are words of what a busy machine makes of a look at a process: it is left, and tried again after a minute.
//
//trimtab:table of what probes/uprobe says
var late = []string{"not looked through in", "not read in its time"}

// Read reads a probe. What went wrong ends the test, but not a look that was late.
func Read(t testing.TB, p probes.Probe, into map[string]*probes.Sample) {
	t.Helper()
	err := p.Read(t.Context(), into)
	if err == nil {
		return
	}
	for line := range strings.Lines(err.Error()) {
		if !slices.ContainsFunc(late, func(words string) bool { return strings.Contains(line, words) }) {
			t.Fatal(err)
		}
	}
	t.Log(err)
}

// Closing closes what a test has opened, the last first.
func Closing(t testing.TB, close func() error) {
	t.Helper()
	t.Cleanup(func() {
		if err := close(); err != nil {
			t.Error(err)
		}
	})
}

// NeedsRoot skips where uprobes cannot be attached.
func NeedsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches uprobes")
	}
}

// Cgroup makes a cgroup that stands for a container, and removes it at the end.
func Cgroup(t testing.TB, name string) probes.Target {
	t.Helper()
	NeedsRoot(t)
	root := "/sys/fs/cgroup/unified"
	if _, err := os.Stat(root); err != nil {
		root = "/sys/fs/cgroup"
	}
	dir := filepath.Join(root, fmt.Sprintf("trimtab-%s-%d", name, os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		t.Skipf("needs a writable cgroup2 tree: %v", err)
	}
	t.Cleanup(func() {
		for range 200 {
			if os.Remove(dir) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	return probes.Target{Key: name, Unified: dir}
}

// Run runs a program in a target's cgroup until the test ends.
func Run(t testing.TB, target probes.Target, env []string, program string, args ...string) (pid int32) {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", "echo $$ > " + target.Unified + `/cgroup.procs && exec "$@"`, "sh", program}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = t.TempDir()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return int32(cmd.Process.Pid)
}

// Stopped holds processes still while f looks.
func Stopped(t testing.TB, pids []int32, f func()) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(int(pid), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range pids {
		for range 100 { // until all threads have stopped
			b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(int(pid)), "stat"))
			if err != nil {
				t.Fatal(err)
			}
			if _, state, _ := strings.Cut(string(b), ") "); strings.HasPrefix(state, "T") {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	f()
	for _, pid := range pids {
		if err := syscall.Kill(int(pid), syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
}

// Job is a process in a cgroup that makes the calls it is told to.
type Job struct {
	PID int32
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
	tb  testing.TB
}

// Start runs a program built from "job" in a target's cgroup.
func Start(t testing.TB, target probes.Target, program string, args ...string) *Job {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", "echo $$ > " + target.Unified + `/cgroup.procs && exec "$@"`, "sh", program}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	j := &Job{PID: int32(cmd.Process.Pid), cmd: cmd, in: in, out: bufio.NewReader(out), tb: t}
	t.Cleanup(j.End)
	j.expect("ready")
	return j
}

func (j *Job) expect(want string) {
	j.tb.Helper()
	line, err := j.out.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != want {
		j.tb.Fatalf("the job answers %q, %v; want %q", line, err, want)
	}
}

// Do gives a command and waits until it is done; see testdata/job.c.
func (j *Job) Do(format string, args ...any) {
	j.tb.Helper()
	fmt.Fprintf(j.in, format+"\n", args...)
	j.expect("done")
}

// Exec has the process replaced by a program built from "job".
func (j *Job) Exec(program string) {
	j.tb.Helper()
	fmt.Fprintf(j.in, "exec %s\n", program)
	j.expect("ready")
}

// End ends the process.
func (j *Job) End() {
	if j.cmd.ProcessState == nil {
		_ = j.cmd.Process.Kill()
		_ = j.cmd.Wait()
	}
}
