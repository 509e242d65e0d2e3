package actuator_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/originals"
)

// dies runs a step of a process that is killed in it.
func dies(t *testing.T, step func()) {
	t.Helper()
	died := false
	func() {
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(crash); !ok {
					panic(r)
				}
				died = true
			}
		}()
		step()
	}()
	if !died {
		t.Fatal("the process survived")
	}
}

// TestKilledTwice: the second death is in the recovery from the first, right
// after the intent to set a safe limit. Both intents' values are trimtab's.
func TestKilledTwice(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	raise := func(from, to int64) actuator.Order {
		return order(item(c, tune("memory"), change(runtime.KnobMemoryLimit, bytes(from*mib), bytes(to*mib))))
	}
	b.actuator().Apply(t.Context(), raise(1024, 2048))
	b.options.Fault = func(point string) {
		if point == "apply.after" {
			panic(crash{})
		}
	}
	dies(t, func() { b.actuator().Apply(t.Context(), raise(2048, 4096)) })
	b.use = actuator.MemoryUse{Anon: 2000 * mib}
	b.options.Fault = func(point string) {
		if point == "apply.before" {
			panic(crash{})
		}
	}
	dies(t, func() { b.actuator().Restore(t.Context(), c, "start") })
	if got := b.stands(c)[runtime.KnobMemoryLimit]; got != bytes(4096*mib) {
		t.Fatalf("the limit stands at %s", got)
	}
	b.use, b.options.Fault = actuator.MemoryUse{}, nil
	b.actuator().Restore(t.Context(), c, "start")
	if diff := cmp.Diff(owner(), b.stands(c)); diff != "" {
		t.Error(diff)
	}
}

// TestLateWriteBeforeASafeLimit: a safe limit was on its way and cut short; the next that
// is safe is another one, and the engine fails as the first lands. It is trimtab's still.
func TestLateWriteBeforeASafeLimit(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	f := originals.For(c)
	f.Knobs[runtime.KnobMemoryLimit] = originals.Knob{Original: bytes(1024 * mib), Written: bytes(8192 * mib), Writing: bytes(3072 * mib)}
	if err := b.store.Save(f); err != nil {
		t.Fatal(err)
	}
	b.start(c, runtime.Values{runtime.KnobMemoryLimit: bytes(8192 * mib)})
	b.engine.late = append(b.engine.late, func() { b.start(c, runtime.Values{runtime.KnobMemoryLimit: bytes(3072 * mib)}) })
	b.engine.onApply = func(runtime.Container, runtime.Values) error { return runtime.ErrUnavailable }
	b.use = actuator.MemoryUse{Anon: 4000 * mib}
	b.actuator().Restore(t.Context(), c, "start")
	b.engine.onApply, b.use = nil, actuator.MemoryUse{}
	if got := b.actuator().Restore(t.Context(), c, "start"); got.Outcome != actuator.Restored {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff(owner(), b.stands(c)); diff != "" || b.files() != 0 {
		t.Errorf("%d files, %s", b.files(), diff)
	}
}

// TestLateWriteAfterOwnersReset: a write was cut short, its owner set the
// original back, and a rollback finds nothing to do; the write lands then.
func TestLateWriteAfterOwnersReset(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	f := originals.For(c)
	f.Knobs[runtime.KnobCPUQuota] = originals.Knob{Original: "40000 100000", Written: "150000 100000", Writing: "200000 100000"}
	if err := b.store.Save(f); err != nil {
		t.Fatal(err)
	}
	land := func() { b.start(c, runtime.Values{runtime.KnobCPUQuota: "200000 100000"}) }
	b.engine.late = append(b.engine.late, land)
	b.actuator().Rollback(t.Context(), []actuator.Item{item(c, tune("cpu"), change(runtime.KnobCPUQuota, "150000 100000", "200000 100000"))})
	for _, land := range b.engine.late {
		land()
	}
	if diff := cmp.Diff(owner(), b.stands(c)); diff != "" || b.files() != 0 {
		t.Errorf("%d files, %s", b.files(), diff)
	}
}

// TestPreflightTurnsRedInAPlan: a later container is looked at again right
// before its own write.
func TestPreflightTurnsRedInAPlan(t *testing.T) {
	b := newBench(t)
	first, second := b.start(container("a"), owner()), b.start(container("b"), owner())
	looks := 0
	b.options.Preflight = func(_ context.Context, c runtime.Container) (bool, string) {
		if c.ID == second.ID {
			looks++
		}
		return looks < 2, "a unit property was written"
	}
	got := b.actuator().Apply(t.Context(), order(item(first, tune("cpu"), quotaUp()), item(second, tune("cpu"), quotaUp())))
	if diff := cmp.Diff([]actuator.Outcome{actuator.Undone, actuator.Refused}, outcomes(got)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(owner(), b.stands(first)); diff != "" {
		t.Error(diff)
	}
}
