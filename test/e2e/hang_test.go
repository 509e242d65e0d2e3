package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/fusetest"
	"github.com/trimtab/trimtab/test/uprobetest"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/state"
)

func TestMain(m *testing.M) {
	fusetest.Main()
	os.Exit(m.Run())
}

// loads loads a library and counts its steps.
const loads = `
import ctypes, sys, time
ctypes.CDLL(sys.argv[1])
n, before = 0, time.monotonic()
while True:
    sum(range(200000))
    n += 1
    now = time.monotonic()
    print(f"step={n} t={now:.6f} dt={now - before:.4f}", flush=True)
    before = now
    time.sleep(0.05)
`

// TestLayerThatDoesNotAnswer: an image's layer that stops answering, as a lazily pulled one
// does whose registry is gone, costs its container what is counted in it. The neighbour has
// its windows and its verdict, and the daemon goes on: it ticks, and is not started again.
func TestLayerThatDoesNotAnswer(t *testing.T) {
	neighbour := job(t, "trimtab.mode=observe")
	lib := uprobetest.BuildCode(t, t.TempDir(), "libcuda.so.1", "int cuLaunchKernel(int n) { volatile int k = n; return k; }\n", "-shared", "-fPIC")
	layer := fusetest.Mount(t, lib)
	victim := started(t, workload.Options{
		Name:       fmt.Sprintf("trimtab-e2e-%d-layer", os.Getpid()),
		Command:    []string{"python3", "-u", "-c", loads, "/layer/libcuda.so.1"},
		DockerArgs: []string{"--network", "none", "--label", "trimtab.mode=observe", "--volume", layer.Overlay(t) + ":/layer"},
	})
	layer.Hang()
	d := daemon(t, daemontest.Options{Config: "overhead: {cpu: 1}\n"}) // else it publishes less often on a busy machine
	stuck := func(state.Container) bool {
		text, err := d.Run(t.Context(), "explain", victim.Name)
		return err == nil && strings.Contains(text, "reading its files has taken more than")
	}
	until(t, d, victim.Name, "explain says that its file does not answer", stuck)
	var oldest time.Duration // of ticks, less what a thread of the daemon's waited for a CPU since
	var waits workload.Waits
	pid := d.PID()
	waits.Since(pid, time.Now())
	noted := func(good func(state.Container) bool) func(state.Container) bool {
		return func(c state.Container) bool {
			asked := time.Now()
			if s, err := d.Client().Status(t.Context()); err == nil {
				tick := time.Unix(0, s.UnixNs)
				oldest = max(oldest, asked.Sub(tick)-waits.Since(pid, tick))
			}
			return good(c)
		}
	}
	c := until(t, d, neighbour.Name, "the neighbour's verdict", noted(func(c state.Container) bool { return c.Verdict.Class != "" }))
	until(t, d, neighbour.Name, "three more of its windows", noted(func(after state.Container) bool { return after.Windows >= c.Windows+3 }))
	t.Logf("beside the layer that hangs the oldest tick that was shown was %v old", oldest.Round(time.Millisecond))
	if oldest > 2*time.Second || d.Ended() {
		t.Errorf("its latest tick was %v old; it has ended: %v", oldest, d.Ended())
	}
	layer.Answer()
	until(t, d, victim.Name, "explain no longer says so", func(c state.Container) bool { return !stuck(c) })
}
