package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/tuner/history"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestPendingIsTriedWithPausesAndToldOnce: a restore that fails is tried again less and
// less often, the container is left alone meanwhile, and history holds it once.
func TestPendingIsTriedWithPausesAndToldOnce(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		d := n.start(nil)
		d.until("train", "a settled loan", isSettled)
		given := n.quota(c)
		var tries atomic.Int32
		var latest atomic.Int64
		n.engine.OnApply(func(runtime.Container, runtime.Values) error { // a try may write the knobs together, then one by one
			if now := time.Now().UnixNano(); latest.Swap(now) != now {
				tries.Add(1)
			}
			return fmt.Errorf("cpu.cfs_quota_us: read-only file system: %w", runtime.ErrRefused)
		})
		if _, err := d.Restore(t.Context(), "train"); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Resume(t.Context(), "train"); err != nil {
			t.Fatal(err)
		}
		d.until("train", "pending", func(c state.Container) bool { return c.Pending != "" && c.WhyNot == "a restore is pending" })
		time.Sleep(30 * time.Minute)
		if n := tries.Load(); n < 6 || n > 15 {
			t.Errorf("%d tries in half an hour", n)
		}
		n.wantQuota(c, given, "while the runtime refuses")
		told := 0
		records, err := n.history.Query(context.Background(), history.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if r.Kind == state.RecordPending && r.Knob == runtime.KnobCPUQuota {
				told++
				if !strings.Contains(r.Text, "still reads") {
					t.Errorf("told as %q", r.Text)
				}
			}
		}
		if told == 0 || told > 2 {
			t.Errorf("history tells of it %d times", told)
		}
		n.engine.OnApply(nil)
		d.until("train", "paid", func(c state.Container) bool { return c.Pending == "" })
		if writes := n.engine.Applied(); !slices.ContainsFunc(writes, func(w runtimetest.Applied) bool { return w.Set[runtime.KnobCPUQuota] == starvedQuota }) {
			t.Errorf("writes %+v", writes)
		}
		d.stop(false)
		n.wantQuota(c, starvedQuota, "after shutdown")
		n.wantNoOriginals("after shutdown")
	})
}

// TestResyncEverySecondEndsAtTheFirstYield: who writes the owner's own value each second
// is not fought: trimtab writes once, perhaps twice where it could not tell, and yields.
func TestResyncEverySecondEndsAtTheFirstYield(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		d := n.start(nil)
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
					n.engine.ForeignWrite(c.ID.Container, runtime.Values{runtime.KnobCPUQuota: starvedQuota})
				}
			}
		}()
		d.until("train", "yielded", func(c state.Container) bool { return slices.Contains(c.Yielded, runtime.KnobCPUQuota) })
		quotas := func() (writes int) {
			for _, w := range n.engine.Applied() {
				if _, ok := w.Set[runtime.KnobCPUQuota]; ok {
					writes++
				}
			}
			return writes
		}
		writes := quotas()
		time.Sleep(10 * time.Minute)
		// The weight that went with the quota goes back, now or a moment later.
		if now, all := quotas(), len(n.engine.Applied()); now != writes || all > 2 {
			t.Errorf("%d writes of the quota until the yield, %d ten minutes later, %d of all", writes, now, all)
		}
		close(stop)
		d.stop(false)
		n.wantQuota(c, starvedQuota, "after shutdown")
	})
}

// TestManyAreRestoredByHand: who is held is stored once for all that are restored together, who is no longer
// once for all. A request that ends holds nobody whom it does not restore.
func TestManyAreRestoredByHand(t *testing.T) {
	const many = 2*restoredTogether + 5
	bubble(t, func(t *testing.T, n *node) {
		first := n.job("first")
		jobs := map[string]runtime.Container{first.Key(): first}
		d := n.start(nil)
		d.until("first", "a change", isChanged) // before the others leave nothing idle
		for i := 1; i < many; i++ {
			c := n.job(fmt.Sprintf("job%03d", i))
			jobs[c.Key()] = c
		}
		d.until(fmt.Sprintf("job%03d", many-1), "a container that is watched", func(c state.Container) bool { return c.Watched })
		out, err := d.Restore(t.Context(), "")
		if err != nil || len(out) != many || n.holds.sets != 3 {
			t.Fatalf("%d of %d restored, the holds stored %d times, %v", len(out), many, n.holds.sets, err)
		}
		for _, r := range out {
			if !r.OK || !n.holds.Held(r.Key) {
				t.Errorf("%+v, held %v", r, n.holds.Held(r.Key))
			}
			n.wantQuota(jobs[r.Key], starvedQuota, "after restore")
			delete(jobs, r.Key)
		}
		if out, err = d.Resume(t.Context(), ""); err != nil || len(out) != many || n.holds.sets != 4 || n.holds.Held(first.Key()) {
			t.Errorf("%d of %d resumed, the holds stored %d times, %v", len(out), many, n.holds.sets, err)
		}
		if out, err = d.Resume(t.Context(), ""); err != nil || len(out) != 0 || n.holds.sets != 4 {
			t.Errorf("%+v resumed again, the holds stored %d times, %v", out, n.holds.sets, err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		done, err := d.restoreSome(ended, []runtime.Container{first})
		if err != nil || len(done) != 1 || !done[0].OK || !n.holds.Held(first.Key()) {
			t.Errorf("begun before the request ended: %+v, %v", done, err)
		}
		d.stop(false)
	})
}
