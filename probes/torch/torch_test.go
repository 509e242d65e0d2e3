package torch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/probes"
)

// library builds a shared object whose symbol name is the engine's, or another.
func library(t testing.TB, dir, symbol string) string {
	t.Helper()
	cc := ""
	for _, name := range []string{"cc", "gcc", "clang-14"} {
		if path, err := exec.LookPath(name); err == nil {
			cc = path
			break
		}
	}
	if cc == "" {
		t.Skip("needs a C compiler: builds a library with the engine's symbol")
	}
	path := filepath.Join(dir, "libfake.so")
	cmd := exec.Command(cc, "-shared", "-fPIC", "-nostdlib", "-x", "c", "-o", path, "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf("int %s(void) { return 7; }\nint other(void) { return 8; }\n", symbol))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("needs a C compiler that links: %v: %s", err, out)
	}
	return path
}

const engineSymbol = symbolPrefix + "RKSt6vectorINS0_4EdgeESaIS3_EE"

func TestFindSymbol(t *testing.T) {
	for _, tc := range []struct {
		symbol string
		err    error
	}{
		{engineSymbol, nil},
		{"_ZN5torch8autograd6Engine24execute_with_graph_taskE", errNoSymbol},
		{"x" + symbolPrefix, errNoSymbol},
	} {
		f, err := os.Open(library(t, t.TempDir(), tc.symbol))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		offset, err := findSymbol(f)
		if !errors.Is(err, tc.err) || (err == nil) != (offset > 0) {
			t.Errorf("%s: offset %#x, %v", tc.symbol, offset, err)
		}
	}
}

// Whatever a container maps must be an error at worst.
func FuzzFindSymbol(f *testing.F) {
	if path, err := os.Executable(); err == nil {
		if b, err := readCapped(path, 4096); err == nil {
			f.Add(b)
		}
	}
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if offset, err := findSymbol(strings.NewReader(string(b))); err == nil && offset > uint64(len(b)) {
			t.Errorf("offset %d in %d bytes", offset, len(b))
		}
	})
}

func TestExecutableMaps(t *testing.T) {
	maps := "55e0-55e1 r--p 00000000 fe:00 11 /usr/bin/python3\n" +
		"55e1-55e2 r-xp 00001000 fe:00 11 /usr/bin/python3\n" +
		"7f00-7f01 r-xp 00000000 fe:00 12 /usr/lib/lib torch.so (deleted)\n" +
		"7f02-7f03 r-xp 00000000 fe:00 13 /opt/libtorch_cpu.so\n" +
		"7f04-7f05 r-xp 00000000 00:00 0 [vdso]\n7f06-7f07 rwxp 00000000 00:00 0 \n\nnonsense\n"
	want := []string{"7f02-7f03", "55e1-55e2", "7f00-7f01"}
	if diff := cmp.Diff(want, executableMaps([]byte(maps))); diff != "" {
		t.Error(diff)
	}
}

func TestStartTick(t *testing.T) {
	root := t.TempDir()
	for pid, tc := range map[int32]struct {
		stat string
		want uint64
	}{
		1: {"1 (sh) S 0 1 1 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4242 99 1", 4242},
		2: {"2 (a) b) (c) R 0 1 1 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 77 99 1", 77},
		3: {"3 (sh) S 0 1", 0},
		4: {"", 0},
	} {
		dir := filepath.Join(root, fmt.Sprint(pid))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(tc.stat), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := startTick(root, pid); got != tc.want || (err == nil) != (tc.want > 0) {
			t.Errorf("%q: %d, %v", tc.stat, got, err)
		}
	}
}

func TestIdentifyRefusesWhatIsNotAFile(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	huge := filepath.Join(dir, "huge")
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, maxFileBytes+1); err != nil {
		t.Skipf("needs a file system with sparse files: %v", err)
	}
	for _, path := range []string{fifo, huge, dir, "/dev/zero"} {
		if _, err := identify(path); err == nil {
			t.Errorf("%s is taken for a library", path)
		}
	}
}

// fixture starts a process in a cgroup of its own that calls the engine ten
// times for each line it is given.
func fixture(t *testing.T, name, lib string) (dir string, tick func(), pid int32) {
	t.Helper()
	const python = "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		t.Skip("needs python3: the workload is written in it")
	}
	root := "/sys/fs/cgroup/unified"
	if _, err := os.Stat(root); err != nil {
		root = "/sys/fs/cgroup"
	}
	dir = filepath.Join(root, name)
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		t.Skipf("needs a writable cgroup2 tree: %v", err)
	}
	code := "import ctypes,sys\nf=getattr(ctypes.CDLL(sys.argv[1]),sys.argv[2])\nprint('go',flush=True)\n" +
		"for line in sys.stdin:\n for i in range(10): f()\n print('done',flush=True)"
	cmd := exec.Command("sh", "-c", "echo $$ > "+dir+"/cgroup.procs && exec "+python+` -S -c "$@"`, "sh", code, lib, engineSymbol)
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
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for range 100 {
			if os.Remove(dir) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return dir, func() {
		fmt.Fprintln(in)
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}, int32(cmd.Process.Pid)
}

func newProbe(t *testing.T) *Probe {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches uprobes")
	}
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func ticks(t *testing.T, p *Probe, keys ...string) map[string][]probes.Ticks {
	t.Helper()
	into := map[string]*probes.Sample{}
	for _, key := range keys {
		into[key] = &probes.Sample{Container: key, Kernel: &probes.Kernel{}}
	}
	if err := p.Read(context.Background(), into); err != nil {
		t.Fatal(err)
	}
	out := map[string][]probes.Ticks{}
	for key, sample := range into {
		out[key] = sample.Kernel.Ticks
	}
	return out
}

// Two containers share a library: one uprobe, and each process counts its own.
func TestTicksAreCounted(t *testing.T) {
	p := newProbe(t)
	lib := library(t, t.TempDir(), engineSymbol)
	dirA, tickA, pidA := fixture(t, "trimtab-torch-a", lib)
	dirB, tickB, pidB := fixture(t, "trimtab-torch-b", lib)
	for key, dir := range map[string]string{"a": dirA, "b": dirB} {
		if err := p.Watch(probes.Target{Key: key, Unified: dir}); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 { // the scan's share of files may take several readings
		p.nextScan = time.Time{}
		ticks(t, p, "a", "b")
		if len(p.attached) == 1 && p.processes[pidA].on != nil && p.processes[pidB].on != nil {
			break
		}
		for _, proc := range p.processes {
			proc.nextLook = time.Time{}
		}
	}
	if len(p.attached) != 1 {
		t.Fatalf("%d uprobes for one library", len(p.attached))
	}
	tickA()
	tickA()
	tickB()
	got := ticks(t, p, "a", "b")
	for key, want := range map[string]probes.Ticks{
		"a": {Source: Source, TGID: pidA, Count: 20}, "b": {Source: Source, TGID: pidB, Count: 10},
	} {
		if len(got[key]) != 1 || got[key][0].LastNs == 0 {
			t.Fatalf("container %s: %+v", key, got[key])
		}
		want.LastNs = got[key][0].LastNs
		if diff := cmp.Diff(want, got[key][0]); diff != "" {
			t.Errorf("container %s: %s", key, diff)
		}
	}
	p.Unwatch("a")
	tickA()
	tickB()
	if got := ticks(t, p, "b")["b"]; len(got) != 1 || got[0].Count != 20 {
		t.Errorf("after the other left: %+v", got)
	}
	p.Unwatch("b")
	if len(p.attached) != 0 || len(p.processes) != 0 {
		t.Errorf("%d uprobes and %d processes are left", len(p.attached), len(p.processes))
	}
}
