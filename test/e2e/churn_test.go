package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/state"
)

// onlyMine keeps a test's daemon off containers that are not of this process.
func onlyMine() string {
	return fmt.Sprintf("match: [{name: 'trimtab-e2e-%d-*'}, {name: '*', mode: 'off'}]\n", os.Getpid())
}

// footprint is what a daemon holds.
type footprint struct {
	descriptors, threads, mapEntries int
	residentMiB                      float64
}

func (f footprint) String() string {
	return fmt.Sprintf("%d descriptors, %d threads, %d entries in BPF maps, %.1f MiB", f.descriptors, f.threads, f.mapEntries, f.residentMiB)
}

func footprintOf(t *testing.T, pid int) footprint {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	list := func(name string) int {
		entries, err := os.ReadDir(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	resident, err := workload.Resident(pid)
	if err != nil {
		t.Fatal(err)
	}
	return footprint{descriptors: list("fd"), threads: list("task"), mapEntries: mapEntries(t, pid),
		residentMiB: resident / (1 << 20)}
}

// mapEntries counts the entries of the hash maps behind a process's descriptors:
// those that containers come to and go from.
func mapEntries(t *testing.T, pid int) int {
	t.Helper()
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	seen := map[ebpf.MapID]bool{}
	for _, info := range infos {
		text, _ := os.ReadFile(info) // closed since the listing: empty
		for line := range bytes.Lines(text) {
			number, ok := bytes.CutPrefix(line, []byte("map_id:"))
			id, err := strconv.ParseUint(string(bytes.TrimSpace(number)), 10, 32)
			if !ok || err != nil || seen[ebpf.MapID(id)] {
				continue
			}
			seen[ebpf.MapID(id)] = true
			total += entriesOf(t, ebpf.MapID(id))
		}
	}
	if len(seen) == 0 {
		t.Skip("needs the kernel probe: the daemon holds no BPF maps")
	}
	return total
}

func entriesOf(t *testing.T, id ebpf.MapID) int {
	t.Helper()
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Type() != ebpf.Hash && m.Type() != ebpf.LRUHash {
		return 0
	}
	entries := 0
	var key, value []byte
	for it := m.Iterate(); it.Next(&key, &value); {
		entries++
	}
	return entries
}

// What may be more afterwards than before: descriptors of idle connections,
// threads that Go keeps, memory that its collector has not given back.
const (
	moreDescriptors = 4
	moreThreads     = 8
	moreMiB         = 24
)

// TestContainersComeAndGo: fifty short containers leave nothing in the daemon,
// in the kernel or on disk.
func TestContainersComeAndGo(t *testing.T) {
	runtimetest.NeedDocker(t)
	d := daemon(t, daemontest.Options{Config: onlyMine()})
	prefix := fmt.Sprintf("trimtab-e2e-%d-churn-", os.Getpid())
	comeAndGo(t, d, prefix+"warm", 2)
	wantNone(t, d, prefix)
	before := footprintOf(t, d.PID())
	comeAndGo(t, d, prefix, 50)
	wantNone(t, d, prefix)
	after := emptied(t, d, before)
	if before.outgrown(after) {
		// Go keeps the threads and the heap of the most that was done at once, which is more on a busy machine.
		// They do not grow again with fifty more; what each container leaves does.
		t.Logf("before: %s; after fifty containers: %s; fifty more", before, after)
		comeAndGo(t, d, prefix+"more-", 50)
		wantNone(t, d, prefix)
		before, after = after, emptied(t, d, before)
	}
	t.Logf("before: %s; after fifty containers: %s", before, after)
	if before.outgrown(after) {
		t.Errorf("before: %s; after fifty containers: %s", before, after)
	}
	if left, err := os.ReadDir(filepath.Join(d.Dir, "state", "originals")); err == nil && len(left) != 0 {
		t.Errorf("originals left: %v", left)
	}
}

// outgrown reports whether what Go may keep has grown by more than that.
func (f footprint) outgrown(after footprint) bool {
	return after.threads > f.threads+moreThreads || after.residentMiB > f.residentMiB+moreMiB
}

// emptied waits until descriptors and maps hold no more than before.
func emptied(t *testing.T, d *daemontest.Daemon, before footprint) footprint {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) {
		after := footprintOf(t, d.PID())
		if after.descriptors <= before.descriptors+moreDescriptors && after.mapEntries <= before.mapEntries {
			return after
		}
		if time.Now().After(deadline) {
			t.Fatalf("before: %s; after fifty containers: %s", before, after)
		}
	}
}

// comeAndGo runs so many containers of about a second, five at a time, and one that stays
// until the daemon has shown it or one of them.
func comeAndGo(t *testing.T, d *daemontest.Daemon, prefix string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	stays := prefix + "stays"
	if out, err := exec.CommandContext(ctx, "docker", "run", "--detach", "--rm", "--network", "none", "--name", stays,
		"--label", "trimtab.mode=observe", runtimetest.ImageName, "sh", "-c", "sleep 900; true").CombinedOutput(); err != nil {
		t.Fatalf("docker run: %v: %s", err, out)
	}
	defer func() {
		if out, err := exec.Command("docker", "rm", "--force", stays).CombinedOutput(); err != nil {
			t.Errorf("docker rm: %v: %s", err, out)
		}
	}()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 5)
	for i := range n {
		mode := []policies.Mode{policies.ModeObserve, policies.ModeTune}[i%2]
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			name := prefix + strconv.Itoa(i)
			out, err := exec.CommandContext(ctx, "docker", "run", "--rm", "--network", "none", "--name", name, "--cpus", "0.5",
				"--label", "trimtab.mode="+string(mode), runtimetest.ImageName, "sh", "-c", "sleep 1.2; true").CombinedOutput()
			if err != nil {
				t.Errorf("docker run: %v: %s", err, out)
				_ = exec.Command("docker", "rm", "--force", name).Run() // --rm does it unless the client died
			}
		})
	}
	wg.Wait()
	if !seesOne(ctx, d, prefix) {
		t.Error("the daemon never showed one of the containers: nothing was tested")
	}
}

func seesOne(ctx context.Context, d *daemontest.Daemon, prefix string) bool {
	for ctx.Err() == nil {
		if all, err := d.Client().Containers(ctx); err == nil {
			for _, c := range all.Containers {
				if strings.HasPrefix(c.Name, prefix) && c.Watched {
					return true
				}
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return false
}

func wantNone(t *testing.T, d *daemontest.Daemon, prefix string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		text, err := d.Run(t.Context(), "ps", "--output", "json")
		if err == nil && !strings.Contains(text, prefix) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("ps still shows containers that are gone: %v\n%s", err, text)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// hostileScript makes and ends threads, 10,000 and then 2,000 at a time, shows files that
// pretend to be PyTorch or belong to the host, and says when each round is done.
const hostileScript = `
import mmap, os, threading
def quiet(make, *args):
    try: make(*args)
    except OSError: pass
os.makedirs("/tmp/t", exist_ok=True)
for name, target in (("cgroup", "/proc/1/cgroup"), ("maps", "/dev/zero"), ("libtorch_cpu.so.1", "/proc/kcore"), ("self", "/proc/self"), ("loop", "loop")):
    quiet(os.symlink, target, "/tmp/t/" + name)
with open("/tmp/t/libtorch_cpu.so", "wb") as f:
    f.write(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\xff" * (1 << 20))
with open("/tmp/t/libtorch_cpu.so", "rb") as f:
    fake = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE)
quiet(os.unlink, "/tmp/t/libtorch_cpu.so")
quiet(os.symlink, "/dev/zero", "/tmp/t/libtorch_cpu.so")
threading.stack_size(65536)
for n in range(1, 1 << 30):
    go = threading.Event()
    started = [threading.Thread(target=go.wait) for _ in range(10000 if n == 1 else 2000)]
    for t in started: t.start()
    go.set()
    for t in started: t.join()
    print("step=%d t=%.6f dt=1" % (n, __import__("time").monotonic()), flush=True)
`

// bombScript forks until its pids limit, and again whenever something ends.
const bombScript = `
import os, time
print("step=1 t=%.6f dt=1" % time.monotonic(), flush=True)
while True:
    try:
        if os.fork(): time.sleep(0.001)
    except OSError: time.sleep(0.01)
    if os.getpid() % 7 == 0: os._exit(0)
`

// hostileLabels lie in every way that a label can.
func hostileLabels() (args []string) {
	for key, value := range map[string]string{
		"trimtab.mode": "everything", "trimtab.enable": "\x01\x1b[2J\xff", "trimtab.knobs": "cpu,gpu,../../etc,cpu,,",
		"trimtab.cpu.min": "-1", "trimtab.cpu.max": strings.Repeat("9", 4000), "trimtab.memory.max": "NaN", "trimtab.memory.min": "-5GiB",
		"trimtab.importance": "99999999999999999999", "trimtab.class": "$(reboot)", "trimtab.team": "a\nb\"} 1\n" + strings.Repeat("x", 3000),
		"trimtab.job": "../../../etc/shadow", "trimtab.nonsense": "1", "trimtab.": "",
	} {
		args = append(args, "--label", key+"="+value)
	}
	return args
}

// hostile starts a container with one of the scripts above. Its quota leaves most of the
// machine to the others.
func hostile(t *testing.T, name, script string, args ...string) *workload.Job {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hostile.py"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return begun(t, workload.Options{Name: fmt.Sprintf("trimtab-e2e-%d-%s", os.Getpid(), name), Script: "hostile.py", Dir: dir,
		DockerArgs: append(args, hostileLabels()...)})
}

// throttled: its verdict is that its quota holds it back. Loaders and trainer share that quota: whether
// the queue between them runs empty or full, so that the one or the other shows, is theirs.
func throttled(c state.Container) bool { return c.Verdict.Relief == policies.ReliefQuota }

// TestHostileContainer: a container that lies and churns is told so, and changes
// nothing for the daemon and for others.
func TestHostileContainer(t *testing.T) {
	victim := job(t, "trimtab.mode=observe")
	d := daemon(t, daemontest.Options{Config: onlyMine()})
	until(t, d, victim.Name, "a verdict", throttled)
	before := footprintOf(t, d.PID())
	h := hostile(t, "hostile", hostileScript, "--cpus", "0.6", "--pids-limit", "10600")
	c := until(t, d, h.Name, "the hostile container", func(c state.Container) bool { return len(c.Enrolment.Problems) > 0 })
	if c.Enrolment.Mode == policies.ModeTune {
		t.Errorf("enrolled by garbage: %+v", c.Enrolment)
	}
	if err := h.WaitSteps(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	bomb := hostile(t, "bomb", bombScript, "--cpus", "0.3", "--pids-limit", "400")
	until(t, d, bomb.Name, "the fork bomb", func(c state.Container) bool { return c.Name != "" })
	from := until(t, d, victim.Name, "seen", func(c state.Container) bool { return c.Name != "" })
	until(t, d, victim.Name, "three more windows, still throttled", func(c state.Container) bool { return c.Windows >= from.Windows+3 && throttled(c) })
	s, err := d.Client().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Daemon.Probes {
		if !p.OK && p.Name != "budget" { // reading less often under such a load is as meant
			t.Errorf("probe %s fails beside it: %s", p.Name, p.Lost)
		}
	}
	if text, err := d.Run(t.Context(), "ps"); err != nil || strings.ContainsAny(text, "\x1b\x01") {
		t.Errorf("ps: %v, %q", err, text)
	}
	for _, j := range []*workload.Job{h, bomb} {
		if err := j.Stop(); err != nil {
			t.Fatal(err)
		}
		wantNone(t, d, j.Name)
	}
	after := footprintOf(t, d.PID())
	t.Logf("before: %s; after: %s; log of %d bytes", before, after, len(d.Log()))
	const hostileMiB = 96 // thousands of threads were read each tick
	if after.descriptors > before.descriptors+moreDescriptors || after.residentMiB > before.residentMiB+hostileMiB || len(d.Log()) > 64<<10 {
		t.Errorf("before: %s; after: %s; log of %d bytes", before, after, len(d.Log()))
	}
}
