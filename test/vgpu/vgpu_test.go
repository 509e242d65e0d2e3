package vgpu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// libraries builds the virtual GPU and returns where it lies.
func libraries(t *testing.T) string {
	t.Helper()
	dir, err := Build(t.Context())
	if errors.Is(err, ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(dir)
}

// rig is a node of its own, and a program before it.
type rig struct {
	*Node
	program string
}

func newRig(t *testing.T, o Options) rig {
	t.Helper()
	libs := libraries(t)
	dir, err := os.MkdirTemp("/dev/shm", "trimtab-vgpu-test-")
	if err != nil {
		t.Skip("needs /dev/shm: ", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n, err := NewNode(t.Context(), Dir(libs), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return rig{n, compile(t, libs, "check", "-l:libcudart.so.12")}
}

// compile builds testdata/check.c; link says with which runtime.
func compile(t *testing.T, libs, name string, link ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	args := append([]string{"-std=gnu11", "-O1", "-Wall", "-Werror", "-pthread", "-o", program, "testdata/check.c", "-L" + libs,
		"-Wl,-rpath-link," + libs}, link...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return program
}

func (r rig) command(args ...string) *exec.Cmd {
	cmd := exec.Command(r.program, args...)
	cmd.Env = append(os.Environ(), r.Env()...)
	return cmd
}

// found are the "key value" lines of a program.
type found map[string]float64

func parse(out string) found {
	f := found{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			f[key] = n
		}
	}
	return f
}

func (r rig) run(t *testing.T, args ...string) found {
	t.Helper()
	out, err := r.command(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("check %v: %v\n%s", args, err, out)
	}
	return parse(string(out))
}

// runWithin runs the program until the time it tells of what is at most high s, twenty times
// at most: a host that comes late makes a time longer, never shorter. The last run is returned,
// and how often it ran.
func (r rig) runWithin(t *testing.T, what string, high float64, args ...string) (f found, runs int) {
	t.Helper()
	for runs < 20 {
		runs++
		if f = r.run(t, args...); f[what] <= high {
			break
		}
	}
	return f, runs
}

// start runs the program until it says that it is ready; it is killed with the test.
func (r rig) start(t *testing.T, env []string, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := r.command(args...)
	cmd.Env = append(cmd.Env, env...)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	out := bufio.NewReader(pipe)
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatalf("check %v ended before it was ready", args)
		}
		if line == "ready 1\n" {
			return cmd, out
		}
	}
}

// finish waits for a started program and returns what it printed since.
func finish(t *testing.T, cmd *exec.Cmd, out *bufio.Reader) found {
	t.Helper()
	text, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, text)
	}
	return parse(string(text))
}

func (r rig) show(t *testing.T) State {
	t.Helper()
	s, err := r.Show(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// within fails where got is not between low and high.
func within(t *testing.T, what string, got, low, high float64) {
	t.Helper()
	if math.IsNaN(got) || got < low || got > high {
		t.Errorf("%s is %v, want %v to %v", what, got, low, high)
	}
}

// Launched work returns at once and takes its time; each way to wait does wait, spinning
// on the CPU or asleep.
func TestWorkTakesItsTime(t *testing.T) {
	r, runs := newRig(t, Options{}), uint64(0)
	for _, how := range []string{"spin", "blocking"} {
		for _, what := range []string{"stream", "device", "event", "memcpy"} {
			t.Run(how+"/"+what, func(t *testing.T) {
				f, n := r.runWithin(t, "wall", 0.4, "time", "40", "5000", how, what)
				runs += uint64(n)
				within(t, "wall time", f["wall"], 0.2, 0.4)
				within(t, "time to launch", f["launch"], 0, 0.1)
				if f["query"] != 600 || f["after"] != 0 {
					t.Errorf("the stream was %v before and %v after, want 600 (not ready) and 0", f["query"], f["after"])
				}
				// Who spins wants a CPU all along: where others have it, that is how long it queued.
				share, wanted := f["cpu"]/f["wait"], (f["cpu"]+f["queued"])/f["wait"]
				if how == "spin" && wanted < 0.3 || how == "blocking" && share > 0.15 {
					t.Errorf("waited %.3f s with %.4f s of CPU, %.4f s queued for one", f["wait"], f["cpu"], f["queued"])
				}
			})
		}
	}
	if busy := r.show(t).Devices[0].BusyNs; busy < runs*200e6 || busy > (runs+1)*200e6 {
		t.Errorf("%d runs of 200 ms kept the device busy for %d ns", runs, busy)
	}
}

// A device of another model takes another time for the same kernels.
func TestFasterModel(t *testing.T) {
	r := newRig(t, Options{Spec: "/0:name=Fast (trimtab),speed-pct=400"})
	f, _ := r.runWithin(t, "wall", 0.15, "time", "40", "5000", "blocking", "stream")
	within(t, "wall time of 200 ms at four times the speed", f["wall"], 0.05, 0.15)
}

// A stream holds some thousand launches; then a launch waits for the device.
func TestFullQueueHoldsTheLaunch(t *testing.T) {
	r := newRig(t, Options{})
	f, _ := r.runWithin(t, "wall", 0.6, "time", "3000", "100", "blocking", "stream")
	within(t, "wall time", f["wall"], 0.3, 0.6)
	within(t, "time to launch", f["launch"], 0.15, 0.6)
}

func TestStaticRuntime(t *testing.T) {
	r := newRig(t, Options{})
	r.program = compile(t, string(r.Dir), "static", "-l:libcudart_static.a", "-ldl", "-lpthread")
	f, _ := r.runWithin(t, "wall", 0.1, "time", "10", "5000", "blocking", "stream")
	within(t, "wall time", f["wall"], 0.05, 0.1)
}

func TestGraphsCopiesEventsOrder(t *testing.T) {
	r := newRig(t, Options{Spec: "pcie-mbps=1000"})
	f, _ := r.runWithin(t, "wall", 0.1, "graph", "100", "100")
	within(t, "five graphs of 100 kernels of 100 µs", f["wall"], 0.05, 0.1)
	f, _ = r.runWithin(t, "in", 0.06, "copy", "20000000")
	within(t, "20 MB at 1 GB/s", f["in"], 0.02, 0.06)
	if f["same"] != 1 || f["bad"] != 21 || f["last"] != 21 || f["then"] != 0 {
		t.Errorf("copies and their errors: %v", f)
	}
	f, _ = r.runWithin(t, "ms", 7.1, "events", "7000")
	within(t, "ms between two events", f["ms"], 7, 7.1)
	f, _ = r.runWithin(t, "wait", 0.064, "order")
	within(t, "a stream behind the default one behind a third", f["wait"], 0.031, 0.064)
	if f["first"] != 0 {
		t.Error("the default stream did not wait for the one before it")
	}
}

// Copies run beside kernels on another stream, and an event holds a kernel back until
// the copy is there.
func TestCopiesBesideKernels(t *testing.T) {
	r := newRig(t, Options{Spec: "pcie-mbps=100"})
	together, behind := math.Inf(1), math.Inf(1)
	for n := 0; n < 20 && (together > 280 || behind > 400); n++ { // a host that comes late with the next call makes it longer, never shorter
		f := r.run(t, "overlap", "100000")
		together, behind = min(together, f["together"]), min(behind, f["behind"])
	}
	within(t, "kernel and copy, then a kernel, in ms", together, 199, 280) // 300 one after another
	within(t, "copy, then kernel, in ms", behind, 199, 400)
}

// Without a driver the runtime says so.
func TestRuntimeWithoutDriver(t *testing.T) {
	r := newRig(t, Options{})
	alone := t.TempDir()
	if err := os.Symlink(r.Dir.Lib("libcudart.so.12"), filepath.Join(alone, "libcudart.so.12")); err != nil {
		t.Fatal(err)
	}
	cmd := r.command("events", "1")
	cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+alone)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), "failed 35 ") {
		t.Errorf("%v, %s; want error 35 (insufficient driver)", err, out)
	}
}

// The duration of kernels may be given from outside.
func TestKernelTimeFromEnvironment(t *testing.T) {
	r := newRig(t, Options{})
	t.Setenv("TRIMTAB_VGPU_KERNEL_US", "5000")
	f, _ := r.runWithin(t, "wall", 0.2, "time", "20", "1", "blocking", "stream")
	within(t, "wall time", f["wall"], 0.1, 0.2)
}

// Two processes on one device get half of it each; on two devices they do not meet.
func TestProcessesShareADevice(t *testing.T) {
	r := newRig(t, Options{})
	for _, c := range []struct {
		name    string
		devices [2]int
		part    float64 // of its device's work that each does
	}{{"one device", [2]int{0, 0}, 0.5}, {"two devices", [2]int{0, 1}, 1}} {
		t.Run(c.name, func(t *testing.T) {
			var pids [2]int32
			for i, device := range c.devices { // all is queued: the host is not waited for
				cmd, _ := r.start(t, []string{fmt.Sprint("DEVICE=", device)}, "time", "900", "5000", "blocking", "stream")
				pids[i] = int32(cmd.Process.Pid)
			}
			before := r.show(t)
			time.Sleep(time.Second)
			after := r.show(t)
			for i, device := range c.devices {
				own := func(s State) uint64 {
					at := slices.IndexFunc(s.Procs, func(p ProcessState) bool { return p.PID == pids[i] })
					if at < 0 {
						t.Fatalf("process %d is gone: %+v", i, s)
					}
					return s.Procs[at].BusyNs[device]
				}
				did, all := own(after)-own(before), after.Devices[device].BusyNs-before.Devices[device].BusyNs
				within(t, fmt.Sprint("process ", i, "'s part of its device"), float64(did)/float64(all), c.part-0.02, c.part+0.02)
				if did == 0 {
					t.Errorf("process %d did nothing", i)
				}
			}
		})
	}
}

func TestVisibleDevices(t *testing.T) {
	r := newRig(t, Options{Spec: "/1:mem-mib=1000"})
	cmd, _ := r.start(t, []string{"CUDA_VISIBLE_DEVICES=1"}, "hold", "100")
	s := r.show(t)
	if s.Devices[0].MemUsed != 0 || s.Devices[1].MemUsed != (420+100)<<20 || s.Procs[0].PID != int32(cmd.Process.Pid) {
		t.Errorf("memory lies wrong: %+v", s)
	}
}

// Memory is accounted, bounded, and given back when its process is killed.
func TestMemory(t *testing.T) {
	r := newRig(t, Options{Spec: "mem-mib=2000"})
	cmd, _ := r.start(t, nil, "hold", "1000")
	if got := r.show(t).Devices[0].MemUsed >> 20; got != 1420 {
		t.Errorf("%d MiB used, want 1000 and a context's 420", got)
	}
	out, err := r.command("hold", "800").CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), "failed 2 ") {
		t.Errorf("a second process got memory that is not there: %v, %s", err, out)
	}
	_, _ = cmd.Process.Kill(), cmd.Wait()
	if s := r.show(t); s.Devices[0].MemUsed != 0 || len(s.Procs) != 0 {
		t.Errorf("after the kill: %+v", s)
	}
}

// A process killed while it holds the node's lock, again and again, does not stop the others.
func TestKilledInTheMiddle(t *testing.T) {
	r := newRig(t, Options{})
	for range 15 {
		cmd, _ := r.start(t, nil, "run", "1", "30")
		time.Sleep(20 * time.Millisecond)
		_, _ = cmd.Process.Kill(), cmd.Wait()
	}
	f, _ := r.runWithin(t, "wall", 0.1, "time", "10", "5000", "blocking", "stream")
	within(t, "wall time", f["wall"], 0.05, 0.1)
	if s := r.show(t); len(s.Procs) != 0 || s.Devices[0].MemUsed != 0 {
		t.Errorf("the dead hold something: %+v", s)
	}
}

// A process that dies with the lock in its hands, half through a change, is cleared away.
func TestLockHeldByTheDead(t *testing.T) {
	r := newRig(t, Options{})
	die := lockHolder(t)
	for range 3 {
		cmd := exec.Command(die)
		cmd.Env = append(os.Environ(), r.Env()...)
		if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != -1 {
			t.Fatalf("die did not die: %v", err)
		}
		f, _ := r.runWithin(t, "wall", 0.15, "time", "10", "5000", "blocking", "stream")
		within(t, "wall time", f["wall"], 0.05, 0.15)
		if s := r.show(t); len(s.Procs) != 0 || s.Devices[0].MemUsed != 0 {
			t.Errorf("the dead hold something: %+v", s)
		}
	}
}

func lockHolder(t *testing.T) string {
	t.Helper()
	die := filepath.Join(t.TempDir(), "die")
	out, err := exec.Command("gcc", "-std=gnu11", "-pthread", "-o", die, "testdata/die.c",
		"node.c", "sim.c", "sample.c", "fault.c", "node_spec.c").CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return die
}

// Those who only read do not wait for a lock holder that is stopped.
func TestLockHeldByTheStopped(t *testing.T) {
	r := newRig(t, Options{})
	cmd := exec.Command(lockHolder(t), "stop")
	cmd.Env = append(os.Environ(), r.Env()...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	stat := fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid)
	for range 500 {
		if b, _ := os.ReadFile(stat); strings.Contains(string(b), ") T ") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := r.Show(ctx)
	if err != nil || len(s.Procs) != 1 || s.Procs[0].PID != int32(cmd.Process.Pid) || !s.Stuck {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestForkHasNoCUDA(t *testing.T) {
	r := newRig(t, Options{})
	f := r.run(t, "fork")
	if f["child"] != 3 || f["parent"] != 0 {
		t.Errorf("child %v, parent %v; want 3 (initialization error) and 0", f["child"], f["parent"])
	}
}

// What a process held goes with its exec, though its PID stays.
func TestExecGivesBack(t *testing.T) {
	r := newRig(t, Options{})
	cmd, _ := r.start(t, nil, "exec", "500")
	s := r.show(t)
	if len(s.Procs) != 1 || s.Procs[0].PID != int32(cmd.Process.Pid) || s.Devices[0].MemUsed>>20 != 422 || s.Stuck {
		t.Errorf("after an exec: %+v", s)
	}
}

// Threads give back their streams: more of them than a node has.
func TestShortLivedThreads(t *testing.T) {
	r := newRig(t, Options{})
	if f := r.run(t, "threads", "2000"); f["threads"] != 2000 {
		t.Errorf("%v", f)
	}
}

// Processes that find no node make one, and only one.
func TestDefaultNodeIsMadeOnce(t *testing.T) {
	r := newRig(t, Options{})
	for round := range 5 {
		r.Path = filepath.Join(filepath.Dir(r.Path), fmt.Sprintf("fresh%d", round))
		all := make([]*exec.Cmd, 6)
		for i := range all {
			all[i] = r.command("hold", "1")
			if err := all[i].Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = all[i].Process.Kill(), all[i].Wait() })
		}
		for end := time.Now().Add(10 * time.Second); len(r.show(t).Procs) < len(all) && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(r.show(t).Procs); n != len(all) {
			t.Errorf("round %d: %d processes on the node, want %d", round, n, len(all))
		}
	}
}

// One launch by the runtime is one launch of the driver, and one kernel.
func TestEachLaunchCountsOnce(t *testing.T) {
	r := newRig(t, Options{})
	_, out := r.start(t, nil, "run", "2000", "0.5")
	var last ProcessState
	for range 40 {
		if s := r.show(t); len(s.Procs) == 1 {
			last = s.Procs[0]
		}
		time.Sleep(10 * time.Millisecond)
	}
	text, _ := io.ReadAll(out)
	kernels := parse(string(text))["kernels"]
	within(t, "kernels counted", float64(last.Kernels), kernels/2, kernels)
	if d := int64(last.Kernels) - int64(last.Syncs); d < 0 || d > 1 {
		t.Errorf("%d kernels and %d synchronisations, one after the other", last.Kernels, last.Syncs)
	}
}

// A node is shared by containers through their mounts; the host sees the job's host PID.
func TestContainersShareTheNode(t *testing.T) {
	const image = "trimtab-train:1"
	if err := exec.Command("docker", "image", "inspect", image).Run(); err != nil {
		t.Skipf("needs Docker and the image %s: make image", image)
	}
	r := newRig(t, Options{})
	name := fmt.Sprintf("trimtab-vgpu-test-%d", os.Getpid())
	args := append([]string{"run", "-d", "--rm", "--network", "none", "--name", name, "-v", r.program + ":/check:ro"}, r.DockerArgs()...)
	if out, err := exec.Command("docker", append(args, image, "/check", "hold", "64")...).CombinedOutput(); err != nil {
		t.Fatalf("docker run: %v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("docker", "rm", "-f", name).Run() })
	inspect, err := exec.Command("docker", "inspect", "-f", "{{.State.Pid}}", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	want, _ := strconv.Atoi(strings.TrimSpace(string(inspect)))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		if s := r.show(t); len(s.Procs) == 1 && s.Procs[0].MemBytes[0] == (420+64)<<20 {
			if s.Procs[0].PID != int32(want) || s.Procs[0].NsPID != 1 {
				t.Errorf("PID %d, inside %d; want %d and 1", s.Procs[0].PID, s.Procs[0].NsPID, want)
			}
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("the container's process did not come: %+v", r.show(t))
}
