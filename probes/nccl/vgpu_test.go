package nccl

import (
	"context"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/uprobetest"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/vgpu/vgputest"
	"github.com/trimtab/trimtab/test/workloads/gpu"
)

// What the probe counts of each rank between two instants is what the virtual node says
// that the rank did, but for a call that a thread was stopped in; also with a library that
// lacks some functions, as an older one does.
func TestAgainstTheVirtualNCCL(t *testing.T) {
	uprobetest.NeedsRoot(t)
	node := vgputest.Node(t, vgpu.Options{Devices: 2})
	for _, tc := range []struct {
		name string
		env  []string
	}{
		{"whole", node.Env()},
		{"without others", vgputest.Without(t, node, "libnccl.so.2", "ncclReduceScatter", "ncclBcast", "ncclSend")}, // what the job does not call
	} {
		t.Run(tc.name, func(t *testing.T) { countsAllReduces(t, node, tc.env) })
	}
}

func countsAllReduces(t *testing.T, node *vgpu.Node, env []string) {
	ctx := context.Background()
	target := uprobetest.Cgroup(t, "nccl-vgpu")
	read, _, _ := watched(t, target)
	uprobetest.Run(t, target, env, node.Dir.Lib(gpu.Trainer), "--ranks", "2", "--kernels", "4", "--kernel-us", "500", "--allreduce-mib", "1")
	byPID := func() map[int32]probes.NCCLProcess {
		out := map[int32]probes.NCCLProcess{}
		if s := read(); s != nil && s.NCCL != nil {
			for _, p := range s.NCCL.Processes {
				if p.Calls[probes.AllReduce] > 0 {
					out[p.TGID] = p
				}
			}
		}
		return out
	}
	var pids []int32
	uprobetest.Until(t, "two ranks that reduce", func() bool {
		pids = nil
		for pid := range byPID() {
			pids = append(pids, pid)
		}
		return len(pids) == 2
	})
	var seen [2]map[int32]probes.NCCLProcess
	var done [2]map[int32]uint64
	for i := range seen {
		uprobetest.Stopped(t, pids, func() {
			state, err := node.Show(ctx)
			if err != nil {
				t.Fatal(err)
			}
			done[i], seen[i] = map[int32]uint64{}, byPID()
			for _, p := range state.Procs {
				done[i][p.PID] = p.Collectives
			}
		})
		time.Sleep(time.Second)
	}
	for _, pid := range pids {
		a, b := seen[0][pid], seen[1][pid]
		calls, bytes := b.Calls[probes.AllReduce]-a.Calls[probes.AllReduce], b.Bytes[probes.AllReduce]-a.Bytes[probes.AllReduce]
		did := done[1][pid] - done[0][pid]
		if calls < 5 || calls+1 < did || calls > did+1 {
			t.Errorf("rank %d: %d all-reduces counted, the node did %d", pid, calls, did)
		}
		if calls > 0 && bytes != calls<<20 {
			t.Errorf("rank %d: %d bytes in %d all-reduces of 1 MiB", pid, bytes, calls)
		}
	}
}
