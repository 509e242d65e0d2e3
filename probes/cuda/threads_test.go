package cuda

import (
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/procfs"
	"github.com/trimtab/trimtab/test/uprobetest"
)

// What an open call is credited with is not counted again when it ends, shorter or
// longer, and is not taken for a thread that began anew.
func TestCreditIsCountedOnce(t *testing.T) {
	th := &thread{}
	at := func(what string, now callsThread, wall uint64, want uint64) {
		t.Helper()
		if th.take(now, wall, 0); th.sum.CopyNs+th.sum.SyncNs != want {
			t.Errorf("%s: %d ns, want %d", what, th.sum.CopyNs+th.sum.SyncNs, want)
		}
	}
	at("before", callsThread{CopyNs: 100}, 0, 100)
	at("open", callsThread{CopyNs: 100, OpenNs: 1, OpenOp: opCopy}, 50, 150)
	at("ended a little before it was read", callsThread{CopyNs: 140, OpenOp: opCopy}, 0, 150)
	at("open again", callsThread{CopyNs: 140, OpenNs: 2, OpenOp: opCopy}, 500, 640)
	at("its return was not seen", callsThread{CopyNs: 140, OpenNs: 2, OpenOp: opCopy}, 0, 640)
	at("the next one", callsThread{CopyNs: 150, OpenOp: opCopy}, 0, 640)
	at("fallen out of the table", callsThread{CopyNs: 20, OpenOp: opCopy}, 0, 660)
	at("a synchronisation", callsThread{CopyNs: 20, SyncNs: 5, Syncs: 1, OpenOp: opSync}, 0, 665)
}

// Of many threads the latest are told of, and one that comes back brings what it
// did since, not what it ever did.
func TestLatestThreads(t *testing.T) {
	proc := &process{threads: map[int32]*thread{}}
	for i := range int32(2 * maxThreads) {
		proc.threads[i] = &thread{atNs: int64(i), sum: probes.CUDAThread{TID: i, Syncs: 10, LastNs: int64(i)}}
	}
	proc.threads[3].open = true
	got := proc.latest()
	if len(got) != maxThreads || got[0].TID != 3 || got[1].TID != maxThreads+1 {
		t.Fatalf("%d threads, first %+v", len(got), got[:2])
	}
	late := proc.threads[7]
	late.sum.Syncs++
	late.atNs, late.sum.LastNs = 1e6, 1e6
	if got := proc.latest(); got[1].TID != 7 || got[1].Syncs != 1 {
		t.Errorf("back again: %+v, want one synchronisation", got[1])
	}
}

// A call that is open when its hook is taken off is credited no further: its
// return will not be seen.
func TestOpenCallOfADetachedHook(t *testing.T) {
	r := newRig(t)
	target := uprobetest.Cgroup(t, "cuda-open")
	r.watch(target)
	job := r.cudaJob(target, false)
	job.Do("wait - %d 0", int(5e9))
	job.Do("background cuCtxSynchronize")
	inside := func() uint64 {
		t.Helper()
		p := r.process(target.Key, job.PID)
		if p == nil || len(p.Threads) != 1 {
			return 0
		}
		return p.Threads[0].SyncNs
	}
	r.until("open", func() bool { return inside() > 0 })
	r.probe.SetDutyCycle(target.Key, HookSync, 0)
	r.read() // switches it off
	was := r.probe.processes[job.PID].threads
	if len(was) != 1 {
		t.Fatalf("threads: %+v", was)
	}
	for _, th := range was {
		before := th.sum.SyncNs
		time.Sleep(200 * time.Millisecond)
		if r.read(); th.sum.SyncNs != before {
			t.Errorf("credited with %d ns more", th.sum.SyncNs-before)
		}
	}
	if n := len(r.probe.processes[job.PID].threads); n != 0 {
		t.Errorf("%d threads are kept, whose calls are not seen", n)
	}
	if p := r.process(target.Key, job.PID); p == nil || !p.Thinned {
		t.Errorf("graphs are not counted, and %+v does not say so", p)
	}
}

// A thread that has not blocked for a minute is forgotten, and begins anew.
func TestThreadsAreForgotten(t *testing.T) {
	r := newRig(t)
	target := uprobetest.Cgroup(t, "cuda-forget")
	r.watch(target)
	job := r.cudaJob(target, false)
	job.Do("call cudaStreamSynchronize 5 1")
	if p := r.process(target.Key, job.PID); len(p.Threads) != 1 || p.Threads[0].Syncs != 5 {
		t.Fatalf("threads: %+v", p.Threads)
	}
	nowNs := procfs.MonotonicNs()
	r.probe.forgetThreads(nowNs + int64(forgetAfter)/2)
	if n := len(r.probe.processes[job.PID].threads); n != 1 {
		t.Errorf("%d threads after half the time, want 1", n)
	}
	r.probe.forgetThreads(nowNs + int64(forgetAfter))
	if p := r.process(target.Key, job.PID); len(p.Threads) != 0 {
		t.Errorf("not forgotten: %+v", p.Threads)
	}
	job.Do("call cudaStreamSynchronize 2 1")
	if p := r.process(target.Key, job.PID); len(p.Threads) != 1 || p.Threads[0].Syncs != 2 {
		t.Errorf("blocked again: %+v", p.Threads)
	}
}
