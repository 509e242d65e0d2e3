package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestContendedJobAndItsNeighbour: a job without a quota beside a neighbour that
// wants every CPU. Only its weight may move, the neighbour keeps what two equal
// weights entitle it to, and the weight comes back.
func TestContendedJobAndItsNeighbour(t *testing.T) {
	if err := workload.Ready(t.Context()); err != nil {
		t.Skip(err)
	}
	start := func(name, script string, args, docker []string) *workload.Job {
		return started(t, workload.Options{Name: fmt.Sprintf("trimtab-e2e-%d-%s", os.Getpid(), name), Script: script, Args: args,
			DockerArgs: append([]string{"--network", "none"}, docker...)})
	}
	neighbour := start("neighbour", "neighbour.py", []string{"--processes", "4"}, nil)
	j := start("contended", "dataloader.py", []string{"--device-ms", "20"}, []string{"--label", "trimtab.mode=tune"})
	before := values(t, j)
	alone := quietly(t, 8*time.Second, neighbour, j)
	d := daemon(t, daemontest.Options{})
	until(t, d, j.Name, "a verdict of contention", func(c state.Container) bool {
		return c.Verdict.Cause == policies.CauseContended
	})
	time.Sleep(12 * time.Second) // long enough for a trial and its guard
	got := quietly(t, 8*time.Second, neighbour, j)
	now := values(t, j)
	// Under a weight that stands, the neighbour may lose what it had above two equal
	// weights' half of the host, and no more; a sixth is for the noise of a machine that
	// others use as well. Without a change, what it gets is the kernel's doing.
	due := 5. / 6 * min(alone, hostCPUs(t)/2)
	if now[runtime.KnobCPUWeight] != before[runtime.KnobCPUWeight] && got < due {
		t.Errorf("the neighbour used %.2f CPUs before and %.2f under a weight of %s, want at least %.2f", alone, got, now[runtime.KnobCPUWeight], due)
	}
	t.Logf("weight %s, then %s; the neighbour used %.2f CPUs, then %.2f", before[runtime.KnobCPUWeight], now[runtime.KnobCPUWeight], alone, got)
	if now[runtime.KnobCPUQuota] != before[runtime.KnobCPUQuota] {
		t.Errorf("a quota was imposed: %s, then %s", before[runtime.KnobCPUQuota], now[runtime.KnobCPUQuota])
	}
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	if after := values(t, j); after[runtime.KnobCPUWeight] != before[runtime.KnobCPUWeight] {
		t.Errorf("weight %s after a stop, %s before", after[runtime.KnobCPUWeight], before[runtime.KnobCPUWeight])
	}
}

// TestFloorRaisesTheWeight: a job of low weight, whose owner asks for CPUs at least,
// beside a neighbour that takes whatever it gets. The weight is raised as far as the
// job needs, nothing else is, the neighbour keeps its right, and the weight comes back.
func TestFloorRaisesTheWeight(t *testing.T) {
	if err := workload.Ready(t.Context()); err != nil {
		t.Skip(err)
	}
	name := func(what string) string { return fmt.Sprintf("trimtab-e2e-%d-%s", os.Getpid(), what) }
	host := hostCPUs(t)
	floor := 0.4 * host
	neighbour := started(t, workload.Options{Name: name("greedy"), Script: "neighbour.py", Args: []string{"--processes", fmt.Sprint(int(2 * host))},
		DockerArgs: []string{"--network", "none"}})
	j := started(t, workload.Options{Name: name("floor"), Script: "dataloader.py", Args: []string{"--device-ms", "20"},
		DockerArgs: []string{"--network", "none", "--cpu-shares", "256", "--label", "trimtab.mode=tune", "--label", fmt.Sprintf("trimtab.cpu.min=%.2f", floor)}})
	own := values(t, j)
	d := daemon(t, daemontest.Options{})
	var tr state.Trial
	until(t, d, j.Name, "a higher weight, kept", func(c state.Container) bool {
		for _, tr = range c.Trials {
			if tr.Outcome == state.OutcomeKept {
				return true
			}
		}
		return false
	})
	for _, ch := range tr.Changes {
		if ch.Knob != runtime.KnobCPUWeight {
			t.Errorf("%s was changed, from %s to %s", ch.Knob, ch.From, ch.To)
		}
	}
	got, now := 0., values(t, j)
	for deadline := time.Now().Add(patience); ; {
		// Something else that takes CPU from the neighbour has the weight lowered, rightly. What
		// is judged is a stretch that began and ended with the same weight above its owner's.
		was := now[runtime.KnobCPUWeight]
		got, now = quietly(t, 8*time.Second, neighbour, j), values(t, j)
		if was != own[runtime.KnobCPUWeight] && now[runtime.KnobCPUWeight] == was || time.Now().After(deadline) {
			break
		}
	}
	t.Logf("weight %s, then %s; %s; the neighbour uses %.2f CPUs", own[runtime.KnobCPUWeight], now[runtime.KnobCPUWeight], tr.Why, got)
	// Half the host would be worth as much as the neighbour's 1024.
	if to, _ := now[runtime.KnobCPUWeight].Int(); to <= 256 || to >= 900 {
		t.Errorf("the weight is %d, raised from 256: 683 are worth its floor", to)
	}
	if due := 5. / 6 * (host - floor); got < due {
		t.Errorf("the neighbour uses %.2f CPUs, its right is %.2f", got, host-floor)
	}
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	if after := values(t, j); after[runtime.KnobCPUWeight] != own[runtime.KnobCPUWeight] || after[runtime.KnobCPUQuota] != own[runtime.KnobCPUQuota] {
		t.Errorf("after a stop %+v, before %+v", after, own)
	}
}

// quietly is the CPUs that the first of some containers uses, over a stretch in which nothing
// but these uses the machine.
func quietly(t *testing.T, d time.Duration, of ...*workload.Job) float64 {
	t.Helper()
	uses := make([]func() (time.Duration, error), len(of))
	for i, j := range of {
		use, err := j.CPUUsage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		uses[i] = use
	}
	used := func() (first, all time.Duration) {
		for i, use := range uses {
			u := mustUse(t, use)
			if all += u; i == 0 {
				first = u
			}
		}
		return first, all
	}
	const most = 0.15 // CPUs: the daemon's and the engine's
	for deadline := time.Now().Add(patience); ; {
		at, before := time.Now(), cpuTimes(t)
		first, all := used()
		time.Sleep(d)
		now, nowAll := used()
		after, passed := cpuTimes(t), time.Since(at).Seconds()
		others := float64(after.BusyNs+after.StealNs-before.BusyNs-before.StealNs)/1e9/passed - (nowAll-all).Seconds()/passed
		if others <= most {
			return (now - first).Seconds() / passed
		}
		if time.Now().After(deadline) {
			t.Skipf("needs a machine that nothing else uses: %.2f CPUs of it were not the test's", others)
		}
	}
}

func mustUse(t *testing.T, use func() (time.Duration, error)) time.Duration {
	t.Helper()
	d, err := use()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// values reads what stands in the kernel.
func values(t *testing.T, j *workload.Job) runtime.Values {
	t.Helper()
	where, err := j.Cgroup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v, err := cgroup.ReadValues(where)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func hostCPUs(t *testing.T) float64 {
	t.Helper()
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	all, err := runtime.ParseCPUList(string(online))
	if err != nil {
		t.Fatal(err)
	}
	return float64(len(all))
}
