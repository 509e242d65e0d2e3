package cuda

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/uprobetest"
)

// A thinned hook takes turns; what it counts and the time it counts in agree.
func TestThinnedLaunches(t *testing.T) {
	r := newRig(t)
	target := uprobetest.Cgroup(t, "cuda-thin")
	r.watch(target)
	job := r.cudaJob(target, false)
	job.Do("call cudaLaunchKernel 10 1")
	r.probe.SetDutyCycle(target.Key, HookLaunch, 0)
	r.read() // switches it off
	before := r.process(target.Key, job.PID)
	r.until("detached", func() bool {
		job.Do("call cudaLaunchKernel 10 1")
		a := r.process(target.Key, job.PID).Launches
		job.Do("call cudaLaunchKernel 10 1")
		return r.process(target.Key, job.PID).Launches == a
	})
	off := r.process(target.Key, job.PID)
	if off.LaunchNs != before.LaunchNs {
		t.Errorf("time counted while off: %d ns", off.LaunchNs-before.LaunchNs)
	}
	if missing := r.probe.Missing(target.Key); !slices.Equal(missing, []string{"launches: over the budget"}) {
		t.Errorf("missing %q", missing)
	}
	job.Do("call cudaStreamSynchronize 3 1")
	if p := r.process(target.Key, job.PID); len(p.Threads) != 1 || p.Threads[0].Syncs != 3 {
		t.Errorf("synchronisations went with the launches: %+v", p.Threads)
	}
	r.probe.SetDutyCycle(target.Key, HookLaunch, 1)
	r.until("attached again", func() bool { return r.process(target.Key, job.PID).LaunchNs > off.LaunchNs })
	if missing := r.probe.Missing(target.Key); len(missing) > 0 {
		t.Errorf("missing %q", missing)
	}
	job.Do("call cudaLaunchKernel 10 1")
	if p := r.process(target.Key, job.PID); p.Launches != off.Launches+10 {
		t.Errorf("%d launches, want %d", p.Launches, off.Launches+10)
	}
}

func TestSpending(t *testing.T) {
	r := newRig(t)
	target := uprobetest.Cgroup(t, "cuda-spend")
	r.watch(target)
	job := r.cudaJob(target, false)
	job.Do("call cudaLaunchKernel 30 1")
	job.Do("call cudaStreamSynchronize 4 1")
	r.read()
	got := map[string]probes.Spend{}
	for _, s := range r.probe.Spending() {
		got[s.Hook] = s
	}
	// Each launch passes two entries, and so does each synchronisation.
	if l, s := got[HookLaunch], got[HookSync]; l.Hits != 60 || s.Hits != 8 || l.HitNs < 50 || s.HitNs <= l.HitNs/100 || l.Container != target.Key {
		t.Errorf("spending %+v", got)
	}
}

// A flood of launches takes the hook off, whatever the budget says: for their number, or, where a busy machine
// held the flood up so that they were fewer, for what they cost.
func TestCeiling(t *testing.T) {
	const most = 20000 // hits a second
	r := newRig(t)
	target := uprobetest.Cgroup(t, "cuda-ceiling")
	r.watch(target)
	job := r.cudaJob(target, false)
	hits := func() (sum uint64) {
		for _, n := range r.probe.processes[job.PID].raw.Hits[hookLaunch] {
			sum += n
		}
		for _, n := range r.probe.processes[job.PID].raw.Hits[hookDriverLaunch] {
			sum += n
		}
		return sum
	}
	slowest, before, from := math.Inf(1), hits(), time.Now()
	r.until("taken off", func() bool {
		job.Do("call cudaLaunchKernel %d 1", most)
		r.read()
		now, at := hits(), time.Now()
		slowest = min(slowest, float64(now-before)/at.Sub(from).Seconds())
		before, from = now, at
		return slices.ContainsFunc(r.probe.Missing(target.Key), func(s string) bool { return strings.HasPrefix(s, "launches: ") })
	})
	t.Logf("at least %.0f hits a second", slowest)
	want := []string{"launches: more than 20000 a second"}
	if slowest < 1.1*most { // by the test's clock, which is read beside the probe's
		want = append(want, "launches: more than 5 % of a thread")
	}
	if missing := r.probe.Missing(target.Key); !slices.ContainsFunc(missing, func(s string) bool { return slices.Contains(want, s) }) {
		t.Errorf("missing %q, want one of %q at %.0f hits a second", missing, want, slowest)
	}
}

// Where the driver sees the runtime's launches, the runtime is left alone; the
// count goes on unbroken, and so does the time in which it was made.
func TestDriverAlone(t *testing.T) {
	for name, bypass := range map[string]bool{"through the driver": false, "past the driver": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			target := uprobetest.Cgroup(t, "cuda-alone")
			r.watch(target)
			job := r.cudaJob(target, bypass)
			job.Do("call cudaLaunchKernel %d 1", provenLaunches)
			before := r.process(target.Key, job.PID)
			var hits uint64
			r.until("settled", func() bool {
				r.read()
				was := hits
				job.Do("call cudaLaunchKernel 10 1")
				before = r.process(target.Key, job.PID)
				hits = r.probe.processes[job.PID].raw.Hits[hookLaunch][0] + r.probe.processes[job.PID].raw.Hits[hookLaunch][1]
				return bypass || hits == was
			})
			job.Do("call cudaLaunchKernel 500 1")
			job.Do("call cuLaunchKernel 300 1")
			after := r.process(target.Key, job.PID)
			if got := after.Launches - before.Launches; got != 800 {
				t.Errorf("%d launches, want 800: %+v", got, r.probe.processes[job.PID].raw.Kernels)
			}
			if after.LaunchNs <= before.LaunchNs {
				t.Errorf("counted for %d ns, then %d", before.LaunchNs, after.LaunchNs)
			}
			raw := r.probe.processes[job.PID].raw.Hits[hookLaunch]
			if more := raw[0] + raw[1] - hits; (more == 0) == bypass {
				t.Errorf("the runtime's launches were hit %d times more", more)
			}
		})
	}
}
