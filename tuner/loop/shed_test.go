package loop

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/originals"
)

// TestTakenMemoryIsLookedAtEachTick: over its budget trimtab reads at every fourth tick,
// but for as long as a container stands on less memory than its owner gave.
func TestTakenMemoryIsLookedAtEachTick(t *testing.T) {
	for name, c := range map[string]struct {
		knob   runtime.Knob
		owners runtime.Value
		least  int64 // readings in 40 ticks
		most   int64
	}{
		"a quota was raised": {runtime.KnobCPUQuota, "20000 100000", 9, 11},
		"memory was taken":   {runtime.KnobMemoryLimit, runtime.ValueMax, 39, 41},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				job := n.job("train")
				n.engine.SilentWrite(job.ID.Container, runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(900 << 20)})
				stands, err := n.engine.Read(t.Context(), job)
				if err != nil {
					t.Fatal(err)
				}
				file := originals.For(job) // as an earlier daemon left it
				file.Knobs[c.knob] = originals.Knob{Original: c.owners, Written: stands[c.knob]}
				if err := originals.New(originals.Options{Dir: n.dir}).Save(file); err != nil {
					t.Fatal(err)
				}
				var reads atomic.Int64
				n.holds.paused = true
				d := n.start(func(o *Options) {
					o.Handover, o.Settings.BudgetCPU = true, 1e-9
					o.ReadHost = func() (probes.Host, error) { reads.Add(1); return n.sim.host() }
				})
				time.Sleep(time.Minute) // it finds that it is over its budget
				before := reads.Load()
				time.Sleep(40 * time.Second)
				if got := reads.Load() - before; got < c.least || got > c.most {
					t.Errorf("%d readings in 40 ticks, want about %d", got, c.least+1)
				}
				d.stop(true)
			})
		})
	}
}
