package process

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes"
)

func TestRankOf(t *testing.T) {
	for environ, want := range map[string]int32{
		"PATH=/bin\x00RANK=3\x00LOCAL_RANK=1\x00":             3,
		"LOCAL_RANK=1\x00OMPI_COMM_WORLD_RANK=5\x00":          5,
		"SLURM_PROCID=0\x00RANK=7\x00":                        7, // of torchrun below Slurm
		"PMI_RANK=0\x00":                                      0,
		"HOROVOD_RANK=4\x00HOROVOD_LOCAL_RANK=0\x00":          4,
		"PMIX_RANK=0\x00SLURM_PROCID=0\x00HOROVOD_RANK=3\x00": 3, // of horovodrun below srun
		"RANK=seven\x00PMIX_RANK=2":                           2,
		"RANK=-1\x00":                                         -1,
		"RANK=99999999999999\x00":                             -1,
		"RANK=16777216\x00":                                   -1,
		"RANKS=1\x00XRANK=2\x00HOME=RANK=3\x00RANK\x00=4\x00": -1,
		"": -1,
	} {
		got, ok := rankOf([]byte(environ))
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: rank %d, %v; want %d", environ, got, ok, want)
		}
	}
}

func TestArgsThatDifferInNumbers(t *testing.T) {
	same := func(a, b string) bool { return argsHash([]byte(a)) == argsHash([]byte(b)) }
	if !same("python\x00train.py\x00--rank=0\x00", "python\x00train.py\x00--rank=12\x00") {
		t.Error("arguments that differ in a number differ")
	}
	for _, other := range []string{"python\x00serve.py\x00--rank=0\x00", "python\x00train.py\x00--rank=\x00", "", "python\x00train.py\x00--rank=0\x000\x00"} {
		if same("python\x00train.py\x00--rank=0\x00", other) {
			t.Errorf("%q is taken for the same", other)
		}
	}
}

// TestAContainerThatDoesNotAnswer: the environment of one process can be read only when somebody
// writes it, as on a hung file server. Nobody waits for it, and other containers are read.
func TestAContainerThatDoesNotAnswer(t *testing.T) {
	root := t.TempDir()
	write := func(pid, file, text string) {
		if err := os.MkdirAll(filepath.Join(root, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, pid, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range []string{"7", "8"} {
		write(pid, "stat", pid+" (x) S 1 1 1 0 -1"+strings.Repeat(" 0", 16))
		write(pid, "cmdline", "x\x00")
	}
	write("8", "environ", "RANK=2\x00")
	pipe := filepath.Join(root, "7", "environ")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	p := New(root)
	for _, key := range []string{"hangs", "answers"} {
		if err := p.Watch(probes.Target{Key: key}); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (hangs, answers []probes.Process) {
		into := map[string]*probes.Sample{}
		for key, tgid := range map[string]int32{"hangs": 7, "answers": 8} {
			into[key] = &probes.Sample{Kernel: &probes.Kernel{Threads: []probes.Thread{{TID: tgid, TGID: tgid, Comm: "x"}}}}
		}
		if err := p.Read(t.Context(), into); err != nil {
			t.Fatal(err)
		}
		return into["hangs"].Processes, into["answers"].Processes
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		hangs, answers := read()
		if len(hangs) != 0 {
			t.Fatalf("read of a process that does not answer: %+v", hangs)
		}
		if len(answers) == 1 && answers[0].Rank == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the other container is not read")
		}
	}
	if err := p.Close(); err == nil {
		t.Error("Close says nothing of the reading that hangs")
	}
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // the server answers
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("once it has answered: %v", err)
	}
}

// TestLivesThatDoNotAnswer: a container that starts anew while what it was before still hangs takes
// no more threads than there are for all.
func TestLivesThatDoNotAnswer(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "7")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "stat"), []byte("7 (x) S 1 1 1 0 -1"+strings.Repeat(" 0", 16)), 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "cmdline")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	p := New(root)
	p.most = 4
	before := runtime.NumGoroutine()
	for life := range 20 {
		key := strconv.Itoa(life)
		if err := p.Watch(probes.Target{Key: key}); err != nil {
			t.Fatal(err)
		}
		into := map[string]*probes.Sample{key: {Kernel: &probes.Kernel{Threads: []probes.Thread{{TID: 7, TGID: 7, Comm: "x"}}}}}
		if err := p.Read(t.Context(), into); err != nil {
			t.Fatal(err)
		}
		p.Unwatch(key)
	}
	if n := runtime.NumGoroutine() - before; n > 4 {
		t.Errorf("%d readings hang, of at most 4", n)
	}
	w, err := os.OpenFile(pipe, os.O_RDWR, 0) // it answers
	if err != nil {
		t.Fatal(err)
	}
	for p.readers.Load() > 0 {
		_ = w.Close()
		if w, err = os.OpenFile(pipe, os.O_RDWR, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	if err := errors.Join(w.Close(), p.Close()); err != nil {
		t.Error(err)
	}
}

// A shell that forks one child and starts another: real processes of a real kernel.
func TestRealProcesses(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "(read -r x <&3) & echo $!; OMPI_COMM_WORLD_RANK=4 sleep 100 & echo $!; wait")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.ExtraFiles = []*os.File{r}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids [2]int32
	for i := range pids {
		pids[i] = readPID(t, out)
	}
	defer func() {
		_ = w.Close() // ends the forked one
		_ = exec.Command("kill", strconv.Itoa(int(pids[1]))).Run()
		_ = cmd.Wait()
	}()
	p := New("/proc")
	if err := p.Watch(probes.Target{Key: "box"}); err != nil {
		t.Fatal(err)
	}
	shell := int32(cmd.Process.Pid)
	read := func() []probes.Process {
		k := &probes.Kernel{}
		for i, id := range append([]int32{shell}, pids[:]...) {
			k.Threads = append(k.Threads, probes.Thread{TID: id, TGID: id, StartNs: uint64(i + 1), Comm: "x"})
		}
		k.Threads = append(k.Threads, probes.Thread{TID: 1 << 30, TGID: 1 << 30, Comm: "gone"})
		into := map[string]*probes.Sample{"box": {Kernel: k}, "other": {}}
		if err := p.Read(t.Context(), into); err != nil {
			t.Fatal(err)
		}
		return into["box"].Processes
	}
	for args := []byte(nil); len(args) == 0; time.Sleep(time.Millisecond) { // sleep has started
		if args, err = os.ReadFile("/proc/" + strconv.Itoa(int(pids[1])) + "/cmdline"); err != nil || bytes.HasPrefix(args, []byte("bash")) {
			args = nil
		}
	}
	byID := map[int32]probes.Process{}
	for deadline := time.Now().Add(10 * time.Second); len(byID) < 3 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, f := range read() {
			byID[f.TGID] = f
		}
	}
	sh, forked, started := byID[shell], byID[pids[0]], byID[pids[1]]
	if len(byID) != 3 || sh.Forked || !forked.Forked || forked.Args != sh.Args {
		t.Errorf("shell %+v, forked %+v", sh, forked)
	}
	if started.Forked || started.Args == sh.Args || !started.Ranked || started.Rank != 4 || sh.Ranked {
		t.Errorf("started %+v", started)
	}
	p.Unwatch("box")
	if got := read(); len(got) != 0 {
		t.Errorf("of a container that is not watched: %+v", got)
	}
}

func readPID(t *testing.T, r interface{ Read([]byte) (int, error) }) int32 {
	t.Helper()
	var text []byte
	for b := make([]byte, 1); ; {
		if _, err := r.Read(b); err != nil {
			t.Fatal(err)
		}
		if b[0] == '\n' {
			break
		}
		text = append(text, b[0])
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return int32(pid)
}
