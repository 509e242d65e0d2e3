package agent

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/state"
)

// stuck fills the worker's queue with work that waits for release.
func stuck(t *testing.T, d *daemon) (release chan struct{}) {
	t.Helper()
	release = make(chan struct{})
	if err := d.do(t.Context(), func() {
		for d.enqueue(func(context.Context) { <-release }) {
		}
	}); err != nil {
		t.Fatal(err)
	}
	return release
}

// TestWhatMustBeDoneWaits: work that must be done and finds no room is done once, in its order; of what
// bears a name the latest alone, at the place of the first. What may be left out does not overtake it.
func TestWhatMustBeDoneWaits(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.job("train")
		d := n.start(nil)
		d.until("train", "seen", func(c state.Container) bool { return c.Watched })
		release := stuck(t, d)
		done := make(chan string, 10)
		note := func(what string) func(context.Context) {
			return func(context.Context) { done <- what }
		}
		if err := d.do(t.Context(), func() {
			d.mustDo("", note("first"))
			d.mustDo("a", note("a, old"))
			d.mustDo("", note("second"))
			for i := range 500 { // an engine that comes and goes
				d.mustDo("a", note(fmt.Sprint("a, ", i)))
			}
			if d.enqueue(note("overtakes")) || len(d.waiting) != 3 {
				t.Errorf("%d wait", len(d.waiting))
			}
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		close(release)
		time.Sleep(5 * time.Second)
		var did []string
		for len(done) > 0 {
			did = append(did, <-done)
		}
		if want := []string{"first", "a, 499", "second"}; !slices.Equal(did, want) {
			t.Errorf("%q, want %q", did, want)
		}
		d.stop(false)
	})
}

// TestEndWhileWorkWaits: containers that end, and one that is let go of, while the worker is stuck: all is
// settled once it is free, and at an end before that as well.
func TestEndWhileWorkWaits(t *testing.T) {
	for _, free := range []bool{true, false} {
		t.Run(fmt.Sprint("free before: ", free), func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				ends, stays := n.job("ends"), n.job("stays")
				d := n.start(nil)
				d.until("ends", "lent", isChanged)
				d.until("stays", "lent", isChanged)
				release := stuck(t, d)
				n.engine.Remove(ends.ID.Container)
				time.Sleep(5 * time.Second)
				if free {
					close(release)
					time.Sleep(20 * time.Second)
					d.stop(false)
				} else {
					time.AfterFunc(time.Second, func() { close(release) })
					d.stop(false)
				}
				n.wantQuota(stays, starvedQuota, "after shutdown")
			})
		})
	}
}
