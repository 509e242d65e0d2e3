package actuator_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/originals"
)

const mib = 1 << 20

func bytes(n int64) runtime.Value { return runtime.IntValue(n) }

// raisedMemory gives a container 4 GiB over its owner's 1 GiB (and 2 GiB with swap).
func raisedMemory(t *testing.T, b *bench, c runtime.Container) *actuator.Actuator {
	t.Helper()
	b.start(c, owner())
	a := b.actuator()
	got := a.Apply(t.Context(), order(item(c, tune("memory"),
		change(runtime.KnobMemoryLimit, bytes(1024*mib), bytes(4096*mib)),
		change(runtime.KnobMemorySwap, bytes(2048*mib), bytes(6144*mib)))))
	if !got.Applied {
		t.Fatalf("apply: %+v", got)
	}
	return a
}

// TestRestoreNeverKills holds the law "restore never kills".
func TestRestoreNeverKills(t *testing.T) {
	tests := []struct {
		name         string
		v1           bool
		use          actuator.MemoryUse
		limit, swap  int64 // MiB that stand after the restore
		limitPending bool
		swapPending  bool
	}{
		{name: "fits", use: actuator.MemoryUse{Anon: 900 * mib}, limit: 1024, swap: 2048},
		{name: "page cache does not count", use: actuator.MemoryUse{Anon: 100 * mib, Usage: 4000 * mib}, limit: 1024, swap: 2048},
		{name: "what the kernel keeps does", use: actuator.MemoryUse{Anon: 100 * mib, Rigid: 1400 * mib, Usage: 4000 * mib}, limit: 1464, swap: 2048, limitPending: true},
		{name: "a little that it keeps is in the margin", use: actuator.MemoryUse{Anon: 900 * mib, Rigid: 920 * mib}, limit: 1024, swap: 2048},
		{name: "anonymous memory grew", use: actuator.MemoryUse{Anon: 2000 * mib}, limit: 2200, swap: 2048, limitPending: true},
		{name: "shared memory grew", use: actuator.MemoryUse{Anon: 1000 * mib, Shmem: 1000 * mib}, limit: 2200, swap: 2048, limitPending: true},
		{name: "small margin is 64 MiB", use: actuator.MemoryUse{Anon: 500*mib + 461*mib}, limit: 1024 + 34, swap: 2048, limitPending: true},
		{name: "never above what stands", use: actuator.MemoryUse{Anon: 5000 * mib}, limit: 4096, swap: 2048, limitPending: true},
		{name: "v1: memsw stays above the limit", v1: true, use: actuator.MemoryUse{Anon: 2000 * mib}, limit: 2200, swap: 2200, limitPending: true, swapPending: true},
		{name: "v1: swapped memory counts against memsw", v1: true, use: actuator.MemoryUse{Anon: 900 * mib, Swap: 2100 * mib}, limit: 1024, swap: 3300, swapPending: true},
		{name: "v1: fits", v1: true, use: actuator.MemoryUse{Anon: 900 * mib}, limit: 1024, swap: 2048},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			c := container("a")
			if tt.v1 {
				onV1(&c)
			}
			a := raisedMemory(t, b, c)
			b.use = tt.use
			got := a.Restore(t.Context(), c, "stop")
			want := map[runtime.Knob]bool{runtime.KnobMemoryLimit: tt.limitPending, runtime.KnobMemorySwap: tt.swapPending}
			for _, k := range got.Knobs {
				if (k.Outcome == actuator.Pending) != want[k.Knob] {
					t.Errorf("%s: %s %q, pending should be %v", k.Knob, k.Outcome, k.Text, want[k.Knob])
				}
			}
			stands := b.stands(c)
			if stands[runtime.KnobMemoryLimit] != bytes(tt.limit*mib) || stands[runtime.KnobMemorySwap] != bytes(tt.swap*mib) {
				t.Errorf("limit %s, swap %s; want %d, %d", stands[runtime.KnobMemoryLimit], stands[runtime.KnobMemorySwap], tt.limit*mib, tt.swap*mib)
			}
			if pending := tt.limitPending || tt.swapPending; pending != (b.files() == 1) {
				t.Errorf("%d files", b.files())
			}
			b.use = actuator.MemoryUse{Anon: 100 * mib}
			if _, err := b.actuator().RestorePending(t.Context(), nil); err != nil { // by another process
				t.Fatal(err)
			}
			if diff := cmp.Diff(owner(), b.stands(c)); diff != "" || b.files() != 0 {
				t.Errorf("after the pending restore is made: %d files, %s", b.files(), diff)
			}
		})
	}
}

// TestLimitGoesDownInSteps: no write of the way back evicts more than a quarter of what is
// charged; what grows meanwhile stops it at what is safe by then, and somebody else's
// write ends it.
func TestLimitGoesDownInSteps(t *testing.T) {
	for name, tt := range map[string]struct {
		usage   uint64
		between func(b *bench, c runtime.Container, writes int)
		writes  []int64 // of the limit, MiB
		swap    int64
		outcome actuator.Outcome
	}{
		"page cache has to go": {usage: 4000, writes: []int64{3000, 2250, 1687, 1265, 1024}, swap: 2048, outcome: actuator.Restored},
		"only a little of it":  {usage: 1100, writes: []int64{1024}, swap: 2048, outcome: actuator.Restored},
		"nothing has to go":    {usage: 900, writes: []int64{1024}, swap: 2048, outcome: actuator.Restored},
		"it grows in the midst": {usage: 4000, writes: []int64{3000, 2250}, swap: 2048, outcome: actuator.Pending, between: func(b *bench, _ runtime.Container, writes int) {
			if writes == 2 {
				b.use.Anon = 2000 * mib
			}
		}},
		"somebody sets it in the midst": {usage: 4000, writes: []int64{3000, 2250}, swap: 2048, outcome: actuator.Yielded, between: func(b *bench, c runtime.Container, writes int) {
			if writes == 2 {
				b.engine.after = func(runtime.Container, runtime.Values) error {
					b.engine.after = nil
					return b.engine.set(c, runtime.Values{runtime.KnobMemoryLimit: bytes(3333 * mib)})
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			c := container("a")
			a := raisedMemory(t, b, c)
			b.use = actuator.MemoryUse{Anon: 100 * mib, Usage: tt.usage * mib}
			var writes []int64
			b.engine.onApply = func(_ runtime.Container, set runtime.Values) error {
				if n, ok := set[runtime.KnobMemoryLimit].Int(); ok {
					writes = append(writes, n/mib)
				}
				if tt.between != nil {
					tt.between(b, c, len(writes))
				}
				return nil
			}
			got := a.Restore(t.Context(), c, "opt-out")
			if !slices.Equal(writes, tt.writes) || got.Knobs[0].Outcome != tt.outcome || got.Knobs[0].Before != bytes(4096*mib) && tt.outcome != actuator.Yielded {
				t.Errorf("wrote %v, want %v: %+v", writes, tt.writes, got)
			}
			if swap := b.stands(c)[runtime.KnobMemorySwap]; swap != bytes(tt.swap*mib) {
				t.Errorf("swap stands at %s", swap)
			}
		})
	}
}

func TestMemoryUseUnknownLowersNothing(t *testing.T) {
	b := newBench(t)
	c := container("a")
	raisedMemory(t, b, c)
	b.options.Memory = nil
	got := b.actuator().Restore(t.Context(), c, "stop")
	if got.Outcome != actuator.Pending || b.stands(c)[runtime.KnobMemoryLimit] != bytes(4096*mib) {
		t.Errorf("lowered blindly: %+v", got)
	}
}

// TestRefusedMemoryDoesNotHoldBackTheRest: v1 answers EBUSY, the quota goes back all the same.
func TestRefusedMemoryDoesNotHoldBackTheRest(t *testing.T) {
	b := newBench(t)
	c := container("a")
	a := raisedMemory(t, b, c)
	a.Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
	b.engine.onApply = func(_ runtime.Container, set runtime.Values) error {
		if _, ok := set[runtime.KnobMemoryLimit]; ok {
			return fmt.Errorf("%w: EBUSY", runtime.ErrRefused)
		}
		return nil
	}
	got := a.Restore(t.Context(), c, "stop")
	if got.Outcome != actuator.Pending || b.stands(c)[runtime.KnobCPUQuota] != "40000 100000" {
		t.Errorf("got %+v; quota %s", got, b.stands(c)[runtime.KnobCPUQuota])
	}
	b.engine.onApply = nil
	if _, err := a.RestorePending(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(owner(), b.stands(c)); diff != "" {
		t.Error(diff)
	}
}

// TestRestorePendingInSteps: a pending restore is made in part only where that is worth a write.
func TestRestorePendingInSteps(t *testing.T) {
	b := newBench(t)
	c := container("a")
	a := raisedMemory(t, b, c)
	b.use = actuator.MemoryUse{Anon: 2000 * mib}
	a.Restore(t.Context(), c, "stop")
	before := b.engine.applies
	for _, anonMiB := range []uint64{2000, 1990, 1980} {
		b.use = actuator.MemoryUse{Anon: anonMiB * mib}
		if _, err := a.RestorePending(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if b.engine.applies != before {
		t.Errorf("%d writes for a few MiB", b.engine.applies-before)
	}
	b.use = actuator.MemoryUse{Anon: 1500 * mib}
	if _, err := a.RestorePending(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := b.stands(c)[runtime.KnobMemoryLimit]; got != bytes(1650*mib) {
		t.Errorf("the limit stands at %s", got)
	}
}

func TestRestoreWithEngineAway(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	a := b.actuator()
	a.Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
	b.engine.onRead = func(runtime.Container) error { return runtime.ErrUnavailable }
	got := a.Restore(t.Context(), c, "stop")
	if got.Outcome != actuator.Unavailable || !errors.Is(got.Err, runtime.ErrUnavailable) || b.files() != 1 {
		t.Errorf("got %+v, %d files", got, b.files())
	}
	b.engine.onRead = nil
	if paid, err := a.RestorePending(t.Context(), nil); err != nil || len(paid) != 1 || paid[0].Outcome != actuator.Restored {
		t.Errorf("paid %+v, %v", paid, err)
	}
	if diff := cmp.Diff(owner(), b.stands(c)); diff != "" || b.files() != 0 {
		t.Errorf("%d files, %s", b.files(), diff)
	}
}

// TestRestoreOnFullDisk: going back to originals needs no new bytes on disk.
func TestRestoreOnFullDisk(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	b.actuator().Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
	b.options.Store = fullStore{b.store}
	got := b.actuator().Restore(t.Context(), c, "stop")
	if got.Outcome != actuator.Restored || got.Err != nil || b.files() != 0 {
		t.Errorf("got %+v, %d files", got, b.files())
	}
	if diff := cmp.Diff(owner(), b.stands(c)); diff != "" {
		t.Error(diff)
	}
}

// fullStore has no room for a new file, but can remove one.
type fullStore struct{ *originals.Store }

func (fullStore) Save(originals.File) error { return errors.New("no space left on device") }

func TestRecover(t *testing.T) {
	b := newBench(t)
	runs, ended, unseen := b.start(container("a"), owner()), b.start(container("b"), owner()), container("c")
	unseen.ID.Engine = "elsewhere"
	b.options.Engines["elsewhere"] = b.engine
	b.start(unseen, owner())
	for _, c := range []runtime.Container{runs, ended, unseen} {
		b.actuator().Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
	}
	b.engine.end(t, ended)
	r := actuator.Recovery{Running: []runtime.Container{runs}, Synced: []string{"fake"}, Handover: true}
	for range 2 {
		got, err := b.actuator().Recover(t.Context(), r)
		if err != nil || len(got) != 0 || b.files() != 2 || b.stands(runs)[runtime.KnobCPUQuota] != "150000 100000" {
			t.Fatalf("handover: %+v, %v, %d files", got, err, b.files())
		}
	}
	r.Handover = false
	got, err := b.actuator().Recover(t.Context(), r)
	if err != nil || len(got) != 1 || b.files() != 1 {
		t.Fatalf("recovery: %+v, %v, %d files", got, err, b.files())
	}
	if diff := cmp.Diff(owner(), b.stands(runs)); diff != "" {
		t.Error(diff)
	}
	if b.stands(unseen)[runtime.KnobCPUQuota] != "150000 100000" {
		t.Error("a container of an engine that is not synced was touched")
	}
}

// TestRestartIsAnotherContainer: the same container restarted has the owner's
// values from the engine; the file of its former life must not be applied.
func TestRestartIsAnotherContainer(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	b.actuator().Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
	b.engine.end(t, c)
	again := c
	again.ID.StartTick++
	b.start(again, runtime.Values{runtime.KnobCPUQuota: "150000 100000"}) // by its owner, this time
	if _, err := b.actuator().Recover(t.Context(), actuator.Recovery{Running: []runtime.Container{again}, Synced: []string{"fake"}}); err != nil {
		t.Fatal(err)
	}
	if b.stands(again)[runtime.KnobCPUQuota] != "150000 100000" || b.files() != 0 {
		t.Errorf("the former life's original was applied; %d files", b.files())
	}
}

// TestLateWrite: a write that was under way when the process died lands after
// the next process has looked.
func TestLateWrite(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	b.engine.onApply = func(_ runtime.Container, set runtime.Values) error {
		b.engine.later(c, set)
		panic("killed")
	}
	func() {
		defer func() { _ = recover() }()
		b.actuator().Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
	}()
	b.engine.onApply = nil
	r := actuator.Recovery{Running: []runtime.Container{c}, Synced: []string{"fake"}, Handover: true}
	if _, err := b.actuator().Recover(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := b.engine.land(c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(owner(), b.stands(c)); diff != "" || b.files() != 0 {
		t.Errorf("%d files, %s", b.files(), diff)
	}
}

// TestRounding: systemd rounds a quota up; it is ours all the same, and goes back.
func TestRounding(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	b.engine.after = func(c runtime.Container, set runtime.Values) error {
		if set[runtime.KnobCPUQuota] == "150500 100000" {
			b.start(c, runtime.Values{runtime.KnobCPUQuota: "151000 100000"})
		}
		return nil
	}
	a := b.actuator()
	got := a.Apply(t.Context(), order(item(c, tune("cpu"), change(runtime.KnobCPUQuota, "40000 100000", "150500 100000"))))
	if !got.Applied || got.Changes[0].Actual != "151000 100000" {
		t.Fatalf("apply: %+v", got)
	}
	if _, drift, err := a.Drift(c, stood(b.stands(c))); len(drift) != 0 || err != nil {
		t.Errorf("rounding taken for a foreign write: %v, %v", drift, err)
	}
	a.Restore(t.Context(), c, "stop")
	if diff := cmp.Diff(owner(), b.stands(c)); diff != "" {
		t.Error(diff)
	}
}

func TestRestoreOfNothing(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	got := b.actuator().Restore(t.Context(), c, "stop")
	if got.Outcome != actuator.Restored || len(got.Knobs) != 0 || b.engine.applies != 0 {
		t.Errorf("got %+v", got)
	}
	if _, err := b.actuator().Gone(t.Context(), c.ID); err != nil {
		t.Error(err)
	}
}

func TestGoneForgets(t *testing.T) {
	b := newBench(t)
	c := b.start(container("a"), owner())
	a := b.actuator()
	a.Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
	b.engine.end(t, c)
	if _, err := a.Gone(t.Context(), c.ID); err != nil || b.files() != 0 {
		t.Errorf("%v, %d files", err, b.files())
	}
	left, _ := filepath.Glob(filepath.Join(b.store.Dir(), "*"))
	if len(left) != 0 {
		t.Errorf("left behind: %s", strings.Join(left, " "))
	}
}

// TestUnsetCpuset: v2 shows "" for a cpuset that was never set; the engine puts
// back what that means, its parent's list.
func TestUnsetCpuset(t *testing.T) {
	b := newBench(t)
	unset := owner()
	unset[runtime.KnobCpuset] = ""
	c := b.start(container("a"), unset)
	b.engine.after = func(c runtime.Container, set runtime.Values) error {
		if v, ok := set[runtime.KnobCpuset]; ok && v == "" {
			b.start(c, runtime.Values{runtime.KnobCpuset: "0-7"})
		}
		return nil
	}
	got := b.actuator().Apply(t.Context(), order(item(c, tune("cpuset", "cpu"), change(runtime.KnobCpuset, "", "0-1"), quotaUp())))
	if !got.Applied {
		t.Fatalf("apply: %+v", got)
	}
	back := b.actuator().Restore(t.Context(), c, "stop") // by another process
	if back.Outcome != actuator.Restored || back.Err != nil || b.files() != 0 {
		t.Errorf("restore: %+v, %d files", back, b.files())
	}
	want := owner()
	want[runtime.KnobCpuset] = "0-7"
	if diff := cmp.Diff(want, b.stands(c)); diff != "" {
		t.Error(diff)
	}
}

// Several containers are restored at a time, no more than were asked for, and told in the order
// of their files; one that fails costs the others nothing, and stays pending.
func TestSeveralAreRestoredAtOnce(t *testing.T) {
	const many, most = 40, 4
	for name, restore := range map[string]func(*actuator.Actuator, []runtime.Container) ([]actuator.RestoreResult, error){
		"all": func(a *actuator.Actuator, _ []runtime.Container) ([]actuator.RestoreResult, error) {
			return a.RestoreAll(t.Context(), nil, "stop")
		},
		"these": func(a *actuator.Actuator, cs []runtime.Container) ([]actuator.RestoreResult, error) {
			return a.RestoreThese(t.Context(), cs, "asked for")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.options.AtOnce = most
			var all []runtime.Container
			for i := range many {
				c := b.start(container(fmt.Sprintf("c%02d", i)), owner())
				b.actuator().Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
				all = append(all, c)
			}
			slow := &slowEngine{fakeEngine: b.engine, fails: all[7].Key(), together: make(chan struct{})}
			b.options.Engines["fake"] = slow
			a := b.actuator()
			results, err := restore(a, all)
			if err != nil || len(results) != many || slow.most.Load() != most {
				t.Fatalf("%d results, %d at a time, %v; want %d and %d", len(results), slow.most.Load(), err, many, most)
			}
			files, err := b.store.List()
			if err != nil || len(files) != 1 || files[0].ID != all[7].ID || !a.HasPending() {
				t.Errorf("%d files are left, %v; pending %v", len(files), err, a.HasPending())
			}
			for i, r := range results {
				if r.Key != all[i].Key() {
					t.Fatalf("result %d is %s's, want %s's", i, r.Key, all[i].Key())
				}
				if diff := cmp.Diff(owner(), b.stands(all[i])); (diff != "") != (i == 7) || (r.Outcome == actuator.Restored) == (i == 7) {
					t.Errorf("%s: %s, %s", r.Key, r.Outcome, diff)
				}
			}
		})
	}
}

// A request that ends tells which containers it did not come to.
func TestRestoreThatEndsTellsWhatIsLeft(t *testing.T) {
	b := newBench(t)
	c := b.start(container("c"), owner())
	b.actuator().Apply(t.Context(), order(item(c, tune("cpu"), quotaUp())))
	ended, end := context.WithCancel(t.Context())
	end()
	results, err := b.actuator().RestoreThese(ended, []runtime.Container{c}, "asked for")
	if len(results) != 0 || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), c.Name) {
		t.Errorf("%+v, %v", results, err)
	}
	if b.stands(c)[runtime.KnobCPUQuota] == owner()[runtime.KnobCPUQuota] {
		t.Error("nothing was left to be told of")
	}
}

// slowEngine waits in its first writes until as many as may are under way.
type slowEngine struct {
	*fakeEngine
	fails     string
	mu        sync.Mutex
	now, most atomic.Int32
	together  chan struct{}
	once      sync.Once
}

func (e *slowEngine) Apply(ctx context.Context, c runtime.Container, set runtime.Values, inFlight ...runtime.Values) error {
	now := e.now.Add(1)
	defer e.now.Add(-1)
	for most := e.most.Load(); now > most && !e.most.CompareAndSwap(most, now); most = e.most.Load() {
	}
	if now == 4 {
		e.once.Do(func() { close(e.together) })
	}
	select {
	case <-e.together:
	case <-time.After(20 * time.Second): // they never are: the test says so
	}
	if c.Key() == e.fails {
		return errors.New("runc: it will not")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fakeEngine.Apply(ctx, c, set, inFlight...)
}

func (e *slowEngine) Read(ctx context.Context, c runtime.Container) (runtime.Values, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fakeEngine.Read(ctx, c)
}
