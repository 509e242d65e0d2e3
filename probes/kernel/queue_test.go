package kernel

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
)

// spinners forks n spinning processes on the given CPUs; the first line says go.
const spinners = "import os,sys\n" +
	"os.sched_setaffinity(0,set(map(int,sys.argv[2].split(','))))\n" +
	"for i in range(int(sys.argv[1])-1):\n if os.fork()==0: break\nelse: print('go',flush=True)\nwhile True: pass"

// runnable sums what the threads of a container did between two readings.
func runnable(t *testing.T, p *Probe, key string, d time.Duration) (run, throttled, queued float64) {
	t.Helper()
	before := map[int32]probes.Thread{}
	for _, th := range read(t, p, key).Threads {
		before[th.TID] = th
	}
	time.Sleep(d)
	for _, th := range read(t, p, key).Threads {
		b, ok := before[th.TID]
		if !ok {
			continue
		}
		for s := range th.Ns {
			if th.Ns[s] < b.Ns[s] {
				t.Errorf("thread %d: %s went back", th.TID, probes.State(s))
			}
		}
		x := delta(b, th)
		run += float64(x.Ns[probes.StateRun]) / 1e9
		throttled += float64(x.Ns[probes.StateThrottled]) / 1e9
		queued += float64(x.Ns[probes.StateQueued]) / 1e9
	}
	return run, throttled, queued
}

func twoCPUs(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("/sys/devices/system/cpu/cpu1"); err != nil {
		t.Skip("needs two CPUs")
	}
	return "0,1"
}

// All threads on one CPU: its run queue is throttled for all of them at once, so
// the threads' throttled time must be their number times the cgroup's own
// accounting, whatever else runs on the machine.
func TestQuotaReadsThrottled(t *testing.T) {
	p := newProbe(t, Options{})
	for _, tc := range []struct {
		name         string
		nested       bool
		watchOuter   bool
		threads      int
		quota        float64
		competitors  int
		minQueuedSec float64
	}{
		{name: "on the container", threads: 8, quota: 0.25},
		{name: "on an ancestor", nested: true, threads: 8, quota: 0.25},
		{name: "in a nested cgroup of the container", nested: true, watchOuter: true, threads: 8, quota: 0.25},
		{name: "and competition", threads: 2, quota: 0.1, competitors: 1, minQueuedSec: 0.1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			outer := newBox(t, nil, "trimtab-quota")
			inner, watched := outer, outer
			if tc.nested {
				inner = newBox(t, outer, "inner")
			}
			if !tc.watchOuter {
				watched = inner
			}
			outer.quota(tc.quota)
			watch(t, p, watched, "box")
			inner.start(spinners, strconv.Itoa(tc.threads), "0").line()
			if tc.competitors > 0 {
				newBox(t, nil, "trimtab-other").start(spinners, strconv.Itoa(tc.competitors), "0").line()
			}
			time.Sleep(300 * time.Millisecond)
			before := outer.throttledSec()
			run, throttled, queued := runnable(t, p, "box", 2*time.Second)
			want := float64(tc.threads) * (outer.throttledSec() - before)
			t.Logf("run %.2f, throttled %.2f (cgroup's own accounting: %.2f), queued %.2f s", run, throttled, want, queued)
			if want < 0.5 {
				t.Skipf("needs an idler machine: the quota throttled for %.2f s only", want)
			}
			if math.Abs(throttled-want) > 0.1*want+0.1*float64(tc.threads) { // one period at each end
				t.Errorf("threads were throttled for %.2f s, the cgroup's accounting says %.2f", throttled, want)
			}
			if queued < tc.minQueuedSec {
				t.Errorf("queued %.2f s behind competitors, want more than %.2f", queued, tc.minQueuedSec)
			}
		})
	}
}

func TestCompetitionReadsQueued(t *testing.T) {
	p := newProbe(t, Options{})
	b := newBox(t, nil, "trimtab-compete")
	watch(t, p, b, "box")
	b.start(spinners, "4", twoCPUs(t)).line()
	other := newBox(t, nil, "trimtab-other")
	other.start(spinners, "4", twoCPUs(t)).line()
	time.Sleep(200 * time.Millisecond)
	run, throttled, queued := runnable(t, p, "box", time.Second)
	t.Logf("4 of 8 spinners on 2 CPUs for 1 s: run %.2f, throttled %.2f, queued %.2f s", run, throttled, queued)
	if throttled > 0 {
		t.Errorf("throttled %.2f s without a quota", throttled)
	}
	if queued < 2 {
		t.Errorf("queued %.2f s, want about 3", queued)
	}
}

// throttledSec is what the cgroup itself says, summed over its run queues.
func (b *box) throttledSec() float64 {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.cpu, "cpu.stat"))
	if err != nil {
		b.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		n, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "throttled_time":
			return n / 1e9
		case "throttled_usec":
			return n / 1e6
		}
	}
	b.t.Fatal("cpu.stat tells no throttled time")
	return 0
}

// idleSec is for how long a CPU has been idle.
func idleSec(t *testing.T, cpu int) float64 {
	t.Helper()
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 5 && f[0] == "cpu"+strconv.Itoa(cpu) {
			idle, _ := strconv.ParseFloat(f[4], 64)
			wait, _ := strconv.ParseFloat(f[5], 64)
			return (idle + wait) / 100 // of USER_HZ
		}
	}
	t.Fatalf("/proc/stat knows no CPU %d", cpu)
	return 0
}

// TestIdleCPUIsNoCompetition: a thread that wakes up on an idle CPU waits for that alone,
// and one that shares its only CPU with a spinner waits for the spinner.
func TestIdleCPUIsNoCompetition(t *testing.T) {
	p := newProbe(t, Options{})
	const sleeper = "import os,sys,time\nos.sched_setaffinity(0,{int(sys.argv[1])})\nprint('go',flush=True)\n" +
		"while True: time.sleep(0.002)"
	const spin = "import os,sys\nos.sched_setaffinity(0,{int(sys.argv[1])})\nprint('go',flush=True)\nwhile True: pass"
	twoCPUs(t)
	b := newBox(t, nil, "trimtab-sleeper")
	watch(t, p, b, "box")
	j := b.start(sleeper, "1")
	j.line()
	alone := func() (queued, alone float64, free bool) { // free: CPU 1 had next to nothing else to do
		idle, from := idleSec(t, 1), time.Now()
		before := threadOf(t, read(t, p, "box"), j.pid())
		time.Sleep(time.Second)
		after := threadOf(t, read(t, p, "box"), j.pid())
		free = idleSec(t, 1)-idle > 0.975*time.Since(from).Seconds() // the sleeper itself runs for 2 %; a reading may take long
		d := delta(before, after)
		return float64(d.Ns[probes.StateQueued]), float64(after.AloneNs - before.AloneNs), free
	}
	// What little else a free CPU ran may have been before the sleeper most times it woke: one free look of several
	// tells, and so does any that is as wanted.
	const wantedFree = 5
	freeQueued, freeAlone, looks := 0.0, 0.0, 0
	for end := time.Now().Add(20 * time.Second); ; {
		queued, behindNobody, free := alone()
		freeQueued, freeAlone = queued, behindNobody
		if free {
			looks++
		}
		if freeAlone > freeQueued/2 || looks == wantedFree {
			break
		}
		if time.Now().After(end) {
			t.Skipf("needs a CPU that is idle for a second, %d times: other work ran on CPU 1 in all but %d looks of 20 s", wantedFree, looks)
		}
	}
	other := newBox(t, nil, "trimtab-other")
	for range 3 { // several: a waking thread goes before one that spins
		other.start(spin, "1").line()
	}
	heldQueued, heldAlone, _ := alone()
	t.Logf("queued %.1f ms, %.1f of it behind nobody; beside spinners %.1f ms, %.1f of it", freeQueued/1e6, freeAlone/1e6, heldQueued/1e6, heldAlone/1e6)
	if freeAlone < freeQueued/2 || freeAlone <= 0 || freeAlone > freeQueued {
		t.Errorf("on an idle CPU %.1f of %.1f ms are behind nobody, want most", freeAlone/1e6, freeQueued/1e6)
	}
	if heldAlone > heldQueued/10 {
		t.Errorf("beside spinners %.1f of %.1f ms are behind nobody", heldAlone/1e6, heldQueued/1e6)
	}
}
