package actuator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/originals"
)

// storingEngine keeps a record of what its API is told, and starts a container from it
// again, as Docker does.
type storingEngine struct {
	*fakeEngine
	record map[string]runtime.Values // by the container's ID
	live   map[string]runtime.Container
	api    bool // Apply goes through the API, which stores
	down   error
}

func (e *storingEngine) Apply(ctx context.Context, c runtime.Container, set runtime.Values, inFlight ...runtime.Values) error {
	if err := e.fakeEngine.Apply(ctx, c, set, inFlight...); err != nil {
		return err
	}
	if e.api {
		maps.Copy(e.record[c.ID.Container], set)
	}
	return nil
}

func (e *storingEngine) Stores(context.Context, runtime.Container) bool { return e.api }

func (e *storingEngine) Stored(_ context.Context, c runtime.Container) (runtime.Values, *runtime.Container, error) {
	record, known := e.record[c.ID.Container]
	switch {
	case e.down != nil:
		return nil, nil, e.down
	case !known:
		return nil, nil, fmt.Errorf("container %q: %w", c.Name, runtime.ErrGone)
	}
	if live, runs := e.live[c.ID.Container]; runs {
		return record.Clone(), &live, nil
	}
	return record.Clone(), nil, nil
}

func (e *storingEngine) Store(_ context.Context, c runtime.Container, set runtime.Values) error {
	if e.down != nil {
		return e.down
	}
	maps.Copy(e.record[c.ID.Container], set)
	if live, runs := e.live[c.ID.Container]; runs {
		return e.set(live, set)
	}
	return nil
}

type storedBench struct {
	*bench
	e *storingEngine
	c runtime.Container
}

// newStoredBench has one container whose owner set a quota and a memory limit, and no weight.
func newStoredBench(t *testing.T, api bool) *storedBench {
	b := newBench(t)
	e := &storingEngine{fakeEngine: b.engine, record: map[string]runtime.Values{}, live: map[string]runtime.Container{}, api: api}
	b.options.Engines = map[string]actuator.Engine{"fake": e}
	b.use = actuator.MemoryUse{Usage: 1 << 20}
	c := b.start(container("train"), owner())
	e.record["train"] = runtime.Values{runtime.KnobCPUQuota: "40000 100000", runtime.KnobMemoryLimit: "1073741824", runtime.KnobMemorySwap: "2147483648"}
	e.live["train"] = c
	return &storedBench{b, e, c}
}

// raise has trimtab raise the quota.
func (b *storedBench) raise(to runtime.Value) {
	b.t.Helper()
	now := b.stands(b.c)[runtime.KnobCPUQuota]
	if r := b.actuator().Apply(b.t.Context(), order(item(b.c, allFamilies(), change(runtime.KnobCPUQuota, now, to)))); !r.Applied {
		b.t.Fatalf("%+v", r.Changes)
	}
}

func (b *storedBench) stop() {
	b.t.Helper()
	b.e.end(b.t, b.c)
	delete(b.e.live, "train")
}

// again starts the container from its record, as another life.
func (b *storedBench) again() {
	b.t.Helper()
	b.c.ID.StartTick++
	values := owner()
	maps.Copy(values, b.e.record["train"])
	b.e.live["train"] = b.start(b.c, values)
}

func (b *storedBench) owners(what string) {
	b.t.Helper()
	if got := b.e.record["train"][runtime.KnobCPUQuota]; got != "40000 100000" {
		b.t.Errorf("%s: the engine's record holds %q, and the owner's is 40000 100000", what, got)
	}
	if b.files() != 0 {
		b.t.Errorf("%s: %d files stand", what, b.files())
	}
}

// TestStoredValuesGoBack: whatever ends a life that was written through the engine's API,
// the owner's value comes back into its record; what somebody stored in between stays.
func TestStoredValuesGoBack(t *testing.T) {
	foreign := runtime.Value("60000 100000")
	for name, s := range map[string]struct {
		do   func(b *storedBench)
		want runtime.Value // "": the owner's
	}{
		"stopped": {func(b *storedBench) {
			b.stop()
			_, _ = b.actuator().Gone(b.t.Context(), b.c.ID)
		}, ""},
		"restarted": {func(b *storedBench) {
			old := b.c.ID
			b.stop()
			b.again()
			_, _ = b.actuator().Gone(b.t.Context(), old)
		}, ""},
		"restarted while trimtab was away": {func(b *storedBench) {
			b.stop()
			b.again()
			_, _ = b.actuator().Recover(b.t.Context(), actuator.Recovery{Running: []runtime.Container{b.c}, Synced: []string{"fake"}})
		}, ""},
		"rebooted": {func(b *storedBench) {
			b.stop()
			b.c.ID.Boot = "b007"
			b.again()
			_, _ = b.actuator().Recover(b.t.Context(), actuator.Recovery{Running: []runtime.Container{b.c}, Synced: []string{"fake"}, Handover: true})
		}, ""},
		"stopped, and purged from the files alone": {func(b *storedBench) {
			b.stop()
			_, _ = b.actuator().RestoreAll(b.t.Context(), nil, "offline")
		}, ""},
		"restarted, and purged from the files alone": {func(b *storedBench) {
			b.stop()
			b.again()
			_, _ = b.actuator().RestoreAll(b.t.Context(), nil, "offline")
		}, ""},
		"restored while it runs": {func(b *storedBench) { b.actuator().Restore(b.t.Context(), b.c, "stop") }, ""},
		"restored through another write path": {func(b *storedBench) {
			b.e.api = false
			b.actuator().Restore(b.t.Context(), b.c, "stop")
		}, ""},
		"changed through another write path, then restarted": {func(b *storedBench) {
			b.e.api = false
			b.raise("120000 100000")
			old := b.c.ID
			b.stop()
			b.again()
			_, _ = b.actuator().Gone(b.t.Context(), old)
		}, ""},
		"killed in the middle of a write, then restarted": {func(b *storedBench) {
			b.options.Fault = func(point string) {
				if point == "apply.after" {
					panic("killed")
				}
			}
			func() {
				defer func() { _ = recover() }()
				b.raise("120000 100000")
			}()
			b.options.Fault = nil
			b.stop()
			b.again()
			_, _ = b.actuator().Recover(b.t.Context(), actuator.Recovery{Running: []runtime.Container{b.c}, Synced: []string{"fake"}})
		}, ""},
		"planned for anew before the old life is settled": {func(b *storedBench) {
			b.stop()
			b.again()
			a := b.actuator()
			if r := a.Apply(b.t.Context(), order(item(b.c, allFamilies(), change(runtime.KnobCPUQuota, "150000 100000", "170000 100000")))); r.Applied {
				b.t.Error("what trimtab had stored was taken for the owner's")
			}
		}, ""},
		"updated by its owner": {func(b *storedBench) {
			b.e.record["train"][runtime.KnobCPUQuota] = foreign
			if err := b.e.set(b.c, runtime.Values{runtime.KnobCPUQuota: foreign}); err != nil {
				b.t.Fatal(err)
			}
			old := b.c.ID
			b.stop()
			b.again()
			_, _ = b.actuator().Gone(b.t.Context(), old)
		}, foreign},
		"updated while it was stopped": {func(b *storedBench) {
			b.stop()
			b.e.record["train"][runtime.KnobCPUQuota] = foreign
			_, _ = b.actuator().Gone(b.t.Context(), b.c.ID)
		}, foreign},
	} {
		t.Run(name, func(t *testing.T) {
			b := newStoredBench(t, true)
			b.raise("150000 100000")
			if got := b.e.record["train"][runtime.KnobCPUQuota]; got != "150000 100000" {
				t.Fatalf("the record holds %q: nothing is tested", got)
			}
			s.do(b)
			if s.want == "" {
				b.owners(name)
			} else if got := b.e.record["train"][runtime.KnobCPUQuota]; got != s.want || b.files() != 0 {
				t.Errorf("the record holds %q, want %q; %d files", got, s.want, b.files())
			}
			if _, runs := b.e.live["train"]; runs {
				want := owner()
				if s.want != "" {
					want[runtime.KnobCPUQuota] = s.want
				}
				if diff := cmp.Diff(want, b.stands(b.c)); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// TestStoredValuesArePending: an engine that does not answer keeps the file, and a later try pays.
func TestStoredValuesArePending(t *testing.T) {
	b := newStoredBench(t, true)
	b.raise("150000 100000")
	b.stop()
	b.e.down = fmt.Errorf("dockerd is away: %w", runtime.ErrUnavailable)
	a := b.actuator()
	if _, err := a.Gone(t.Context(), b.c.ID); !errors.Is(err, runtime.ErrUnavailable) || b.files() != 1 || !a.HasPending() {
		t.Fatalf("%v; %d files; pending %v", err, b.files(), a.HasPending())
	}
	b.e.down = nil
	if _, err := a.RestorePending(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	b.owners("paid")
	if a.HasPending() {
		t.Error("still pending")
	}
}

// TestRecordIsPendingWhereTheContainerRuns: its control groups are back, the engine's record is not.
func TestRecordIsPendingWhereTheContainerRuns(t *testing.T) {
	b := newStoredBench(t, true)
	b.raise("150000 100000")
	b.e.api, b.e.down = false, fmt.Errorf("dockerd is away: %w", runtime.ErrUnavailable)
	a := b.actuator()
	r := a.Restore(t.Context(), b.c, "stop")
	if r.Outcome != actuator.Pending || b.stands(b.c)[runtime.KnobCPUQuota] != "40000 100000" || b.files() != 1 {
		t.Fatalf("%+v; stands %q; %d files", r, b.stands(b.c)[runtime.KnobCPUQuota], b.files())
	}
	b.e.down = nil
	if r := a.Restore(t.Context(), b.c, "again"); r.Outcome != actuator.Restored {
		t.Errorf("%+v", r)
	}
	b.owners("paid")
}

// TestUnsetValuesAreNotStored: what an engine's record cannot forget again is not put there.
func TestUnsetValuesAreNotStored(t *testing.T) {
	b := newStoredBench(t, true)
	r := b.actuator().Apply(t.Context(), order(item(b.c, allFamilies(), change(runtime.KnobCPUWeight, "1024", "512"))))
	if r.Applied || r.Changes[0].Outcome != actuator.Refused || b.files() != 0 {
		t.Errorf("%+v; %d files", r.Changes, b.files())
	}
	b.e.api = false
	if r := b.actuator().Apply(t.Context(), order(item(b.c, allFamilies(), change(runtime.KnobCPUWeight, "1024", "512")))); !r.Applied {
		t.Errorf("%+v", r.Changes)
	}
}

// TestRemovedContainerIsForgotten: with `docker rm` the record goes as well.
func TestRemovedContainerIsForgotten(t *testing.T) {
	b := newStoredBench(t, true)
	b.raise("150000 100000")
	b.stop()
	delete(b.e.record, "train")
	if results, err := b.actuator().Gone(t.Context(), b.c.ID); err != nil || len(results) != 0 || b.files() != 0 {
		t.Errorf("%v, %v; %d files", results, err, b.files())
	}
}

// TestAnotherNamespacesContainerIsNoEarlierLife: containerd's IDs may be equal in two namespaces.
// What the one holds is not put back because the other is changed.
func TestAnotherNamespacesContainerIsNoEarlierLife(t *testing.T) {
	b := newStoredBench(t, false)
	b.raise("150000 100000")
	first := b.c
	b.c.ID.StartTick++
	b.start(b.c, owner())
	b.raise("120000 100000")
	if got := b.stands(first)[runtime.KnobCPUQuota]; got != "150000 100000" || b.files() != 2 {
		t.Errorf("the first one's quota is %s; %d files", got, b.files())
	}
}

// failingDisk neither stores nor reads.
type failingDisk struct{ fullStore }

func (failingDisk) Load(runtime.ID) (originals.File, bool, error) {
	return originals.File{}, false, errors.New("input/output error")
}

// TestPendingOutlivesAFailingDisk: originals that cannot be read for a while stay pending.
func TestPendingOutlivesAFailingDisk(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	var disk struct{ actuator.Store }
	disk.Store, b.options.Store = b.store, &disk
	a := b.actuator()
	if r := a.Apply(t.Context(), order(item(c, tune("cpu"), quotaUp()))); !r.Applied {
		t.Fatalf("%+v", r)
	}
	b.engine.onApply = func(runtime.Container, runtime.Values) error { return errors.New("runc hangs") }
	disk.Store = fullStore{b.store}
	a.Restore(t.Context(), c, "asked for")
	disk.Store = failingDisk{fullStore{b.store}}
	a.Restore(t.Context(), c, "asked for again")
	disk.Store, b.engine.onApply = b.store, nil
	if _, err := a.RestorePending(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(owner(), b.stands(c)); diff != "" || b.files() != 0 {
		t.Errorf("%d files, values (-owner's +now):\n%s", b.files(), diff)
	}
}
