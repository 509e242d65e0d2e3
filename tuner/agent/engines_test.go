package agent

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/state"
)

func TestEngineLostAndFoundAgain(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c, short := n.job("train"), n.job("short")
		d := n.start(nil)
		d.until("train", "a settled loan", isSettled)
		granted := n.quota(c)
		n.engine.Lose("its socket is gone")
		time.Sleep(10 * time.Second)
		s := d.Snapshot()
		if e := s.Daemon.Engines[0]; e.OK || !strings.Contains(e.Lost, "socket is gone") {
			t.Errorf("a lost engine is shown as %+v", e)
		}
		if len(s.Containers) != 2 {
			t.Errorf("%d containers while the engine is lost, want both", len(s.Containers))
		}
		n.wantQuota(c, granted, "while the engine is lost")
		n.engine.Remove(short.ID.Container)
		n.job("late")
		n.engine.Recover()
		d.until("late", "a container that began meanwhile", func(c state.Container) bool { return c.Watched })
		s = d.Snapshot()
		if e := s.Daemon.Engines[0]; !e.OK {
			t.Errorf("found again, and shown as %+v", e)
		}
		if slices.ContainsFunc(s.Containers, func(c state.Container) bool { return c.Name == "short" }) {
			t.Error("a container that ended meanwhile is still shown")
		}
		n.wantQuota(c, granted, "after a reconnection, which is no restart")
		d.stop(false)
		n.wantQuota(c, starvedQuota, "after shutdown")
		n.wantNoOriginals("after shutdown")
	})
}

// lateEngine is a second engine.
type lateEngine struct{ *runtimetest.Fake }

func (lateEngine) Name() string { return "late" }

func (e lateEngine) Run(ctx context.Context, sink func(runtime.Event)) error {
	return e.Fake.Run(ctx, func(event runtime.Event) {
		event.Engine = e.Name()
		sink(event)
	})
}

// TestRecordsWaitForTheirEngine: what is held of an engine's containers outlives a listing of another's.
func TestRecordsWaitForTheirEngine(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.job("train")
		late := lateEngine{runtimetest.NewFake()}
		late.Lose("not started yet")
		ended, waits := n.engine.Name()+"-ended-1-1", "late-waits-1-1"
		n.holds.held[ended], n.holds.held[waits] = true, true
		d := n.start(func(o *Options) { o.Engines = append(o.Engines, late) })
		d.until("train", "a settled loan", isSettled)
		if n.holds.Held(ended) || !n.holds.Held(waits) {
			t.Errorf("held: the ended one %v, that of an engine which has listed nothing %v", n.holds.Held(ended), n.holds.Held(waits))
		}
		late.Recover()
		time.Sleep(10 * time.Second)
		if n.holds.Held(waits) {
			t.Error("its engine has listed, and it is still held")
		}
		d.stop(false)
	})
}

// blindEngine lists a container of which nothing is told: its shim hangs. unseen: that is said.
type blindEngine struct {
	*runtimetest.Fake
	unseen bool
	told   *atomic.Bool // from then on it is told of
}

func (e blindEngine) Run(ctx context.Context, sink func(runtime.Event)) error {
	return e.Fake.Run(ctx, func(event runtime.Event) {
		if event.Kind == runtime.EventSeen && !e.told.Load() {
			return
		}
		if event.Kind == runtime.EventSynced && e.unseen {
			event.Unseen = []string{e.Fake.Containers()[0].ID.Container}
		}
		sink(event)
	})
}

// TestUnseenIsNotForgotten: what people asked of a container that a restarted daemon is not told of yet
// holds when it is; of one that is not there it is forgotten.
func TestUnseenIsNotForgotten(t *testing.T) {
	for _, unseen := range []bool{true, false} {
		bubble(t, func(t *testing.T, n *node) {
			c, told := n.job("a"), atomic.Bool{}
			key := c.Key()
			n.holds.held[key] = true
			n.holds.AddYield(key, runtime.KnobCPUQuota)
			stored := &memManuals{all: []enrolment.Manual{{Key: key, Name: "a", Mode: policies.ModeTune}}}
			manuals, err := enrolment.OpenManuals(stored)
			if err != nil {
				t.Fatal(err)
			}
			w := &gpuWorld{saved: map[string][]runtime.DeviceRule{key: nil}}
			d := n.start(withGPUs(w, func(o *Options) {
				o.Engines, o.Manuals = []runtime.Engine{blindEngine{n.engine, unseen, &told}}, manuals
			}))
			time.Sleep(time.Minute)
			knows := func() bool {
				saved, _ := w.Load() // never fails
				_, known := saved[key]
				return known
			}
			if known := knows(); known != unseen {
				t.Errorf("unseen %v: what it may reach of its GPU is known: %v", unseen, known)
			}
			told.Store(true)
			n.engine.Change(c.ID.Container, func(*runtime.Container) {})
			time.Sleep(time.Minute)
			n.engine.Remove(c.ID.Container)
			time.Sleep(time.Minute)
			d.end()
			if knows() {
				t.Errorf("unseen %v: it was told of and ended, and is still known", unseen)
			}
			if held, yielded, enrolled := n.holds.Held(key), len(n.holds.Yielded(key)) > 0, len(stored.all) > 0; held != unseen || yielded != unseen || enrolled != unseen {
				t.Errorf("unseen %v: held %v, yielded %v, enrolled %v", unseen, held, yielded, enrolled)
			}
		})
	}
}
