package agent

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/history"
	"github.com/trimtab/trimtab/tuner/originals"
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

// A foreign write is yielded at once, though neither holds nor originals can be written for a long
// while; what the disk has in the end is the same.
func TestYieldDoesNotWaitForTheDisk(t *testing.T) {
	for _, slow := range []string{"holds", "originals"} {
		t.Run(slow, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				c := n.job("train")
				disk := make(chan struct{}, 1)
				disk <- struct{}{} // free
				wait := func(at string) {
					if slow == at {
						<-disk
						disk <- struct{}{}
					}
				}
				d := n.start(func(o *Options) {
					o.Actuator = actuator.New(actuator.Options{Engines: map[string]actuator.Engine{n.engine.Name(): n.engine}, Logger: slog.New(slog.DiscardHandler),
						Store: originals.New(originals.Options{Dir: n.dir, Fault: func(string) { wait("originals") }})})
					n.holds.disk = func() { wait("holds") }
				})
				d.until("train", "a settled loan", isSettled)
				const theirs = runtime.Value("77000 100000")
				<-disk // busy
				n.engine.ForeignWrite(c.ID.Container, runtime.Values{runtime.KnobCPUQuota: theirs})
				time.Sleep(10 * time.Second)
				s := d.Snapshot()
				if age := time.Duration(time.Now().UnixNano() - s.UnixNs); age > time.Second || !slices.Contains(s.Containers[0].Yielded, runtime.KnobCPUQuota) {
					t.Errorf("the latest tick is %s old, yielded %v", age, s.Containers[0].Yielded)
				}
				if on := n.holds.saved()[c.Key()]; slow == "holds" && len(on) > 0 {
					t.Errorf("on the slow disk: %v", on)
				}
				disk <- struct{}{}
				time.Sleep(10 * time.Second)
				if on := n.holds.saved()[c.Key()]; !slices.Contains(on, runtime.KnobCPUQuota) {
					t.Errorf("on disk: %v", on)
				}
				if f, ok, err := originals.New(originals.Options{Dir: n.dir}).Load(c.ID); err != nil || f.Knobs[runtime.KnobCPUQuota].Original != "" {
					t.Errorf("originals still name it: %v, %v", ok, err)
				}
				if times := strings.Count(n.log.String(), "left alone from now on"); times != 1 {
					t.Errorf("said %d times", times)
				}
				d.stop(false)
				n.wantQuota(c, theirs, "after shutdown")
			})
		})
	}
}

// What a crash leaves of a yield that was not on disk yet: originals that name the knob, no hold, and
// a value that is another's. The next daemon finds it again, with a handover or without.
func TestLostYieldIsFoundAgain(t *testing.T) {
	for name, handover := range map[string]bool{"handover": true, "crash": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				c := n.job("train")
				n.leave(c)
				const theirs = runtime.Value("77000 100000")
				n.engine.SilentWrite(c.ID.Container, runtime.Values{runtime.KnobCPUQuota: theirs})
				n.holds.paused = true // only what is left is looked at
				d := n.start(func(o *Options) { o.Handover = handover })
				time.Sleep(10 * time.Second)
				n.wantQuota(c, theirs, "found again")
				n.wantNoOriginals("found again")
				if !n.history.has(state.RecordYield) {
					t.Error("history has no record of it")
				}
				if !slices.Contains(n.holds.Yielded(c.Key()), runtime.KnobCPUQuota) {
					t.Error("not remembered")
				}
				d.stop(false)
				n.wantQuota(c, theirs, "after shutdown")
			})
		})
	}
}

// A foreign write that only the restore at the end meets is remembered too: the next daemon
// would take it for the owner's, and tune it.
func TestYieldOfARestoreIsRemembered(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.job("train")
		d := n.start(nil)
		d.until("train", "a settled loan", isSettled)
		const theirs = runtime.Value("77000 100000")
		n.engine.SilentWrite(c.ID.Container, runtime.Values{runtime.KnobCPUQuota: theirs})
		d.stop(false)
		n.wantQuota(c, theirs, "after shutdown")
		if on := n.holds.saved()[c.Key()]; !slices.Contains(on, runtime.KnobCPUQuota) {
			t.Errorf("on disk: %v", on)
		}
	})
}
