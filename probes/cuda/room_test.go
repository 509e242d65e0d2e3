package cuda

import (
	"errors"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/test/uprobetest"
)

// What containers that want all of the table get of it: each may come at once, and none takes what
// the next one needs.
func TestAllowance(t *testing.T) {
	const room = 16384
	for hostile := 1; hostile <= 64; hostile++ {
		held := make([]int, hostile)
		used := 0
		for range 20 { // readings, between which each enters all that it may
			was := used
			for i := range held {
				more := allowance(held[i], was, room, hostile+1)
				held[i] += more
				used += more
			}
			if used > room {
				t.Fatalf("%d containers hold %d of %d", hostile, used, room)
			}
		}
		if got, least := allowance(0, used, room, hostile+1), room/(6*(hostile+1)*(hostile+4)); got < least {
			t.Errorf("beside %d that hold %d: another one may enter %d threads, want %d", hostile, used, got, least)
		}
	}
	if got := allowance(0, 0, room, 1); got < 2500 {
		t.Errorf("alone: %d threads until the next reading", got)
	}
	if got := allowance(9000, 9000, room, 1); got != 0 {
		t.Errorf("above its share: %d", got)
	}
}

// TestThreadsOfAnotherContainer: one that calls from more threads than the table holds costs itself
// what is not counted; a neighbour's call that is open stays so, and its new threads are counted.
func TestThreadsOfAnotherContainer(t *testing.T) {
	r := newRig(t)
	honest, hostile := uprobetest.Cgroup(t, "cuda-honest"), uprobetest.Cgroup(t, "cuda-hostile")
	r.watch(honest)
	r.watch(hostile)
	job, flood := r.cudaJob(honest, false), r.cudaJob(hostile, false)
	job.Do("wait - %d 0", int(600e9))
	job.Do("background cuCtxSynchronize")
	var tid int32 // numbers begin anew, so it need not stay the lowest
	inside := func() uint64 {
		t.Helper()
		if p := r.process(honest.Key, job.PID); p != nil {
			for _, thread := range p.Threads {
				if tid == 0 || thread.TID == tid {
					tid = thread.TID
					return thread.SyncNs
				}
			}
		}
		return 0
	}
	r.until("open", func() bool { return inside() > 0 })
	before := inside()
	flood.Do("threads cudaLaunchKernel 20000 1")
	job.Do("wait - 0 0")
	job.Do("threads cudaStreamSynchronize 50 1")
	into := r.read()
	if said := into[hostile.Key].CUDA.Missing; !slices.Contains(said, missingThreads) {
		t.Errorf("of the flood is said %q", said)
	}
	if said := into[honest.Key].CUDA.Missing; slices.Contains(said, missingThreads) {
		t.Errorf("of the neighbour is said %q", said)
	}
	p := r.process(honest.Key, job.PID)
	if len(p.Threads) != 51 || inside() <= before {
		t.Errorf("%d of the neighbour's threads are told of, want 51; its open call has %d ns, had %d", len(p.Threads), inside(), before)
	}
	if lost := r.probe.processes[job.PID].raw.Lost; lost != 0 {
		t.Errorf("%d of the neighbour's calls were lost", lost)
	}
	if lost := r.probe.processes[flood.PID].raw.Lost; lost < 20000-16384/4 {
		t.Errorf("the flood lost %d calls, want what is beyond its share", lost)
	}
	r.read() // threads that are over made room
	lost := r.probe.processes[flood.PID].raw.Lost
	flood.Do("threads cudaStreamSynchronize 500 1")
	if r.read(); r.probe.processes[flood.PID].raw.Lost != lost {
		t.Errorf("nothing was freed: %d more calls were lost", r.probe.processes[flood.PID].raw.Lost-lost)
	}
}

// TestARefusedProcessHoldsNoRoom: where one of its two places is taken, the other is given back.
func TestARefusedProcessHoldsNoRoom(t *testing.T) {
	r := newRig(t)
	const refused = 1 << 30
	for i := range r.probe.objs.ThreadLimits.MaxEntries() {
		if err := r.probe.objs.ThreadLimits.Put(i, uint64(0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.probe.enter(refused); err == nil {
		t.Fatal("entered beyond the table")
	}
	var found callsProcess
	if err := r.probe.objs.Processes.Lookup(uint32(refused), &found); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("its counters are kept: %v", err)
	}
}
