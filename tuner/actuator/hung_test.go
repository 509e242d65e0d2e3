package actuator_test

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
)

// TestHungEngineIsAskedOnce: of a plan over many containers whose engine hangs, one way back costs
// its patience. The others are pending, and get their own values when it answers.
func TestHungEngineIsAskedOnce(t *testing.T) {
	b := newBench(t)
	a := b.actuator()
	var items []actuator.Item
	for _, name := range []string{"a", "b", "c"} {
		items = append(items, item(b.start(container(name), owner()), allFamilies(), quotaUp()))
	}
	untouched := b.start(container("d"), owner())
	if r := a.Apply(t.Context(), order(items...)); !r.Applied {
		t.Fatalf("%+v", r.Changes)
	}
	b.engine.applies = 0
	b.engine.onApply = func(runtime.Container, runtime.Values) error {
		return fmt.Errorf("containerd: %w: %w", context.DeadlineExceeded, runtime.ErrUnavailable)
	}
	all := a.Rollback(t.Context(), append([]actuator.Item{item(untouched, allFamilies(), quotaUp())}, items...))
	if b.engine.applies != 1 {
		t.Errorf("it was asked %d times", b.engine.applies)
	}
	for _, r := range all {
		want := actuator.Unavailable
		switch r.Name {
		case "c": // the one that was asked
			want = actuator.Failed
		case "d":
			want = actuator.Restored
		}
		if r.Outcome != want {
			t.Errorf("%s: %s, %v; want %s", r.Name, r.Outcome, r.Err, want)
		}
	}
	b.engine.onApply = nil
	if _, err := b.actuator().RestorePending(t.Context(), nil); err != nil { // by another process
		t.Fatal(err)
	}
	for _, it := range items {
		if got := b.stands(it.Container); !maps.Equal(got, owner()) || b.files() != 0 {
			t.Errorf("%s: %v stands, %d files", it.Container.Name, got, b.files())
		}
	}
}
