package e2e

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestResyncEverySecond: an agent that writes its own quota each second, with docker
// update, is yielded to: trimtab writes once, twice where it could not tell, says so,
// and leaves the knob alone.
func TestResyncEverySecond(t *testing.T) {
	j := job(t, "trimtab.mode=tune")
	d := daemon(t, daemontest.Options{Config: onlyMine()})
	where, err := j.Cgroup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wait sync.WaitGroup
	var written []runtime.Value // what stood and was not the agent's
	wait.Go(func() {
		for ctx.Err() == nil {
			_ = j.SetQuota(ctx, starvedCPUs) // cancelled at the end
			time.Sleep(time.Second)
		}
	})
	wait.Go(func() {
		last := runtime.Value("")
		for ctx.Err() == nil {
			v, err := cgroup.ReadValues(where)
			if err != nil {
				t.Error(err)
				return
			}
			now := v[runtime.KnobCPUQuota]
			if now != last && now != runtime.QuotaFromCPUs(starvedCPUs, runtime.DefaultPeriodUs) {
				written = append(written, now)
			}
			last = now
			time.Sleep(20 * time.Millisecond)
		}
	})
	until(t, d, j.Name, "yielded", func(c state.Container) bool { return slices.Contains(c.Yielded, runtime.KnobCPUQuota) })
	time.Sleep(15 * time.Second) // time enough for another change
	c, err := d.Container(t.Context(), j.Name)
	if err != nil || changed(c) || c.Trial != nil {
		t.Errorf("after the yield: %+v, %v", c, err)
	}
	stop()
	wait.Wait()
	if len(written) > 2 {
		t.Errorf("a fight: trimtab set %v", written)
	}
	records, err := d.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	yields, changes := 0, 0
	for _, r := range records {
		switch r.Kind {
		case state.RecordYield:
			yields++
		case state.RecordChange:
			changes++
		}
	}
	if yields == 0 || yields > 2 || changes > 2 {
		t.Errorf("history tells of %d yields and %d changes", yields, changes)
	}
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	wantQuota(t, j, starvedCPUs, "after the stop")
}
