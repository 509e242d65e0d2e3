package kernel

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/trimtab/trimtab/probes"
)

func exited(k *probes.Kernel) map[int32]probes.Thread {
	out := map[int32]probes.Thread{}
	for _, th := range k.Threads {
		if th.Exited {
			out[th.TID] = th
		}
	}
	return out
}

// A kernel that is preempted inside a program may leave it out at another's exit meanwhile, and that
// is told as lost: one exit of several must be seen.
func TestExitedThreadShowsOnce(t *testing.T) {
	p := newProbe(t, Options{})
	b := newBox(t, nil, "trimtab-exit")
	watch(t, p, b, "box")
	for range 5 {
		if exitShowsOnce(t, p, b) {
			return
		}
	}
	t.Error("the kernel left each of five exits out")
}

// exitShowsOnce has a thread run for 0.2 s, sleep for 0.1 s and end. It reports false where the exit is lost.
// What the thread runs and waits for a CPU between its look at the clock and its sleep makes that shorter: the
// scheduler's own counters tell.
func exitShowsOnce(t *testing.T, p *Probe, b *box) bool {
	t.Helper()
	j := b.start("import sys,time\nlate=lambda: sum(map(int,open('/proc/thread-self/schedstat').read().split()[:2]))\n" +
		"t=time.monotonic()\nwhile time.monotonic()-t<0.2: pass\nprint('go',flush=True)\nsys.stdin.readline()\nt=late()\ntime.sleep(0.1)\nprint(late()-t,flush=True)")
	j.line()
	before := read(t, p, "box")
	live := threadOf(t, before, j.pid())
	if _, err := j.in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	late, err := strconv.ParseUint(j.line(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	j.wait()
	after := read(t, p, "box")
	final, ok := exited(after)[j.pid()]
	if !ok && after.Lost > before.Lost {
		return false
	}
	if !ok {
		t.Fatal("the exited thread is not in the next sample")
	}
	for s := range final.Ns {
		if final.Ns[s] < live.Ns[s] {
			t.Errorf("%s went back from %d to %d", probes.State(s), live.Ns[s], final.Ns[s])
		}
	}
	if final.Ns[probes.StateRun]+final.Ns[probes.StateQueued] < 200e6 || final.Ns[probes.StateTimer]+late < 90e6 {
		t.Errorf("final counters: %s; %d ns late to its sleep at most", describe(final), late)
	}
	if again := exited(read(t, p, "box")); len(again) > 0 {
		t.Errorf("shown twice: %v", again)
	}
	return true
}

func TestMovedOutLeaves(t *testing.T) {
	p := newProbe(t, Options{})
	b := newBox(t, nil, "trimtab-move")
	watch(t, p, b, "box")
	j := b.start(sleepTime)
	j.line()
	threadOf(t, read(t, p, "box"), j.pid())
	root, _, _ := cgroupRoots(t)
	if err := os.WriteFile(root+"/cgroup.procs", []byte(itoa(j.pid())), 0); err != nil {
		t.Fatal(err)
	}
	k := read(t, p, "box")
	if _, ok := exited(k)[j.pid()]; !ok || len(k.Threads) != 1 {
		t.Errorf("after the move: %+v, want its final counters", k.Threads)
	}
	if k := read(t, p, "box"); len(k.Threads) != 0 {
		t.Errorf("still there: %+v", k.Threads)
	}
}

// A process of several threads moves in: each of its threads is found.
func TestThreadsMoveIn(t *testing.T) {
	p := newProbe(t, Options{})
	b := newBox(t, nil, "trimtab-movein")
	outside := newBox(t, nil, "trimtab-outside")
	watch(t, p, b, "box")
	j := outside.start("import threading,time\nfor i in range(5): threading.Thread(target=time.sleep,args=(100,)).start()\nprint('go',flush=True)")
	j.line()
	if k := read(t, p, "box"); len(k.Threads) != 0 {
		t.Fatalf("threads outside are counted: %+v", k.Threads)
	}
	if err := os.WriteFile(b.unified+"/cgroup.procs", []byte(itoa(j.pid())), 0); err != nil {
		t.Fatal(err)
	}
	if k := read(t, p, "box"); len(k.Threads) != 6 {
		t.Errorf("%d threads, want 6", len(k.Threads))
	}
}

func TestNestedCgroupCounts(t *testing.T) {
	p := newProbe(t, Options{})
	outer := newBox(t, nil, "trimtab-nest")
	inner := newBox(t, newBox(t, outer, "a"), "b")
	watch(t, p, outer, "box")
	j := inner.start(sleepTime)
	j.line()
	threadOf(t, read(t, p, "box"), j.pid())
}

func TestUnwatchFrees(t *testing.T) {
	p := newProbe(t, Options{})
	b := newBox(t, nil, "trimtab-unwatch")
	j := b.start(sleepTime)
	j.line()
	watch(t, p, b, "box")
	if n := threadCount(t, p); n != 1 {
		t.Errorf("%d threads have storage, want 1", n)
	}
	p.Unwatch("box")
	if n := threadCount(t, p); n != 1 {
		t.Errorf("%d threads have storage after Unwatch, want 1: a pass over all threads of the host is the next reading's", n)
	}
	if err := p.Read(t.Context(), map[string]*probes.Sample{}); err != nil {
		t.Fatal(err)
	}
	if n := threadCount(t, p); n != 0 {
		t.Errorf("%d threads still have storage", n)
	}
	watch(t, p, b, "box")
	threadOf(t, read(t, p, "box"), j.pid())
}

func threadCount(t *testing.T, p *Probe) uint64 {
	t.Helper()
	var n uint64
	if err := p.loaded.coll.Variables["num_threads"].Get(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// detach takes programs off the kernel, as if it had missed what they are for.
func detach(t *testing.T, p *Probe, programs ...string) {
	t.Helper()
	for _, name := range programs {
		of, err := p.loaded.coll.Programs[name].Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := of.ID()
		p.loaded.links = slices.DeleteFunc(p.loaded.links, func(l link.Link) bool {
			info, err := l.Info()
			if err != nil || info.Program != id {
				return false
			}
			return l.Close() == nil
		})
	}
}

// TestMissedExitGivesRoomBack: where the kernel leaves out the program at an exit, the thread's room is
// given back at its last switch, and it counts as lost. Else each takes a place for good.
func TestMissedExitGivesRoomBack(t *testing.T) {
	p := newProbe(t, Options{})
	b := newBox(t, nil, "trimtab-missed")
	watch(t, p, b, "box")
	detach(t, p, "on_exit")
	j := b.start("import threading\nfor i in range(5):\n t=threading.Thread(target=lambda:0); t.start(); t.join()\nprint('go',flush=True)")
	j.line()
	j.wait()
	k := read(t, p, "box")
	if len(k.Threads) != 0 || k.Lost < 6 {
		t.Errorf("%d threads are shown, %d are lost; six ended", len(k.Threads), k.Lost)
	}
	if n := threadCount(t, p); n != 0 {
		t.Errorf("%d threads that ended still take room", n)
	}
}

// 10,000 short threads: memory stays bounded, and each of them is either shown
// once or counted as lost.
func TestChurnIsBounded(t *testing.T) {
	p := newProbe(t, Options{})
	b := newBox(t, nil, "trimtab-churn")
	watch(t, p, b, "box")
	j := b.start("import threading\nprint('go',flush=True)\n" +
		"for i in range(10000):\n t=threading.Thread(target=lambda:0); t.start(); t.join()\nprint('done',flush=True)\nimport time; time.sleep(100)")
	j.line()
	done := make(chan struct{})
	go func() { defer close(done); _, _ = j.out.ReadString('\n') }()
	shown := map[threadName]int{}
	var lost uint64
	collect := func() {
		k := read(t, p, "box")
		lost = k.Lost
		for _, th := range exited(k) {
			shown[threadName{th.TID, th.StartNs}]++
		}
	}
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(50 * time.Millisecond):
		}
		collect()
	}
	// Python's join returns before the kernel has ended the thread.
	for deadline := time.Now().Add(5 * time.Second); threadCount(t, p) > 1 && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	collect()
	if got := uint64(len(shown)) + lost; got != 10000 {
		t.Errorf("%d shown and %d lost of 10,000", len(shown), lost)
	}
	for name, n := range shown {
		if n != 1 {
			t.Errorf("thread %v shown %d times", name, n)
		}
	}
	if n := threadCount(t, p); n != 1 {
		t.Errorf("%d threads have storage after all ended, want the main one", n)
	}
	if n := len(p.last); n > 2 {
		t.Errorf("%d earlier readings are kept", n)
	}
}

func TestRoomIsBounded(t *testing.T) {
	p := newProbe(t, Options{MaxThreadsPerContainer: 10})
	b := newBox(t, nil, "trimtab-room")
	watch(t, p, b, "box")
	j := b.start("import threading,time\nfor i in range(50): threading.Thread(target=time.sleep,args=(100,)).start()\nprint('go',flush=True)")
	j.line()
	k := read(t, p, "box")
	if len(k.Threads) != 10 || k.Lost < 41 {
		t.Errorf("%d threads, %d lost; want 10 and 41", len(k.Threads), k.Lost)
	}
	if p.Cost().Lost < 41 {
		t.Errorf("cost tells %d lost", p.Cost().Lost)
	}
}

// Eight containers that want all the room, of threads and of final records, leave enough for the
// ninth: it loses nothing.
func TestHostileContainersLeaveRoom(t *testing.T) {
	p := newProbe(t, Options{MaxThreads: 1000, MaxThreadsPerContainer: 250})
	const threads = "import threading,time\nfor i in range(%d): threading.Thread(target=time.sleep,args=(100,)).start()\n"
	const churn = "for i in range(%d):\n t=threading.Thread(target=lambda:0); t.start(); t.join()\nprint('go',flush=True)\ntime.sleep(100)"
	for i := range 8 {
		b := newBox(t, nil, fmt.Sprintf("trimtab-hostile%d", i))
		watch(t, p, b, fmt.Sprintf("hostile%d", i))
		b.start(fmt.Sprintf(threads+churn, 250, 1500)).line()
	}
	b := newBox(t, nil, "trimtab-honest")
	watch(t, p, b, "honest")
	j := b.start(fmt.Sprintf(threads+churn, 20, 50))
	j.line()
	// Python's join returns before the kernel has ended the thread.
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", j.pid())); err != nil || len(tasks) == 21 {
			break
		}
	}
	k := read(t, p, "honest")
	if live := len(k.Threads) - len(exited(k)); live != 21 || len(exited(k)) < 50 || k.Lost > 0 {
		t.Errorf("%d threads, %d that ended, %d lost; want 21, 50 and none", live, len(exited(k)), k.Lost)
	}
	if k := read(t, p, "hostile7"); k.Lost == 0 {
		t.Error("a hostile container lost nothing")
	}
}

// Repeated life leaves no descriptor and no map behind.
func TestNothingLeaks(t *testing.T) {
	newProbe(t, Options{}).Watch(newBox(t, nil, "trimtab-leak0").target("warm-up"))
	before := openFiles(t)
	for range 3 {
		p, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		b := newBox(t, nil, "trimtab-leak")
		if err := p.Watch(b.target("box")); err != nil {
			t.Fatal(err)
		}
		read(t, p, "box")
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d open files before, %d after", before, after)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Readings that race with switches on another CPU: exact sums, no counter goes
// back, and time is accounted for to the end.
func TestReadsWhileSwitching(t *testing.T) {
	p := newProbe(t, Options{})
	b := newBox(t, nil, "trimtab-race")
	watch(t, p, b, "box")
	b.start(pingPong).line()
	b.start(spinners, "3", twoCPUs(t)).line()
	last := map[int32]probes.Thread{}
	end := time.Now().Add(2 * time.Second)
	readings, torn := 0, 0
	for ; time.Now().Before(end); readings++ {
		k := read(t, p, "box")
		if len(k.Threads) != 5 {
			t.Fatalf("%d threads, want 5", len(k.Threads))
		}
		for _, th := range k.Threads {
			before, ok := last[th.TID]
			if ok && th.AtNs == before.AtNs {
				torn++
			}
			for s := range th.Ns {
				if th.Ns[s] < before.Ns[s] || th.Count[s] < before.Count[s] || th.LastNs[s] < before.LastNs[s] {
					t.Fatalf("thread %d: %s went back: %+v, then %+v", th.TID, probes.State(s), before, th)
				}
			}
			last[th.TID] = th
		}
	}
	t.Logf("%d readings, %d torn", readings, torn)
	if torn*100 > readings*5 {
		t.Errorf("%d of %d records were torn at each of four tries", torn, readings*5)
	}
}
