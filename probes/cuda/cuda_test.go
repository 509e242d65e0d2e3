package cuda

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/uprobe"
	"github.com/trimtab/trimtab/probes/uprobe/symbols"
	"github.com/trimtab/trimtab/test/uprobetest"
	"github.com/trimtab/trimtab/test/workload"
)

func TestMain(m *testing.M) {
	symbols.ChildMain()
	goleak.VerifyTestMain(m)
}

// rig is a probe that is read until it has seen what a test waits for.
type rig struct {
	t      testing.TB
	probe  *Probe
	finder *uprobe.Finder
}

func newRig(t testing.TB) *rig {
	t.Helper()
	uprobetest.NeedsRoot(t)
	f := uprobe.NewFinder()
	uprobetest.Closing(t, f.Close)
	p, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	uprobetest.Closing(t, p.Close)
	return &rig{t, p, f}
}

func (r *rig) watch(t probes.Target) {
	r.t.Helper()
	if err := r.probe.Watch(t); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) read() map[string]*probes.Sample {
	r.t.Helper()
	into := map[string]*probes.Sample{}
	uprobetest.Read(r.t, r.probe, into)
	return into
}

// process reads one process; nil: not probed.
func (r *rig) process(key string, pid int32) *probes.CUDAProcess {
	r.t.Helper()
	s := r.read()[key]
	if s == nil || s.CUDA == nil {
		return nil
	}
	for i := range s.CUDA.Processes {
		if s.CUDA.Processes[i].TGID == pid {
			return &s.CUDA.Processes[i]
		}
	}
	return nil
}

// until waits until ok, which reads.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	uprobetest.Until(r.t, what, ok)
}

func (r *rig) found(key string, pid int32, symbols ...string) {
	r.t.Helper()
	r.until("found", func() bool {
		r.read()
		for _, s := range symbols {
			if !r.probe.Has(pid, s) {
				return false
			}
		}
		return true
	})
}

// libraries builds the stand-ins, whose runtime goes on to the driver's entries or past them.
func libraries(t testing.TB, bypass bool, flags ...string) (program, runtime, driver string) {
	t.Helper()
	dir := t.TempDir()
	if bypass {
		flags = append(flags, "-DBYPASS")
	}
	return uprobetest.Build(t, dir, "job", "job"),
		uprobetest.Library(t, dir, "libcudart.so.12", "runtime", flags...),
		uprobetest.Library(t, dir, "libcuda.so.1", "driver")
}

// cudaJob starts a process with both libraries and waits until it is probed.
func (r *rig) cudaJob(target probes.Target, bypass bool, flags ...string) *uprobetest.Job {
	r.t.Helper()
	program, runtime, driver := libraries(r.t, bypass, flags...)
	job := uprobetest.Start(r.t, target, program)
	job.Do("load %s", driver)
	job.Do("load %s", runtime)
	r.found(target.Key, job.PID, "cudaLaunchKernel", "cuLaunchKernel")
	return job
}

// Containers bring libraries of their own, differently built: each one's calls are its own.
func TestEachContainerItsOwnDriver(t *testing.T) {
	r := newRig(t)
	a, b := uprobetest.Cgroup(t, "cuda-own-a"), uprobetest.Cgroup(t, "cuda-own-b")
	r.watch(a)
	r.watch(b)
	one, other := r.cudaJob(a, false), r.cudaJob(b, true)
	for range 10 {
		one.Do("call cudaLaunchKernel 10 1")
		other.Do("call cudaLaunchKernel 3 1")
		other.Do("call cuMemcpyHtoDAsync_v2 1 500")
	}
	of := func(target probes.Target, job *uprobetest.Job) probes.CUDAProcess {
		if p := r.process(target.Key, job.PID); p != nil {
			return *p
		}
		return probes.CUDAProcess{}
	}
	if p, q := of(a, one), of(b, other); p.Launches != 100 || q.Launches != 30 || p.CopyBytes[1] != 0 || q.CopyBytes[1] != 5000 {
		t.Errorf("launches %d and %d, want 100 and 30; copied %v and %v", p.Launches, q.Launches, p.CopyBytes, q.CopyBytes)
	}
}

// Whether the runtime passes the driver's entries or not, each launch and copy
// counts once, and those that go to the driver alone count besides.
func TestEachCallCountsOnce(t *testing.T) {
	for name, bypass := range map[string]bool{"through the driver": false, "past the driver": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			target := uprobetest.Cgroup(t, "cuda-once")
			r.watch(target)
			job := r.cudaJob(target, bypass)
			for range 10 {
				job.Do("call cudaLaunchKernel 10 1")
				job.Do("call cuLaunchKernel 5 7")
				job.Do("call cuLaunchKernelEx 3 1")
				job.Do("call cudaMemcpyAsync 2 1000 1")
				job.Do("call cuMemcpyHtoDAsync_v2 1 500")
				job.Do("call cudaMemcpyAsync 1 100 2")
				job.Do("call cudaMemcpy2D 1 20 3")
				job.Do("call cudaMemcpy 1 64 4")
				job.Do("call cudaGraphLaunch 2 1")
				job.Do("call cuGraphLaunch 1 1")
			}
			p := r.process(target.Key, job.PID)
			if p.Launches != 180 {
				t.Errorf("%d launches, want 180: %+v", p.Launches, r.probe.processes[job.PID].raw.Kernels)
			}
			if p.Graphs != 30 {
				t.Errorf("%d graphs, want 30: %+v", p.Graphs, r.probe.processes[job.PID].raw.Graphs)
			}
			if want := [probes.NumDirections]uint64{0, 30, 10, 10, 10}; p.Copies != want {
				t.Errorf("copies %v, want %v: %+v", p.Copies, want, r.probe.processes[job.PID].raw.Copies)
			}
			if want := [probes.NumDirections]uint64{0, 25000, 1000, 4000, 640}; p.CopyBytes != want {
				t.Errorf("bytes %v, want %v", p.CopyBytes, want)
			}
			if p.LastNs == 0 || p.LaunchNs == 0 {
				t.Errorf("last %d, counted for %d ns", p.LastNs, p.LaunchNs)
			}
		})
	}
}

// Time inside a blocking call, by thread, and the part of it on a CPU.
func TestSynchronisationTime(t *testing.T) {
	r := newRig(t)
	target := uprobetest.Cgroup(t, "cuda-sync")
	r.watch(target)
	job := r.cudaJob(target, false)
	const waitNs = 20e6
	thread := func() probes.CUDAThread {
		t.Helper()
		p := r.process(target.Key, job.PID)
		if p == nil || len(p.Threads) != 1 {
			t.Fatalf("threads: %+v", p)
		}
		return p.Threads[0]
	}
	within := func(what string, ns uint64, low, high float64) {
		t.Helper()
		if float64(ns) < low || float64(ns) > high {
			t.Errorf("%s: %d ns, want %.0f..%.0f", what, ns, low, high)
		}
	}
	// do makes five calls, and returns the time that passed and what of it the process was on a CPU: a busy
	// machine makes a call longer, and has a spinning one wait.
	do := func(what string) (took, ran float64) {
		t.Helper()
		before, err := workload.ProcessCPU(int(job.PID))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		job.Do("call %s", what)
		after, err := workload.ProcessCPU(int(job.PID))
		if err != nil {
			t.Fatal(err)
		}
		return float64(time.Since(began)), float64(after - before)
	}
	job.Do("wait - %d 0", int(waitNs))
	took, ran := do("cudaStreamSynchronize 5")
	asleep := thread()
	if asleep.Syncs != 5 || asleep.TID != job.PID || asleep.LastNs == 0 {
		t.Errorf("asleep: %+v", asleep)
	}
	within("asleep", asleep.SyncNs, 5*waitNs, took)
	within("asleep, on a CPU", asleep.SyncRunNs, 0, max(float64(asleep.SyncNs)/4, 1.1*ran)) // what a noisy CPU took from it counts as its own

	job.Do("wait - %d 1", int(waitNs))
	took, ran = do("cudaDeviceSynchronize 5")
	spinning := thread()
	if spinning.Syncs != 10 {
		t.Errorf("spinning: %+v", spinning)
	}
	wall := float64(spinning.SyncNs - asleep.SyncNs)
	within("spinning", spinning.SyncNs-asleep.SyncNs, 5*waitNs, took)
	within("spinning, on a CPU", spinning.SyncRunNs-asleep.SyncRunNs, ran/2, wall)
	t.Logf("spun for %.1f ms, %.1f of them on a CPU; counted %.1f", wall/1e6, ran/1e6, float64(spinning.SyncRunNs-asleep.SyncRunNs)/1e6)

	// Copies that block are counted apart, and the driver's call inside is not added.
	job.Do("wait - %d 0", int(waitNs))
	took, _ = do("cudaMemcpy 5 100 1")
	copied := thread()
	within("copies", copied.CopyNs, 5*waitNs, took)
	if copied.SyncNs != spinning.SyncNs || copied.Syncs != 10 {
		t.Errorf("a copy is taken for a synchronisation: %+v", copied)
	}
	r.openCall(target, job)
}

// openCall: a call that is open counts up to now, as soon as its thread has begun it.
func (r *rig) openCall(target probes.Target, job *uprobetest.Job) {
	r.t.Helper()
	began := time.Now()
	job.Do("wait - %d 0", int(time.Hour)) // it ends with the job
	job.Do("background cuCtxSynchronize")
	var open probes.CUDAThread
	r.until("150 ms of an open call", func() bool {
		for _, th := range r.process(target.Key, job.PID).Threads {
			if th.TID != job.PID {
				open = th
			}
		}
		return open.SyncNs >= 150e6
	})
	if lasted := time.Since(began); open.SyncNs > uint64(lasted) || open.SyncRunNs > 100e6 || open.Syncs != 0 {
		r.t.Errorf("an open call, %s old at most: %+v", lasted, open)
	}
}

// The marks of each kind, with the launches up to them, once.
func TestMarks(t *testing.T) {
	r := newRig(t)
	target := uprobetest.Cgroup(t, "cuda-marks")
	r.watch(target)
	job := r.cudaJob(target, false)
	for range 3 {
		job.Do("call cudaMemcpyAsync 1 100 1")
		job.Do("call cudaLaunchKernel 4 1")
		job.Do("call cudaGraphLaunch 1 1")
		job.Do("call cudaStreamSynchronize 1")
		job.Do("call cudaMemcpyAsync 1 100 2")
	}
	var kinds []probes.MarkKind
	var launches []uint64
	p := r.process(target.Key, job.PID)
	for i, m := range p.Marks {
		kinds, launches = append(kinds, m.Kind), append(launches, m.Launches)
		if m.TID != job.PID || (i > 0 && m.AtNs < p.Marks[i-1].AtNs) {
			t.Errorf("mark %d: %+v", i, m)
		}
	}
	step := []probes.MarkKind{probes.MarkCopy, probes.MarkGraph, probes.MarkSync}
	if want := append(append(step, step...), step...); !slices.Equal(kinds, want) {
		t.Errorf("kinds %v, want %v", kinds, want)
	}
	if want := []uint64{0, 5, 5, 5, 10, 10, 10, 15, 15}; !slices.Equal(launches, want) {
		t.Errorf("launches %v, want %v", launches, want)
	}
	if again := r.process(target.Key, job.PID); len(again.Marks) != 0 {
		t.Errorf("%d marks are delivered twice", len(again.Marks))
	}
	// A flood of one kind leaves the others theirs.
	job.Do("call cudaStreamSynchronize 1")
	job.Do("call cudaMemcpyAsync 1000 100 1")
	n := map[probes.MarkKind]int{}
	for _, m := range r.process(target.Key, job.PID).Marks {
		n[m.Kind]++
	}
	if n[probes.MarkCopy] != marksKept || n[probes.MarkSync] != 1 {
		t.Errorf("marks by kind: %v", n)
	}
}

// The runtime is linked into the program, whose dynamic symbols do not tell.
func TestStaticRuntime(t *testing.T) {
	r := newRig(t)
	target := uprobetest.Cgroup(t, "cuda-static")
	r.watch(target)
	dir := t.TempDir()
	runtime := uprobetest.Build(t, dir, "runtime.o", "runtime", "-c", "-DBYPASS", "-fvisibility=hidden")
	program := uprobetest.Build(t, dir, "job", "job", "-DSTATIC", runtime)
	job := uprobetest.Start(t, target, program)
	r.found(target.Key, job.PID, "cudaLaunchKernel")
	job.Do("call cudaLaunchKernel 25 1")
	if p := r.process(target.Key, job.PID); p.Launches != 25 {
		t.Errorf("%d launches, want 25", p.Launches)
	}
}

// Ten thousand threads that live for one call each.
func TestShortLivedThreads(t *testing.T) {
	r := newRig(t)
	target := uprobetest.Cgroup(t, "cuda-threads")
	r.watch(target)
	job := r.cudaJob(target, false)
	for range 4 {
		job.Do("threads cudaLaunchKernel 2500 1")
		time.Sleep(2800 * time.Millisecond) // under the ceiling: each passes two entries, which may be single-stepped
		r.read()
	}
	job.Do("threads cudaStreamSynchronize 100 1")
	p := r.process(target.Key, job.PID)
	waited := 0
	for _, thread := range p.Threads {
		if thread.Syncs == 1 {
			waited++
		}
	}
	if p.Launches != 10000 || len(p.Threads) != maxThreads || waited != 100 {
		t.Errorf("%d launches, %d threads, of which %d waited: %+v", p.Launches, len(p.Threads), waited, r.probe.processes[job.PID].raw.Kernels)
	}
	if n := len(r.probe.processes[job.PID].threads); n > keptThreads {
		t.Errorf("%d threads are kept", n)
	}
	if cost := r.probe.Cost(); cost.Lost != 0 || cost.MapBytes == 0 {
		t.Errorf("cost %+v", cost)
	}
}

// A child of a CUDA process is a process of its own; what it calls before it is
// found is not its parent's.
func TestForkAndExec(t *testing.T) {
	r := newRig(t)
	target := uprobetest.Cgroup(t, "cuda-fork")
	r.watch(target)
	job := r.cudaJob(target, false)
	job.Do("call cudaLaunchKernel 5 1")
	job.Do("fork cudaLaunchKernel 50 1")
	if p := r.process(target.Key, job.PID); p.Launches != 5 {
		t.Errorf("%d launches after a fork, want 5", p.Launches)
	}
	// A worker forked from a process that has used CUDA cannot: it is left alone.
	time.Sleep(20 * time.Millisecond) // its start is told in hundredths of a second
	job.Do("worker")
	time.Sleep(5 * time.Second) // a scan and a look
	if s := r.read()[target.Key].CUDA; len(s.Processes) != 1 {
		t.Errorf("%d processes are probed, want the parent alone", len(s.Processes))
	}
	program, runtime, driver := libraries(t, false)
	job.Exec(program)
	r.until("left after exec", func() bool { r.read(); return r.probe.processes[job.PID] == nil })
	job.Do("load %s", driver)
	job.Do("load %s", runtime)
	r.found(target.Key, job.PID, "cudaLaunchKernel", "cuLaunchKernel")
	job.Do("call cudaLaunchKernel 7 1")
	if p := r.process(target.Key, job.PID); p.Launches != 7 {
		t.Errorf("%d launches after exec, want 7", p.Launches)
	}
}
