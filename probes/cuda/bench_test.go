package cuda

import (
	"testing"

	"github.com/trimtab/trimtab/test/uprobetest"
)

// What a call costs with its entries in the runtime and the driver probed, above
// what it costs without. The stand-ins do nothing, so the difference is ours.
func BenchmarkCall(b *testing.B) {
	uprobetest.NeedsRoot(b)
	const calls = 2000
	for _, probed := range []bool{false, true} {
		for _, call := range []string{"cudaLaunchKernel", "cuLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize"} {
			name := call + "/bare"
			if probed {
				name = call + "/probed"
			}
			b.Run(name, func(b *testing.B) {
				r := newRig(b)
				target := uprobetest.Cgroup(b, "cuda-bench")
				program, runtime, driver := libraries(b, false)
				job := uprobetest.Start(b, target, program)
				job.Do("load %s", driver)
				job.Do("load %s", runtime)
				if probed {
					r.watch(target)
					r.found(target.Key, job.PID, "cudaLaunchKernel", "cuLaunchKernel")
				}
				for b.Loop() {
					job.Do("call %s %d 1 1", call, calls)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/calls, "ns/call")
			})
		}
	}
}
