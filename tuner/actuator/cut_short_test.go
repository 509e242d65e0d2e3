package actuator_test

import (
	"context"
	"errors"
	"maps"
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
	b.engine.later(c, runtime.Values{runtime.KnobMemoryLimit: bytes(3072 * mib)})
	b.engine.onApply = func(c runtime.Container, _ runtime.Values) error {
		return errors.Join(b.engine.land(c), runtime.ErrUnavailable)
	}
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
	b.engine.later(c, runtime.Values{runtime.KnobCPUQuota: "200000 100000"})
	b.actuator().Rollback(t.Context(), []actuator.Item{item(c, tune("cpu"), change(runtime.KnobCPUQuota, "150000 100000", "200000 100000"))})
	if err := b.engine.land(c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(owner(), b.stands(c)); diff != "" || b.files() != 0 {
		t.Errorf("%d files, %s", b.files(), diff)
	}
}

// TestLateWriteAfterAFailedTry: a write was cut short, and the first try at the way back fails as well;
// then it lands. It carries all knobs, and none of them is taken for somebody else's.
func TestLateWriteAfterAFailedTry(t *testing.T) {
	const raised, more, theirs = "150000 100000", "200000 100000", "90000 100000"
	quota := originals.Knob{Original: "40000 100000", Written: raised, Writing: more}
	weight := originals.Knob{Original: "1024", Written: "5000"}
	for name, tt := range map[string]struct {
		file        map[runtime.Knob]originals.Knob
		stands      runtime.Values
		use         actuator.MemoryUse
		first       error
		lands, want runtime.Values // want: but for the owner's
	}{
		"its knob is somebody else's by now": {
			file:   map[runtime.Knob]originals.Knob{runtime.KnobCPUQuota: quota},
			stands: runtime.Values{runtime.KnobCPUQuota: theirs}, first: runtime.ErrUnavailable,
			lands: runtime.Values{runtime.KnobCPUQuota: more}, want: runtime.Values{runtime.KnobCPUQuota: theirs},
		},
		"another knob is somebody else's by now": {
			file:   map[runtime.Knob]originals.Knob{runtime.KnobCPUQuota: quota, runtime.KnobCPUWeight: weight},
			stands: runtime.Values{runtime.KnobCPUQuota: raised, runtime.KnobCPUWeight: "333"}, first: runtime.ErrUnavailable,
			lands: runtime.Values{runtime.KnobCPUQuota: more, runtime.KnobCPUWeight: "5000"}, want: runtime.Values{runtime.KnobCPUWeight: "333"},
		},
		"its owner has put another knob back": {
			file:   map[runtime.Knob]originals.Knob{runtime.KnobCPUQuota: quota, runtime.KnobCPUWeight: weight},
			stands: runtime.Values{runtime.KnobCPUQuota: raised}, first: runtime.ErrUnavailable,
			lands: runtime.Values{runtime.KnobCPUQuota: more, runtime.KnobCPUWeight: "5000"},
		},
		"what was sent behind it was refused, it may be before the runtime was asked": {
			file:   map[runtime.Knob]originals.Knob{runtime.KnobMemoryLimit: {Original: bytes(1024 * mib), Written: bytes(4096 * mib), Writing: bytes(8192 * mib)}},
			stands: runtime.Values{runtime.KnobMemoryLimit: bytes(4096 * mib)}, first: runtime.ErrRefused, use: actuator.MemoryUse{Anon: 2000 * mib},
			lands: runtime.Values{runtime.KnobMemoryLimit: bytes(8192 * mib)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			c := b.start(b.start(container("a"), owner()), tt.stands)
			f := originals.For(c)
			f.Knobs = tt.file
			if err := b.store.Save(f); err != nil {
				t.Fatal(err)
			}
			b.use, b.engine.onApply = tt.use, func(runtime.Container, runtime.Values) error { return tt.first }
			b.actuator().Restore(t.Context(), c, "start")
			b.use, b.engine.onApply = actuator.MemoryUse{}, nil
			b.engine.later(c, tt.lands)
			b.actuator().Restore(t.Context(), c, "again")
			if err := b.engine.land(c); err != nil {
				t.Fatal(err)
			}
			want := owner()
			maps.Copy(want, tt.want)
			if diff := cmp.Diff(want, b.stands(c)); diff != "" || b.files() != 0 {
				t.Errorf("%d files, %s", b.files(), diff)
			}
		})
	}
}

// TestOwnerSetsDuringATimeout: a plan's write is not answered, and its owner sets the knob meanwhile. That
// goes behind the write, and is told as the owner's: the agent leaves the knob alone from then on.
func TestOwnerSetsDuringATimeout(t *testing.T) {
	const theirs = "90000 100000"
	b := newBench(t)
	c := b.start(container("a"), owner())
	writes := 0
	b.engine.onApply = func(c runtime.Container, set runtime.Values) error {
		if writes++; writes > 1 {
			return nil
		}
		b.engine.later(c, set)
		b.start(c, runtime.Values{runtime.KnobCPUQuota: theirs})
		return runtime.ErrUnavailable
	}
	r := b.actuator().Apply(t.Context(), order(item(c, tune("cpu"), change(runtime.KnobCPUQuota, "40000 100000", "150000 100000"))))
	if r.Applied || r.Changes[0].Outcome != actuator.Yielded || len(r.Pending) > 0 {
		t.Errorf("%+v", r)
	}
	if got := b.stands(c)[runtime.KnobCPUQuota]; got != theirs || b.files() != 0 {
		t.Errorf("%s stands, %d files", got, b.files())
	}
}

// TestPendingRestoreIsNoDrift: it may have landed unseen, or lands yet; the restore finds whose a value is.
func TestPendingRestoreIsNoDrift(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	f := originals.For(c)
	f.Pending = "rollback failed"
	f.Knobs[runtime.KnobCPUQuota] = originals.Knob{Original: "40000 100000", Written: "150000 100000"}
	if err := b.store.Save(f); err != nil {
		t.Fatal(err)
	}
	a := b.actuator()
	if _, drift, err := a.Drift(c, func() (runtime.Values, error) { return b.stands(c), nil }); err != nil || len(drift) > 0 {
		t.Errorf("%v, %+v", err, drift)
	}
	if err := a.Yield(c, runtime.KnobCPUQuota); !errors.Is(err, actuator.ErrBusy) {
		t.Errorf("it is forgotten before its restore: %v", err)
	}
	if r := a.Restore(t.Context(), c, "again"); r.Outcome != actuator.Restored || b.files() != 0 {
		t.Errorf("%+v, %d files", r, b.files())
	}
}

// TestRefusedBehindALateWrite: what somebody set cannot be written again. It stands already, and
// trimtab's own knobs of its family go back all the same.
func TestRefusedBehindALateWrite(t *testing.T) {
	b := newBench(t)
	c := b.start(b.start(container("a"), owner()), runtime.Values{runtime.KnobCPUWeight: "333", runtime.KnobCPUQuota: "150000 100000"})
	f := originals.For(c)
	f.Knobs[runtime.KnobCPUQuota] = originals.Knob{Original: "40000 100000", Writing: "150000 100000"}
	f.Knobs[runtime.KnobCPUWeight] = originals.Knob{Original: "1024", Writing: "5000"}
	if err := b.store.Save(f); err != nil {
		t.Fatal(err)
	}
	b.engine.onApply = func(_ runtime.Container, set runtime.Values) error {
		if _, asked := set[runtime.KnobCPUWeight]; asked {
			return runtime.ErrRefused
		}
		return nil
	}
	r := b.actuator().Restore(t.Context(), c, "start")
	want := owner()
	want[runtime.KnobCPUWeight] = "333"
	if diff := cmp.Diff(want, b.stands(c)); diff != "" || r.Outcome != actuator.Yielded || r.Err != nil || r.NotBack() != nil || b.files() != 0 {
		t.Errorf("%+v, %d files, %s", r, b.files(), diff)
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
