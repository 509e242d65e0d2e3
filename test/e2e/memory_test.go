package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/state"
)

const mib = 1 << 20

// memoryJob starts a job under a memory limit, enrolled for that knob alone.
func memoryJob(t *testing.T, limitMiB int, script string, labels []string, args ...string) *workload.Job {
	t.Helper()
	if err := workload.Ready(t.Context()); err != nil {
		t.Skip(err)
	}
	docker := []string{"--network", "none", "--memory", fmt.Sprintf("%dm", limitMiB), "--label", "trimtab.mode=tune", "--label", "trimtab.knobs=memory"}
	for _, l := range labels {
		docker = append(docker, "--label", l)
	}
	name := fmt.Sprintf("trimtab-e2e-%d-%s", os.Getpid(), strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")))
	return started(t, workload.Options{Name: name, Script: script, Args: args, DockerArgs: docker})
}

// limitMiB reads what stands in the kernel.
func limitMiB(t *testing.T, j *workload.Job) int64 {
	t.Helper()
	n, ok := values(t, j)[runtime.KnobMemoryLimit].Int()
	if !ok {
		t.Fatalf("memory limit %q", values(t, j)[runtime.KnobMemoryLimit])
	}
	return n / mib
}

// running reports whether the container runs and none of it was killed for memory.
func running(t *testing.T, j *workload.Job) bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "docker", "inspect", "--format", "{{.State.Running}} {{.State.OOMKilled}}", j.ID).CombinedOutput()
	if err != nil {
		t.Fatalf("docker inspect: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out)) == "true false"
}

// memoryLent: its limit stands above its owner's.
func memoryLent(c state.Container) bool { return slices.Contains(c.Changed, runtime.KnobMemoryLimit) }

// TestCacheBoundJobGetsMemory: a job whose limit evicts what it reads again is lent more, which
// settles to what is enough; it gains, and gets its own limit back.
func TestCacheBoundJobGetsMemory(t *testing.T) {
	const own = 320
	j := memoryJob(t, own, "memory.py", []string{"trimtab.memory.max=3g"}, "--data-mib", "500")
	before, _, err := j.RateFor(t.Context(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	d := daemon(t, daemontest.Options{})
	until(t, d, j.Name, "a raised memory limit", memoryLent)
	lent := limitMiB(t, j)
	until(t, d, j.Name, "a limit that is enough, and no more", func(c state.Container) bool { return memoryLent(c) && limitMiB(t, j) < lent })
	enough := limitMiB(t, j)
	after, _, err := j.RateFor(t.Context(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MiB were lent, %d are enough; the job printed %.2f steps/s before and %.2f after", lent-own, enough, before, after)
	if after < 1.05*before {
		t.Errorf("the job printed %.2f steps/s before and %.2f after", before, after)
	}
	if enough <= own || enough > 2*(own+500) {
		t.Errorf("%d MiB stand for 500 MiB of files and less than %d beside them", enough, own)
	}
	text, err := d.Run(t.Context(), "explain", j.Name)
	if err != nil || !strings.Contains(text, "320MiB originally") {
		t.Errorf("explain: %v\n%s", err, text)
	}
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := limitMiB(t, j); got != own || !running(t, j) {
		t.Errorf("%d MiB stand after a stop, its owner gave %d", got, own)
	}
}

// TestQuotaAndMemoryAreBothLent: a job that runs out of quota, much of which it spends on reading
// again what its limit evicts, is lent both, and gets its own values back.
func TestQuotaAndMemoryAreBothLent(t *testing.T) {
	const own, ownCPUs = 320, 0.4
	j := memoryJob(t, own, "memory.py", []string{"trimtab.memory.max=1500m", "trimtab.knobs=cpu,memory"}, "--data-mib", "500")
	if err := j.SetQuota(t.Context(), ownCPUs); err != nil {
		t.Fatal(err)
	}
	d := daemon(t, daemontest.Options{})
	until(t, d, j.Name, "both limits raised", func(c state.Container) bool {
		return memoryLent(c) && slices.Contains(c.Changed, runtime.KnobCPUQuota)
	})
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	wantQuota(t, j, ownCPUs, "after a stop")
	if got := limitMiB(t, j); got != own || !running(t, j) {
		t.Errorf("%d MiB stand after a stop, its owner gave %d", got, own)
	}
}

// TestGrowingJobIsNotKilled: a job that grows into its limit is given more before it
// gets there, and lives.
func TestGrowingJobIsNotKilled(t *testing.T) {
	const own = 700
	d := daemon(t, daemontest.Options{}) // first: it grows whether anybody looks or not
	j := memoryJob(t, own, "leak.py", []string{"trimtab.memory.max=3000m"}, "--base-mib", "200", "--mib-per-s", "16")
	until(t, d, j.Name, "memory beyond its owner's limit", func(c state.Container) bool { return c.MemoryUse.Held > 1.3*own*mib })
	if !running(t, j) {
		t.Fatal("it was killed")
	}
	if limitMiB(t, j) <= own {
		t.Errorf("%d MiB stand", limitMiB(t, j))
	}
	records, err := d.History(t.Context())
	if err != nil || !slices.ContainsFunc(records, func(r state.Record) bool {
		return r.Kind == state.RecordLoan && r.Knob == runtime.KnobMemoryLimit && strings.Contains(r.Text, "and grows by")
	}) {
		t.Errorf("no protective loan is told as such: %v, %+v", err, records)
	}
	// What it holds by now is above its own limit: going back at once would kill it.
	if err := d.Stop(); err == nil {
		t.Log("the daemon stopped without a word of what is pending")
	}
	if !running(t, j) {
		t.Error("it was killed by the restore")
	}
}
