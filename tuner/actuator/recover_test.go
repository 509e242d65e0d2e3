package actuator_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/originals"
)

// TestNotListedIsNotEnded: a listing that misses a running container must not
// cost it its originals, neither at a start nor when it is said to be gone.
func TestNotListedIsNotEnded(t *testing.T) {
	hung := errors.New("hung")
	for _, tc := range []struct {
		name string
		read error // what the engine's read answers; nil: values
		want string
	}{
		{"it runs", nil, "runs"},
		{"it cannot be read", hung, "hung"},
	} {
		for way, forget := range map[string]func(*actuator.Actuator, runtime.Container) error{
			"recover": func(a *actuator.Actuator, _ runtime.Container) error {
				_, err := a.Recover(t.Context(), actuator.Recovery{Synced: []string{"fake"}})
				return err
			},
			"gone": func(a *actuator.Actuator, c runtime.Container) error { _, err := a.Gone(t.Context(), c.ID); return err },
		} {
			t.Run(tc.name+"/"+way, func(t *testing.T) {
				b := newBench(t)
				c := b.start(container("train"), owner())
				b.actuator().Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
				b.engine.onRead = func(runtime.Container) error { return tc.read }
				err := forget(b.actuator(), c)
				if err == nil || !strings.Contains(err.Error(), `"train"`) || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v, want one with the container's name and %q", err, tc.want)
				}
				b.engine.onRead = nil
				if b.files() != 1 {
					t.Fatalf("%d files, want 1", b.files())
				}
				b.actuator().Restore(t.Context(), c, "stop")
				if diff := cmp.Diff(owner(), b.stands(c)); diff != "" {
					t.Error(diff)
				}
			})
		}
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

// TestKnobOfAnotherVersionIsTold: what this version cannot set stays on record, and what it can goes back.
func TestKnobOfAnotherVersionIsTold(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	if r := b.actuator().Apply(t.Context(), order(item(c, tune("cpu"), quotaUp()))); !r.Applied {
		t.Fatalf("%+v", r)
	}
	f, _, err := b.store.Load(c.ID)
	if err != nil {
		t.Fatal(err)
	}
	f.Knobs["cpu.burst"] = originals.Knob{Original: "20000", Written: "50000"}
	if err := b.store.Save(f); err != nil {
		t.Fatal(err)
	}
	r := b.actuator().Restore(t.Context(), c, "the test's end")
	if got := b.stands(c)[runtime.KnobCPUQuota]; got != owner()[runtime.KnobCPUQuota] {
		t.Errorf("the quota is %s", got)
	}
	if r.Outcome == actuator.Restored || len(r.Knobs) != 2 || r.Knobs[1].Knob != "cpu.burst" || r.Knobs[1].Outcome != actuator.Failed {
		t.Errorf("%+v", r)
	}
	if f, _, err = b.store.Load(c.ID); err != nil || len(f.Knobs) != 1 || f.Knobs["cpu.burst"].Original != "20000" {
		t.Errorf("on record: %+v, %v", f.Knobs, err)
	}
}
