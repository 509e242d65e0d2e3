package agent

import (
	"context"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/history"
	"github.com/trimtab/trimtab/tuner/state"
)

// While the history is checked the daemon restores, reads and tunes; what it did is told afterwards.
func TestNobodyWaitsForTheHistory(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		n.leave(c) // by a daemon that was killed
		n.history.checked = make(chan struct{})
		d := n.start(nil)
		time.Sleep(3 * time.Second)
		n.wantQuota(c, starvedQuota, "restored while the history is checked")
		d.until("train", "a change", isChanged)
		if n.history.has(state.RecordRestore) {
			t.Error("written while it is checked")
		}
		close(n.history.checked)
		time.Sleep(time.Second)
		if !n.history.has(state.RecordRestore) {
			t.Error("what waited is not written")
		}
		d.stop(false)
	})
}

// A daemon that stops in the middle of a check restores at once.
func TestStopWhileTheHistoryIsChecked(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		n.history.checked = make(chan struct{})
		d := n.start(nil)
		d.until("train", "a change", isChanged)
		began := time.Now()
		d.stop(false)
		n.wantQuota(c, starvedQuota, "after shutdown")
		if took := time.Since(began); took > lastCheck {
			t.Errorf("the stop took %s", took)
		}
		if got, err := n.history.Query(context.Background(), history.Filter{}); err != nil || len(got) > 0 {
			t.Errorf("%d records are in a history that was not checked; %v", len(got), err)
		}
	})
}
