package agent

import (
	"context"
	"math"
	goruntime "runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/budget"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestWhatPeopleDoIsShownWhileReadingsAreRare: who pauses, resumes or disables sees it a tick later,
// whichever ticks are read; other ticks are left out as ever.
func TestWhatPeopleDoIsShownWhileReadingsAreRare(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.job("train")
		d := n.start(nil)
		d.until("train", "watched", func(c state.Container) bool { return c.Watched })
		const most = 4 // ticks, of which one is read
		rare := func() {
			if err := d.do(t.Context(), func() {
				d.shed = budget.Shedder{}
				for d.shed.Every() < most {
					d.shed.Next(1, 0.01)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		tick := func() { time.Sleep(time.Second); synctest.Wait() }
		for i := range most {
			rare()
			if err := d.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
			if tick(); !d.Snapshot().Daemon.Paused {
				t.Errorf("tick %d: a pause is not shown after a tick", i)
			}
			if _, err := d.Resume(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			if tick(); d.Snapshot().Daemon.Paused {
				t.Errorf("tick %d: the end of a pause is not shown after a tick", i)
			}
			mode := []policies.Mode{policies.ModeObserve, policies.ModeTune}[i%2]
			act := []func(context.Context, state.EnableRequest) ([]state.ActionResult, error){d.Disable, d.Enable}[i%2]
			if _, err := act(t.Context(), state.EnableRequest{Name: "train"}); err != nil {
				t.Fatal(err)
			}
			if tick(); (d.Snapshot().Containers[0].Enrolment.Mode == policies.ModeTune) != (mode == policies.ModeTune) {
				t.Errorf("tick %d: %s is not shown after a tick: %+v", i, mode, d.Snapshot().Containers[0].Enrolment)
			}
		}
		rare()
		seen := map[int64]bool{}
		for range 2 * most {
			tick()
			seen[d.Snapshot().UnixNs] = true
		}
		if len(seen) > 3 {
			t.Errorf("%d snapshots in %d ticks of which one in %d is read", len(seen), 2*most, most)
		}
		d.stop(false)
	})
}

// TestReportsAreNotShed: what a report takes is used, and is no reason to read less often.
func TestReportsAreNotShed(t *testing.T) {
	const bound = 0.02
	var shed budget.Shedder
	var s spending
	at, cpu, reports := time.Unix(1e9, 0), 5.0, 1.0
	s.next(at, cpu, reports)
	for _, report := range []float64{0, 0.8, 0.8, 0.8, 0} {
		at, cpu, reports = at.Add(10*time.Second), cpu+0.05+report, reports+report
		s.next(at, cpu, reports)
		if want := (0.05 + report) / 10; math.Abs(s.use-want) > 1e-9 {
			t.Errorf("%.4f CPUs are used, want %.4f", s.use, want)
		}
		if shed.Next(s.own, bound) {
			t.Errorf("a report that took %.1f s has readings taken every %d ticks", report, shed.Every())
		}
	}
}

// TestConnectionsAreNotShed: nor is what connections of anybody's take.
func TestConnectionsAreNotShed(t *testing.T) {
	var took time.Duration
	for _, counted := range []bool{true, false} {
		l := &Agent{}
		if counted {
			l.o.Others = func() time.Duration { return took }
		}
		stretch := func() {
			l.measureSelf()
			l.spent.at = time.Now().Add(-10 * time.Second)
		}
		stretch()
		goruntime.LockOSThread()
		before := api.ThreadCPU()
		for api.ThreadCPU()-before < time.Second/2 { // another's work
		}
		took += api.ThreadCPU() - before
		goruntime.UnlockOSThread()
		stretch()
		if few := l.spent.own < l.spent.use/2; few != counted || l.spent.use < 0.02 {
			t.Errorf("counted %v: %.3f CPUs are its own, of %.3f", counted, l.spent.own, l.spent.use)
		}
	}
}
