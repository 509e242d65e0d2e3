package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestTakenMemoryComesBackInTime: memory that trimtab gave and nothing used any more is
// taken back; when the job grows again, faster than any decision, it has it back within
// a tick of the sign, and lives.
func TestTakenMemoryComesBackInTime(t *testing.T) {
	const own, againMiBs = 500, 20
	d := daemon(t, daemontest.Options{}) // first: the job grows from its first step on
	j := memoryJob(t, own, "leak.py", []string{"trimtab.memory.max=3000m"}, "--base-mib", "100", "--mib-per-s", "20", "--ebb-mib", "150",
		"--again-mib-per-s", fmt.Sprint(againMiBs))
	where, err := j.Cgroup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	alive := func() {
		if !running(t, j) {
			t.Fatalf("the job was killed\n%s", d.Log())
		}
	}
	most := int64(own)
	until(t, d, j.Name, "memory beyond its owner's limit", func(c state.Container) bool {
		alive()
		most = max(most, limitMiB(t, j))
		return c.MemoryUse.Held > 1.1*own*mib && most > own
	})
	tell(t, j)
	taken := most
	c := until(t, d, j.Name, "unused memory taken back", func(state.Container) bool {
		alive()
		most, taken = max(most, taken), limitMiB(t, j)
		return taken < most
	})
	t.Logf("%d MiB of %d MiB; it holds %.0f MiB", taken, most, c.MemoryUse.Held/mib)
	if taken < own {
		t.Fatalf("%d MiB stand, its owner gave %d", taken, own)
	}
	loweredNs := time.Now().UnixNano()
	tell(t, j)
	b := bitesAt(t, d, where, float64(taken))
	held := b.held
	t.Logf("%d MiB to %.0f MiB %.1f s after the sign, of which trimtab waited %.1f s for a CPU, holding %.0f MiB", taken, b.lifted, b.after.Seconds(), b.waited.Seconds(), held)
	if b.after > 2*time.Second+b.waited { // a tick until it is read, and a write
		t.Errorf("back %v after the sign, of which %v without a CPU", b.after, b.waited)
	}
	alive()
	for end := time.Now().Add(patience); held < float64(taken); held = heldMiB(t, where) { // it grows beyond what had been taken
		if time.Now().After(end) {
			t.Fatalf("it holds %.0f MiB of the %d that were left to it: nothing was tested", held, taken)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if kills := oomKills(t, where); kills != "0" || !running(t, j) {
		t.Errorf("%s kills, running: %v", kills, running(t, j))
	}
	records, err := d.History(t.Context())
	if err != nil || !slices.ContainsFunc(records, func(r state.Record) bool {
		// Lent anew as its growth is seen, or given back as the limit hurts: which is seen first is open.
		return r.Kind == state.RecordLoan && r.UnixNs > loweredNs && strings.Contains(r.Text, "and grows by") ||
			r.Kind == state.RecordTrial && r.Outcome == state.OutcomeWithdrawn && (strings.Contains(r.Text, "grows into the limit") || strings.Contains(r.Text, "that were evicted"))
	}) {
		t.Errorf("the history does not say why it went back: %v", err)
	}
}

// bite is how a limit was lifted.
type bite struct {
	after        time.Duration // it still stood so long after the sign
	waited       time.Duration // by all threads of trimtab, for a CPU, since the sign
	held, lifted float64       // MiB
}

// bitesAt waits until the limit is lifted. The sign is the instant at which what is held would have
// reached it in two seconds at the pace of the last.
func bitesAt(t *testing.T, d *daemontest.Daemon, c runtime.Cgroup, limitMiB float64) bite {
	t.Helper()
	type sample struct {
		at   time.Time
		held float64
	}
	var samples []sample // of the last second
	var sign time.Time
	var waited map[string]time.Duration // at the sign
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		now := sample{time.Now(), heldMiB(t, c)}
		samples = append(samples, now)
		for now.at.Sub(samples[0].at) > time.Second && len(samples) > 2 {
			samples = samples[1:]
		}
		if sign.IsZero() && now.held+2*(now.held-samples[0].held)/max(1, now.at.Sub(samples[0].at).Seconds()) > limitMiB {
			sign, waited = now.at, waitedForCPU(t, d.PID())
		}
		v, err := cgroup.ReadValues(c)
		if err != nil {
			t.Fatalf("%.0f MiB were held under %.0f: %v\n%s", now.held, limitMiB, err, d.Log())
		}
		n, _ := v[runtime.KnobMemoryLimit].Int()
		if lifted := float64(n) / mib; lifted > limitMiB+1 {
			b := bite{held: now.held, lifted: lifted}
			if !sign.IsZero() { // else it was read a little later than by us
				b.after, b.waited = max(0, samples[max(0, len(samples)-2)].at.Sub(sign)), workload.LongestWait(waitedForCPU(t, d.PID()), waited)
			}
			return b
		}
	}
	t.Fatalf("%.0f MiB stand a minute after the job grew again\n%s", limitMiB, d.Log())
	return bite{}
}

// waitedForCPU is how long each thread of a process has waited for a CPU.
func waitedForCPU(t *testing.T, pid int) map[string]time.Duration {
	t.Helper()
	waited, err := workload.WaitedForCPU(pid)
	if err != nil {
		t.Fatal(err)
	}
	return waited
}

// tell sends a job its next order.
func tell(t *testing.T, j *workload.Job) {
	t.Helper()
	order(t, j, "USR1")
}

// order sends a job a signal that it knows.
func order(t *testing.T, j *workload.Job, signal string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "docker", "kill", "--signal", signal, j.ID).CombinedOutput(); err != nil {
		t.Fatalf("docker kill: %v\n%s", err, out)
	}
}

// memoryFile is a file of a container's memory control group: v1's, else v2's.
func memoryFile(t *testing.T, c runtime.Cgroup, v1, v2 string) map[string]string {
	t.Helper()
	name := v2
	if _, isV1 := c.V1["memory"]; isV1 {
		name = v1
	}
	text, err := os.ReadFile(filepath.Join(c.Dir("memory"), name))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		out[key] = value
	}
	return out
}

func oomKills(t *testing.T, c runtime.Cgroup) string {
	t.Helper()
	return memoryFile(t, c, "memory.oom_control", "memory.events")["oom_kill"]
}

// heldMiB is what only a kill would free.
func heldMiB(t *testing.T, c runtime.Cgroup) float64 {
	t.Helper()
	stat, sum := memoryFile(t, c, "memory.stat", "memory.stat"), int64(0)
	for _, key := range []string{"total_rss", "total_shmem", "anon", "shmem"} {
		if _, isV1 := c.V1["memory"]; isV1 == strings.HasPrefix(key, "total_") {
			n, _ := runtime.Value(stat[key]).Int()
			sum += n
		}
	}
	return float64(sum) / mib
}
