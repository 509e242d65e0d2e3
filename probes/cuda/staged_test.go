package cuda

import (
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/uprobetest"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/vgpu/vgputest"
	"github.com/trimtab/trimtab/test/workloads/gpu"
)

// Asynchronous copies to the device are timed, each once, and apart from calls that block. Small ones
// and those of another direction are not.
func TestAsynchronousCopiesAreTimed(t *testing.T) {
	r := newRig(t)
	if !r.probe.Returns() {
		t.Skip("needs return probes")
	}
	target := uprobetest.Cgroup(t, "cuda-staged")
	r.watch(target)
	job := r.cudaJob(target, false)
	const waitNs, mib = 20e6, 1 << 20
	job.Do("wait - %d 0", int(waitNs))
	began := time.Now()
	job.Do("call cudaMemcpyAsync 3 %d 1", mib)      // through the driver: one copy
	job.Do("call cuMemcpyHtoDAsync_v2 2 %d", 2*mib) // the driver alone
	took := uint64(time.Since(began))
	job.Do("call cudaMemcpyAsync 2 %d 1", 64<<10) // it fits into what is staged at once
	job.Do("call cudaMemcpyAsync 2 %d 2", mib)    // from the device
	job.Do("call cudaStreamSynchronize 1")
	job.Do("wait - 0 0")
	job.Do("call cudaMemcpy 4 %d 1", mib) // it blocks, and goes through the driver as well
	p := r.process(target.Key, job.PID)
	if p == nil || len(p.Threads) != 1 {
		t.Fatalf("threads: %+v", p)
	}
	got := p.Threads[0]
	if got.Staged != 5 || got.StagedKiB != 7<<10 || got.StagedNs < 5*waitNs || got.StagedNs > took {
		t.Errorf("5 copies of 7 MiB, of at least 20 ms each and %d in all: %+v", took, got)
	}
	if got.CopyNs == 0 || got.CopyNs > waitNs || got.Syncs != 1 || got.SyncNs < waitNs || got.SyncNs > 4*waitNs {
		t.Errorf("calls that block: %+v", got)
	}
	if want := [probes.NumDirections]uint64{0, 11, 2}; p.Copies != want {
		t.Errorf("copies %v, want %v", p.Copies, want)
	}
}

// A runtime whose asynchronous copy waits for the stream first makes one copy all the same, also where it does so from
// the first on.
func TestStagedCopyThatWaitsInside(t *testing.T) {
	for flag, waits := range map[string]uint64{"-DWAITS=1": 9, "-DWAITS=0": 10} {
		t.Run(flag, func(t *testing.T) {
			r := newRig(t)
			if !r.probe.Returns() {
				t.Skip("needs return probes")
			}
			target := uprobetest.Cgroup(t, "cuda-waits")
			r.watch(target)
			job := r.cudaJob(target, false, flag)
			const mib = 1 << 20
			job.Do("call cudaMemcpyAsync 10 %d 1", mib)
			job.Do("call cuMemcpyHtoDAsync_v2 5 %d", mib) // the driver alone
			job.Do("call cudaMemcpyAsync 10 %d 2", mib)   // from the device
			p := r.process(target.Key, job.PID)
			if p == nil || len(p.Threads) != 1 {
				t.Fatalf("threads: %+v", p)
			}
			if want := [probes.NumDirections]uint64{0, 15, 10}; p.Copies != want {
				t.Errorf("copies %v, want %v: %+v", p.Copies, want, r.probe.processes[job.PID].raw.Copies)
			}
			if want := [probes.NumDirections]uint64{0, 15 * mib, 10 * mib}; p.CopyBytes != want {
				t.Errorf("bytes %v, want %v", p.CopyBytes, want)
			}
			if got := p.Threads[0]; got.Syncs != waits {
				t.Errorf("%d waits, want %d", got.Syncs, waits)
			}
		})
	}
}

// On the virtual GPU a copy from pageable memory returns when the stream has come to it, one from
// pinned memory at once.
func TestPageableCopiesTakeTheirTime(t *testing.T) {
	for _, tc := range []struct {
		name, program string
		args          []string
		blocks        bool
	}{
		{"pinned", gpu.Trainer, nil, false},
		{"pageable", gpu.Trainer, []string{"--staged"}, true},
		{"pageable, static runtime", gpu.TrainerStatic, []string{"--staged"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			if !r.probe.Returns() {
				t.Skip("needs return probes")
			}
			node := vgputest.Node(t, vgpu.Options{Devices: 1})
			target := uprobetest.Cgroup(t, "cuda-pageable")
			r.watch(target)
			env := append(node.Env(), "TRIMTAB_VGPU_COPY_MAX=4096") // a device's DMA takes no time of the caller
			pid := uprobetest.Run(t, target, env, node.Dir.Lib(tc.program), append([]string{"--kernels", "4", "--kernel-us", "500", "--h2d-mib", "16"}, tc.args...)...)
			r.counts(node, target, pid)
			var got probes.CUDAThread
			r.until("100 copies", func() bool {
				got = probes.CUDAThread{}
				for _, x := range r.process(target.Key, pid).Threads {
					if x.Staged > got.Staged {
						got = x
					}
				}
				return got.Staged >= 100
			})
			if got.StagedKiB != got.Staged<<14 {
				t.Errorf("%d copies of 16 MiB have %d KiB", got.Staged, got.StagedKiB)
			}
			const least = 16 << 20 * 1e9 / 12e9 // ns, at the device's 12 GB/s
			each := float64(got.StagedNs) / float64(got.Staged)
			if tc.blocks != (each >= least) {
				t.Errorf("one takes %.0f us, and its bytes %.0f", each/1e3, least/1e3)
			}
			t.Logf("%d copies, %.0f us each, %.1f us for each MiB", got.Staged, each/1e3, each/1e3/16)
		})
	}
}
