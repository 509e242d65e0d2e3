// Package crash holds trimtab to its first promise: whatever it was doing when it was
// killed, every original comes back.
package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/runtime/device"
	"github.com/trimtab/trimtab/runtime/docker"
	"github.com/trimtab/trimtab/runtime/systemd"
	"github.com/trimtab/trimtab/test/built"
	"github.com/trimtab/trimtab/test/runtimetest"
)

// What the environment may change: how many kills, the seed that a failure named, and
// the program, where there is no Go to build it.
const (
	countEnv  = "TRIMTAB_KILLS"
	seedEnv   = "TRIMTAB_KILLS_SEED"
	binaryEnv = "TRIMTAB"
	// workers have containers and a state folder of their own each.
	workers  = 2
	patience = 2 * time.Minute
	// reloadOneIn: so few rounds end with systemd's daemon-reload, which the other worker
	// has in the middle of its own.
	reloadOneIn = 6
)

func numberFrom(t *testing.T, env string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", env, err)
	}
	return n
}

// TestAThousandKills: processes with trimtab's hands on real containers (every knob that
// this host has, and hidden GPUs) are killed at seeded random points, in the middle of
// writes too; so is what comes to restore, as a daemon at its start and as `trimtab
// restore --offline`. At the end of each round all stands as its owner set it, and what
// systemd keeps does so after it wrote it anew.
func TestAThousandKills(t *testing.T) {
	program := binary(t)
	want, seed := int(numberFrom(t, countEnv, 1000)), numberFrom(t, seedEnv, 20261121)
	t.Logf("%s=%d", seedEnv, seed)
	all := &tally{where: map[string]int{}}
	t.Run("worker", func(t *testing.T) {
		for i := range workers {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				w := newWorker(t, program, rand.New(rand.NewPCG(seed, uint64(i))))
				for all.begin(want) {
					w.round(all)
				}
				w.reload("the last round")
			})
		}
	})
	all.report(t, want)
}

// worker kills, and checks that all comes back.
type worker struct {
	t       *testing.T
	program string
	state   string
	random  *rand.Rand
	cs      []runtime.Container // the last holds GPUs
	owners  string
	hides   bool
	systemd bool          // it keeps the containers' control groups
	restore time.Duration // what a restore took last
}

func newWorker(t *testing.T, program string, random *rand.Rand) *worker {
	host := runtimetest.NeedDocker(t)
	w := &worker{t: t, program: program, state: t.TempDir(), random: random, restore: 300 * time.Millisecond}
	engine, err := docker.New(docker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	w.systemd = host.Run(t, "info", "-f", "{{.CgroupDriver}}") == "systemd"
	// On v2 a cpuset that nobody set goes back as what it means, its parent's: all say theirs.
	cpus := fmt.Sprintf("--cpuset-cpus=0-%d", goruntime.NumCPU()-1)
	gpus, nodes := gpusOf(w.systemd)
	for _, args := range [][]string{
		{cpus, "--cpus=0.5", "--cpu-shares=512", "--memory=128m", "--memory-swap=256m"},
		{cpus, "--cpu-period=100000", "--cpu-quota=40000"},
		append([]string{cpus, "--memory=160m"}, gpus...),
	} {
		w.cs = append(w.cs, runtimetest.Find(t, engine, host.Start(t, args...)))
	}
	gpu := w.cs[len(w.cs)-1]
	host.Run(t, "exec", gpu.ID.Container, "sh", "-c", nodes)
	w.owners = w.stands()
	w.hides = w.canHide(gpu)
	return w
}

// gpusOf is how a container gets two GPUs, as arguments of docker run and as what makes
// its nodes. systemd's driver tells systemd only of nodes that the host has, with their
// links in /dev/char: without these the container has a rule that systemd does not know.
func gpusOf(systemd bool) (args []string, nodes string) {
	if _, err := os.Stat("/dev/char/195:0"); systemd && err == nil {
		return []string{"--device=/dev/nvidia0", "--device=/dev/nvidia1", "--device=/dev/nvidiactl"}, "busybox chmod 640 /dev/nvidia0"
	}
	return []string{"--device-cgroup-rule", "c 195:* rwm", "--device-cgroup-rule", "c 10:229 rw"},
		"cd /dev && mknod -m 640 nvidia0 c 195 0 && mknod -m 666 nvidia1 c 195 1 && mknod -m 666 nvidiactl c 195 255"
}

// canHide tries it: with systemd's driver a container that systemd does not know to
// hold a GPU is never written to.
func (w *worker) canHide(c runtime.Container) bool {
	h, err := newHands(w.state, "", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer h.engine.Close()
	if _, err := h.visibilities.Hide(w.t.Context(), c, runtime.GPUView{Hidden: []int{0}}); err != nil {
		w.t.Logf("no GPU is hidden here: %v", err)
		return false
	}
	if _, _, err := h.visibilities.Restore(w.t.Context(), c.Key()); err != nil {
		w.t.Fatal(err)
	}
	return true
}

// reload makes systemd write what it knows of the containers, which is the owner's.
func (w *worker) reload(after string) {
	w.t.Helper()
	if !w.systemd || w.t.Failed() {
		return
	}
	if out, err := exec.Command("systemctl", "daemon-reload").CombinedOutput(); err != nil {
		w.t.Fatalf("systemctl daemon-reload: %v\n%s", err, out)
	}
	w.wantOwners("a daemon-reload after " + after)
}

func (w *worker) wantOwners(after string) {
	w.t.Helper()
	if diff := cmp.Diff(w.owners, w.stands()); diff != "" {
		w.t.Fatalf("after %s (-owner +now):\n%s", after, diff)
	}
}

// stands is all that trimtab may have changed, as text, from the kernel's files and
// from the container's.
func (w *worker) stands() string {
	var out strings.Builder
	for _, c := range w.cs {
		values, err := cgroup.ReadValues(c.Cgroup)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, knob := range values.Sorted() {
			fmt.Fprintf(&out, "%s %s=%s\n", c.Name, knob, values[knob])
		}
		fmt.Fprintf(&out, "%s %s\n", c.Name, w.rules(c))
		root := fmt.Sprintf("/proc/%d/root", c.InitPID)
		nodes, _ := filepath.Glob(root + "/dev/nvidia*") // the pattern is well formed
		for _, node := range append(nodes, root+"/run/trimtab") {
			if info, err := os.Lstat(node); err == nil {
				st := info.Sys().(*syscall.Stat_t)
				fmt.Fprintf(&out, "%s %s %v %d:%d %x\n", c.Name, strings.TrimPrefix(node, root), info.Mode(), st.Uid, st.Gid, st.Rdev)
			}
		}
	}
	return out.String()
}

// rules are which devices it may open: v1's list, or what the programs on v2 answer;
// and what systemd would write.
func (w *worker) rules(c runtime.Container) string {
	return w.kernelRules(c) + w.unitRules(c)
}

func (w *worker) kernelRules(c runtime.Container) string {
	if dir, ok := c.Cgroup.V1["devices"]; ok {
		list, err := os.ReadFile(filepath.Join(dir, "devices.list"))
		if err != nil {
			w.t.Fatal(err)
		}
		rules := strings.Split(strings.TrimSpace(string(list)), "\n")
		slices.Sort(rules)
		return strings.Join(rules, ", ")
	}
	visibilities, err := device.NewVisibility(device.Options{}).See(w.t.Context(), c, runtime.GPUView{})
	if err != nil {
		w.t.Fatal(err)
	}
	return fmt.Sprint(visibilities)
}

func (w *worker) unitRules(c runtime.Container) string {
	unit := systemd.Unit(c.Cgroup.Dir("devices"))
	if unit == "" {
		return ""
	}
	allow, err := exec.Command("systemctl", "show", "--property", "DeviceAllow", unit).Output()
	if err != nil {
		w.t.Fatal(err)
	}
	entries := strings.Fields(string(allow))
	slices.Sort(entries)
	return fmt.Sprint(entries)
}

// round is one life, its death, and the way back from it, which may be killed as well.
func (w *worker) round(all *tally) {
	w.t.Helper()
	if diff := cmp.Diff(w.owners, w.stands()); diff != "" {
		w.t.Fatalf("what was killed before reached out of its grave (-owner +now):\n%s", diff)
	}
	o := orders{State: w.state, Containers: w.cs, Hides: w.hides, Seed: w.random.Uint64(), Point: 1 + w.random.IntN(45), Delay: w.delay()}
	history := []string{w.die(all, o, &all.acting)}
	if w.stands() != w.owners {
		all.add(func() { all.dirty++ })
	}
	for w.random.IntN(2) == 0 {
		if w.random.IntN(2) == 0 {
			history = append(history, w.killRestore(all))
			continue
		}
		o = orders{State: w.state, Containers: w.cs, Recover: true, Point: 1 + w.random.IntN(9), Delay: w.delay() / 3}
		history = append(history, w.die(all, o, &all.recovering))
	}
	by, err := w.bringBack()
	if err != nil {
		w.t.Fatalf("%s: %v\nafter %s", by, err, strings.Join(history, "\n"))
	}
	w.wantOwners(by + ", killed: " + strings.Join(history, "\n"))
	for _, dir := range []string{"originals", "gpu-hidden"} {
		if left, _ := filepath.Glob(filepath.Join(w.state, dir, "*")); len(left) != 0 {
			w.t.Fatalf("after %s: left behind: %v\nkilled: %s", by, left, strings.Join(history, "\n"))
		}
	}
	if w.random.IntN(reloadOneIn) == 0 {
		w.reload(by + ", killed: " + strings.Join(history, "\n"))
	}
}

// delay is none in half of the cases; else it ends somewhere in what follows.
func (w *worker) delay() time.Duration {
	if w.random.IntN(2) == 0 {
		return 0
	}
	return time.Duration(w.random.Int64N(int64(30 * time.Millisecond)))
}

// die runs a child until it is killed. A recovery may end before: there was little to do.
func (w *worker) die(all *tally, o orders, count *int) string {
	w.t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		w.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		w.t.Fatal(err)
	}
	defer read.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), ordersEnv+"="+string(text))
	cmd.ExtraFiles = []*os.File{write}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err = cmd.Start()
	write.Close()
	if err != nil {
		w.t.Fatal(err)
	}
	var trace bytes.Buffer
	_, readErr := trace.ReadFrom(read)
	err = cmd.Wait()
	points := strings.Fields(trace.String())
	switch {
	case err == nil && o.Recover:
		return fmt.Sprintf("(a recovery ended after %d points)", len(points))
	case !killed(err) || ctx.Err() != nil || readErr != nil || len(points) == 0:
		w.t.Fatalf("child with %s: %v: %s", text, err, said.String())
	}
	last := points[len(points)-1]
	all.add(func() {
		all.kills++
		*count++
		all.where[last]++
	})
	return fmt.Sprintf("a child after %q, point %d, with seed %d, point %d, delay %s, recover %v", last, len(points), o.Seed, o.Point, o.Delay, o.Recover)
}

// killed reports whether a process ended by SIGKILL.
func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL
}

// killRestore kills the command somewhere in its run.
func (w *worker) killRestore(all *tally) string {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), w.program, "restore", "--offline", "--state-dir", w.state)
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	after := time.Duration(w.random.Int64N(int64(w.restore)))
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() }) // it may have ended
	err := cmd.Wait()
	timer.Stop()
	all.add(func() {
		if killed(err) {
			all.kills++
			all.restoring++
			return
		}
		all.off++
	})
	return fmt.Sprintf("trimtab restore --offline after %s (%v)", after, err)
}

// bringBack takes the ways in turn: as at a daemon's start, and the command.
func (w *worker) bringBack() (by string, err error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if w.random.IntN(3) > 0 {
		h, err := newHands(w.state, "", nil)
		if err != nil {
			return "a start", err
		}
		return "a start", errors.Join(h.recovery(ctx, w.cs), h.engine.Close())
	}
	began := time.Now()
	out, err := exec.CommandContext(ctx, w.program, "restore", "--offline", "--state-dir", w.state).CombinedOutput()
	w.restore = time.Since(began)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return "trimtab restore --offline", err
}

// binary builds trimtab, unless the environment has one.
func binary(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it acts on containers")
	}
	if path := os.Getenv(binaryEnv); path != "" {
		return path
	}
	path, err := built.Trimtab(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return path
}
