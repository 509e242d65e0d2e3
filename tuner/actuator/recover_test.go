package actuator_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
)

// TestNotListedIsNotEnded: a listing that misses a running container must not cost it its
// originals, neither at a start nor when it is said to be gone. They go back at once, where it can
// be read: nobody would look after what was set.
func TestNotListedIsNotEnded(t *testing.T) {
	for way, forget := range map[string]func(*actuator.Actuator, runtime.Container) ([]actuator.RestoreResult, error){
		"recover": func(a *actuator.Actuator, _ runtime.Container) ([]actuator.RestoreResult, error) {
			return a.Recover(t.Context(), actuator.Recovery{Synced: []string{"fake"}, Handover: true})
		},
		"gone": func(a *actuator.Actuator, c runtime.Container) ([]actuator.RestoreResult, error) {
			return a.Gone(t.Context(), c.ID)
		},
	} {
		t.Run(way, func(t *testing.T) {
			b := newBench(t)
			c := b.start(container("train"), owner())
			b.actuator().Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
			b.engine.onRead = func(runtime.Container) error { return errors.New("hung") }
			results, err := forget(b.actuator(), c)
			if err == nil || !strings.Contains(err.Error(), `"train"`) || !strings.Contains(err.Error(), "hung") || len(results) > 0 || b.files() != 1 {
				t.Errorf("it cannot be read: %v, %+v, %d files", err, results, b.files())
			}
			b.engine.onRead = nil
			results, err = forget(b.actuator(), c)
			if err != nil || len(results) != 1 || results[0].Reason != actuator.ReasonUnlisted || b.files() != 0 {
				t.Errorf("it runs: %v, %+v, %d files", err, results, b.files())
			}
			if diff := cmp.Diff(owner(), b.stands(c)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestUnknownEngineKeepsOriginals: an engine that is no longer configured cannot say what ended.
func TestUnknownEngineKeepsOriginals(t *testing.T) {
	b := newBench(t)
	c := b.start(container("train"), owner())
	b.actuator().Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
	delete(b.options.Engines, "fake")
	if _, err := b.actuator().Gone(t.Context(), c.ID); !errors.Is(err, runtime.ErrUnavailable) || b.files() != 1 {
		t.Errorf("%v, %d files", err, b.files())
	}
}

// TestAnotherBootNeedsNoRead: what ran before the machine restarted has ended, even
// if a process of this boot should look like it.
func TestAnotherBootNeedsNoRead(t *testing.T) {
	b := newBench(t)
	c := b.start(container("train"), owner())
	b.actuator().Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
	other := b.start(container("other"), owner())
	other.ID.Boot = "later"
	_, err := b.actuator().Recover(t.Context(), actuator.Recovery{Running: []runtime.Container{other}, Synced: []string{"fake"}})
	if err != nil || b.files() != 0 {
		t.Errorf("%v, %d files", err, b.files())
	}
}
