package cuda

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/uprobetest"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/vgpu/vgputest"
	"github.com/trimtab/trimtab/test/workloads/gpu"
)

// trainer runs a trainer against a virtual node, in a target's cgroup.
func trainer(t *testing.T, node *vgpu.Node, target probes.Target, program string, args ...string) int32 {
	t.Helper()
	return uprobetest.Run(t, target, node.Env(), node.Dir.Lib(program), args...)
}

// counts waits until both the probe and the node count what a trainer does: its hooks are
// on before it has opened the driver.
func (r *rig) counts(node *vgpu.Node, target probes.Target, pid int32) {
	r.t.Helper()
	r.until("counted by the probe and by the node", func() bool {
		s := r.read()[target.Key]
		if s == nil || s.CUDA == nil || !r.probe.Has(pid, "cuLaunchKernel") {
			return false
		}
		state, err := node.Show(r.t.Context())
		return err == nil && len(state.Procs) == 1 && state.Procs[0].Kernels+state.Procs[0].Graphs > 0 &&
			slices.ContainsFunc(s.CUDA.Processes, func(p probes.CUDAProcess) bool { return p.TGID == pid && p.Launches+p.Graphs > 0 })
	})
}

// What the probe counts between two instants is what the virtual node says was done
// between them, but for a call that a thread was stopped in.
func TestAgainstTheVirtualGPU(t *testing.T) {
	uprobetest.NeedsRoot(t)
	ctx := context.Background()
	for _, tc := range []struct {
		name, program string
		args          []string
	}{
		{"kernels and copies", gpu.Trainer, []string{"--kernels", "20", "--kernel-us", "300", "--h2d-mib", "1", "--sync", "item"}},
		{"static runtime", gpu.TrainerStatic, []string{"--kernels", "20", "--kernel-us", "300", "--h2d-mib", "1"}},
		{"graphs", gpu.Trainer, []string{"--kernels", "20", "--kernel-us", "300", "--graph", "--sync", "spin"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			node := vgputest.Node(t, vgpu.Options{Devices: 1})
			target := uprobetest.Cgroup(t, "cuda-vgpu")
			r.watch(target)
			pid := trainer(t, node, target, tc.program, tc.args...)
			r.counts(node, target, pid)
			var seen [2]probes.CUDAProcess
			var done [2]vgpu.ProcessState
			for i := range seen {
				uprobetest.Stopped(t, []int32{pid}, func() {
					s := r.read()[target.Key].CUDA
					state, err := node.Show(ctx)
					if err != nil || len(s.Processes) != 1 || len(state.Procs) != 1 || !s.Virtual {
						t.Fatalf("%v: probe %+v, node %+v", err, s, state.Procs)
					}
					seen[i], done[i] = s.Processes[0], state.Procs[0]
				})
				time.Sleep(time.Second)
			}
			near := func(what string, got, want uint64) {
				t.Helper()
				if got+1 < want || got > want+1 {
					t.Errorf("%s: %d, the node did %d", what, got, want)
				}
			}
			launches := seen[1].Launches - seen[0].Launches
			graphs := seen[1].Graphs - seen[0].Graphs
			near("launches", launches, done[1].Kernels-done[0].Kernels)
			near("graphs", graphs, done[1].Graphs-done[0].Graphs)
			for d := range seen[0].Copies {
				near("copies", seen[1].Copies[d]-seen[0].Copies[d], done[1].Copies[d]-done[0].Copies[d])
			}
			if launches+graphs < 10 {
				t.Errorf("%d launches, %d graphs in a second", launches, graphs)
			}
			t.Logf("launches %d graphs %d copies %v bytes %v threads %+v marks %d; node %+v", launches, graphs, seen[1].Copies,
				seen[1].CopyBytes, seen[1].Threads, len(seen[1].Marks), done[1])
		})
	}
}

// stretch is what was counted between two readings.
type stretch struct {
	turn     int
	launches uint64
	counted  time.Duration
}

// stretches reads six times a turn, 150 launches apart: on, as it is, then off, on, off, …; and tells the fastest
// pace by the node, at the least. Other work may hold the job up for a second.
func (r *rig) stretches(node *vgpu.Node, target probes.Target, pid int32) (all []stretch, fastest float64) {
	r.t.Helper()
	done := func() uint64 {
		r.t.Helper()
		state, err := node.Show(r.t.Context())
		if err != nil || len(state.Procs) != 1 {
			r.t.Fatalf("%v: node %+v", err, state.Procs)
		}
		return state.Procs[0].Kernels
	}
	last, asked, before := *r.process(target.Key, pid), time.Now(), done()
	for turn := range 7 {
		if turn > 0 {
			r.probe.SetDutyCycle(target.Key, HookLaunch, float64(turn%2))
		}
		for range 6 {
			now := *r.process(target.Key, pid)
			all = append(all, stretch{turn, now.Launches - last.Launches, time.Duration(now.LaunchNs - last.LaunchNs)})
			last = now
			r.until("150 launches more", func() bool {
				again, kernels := time.Now(), done()
				if kernels < before+150 {
					return false
				}
				fastest = max(fastest, float64(kernels-before)/time.Since(asked).Seconds())
				before, asked = kernels, again
				return true
			})
		}
	}
	return all, fastest
}

// Launches and the time in which they were counted end together: a job that launches
// thousands of kernels a second goes on hitting a hook that is being taken off, and
// those hits are no rate of millions.
func TestLaunchesEndWithTheirTime(t *testing.T) {
	uprobetest.NeedsRoot(t)
	r := newRig(t)
	node := vgputest.Node(t, vgpu.Options{Devices: 1})
	target := uprobetest.Cgroup(t, "cuda-flood")
	r.watch(target)
	pid := trainer(t, node, target, gpu.Trainer, "--kernels", "1000", "--kernel-us", "5", "--launch-us", "500") // two hits each, below the ceiling at which it is taken off, also where a hit takes 10 µs
	r.counts(node, target, pid)
	all, fastest := r.stretches(node, target, pid)
	seen := 0
	for _, s := range all {
		if s.launches > 100 {
			seen++
		}
		// A counted stretch of a few milliseconds has its ends cut roughly.
		if most := 4*fastest*s.counted.Seconds() + 0.005*fastest; float64(s.launches) > most {
			t.Errorf("turn %d: %d launches in %v, at up to %.0f a second", s.turn, s.launches, s.counted, fastest)
		}
	}
	if seen < 3 {
		t.Errorf("%d readings with a hundred launches: too few to tell: %+v", seen, all)
	}
	t.Logf("%d readings, %d with a hundred launches, up to %.0f a second", len(all), seen, fastest)
}

// A library that lacks symbols, as another version of it does: what is there is counted,
// and what the job does without is no loss.
func TestLibrariesThatLackSymbols(t *testing.T) {
	uprobetest.NeedsRoot(t)
	for _, tc := range []struct {
		library string
		lacks   []string
	}{
		{"libcuda.so.1", []string{"cuGraphLaunch", "cuGraphLaunch_ptsz", "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz", "cuMemcpyDtoDAsync_v2"}},
		{"libcudart.so.12", []string{"cudaGraphLaunch", "cudaMemcpyPeerAsync", "cudaEventQuery"}},
	} {
		t.Run(tc.library, func(t *testing.T) {
			r := newRig(t)
			node := vgputest.Node(t, vgpu.Options{Devices: 1})
			target := uprobetest.Cgroup(t, "cuda-lacks")
			r.watch(target)
			env := vgputest.Without(t, node, tc.library, tc.lacks...)
			pid := uprobetest.Run(t, target, env, node.Dir.Lib(gpu.Trainer), "--kernels", "20", "--kernel-us", "300", "--h2d-mib", "1")
			r.counts(node, target, pid)
			if r.probe.Has(pid, tc.lacks[0]) {
				t.Errorf("a hook on %s, which is not there", tc.lacks[0])
			}
			var seen [2]probes.CUDAProcess
			var done [2]vgpu.ProcessState
			for i := range seen {
				uprobetest.Stopped(t, []int32{pid}, func() {
					s := r.read()[target.Key].CUDA
					state, err := node.Show(context.Background())
					if err != nil || len(s.Processes) != 1 || len(state.Procs) != 1 {
						t.Fatalf("%v: probe %+v, node %+v", err, s, state.Procs)
					}
					seen[i], done[i] = s.Processes[0], state.Procs[0]
				})
				time.Sleep(time.Second)
			}
			launches, did := seen[1].Launches-seen[0].Launches, done[1].Kernels-done[0].Kernels
			if launches < 10 || launches+1 < did || launches > did+1 {
				t.Errorf("%d launches counted, the node did %d", launches, did)
			}
		})
	}
}

// A call that the driver lacks is CUDA's error to the job, which ends; the probe goes on.
func TestACallThatTheDriverLacks(t *testing.T) {
	uprobetest.NeedsRoot(t)
	r := newRig(t)
	node := vgputest.Node(t, vgpu.Options{Devices: 1})
	target := uprobetest.Cgroup(t, "cuda-older")
	r.watch(target)
	older := vgputest.Without(t, node, "libcuda.so.1", "cuGraphInstantiateWithFlags")
	ended := uprobetest.Run(t, target, older, node.Dir.Lib(gpu.Trainer), "--kernels", "20", "--graph")
	r.until("ended, as by a driver older than the runtime", func() bool {
		r.read()
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", ended))
		return err == nil && strings.Contains(string(stat), ") Z ")
	})
	next := trainer(t, node, target, gpu.Trainer, "--kernels", "20", "--graph")
	r.until("another job counted", func() bool {
		s := r.read()[target.Key]
		return s != nil && s.CUDA != nil && slices.ContainsFunc(s.CUDA.Processes, func(p probes.CUDAProcess) bool { return p.TGID == next && p.Graphs > 5 })
	})
}

// A call that hangs holds the job and nothing else: its thread is seen waiting in it, the
// probe is read on, and counts again once the call is through.
func TestACallThatHangs(t *testing.T) {
	uprobetest.NeedsRoot(t)
	ctx := context.Background()
	r := newRig(t)
	node := vgputest.Node(t, vgpu.Options{Devices: 1})
	target := uprobetest.Cgroup(t, "cuda-hangs")
	r.watch(target)
	trainer(t, node, target, gpu.Trainer, "--kernels", "20", "--kernel-us", "300")
	process := func() (p probes.CUDAProcess) {
		if s := r.read()[target.Key]; s != nil && s.CUDA != nil && len(s.CUDA.Processes) == 1 {
			p = s.CUDA.Processes[0]
		}
		return p
	}
	r.until("launches", func() bool { return process().Launches > 100 })
	if err := node.Fault(ctx, -1, "hang=cuStreamSynchronize"); err != nil {
		t.Fatal(err)
	}
	waited := func(a, b probes.CUDAProcess) (ns uint64) {
		for _, x := range b.Threads {
			ns += x.SyncNs
		}
		for _, x := range a.Threads {
			ns -= x.SyncNs
		}
		return ns
	}
	before := process()
	r.until("a wait without a launch", func() bool {
		now := process()
		if now.Launches != before.Launches { // the step it is in
			before = now
		}
		return waited(before, now) > uint64(800*time.Millisecond)
	})
	if err := node.ClearFaults(ctx); err != nil {
		t.Fatal(err)
	}
	r.until("launches again", func() bool { return process().Launches > before.Launches+20 })
}
