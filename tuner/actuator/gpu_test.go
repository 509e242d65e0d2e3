package actuator_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
)

// TestGPUAccess holds the law "GPU access" around a write.
func TestGPUAccess(t *testing.T) {
	lost := errors.New("open /dev/nvidia0: operation not permitted")
	red := func(context.Context, runtime.Container) (bool, string) {
		return false, "a daemon-reload would drop its devices"
	}
	green := func(context.Context, runtime.Container) (bool, string) { return true, "" }
	tests := []struct {
		name      string
		preflight func(context.Context, runtime.Container) (bool, string)
		// access answers the checks in turn; nil beyond them.
		access  []error
		want    actuator.Outcome
		writes  int
		gpuLost bool
	}{
		{"green", green, nil, actuator.Applied, 1, false},
		{"red preflight", red, nil, actuator.Refused, 0, false},
		{"lost before", green, []error{lost}, actuator.Refused, 0, false},
		{"lost in the write", green, []error{nil, lost}, actuator.Failed, 2, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.options.Preflight = tt.preflight
			b.options.CheckGPU = func(context.Context, runtime.Container) (err error) {
				if len(tt.access) > 0 {
					err, tt.access = tt.access[0], tt.access[1:]
				}
				return err
			}
			c := container("a")
			c.GPUs = []string{"all"}
			b.start(c, owner())
			got := b.actuator().Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
			if got.Changes[0].Outcome != tt.want || b.engine.applies != tt.writes || (len(got.GPULost) == 1) != tt.gpuLost {
				t.Errorf("got %+v after %d writes", got, b.engine.applies)
			}
			if tt.want == actuator.Applied {
				return
			}
			if diff := cmp.Diff(owner(), b.stands(c)); diff != "" || b.files() != 0 {
				t.Errorf("%d files, %s", b.files(), diff)
			}
		})
	}
}

// TestAccessLostInARestoreIsReported: the values are back, and the result says what was lost.
func TestAccessLostInARestoreIsReported(t *testing.T) {
	b := newBench(t)
	b.options.Preflight = func(context.Context, runtime.Container) (bool, string) { return true, "" }
	c := container("a")
	c.GPUs = []string{"all"}
	b.start(c, owner())
	b.actuator().Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
	b.options.CheckGPU = func(context.Context, runtime.Container) error { return errors.New("EPERM") }
	got := b.actuator().Restore(t.Context(), c, "stop")
	if got.Outcome != actuator.Restored || got.Err == nil || !strings.Contains(got.Err.Error(), "GPU access") {
		t.Errorf("got %+v", got)
	}
}

// TestConcurrentCallers: they take turns, and nothing is left in the end.
func TestConcurrentCallers(t *testing.T) {
	b := newBench(t)
	a := b.actuator()
	cs := []runtime.Container{b.start(container("a"), owner()), b.start(container("b"), owner())}
	var group sync.WaitGroup
	for _, c := range cs {
		group.Go(func() {
			for range 10 {
				a.Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
				if _, _, err := a.Drift(c, stood(runtime.Values{runtime.KnobCPUQuota: "150000 100000"})); err != nil && !errors.Is(err, actuator.ErrBusy) {
					t.Error(err)
				}
				if _, err := a.RestorePending(t.Context(), nil); err != nil {
					t.Error(err)
				}
				a.Restore(t.Context(), c, "test")
			}
		})
	}
	group.Wait()
	for _, c := range cs {
		if diff := cmp.Diff(owner(), b.stands(c)); diff != "" {
			t.Error(diff)
		}
	}
}
