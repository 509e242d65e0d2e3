package actuator_test

import (
	"errors"
	"testing"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
)

// TestBusyNeverWaits calls, from inside an engine write and so with the lock
// held by this very goroutine, what the daemon's main loop calls: whichever
// waited would never return.
func TestBusyNeverWaits(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	a := b.actuator()
	writes := 0
	b.engine.onApply = func(c runtime.Container, _ runtime.Values) error {
		writes++
		if _, _, err := a.Drift(c, stood(owner())); !errors.Is(err, actuator.ErrBusy) {
			t.Errorf("Drift: %v, want ErrBusy", err)
		}
		if _, err := a.Standing(c.ID); !errors.Is(err, actuator.ErrBusy) {
			t.Errorf("Standing: %v, want ErrBusy", err)
		}
		if err := a.Yield(c, runtime.KnobCPUQuota); !errors.Is(err, actuator.ErrBusy) {
			t.Errorf("Yield: %v, want ErrBusy", err)
		}
		return nil
	}
	if r := a.Apply(t.Context(), order(item(c, allFamilies(), quotaUp()))); !r.Applied || writes != 1 {
		t.Fatalf("applied %v with %d writes: %+v", r.Applied, writes, r.Changes)
	}
	if s, err := a.Standing(c.ID); err != nil || s.Written[runtime.KnobCPUQuota] != "150000 100000" {
		t.Fatalf("a refused Yield took effect: %+v, %v", s, err)
	}
}

// stood is what a container's knobs read as.
func stood(v runtime.Values) func() (runtime.Values, error) {
	return func() (runtime.Values, error) { return v, nil }
}
