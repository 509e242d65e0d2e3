package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/promtest"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestAlertsOfADaemonInTrouble: a GPU is held idle, another container lost its own and nobody may
// repair that, the driver reports an error of a GPU, memory cannot go back while it is used, and the
// daemon has less memory than it needs: a real Prometheus tells of each.
func TestAlertsOfADaemonInTrouble(t *testing.T) {
	const ownMiB = 300
	node := gpuNode(t)
	idle := gpuJob(t, node, "observe", "--kernels", "20", "--kernel-us", "2000", "--sync", "blocking", "--pause-at", "20")
	lost := holdGPU(t, gpuRule)
	address := promtest.FreeAddress(t)
	d := daemon(t, daemontest.Options{Metrics: address, Env: node.Env(), Config: "gpu: {idleAfter: 5s}\noverhead: {memory: 32MiB}\n"})
	grows := memoryJob(t, ownMiB, "leak.py", []string{"trimtab.memory.max=2000m"}, "--mib-per-s", "20", "--ebb-mib", "300")
	p := promtest.Start(t, []string{address}, hurried(t))
	known(t, d, lost)
	lost.lose(t)
	until(t, d, grows.Name, "memory beyond its owner's limit", func(c state.Container) bool { return c.MemoryUse.Held > 1.5*ownMiB*mib })
	if err := node.Set(t.Context(), 1, "xid", "79"); err != nil { // of the GPU that nobody holds
		t.Fatal(err)
	}
	tell(t, grows) // it keeps more than its owner's limit, and grows no more
	if out, err := d.Run(t.Context(), "disable", grows.Name); err != nil {
		t.Fatal(err, out)
	}
	for _, alert := range []string{"GPUAccessLost", "GPUAccessNotRepaired", "GPUError", "GPUHeldIdle", "RestoreOwed", "OverBudget"} {
		fires(t, p, alert)
	}
	c, err := d.Container(t.Context(), idle.Name)
	if err != nil || c.GPULost != "" {
		t.Errorf("the idle job: %v, %q", err, c.GPULost)
	}
}

// hurried is a file of the packaged rules that wait for seconds where the packaged ones wait for
// minutes and hours. What they ask for stays. On a busy machine the daemon reads every fourth second,
// and the seconds that a GPU is idle grow by four at once: of half a minute less than the rule's tenth is
// lost by that, of ten seconds more.
func hurried(t *testing.T) string {
	t.Helper()
	const twoHours, halfMinute = "increase(trimtab_gpu_held_idle_seconds_total[2h]) > 0.9 * 7200", "increase(trimtab_gpu_held_idle_seconds_total[30s]) > 0.9 * 30"
	return instead(t, soon(t, "RestoreOwed", "GPUAccessNotRepaired", "GPUHeldIdle", "OverBudget"), twoHours, halfMinute)
}

// instead has a file of rules ask for less than the packaged ones, which promtool tests as they are.
func instead(t *testing.T, file, packaged, less string) string {
	t.Helper()
	rules, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(rules), packaged) != 1 {
		t.Fatalf("not one rule asks for %s", packaged)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(rules), packaged, less)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
