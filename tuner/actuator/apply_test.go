package actuator_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/originals"
)

func TestApplyThenRestore(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	a := b.actuator()
	got := a.Apply(t.Context(), order(item(c, tune("cpu"), quotaUp(), change(runtime.KnobCPUWeight, "1024", "2048"))))
	if !got.Applied || got.Changes[0].Actual != "150000 100000" || got.Changes[1].Actual != "2048" {
		t.Fatalf("apply: %+v", got)
	}
	if b.engine.applies != 1 {
		t.Errorf("%d engine calls for one container, want 1", b.engine.applies)
	}
	f, ok, err := b.store.Load(c.ID)
	if !ok || err != nil || f.Knobs[runtime.KnobCPUQuota].Original != "40000 100000" ||
		f.Knobs[runtime.KnobCPUQuota].Written != "150000 100000" || f.Unsettled() != "" {
		t.Fatalf("originals: %+v, %v", f, err)
	}
	back := a.Restore(t.Context(), c, "stop")
	if back.Outcome != actuator.Restored || back.Err != nil || len(back.Knobs) != 2 {
		t.Fatalf("restore: %+v", back)
	}
	if diff := cmp.Diff(owner(), b.stands(c)); diff != "" {
		t.Error(diff)
	}
	if b.files() != 0 {
		t.Error("the originals file stays after the restore")
	}
}

// TestOriginalBeforeWrite holds the law "originals first": at the moment of the engine's write the
// original is on disk, with the intent.
func TestOriginalBeforeWrite(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	seen := false
	b.engine.onApply = func(runtime.Container, runtime.Values) error {
		f, ok, err := b.store.Load(c.ID)
		k := f.Knobs[runtime.KnobCPUQuota]
		if !ok || err != nil || k.Original != "40000 100000" || k.Writing != "150000 100000" || k.Written != "" {
			t.Errorf("at the write the disk holds %+v, %v", f, err)
		}
		seen = true
		return nil
	}
	b.actuator().Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
	if !seen {
		t.Fatal("nothing was written")
	}
}

func TestRefusals(t *testing.T) {
	const gib = 1 << 30
	unlimited := owner()
	unlimited[runtime.KnobCPUQuota] = "max 100000"
	unlimited[runtime.KnobMemoryLimit] = runtime.ValueMax
	bestEffort := allFamilies()
	bestEffort.BestEffort = true
	observe := allFamilies()
	observe.Mode = policies.ModeObserve
	tests := []struct {
		name      string
		owner     runtime.Values
		enrolment policies.Enrolment
		edit      func(*runtime.Container)
		change    policies.Change
		want      actuator.Outcome
	}{
		{"more", owner(), tune("cpu"), nil, quotaUp(), actuator.Applied},
		{"family not enrolled", owner(), tune("memory"), nil, quotaUp(), actuator.Refused},
		{"observe", owner(), observe, nil, quotaUp(), actuator.Refused},
		{"mode off", owner(), policies.Enrolment{Mode: policies.ModeOff, Knobs: []string{"cpu"}}, nil, quotaUp(), actuator.Refused},
		{"kubernetes", owner(), tune("cpu"), func(c *runtime.Container) { c.Kubernetes = true }, quotaUp(), actuator.Refused},
		{"GPU without preflight", owner(), tune("cpu"), func(c *runtime.Container) { c.GPUs = []string{"0"} }, quotaUp(), actuator.Refused},
		{"quota where none was", unlimited, allFamilies(), nil, change(runtime.KnobCPUQuota, "max 100000", "100000 100000"), actuator.Refused},
		{"quota below the owner's", owner(), allFamilies(), nil, change(runtime.KnobCPUQuota, "40000 100000", "39000 100000"), actuator.Refused},
		{"quota lifted", owner(), allFamilies(), nil, change(runtime.KnobCPUQuota, "40000 100000", "max 100000"), actuator.Applied},
		{"malformed", owner(), allFamilies(), nil, change(runtime.KnobCPUQuota, "40000 100000", "lots"), actuator.Refused},
		{"best-effort may be bounded", unlimited, bestEffort, nil, change(runtime.KnobCPUQuota, "max 100000", "100000 100000"), actuator.Applied},
		{"limit where none was", unlimited, allFamilies(), nil, change(runtime.KnobMemoryLimit, "max", runtime.IntValue(8*gib)), actuator.Refused},
		{"limit below the owner's", owner(), allFamilies(), nil, change(runtime.KnobMemoryLimit, runtime.IntValue(gib), runtime.IntValue(gib/2)), actuator.Refused},
		{"best-effort, but it would kill", owner(), bestEffort, nil, change(runtime.KnobMemoryLimit, runtime.IntValue(gib), runtime.IntValue(gib/2)), actuator.Refused},
		{"limit raised alone on v1", owner(), allFamilies(), onV1, change(runtime.KnobMemoryLimit, runtime.IntValue(gib), runtime.IntValue(3*gib)), actuator.Refused},
		{"limit raised alone on v2", owner(), allFamilies(), nil, change(runtime.KnobMemoryLimit, runtime.IntValue(gib), runtime.IntValue(3*gib)), actuator.Applied},
		{"weight lowered", owner(), tune("cpu"), nil, change(runtime.KnobCPUWeight, "1024", "512"), actuator.Applied},
		{"absent knob", owner(), tune("memory"), nil, change("memory.magic", "max", "max"), actuator.Refused},
		{"no-op", owner(), tune("cpu"), nil, change(runtime.KnobCPUWeight, "1024", "1024"), actuator.Refused},
		{"gone back before it", owner(), tune("cpu"), nil, change(runtime.KnobCPUWeight, "1500", "1024"), actuator.Refused},
		{"foreign value", owner(), tune("cpu"), nil, change(runtime.KnobCPUWeight, "1000", "2048"), actuator.Yielded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.use = actuator.MemoryUse{Anon: gib / 2}
			c := container("a")
			if tt.edit != nil {
				tt.edit(&c)
			}
			b.start(c, tt.owner)
			got := b.actuator().Apply(t.Context(), order(item(c, tt.enrolment, tt.change)))
			if got.Changes[0].Outcome != tt.want || got.Applied != (tt.want == actuator.Applied) {
				t.Errorf("got %+v, want %s", got, tt.want)
			}
			if tt.want == actuator.Applied {
				return
			}
			if diff := cmp.Diff(tt.owner, b.stands(c)); diff != "" || b.engine.applies != 0 || b.files() != 0 || got.Changes[0].Text == "" {
				t.Errorf("refused, but: %d writes, %d files, text %q, %s", b.engine.applies, b.files(), got.Changes[0].Text, diff)
			}
		})
	}
}

func onV1(c *runtime.Container) { c.Cgroup.V1 = map[string]string{"memory": "/v1/memory/x"} }

func TestDryRunWritesNothing(t *testing.T) {
	b := newBench(t)
	b.disabled = true // observing goes on
	c := b.start(container("a"), owner())
	c.GPUs = []string{"all"}
	b.start(c, nil)
	e := tune("cpu")
	e.Mode = policies.ModeObserve
	o := order(item(c, e, quotaUp()))
	o.DryRun = true
	got := b.actuator().Apply(t.Context(), o)
	if !got.Applied || got.Changes[0].Outcome != actuator.Would || b.engine.applies != 0 || b.files() != 0 {
		t.Errorf("got %+v, %d writes, %d files", got, b.engine.applies, b.files())
	}
	o.Items[0].Changes[0].To = "1000 100000"
	if got := b.actuator().Apply(t.Context(), o); got.Changes[0].Outcome != actuator.Refused {
		t.Errorf("observing skipped the law \"nothing imposed\": %+v", got)
	}
}

func TestDisabledStopsWritesButNotRestores(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	a := b.actuator()
	a.Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
	b.disabled = true
	got := a.Apply(t.Context(), order(item(c, tune("cpu"), change(runtime.KnobCPUQuota, "150000 100000", "160000 100000"))))
	if got.Changes[0].Outcome != actuator.Refused || b.stands(c)[runtime.KnobCPUQuota] != "150000 100000" {
		t.Errorf("disabled, and yet: %+v", got)
	}
	a.Restore(t.Context(), c, "disabled")
	if diff := cmp.Diff(owner(), b.stands(c)); diff != "" {
		t.Error(diff)
	}
}

func TestHalfAppliedPlanIsUndone(t *testing.T) {
	refuse := func(err error) func(*bench, runtime.Container) {
		return func(b *bench, c runtime.Container) {
			b.engine.onApply = func(got runtime.Container, set runtime.Values) error {
				if got.ID == c.ID && set[runtime.KnobCPUQuota] == "150000 100000" {
					return err
				}
				return nil
			}
		}
	}
	tests := []struct {
		name     string
		sabotage func(b *bench, second runtime.Container)
		want     actuator.Outcome
	}{
		{"refused", refuse(runtime.ErrRefused), actuator.Refused},
		{"unavailable", refuse(runtime.ErrUnavailable), actuator.Unavailable},
		{"error although it stands", func(b *bench, c runtime.Container) {
			b.engine.after = func(got runtime.Container, set runtime.Values) error {
				if got.ID == c.ID && set[runtime.KnobCPUQuota] == "150000 100000" {
					return errors.New("half way")
				}
				return nil
			}
		}, actuator.Failed},
		{"gone", func(b *bench, c runtime.Container) {
			b.engine.onApply = func(got runtime.Container, _ runtime.Values) error {
				if got.ID != c.ID {
					return nil
				}
				_ = os.Remove(b.engine.path(c))
				return runtime.ErrGone
			}
		}, actuator.Gone},
		{"GPU lost", func(b *bench, c runtime.Container) {
			b.options.CheckGPU = func(_ context.Context, got runtime.Container) error {
				if v, _ := b.engine.values(got); got.ID == c.ID && v[runtime.KnobCPUQuota] != "40000 100000" {
					return errors.New("EPERM")
				}
				return nil
			}
		}, actuator.Failed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.options.Preflight = func(context.Context, runtime.Container) (bool, string) { return true, "" }
			first, second := b.start(container("a"), owner()), container("b")
			second.GPUs = []string{"0"}
			b.start(second, owner())
			tt.sabotage(b, second)
			got := b.actuator().Apply(t.Context(), order(item(first, tune("cpu"), quotaUp()), item(second, tune("cpu"), quotaUp()),
				item(b.start(container("c"), owner()), tune("cpu"), quotaUp())))
			if diff := cmp.Diff([]actuator.Outcome{actuator.Undone, tt.want, actuator.Skipped}, outcomes(got)); diff != "" || got.Applied {
				t.Errorf("%s\n%+v", diff, got)
			}
			for _, c := range []runtime.Container{first, second} {
				if v, err := b.engine.values(c); err == nil && v[runtime.KnobCPUQuota] != "40000 100000" {
					t.Errorf("%s still has %s", c.Name, v[runtime.KnobCPUQuota])
				}
			}
			if b.files() != 0 {
				t.Errorf("%d originals files stay", b.files())
			}
		})
	}
}

func TestCancelledInTheMiddleUndoes(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.engine.after = func(runtime.Container, runtime.Values) error { cancel(); return nil }
	first, second := b.start(container("a"), owner()), b.start(container("b"), owner())
	got := b.actuator().Apply(ctx, order(item(first, tune("cpu"), quotaUp()), item(second, tune("cpu"), quotaUp())))
	if diff := cmp.Diff([]actuator.Outcome{actuator.Undone, actuator.Failed}, outcomes(got)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(owner(), b.stands(first)); diff != "" {
		t.Error(diff)
	}
}

// TestUndoFailsIsPending: the engine goes away between a write and its undo.
func TestUndoFailsIsPending(t *testing.T) {
	b := newBench(t)
	first, second := b.start(container("a"), owner()), b.start(container("b"), owner())
	down := false
	b.engine.onApply = func(c runtime.Container, _ runtime.Values) error {
		if down = down || c.ID == second.ID; down {
			return runtime.ErrUnavailable
		}
		return nil
	}
	a := b.actuator()
	got := a.Apply(t.Context(), order(item(first, tune("cpu"), quotaUp()), item(second, tune("cpu"), quotaUp())))
	if diff := cmp.Diff([]string{second.Key(), first.Key()}, got.Pending); diff != "" {
		t.Errorf("pending: %s", diff)
	}
	if s, err := a.Standing(first.ID); err != nil || s.Pending == "" {
		t.Errorf("standing: %+v, %v", s, err)
	}
	again := a.Apply(t.Context(), order(item(first, tune("cpu"), change(runtime.KnobCPUQuota, "150000 100000", "160000 100000"))))
	if again.Changes[0].Outcome != actuator.Refused {
		t.Errorf("a change was made on top of a pending restore: %+v", again)
	}
	b.engine.onApply = nil
	paid, err := b.actuator().RestorePending(t.Context(), nil) // a new daemon knows of it too
	if err != nil || len(paid) != 2 || b.files() != 0 {
		t.Fatalf("paid %+v, %v; %d files", paid, err, b.files())
	}
	if diff := cmp.Diff(owner(), b.stands(first)); diff != "" {
		t.Error(diff)
	}
}

func TestForeignWriteYields(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	a := b.actuator()
	a.Apply(t.Context(), order(item(c, tune("cpu"), quotaUp(), change(runtime.KnobCPUWeight, "1024", "2048"))))
	b.start(c, runtime.Values{runtime.KnobCPUQuota: "70000 100000"})

	_, drift, err := a.Drift(c, stood(b.stands(c)))
	want := []actuator.Drift{{Knob: runtime.KnobCPUQuota, Written: "150000 100000", Actual: "70000 100000"}}
	if diff := cmp.Diff(want, drift); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
	got := a.Apply(t.Context(), order(item(c, tune("cpu"), change(runtime.KnobCPUQuota, "70000 100000", "160000 100000"))))
	if got.Changes[0].Outcome != actuator.Yielded || b.stands(c)[runtime.KnobCPUQuota] != "70000 100000" {
		t.Errorf("overwrote a foreign value: %+v", got)
	}
	if err := a.Yield(c, runtime.KnobCPUQuota); err != nil { // again: harmless
		t.Error(err)
	}
	if _, drift, err := a.Drift(c, stood(b.stands(c))); len(drift) != 0 || err != nil {
		t.Errorf("drift after the yield: %v %v", drift, err)
	}
	a.Restore(t.Context(), c, "stop")
	wantStands := owner()
	wantStands[runtime.KnobCPUQuota] = "70000 100000"
	if diff := cmp.Diff(wantStands, b.stands(c)); diff != "" {
		t.Error(diff)
	}
}

// TestForeignWriteWhileSaving: somebody writes between our read and our write.
func TestForeignWriteWhileSaving(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	b.options.Fault = func(point string) {
		if point == "save.before" {
			b.start(c, runtime.Values{runtime.KnobCPUQuota: "70000 100000"})
		}
	}
	got := b.actuator().Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
	if got.Changes[0].Outcome != actuator.Yielded || b.engine.applies != 0 || b.files() != 0 {
		t.Errorf("got %+v, %d writes, %d files", got, b.engine.applies, b.files())
	}
}

func TestRollbackToEarlierTrial(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	a := b.actuator()
	second := item(c, tune("cpu"), change(runtime.KnobCPUQuota, "150000 100000", "200000 100000"))
	a.Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
	a.Apply(t.Context(), order(second))
	back := a.Rollback(t.Context(), []actuator.Item{second})
	if back[0].Outcome != actuator.Restored || b.stands(c)[runtime.KnobCPUQuota] != "150000 100000" || b.files() != 1 {
		t.Fatalf("rollback %+v; stands %s; %d files", back, b.stands(c)[runtime.KnobCPUQuota], b.files())
	}
	takeBack := item(c, tune("cpu"), change(runtime.KnobCPUQuota, "150000 100000", "40000 100000"))
	if got := a.Apply(t.Context(), order(takeBack)); !got.Applied {
		t.Fatalf("taking back what was given: %+v", got)
	}
	if s, _ := a.Standing(c.ID); len(s.Original) != 0 {
		t.Errorf("shown as changed although the original stands: %+v", s)
	}
	a.Rollback(t.Context(), []actuator.Item{takeBack})
	if got := b.stands(c)[runtime.KnobCPUQuota]; got != "150000 100000" {
		t.Errorf("a take-back that is rolled back reads %s", got)
	}
	a.Rollback(t.Context(), []actuator.Item{item(c, tune("cpu"), quotaUp())})
	if diff := cmp.Diff(owner(), b.stands(c)); diff != "" || b.files() != 0 {
		t.Errorf("%d files; %s", b.files(), diff)
	}
}

// TestNoChangeWithoutDurableOriginal: the directory cannot be written.
func TestNoChangeWithoutDurableOriginal(t *testing.T) {
	b := newBench(t)
	blocker := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.options.Store = originals.New(originals.Options{Dir: filepath.Join(blocker, "originals")})
	c := b.start(container("a"), owner())
	got := b.actuator().Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
	if got.Applied || b.engine.applies != 0 {
		t.Errorf("changed without a durable original: %+v", got)
	}
}

// TestCorruptOriginals: never take trimtab's own value for an original.
func TestCorruptOriginals(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	other := b.start(container("b"), owner())
	a := b.actuator()
	a.Apply(t.Context(), order(item(c, tune("cpu"), quotaUp()), item(other, tune("cpu"), quotaUp())))
	path := filepath.Join(b.store.Dir(), c.Key()+".json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.RestoreAll(t.Context(), nil, "stop"); !errors.Is(err, originals.ErrCorrupt) {
		t.Errorf("corruption is not reported: %v", err)
	}
	if diff := cmp.Diff(owner(), b.stands(other)); diff != "" {
		t.Errorf("a corrupt neighbour held back a restore: %s", diff)
	}
	got := a.Apply(t.Context(), order(item(c, tune("cpu"), change(runtime.KnobCPUQuota, "150000 100000", "160000 100000"))))
	if got.Changes[0].Outcome != actuator.Refused {
		t.Errorf("changed although its originals are unreadable: %+v", got)
	}
}
