package actuator_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/originals"
)

// crash is what a fault point panics with where a real process would be killed.
type crash struct{}

// world is a node under random treatment, with a model of what must stand once
// trimtab has put everything back: the owner's values and foreign writes.
type world struct {
	*rapid.T
	bench      *bench
	act        *actuator.Actuator
	containers []runtime.Container
	pending    map[string]runtime.Values // by key: what must stand in the end
	plans      [][]actuator.Item
	foreign    int64
	crashAt    int  // the fault point, counted from now, at which the process dies; 0: none
	foreignAt  int  // likewise for a foreign write
	lateWrite  bool // a write under way when the process dies lands later
	failing    error
}

var worldKnobs = []runtime.Knob{runtime.KnobCPUWeight, runtime.KnobCPUQuota, runtime.KnobMemoryLimit}

func newWorld(t *rapid.T, b *bench) *world {
	w := &world{T: t, bench: b, pending: map[string]runtime.Values{}}
	for _, name := range []string{"a", "b", "c"} {
		c := container(name)
		w.containers = append(w.containers, c)
		w.pending[c.Key()] = owner()
		w.must(b.engine.set(c, owner()))
	}
	b.options.Fault = w.fault
	b.options.Store = originals.New(originals.Options{Dir: b.store.Dir(), Fault: w.fault})
	b.engine.onApply = w.onApply
	w.act = b.actuator()
	return w
}

func (w *world) must(err error) {
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) fault(point string) {
	if w.foreignAt--; w.foreignAt == 0 {
		if point == "apply.before" {
			w.foreignAt = 1 // between the last look and the write nobody can tell: not tested
		} else {
			w.foreignWrite()
		}
	}
	if w.crashAt--; w.crashAt == 0 {
		panic(crash{})
	}
}

func (w *world) onApply(c runtime.Container, set runtime.Values) error {
	foreign := w.holdsForeign(c, set) // what somebody has set, written behind what may still land
	dies := w.lateWrite && w.crashAt > 0 && w.crashAt < 4
	if dies || (w.lateWrite && w.intended(c, set) || foreign) && errors.Is(w.failing, runtime.ErrUnavailable) {
		w.bench.engine.later(c, w.carried(c, set))
	}
	if dies {
		w.crashAt = 0
		panic(crash{})
	}
	// None refuses what has just been set by it. What was in flight lands before a refusal, over what
	// somebody has set since: nobody can put that back.
	if errors.Is(w.failing, runtime.ErrRefused) && (foreign || len(w.bench.engine.late[c.Key()]) > 0) {
		return nil
	}
	return w.failing
}

// carried is what a write brings: with what is asked for, all that stands, or, of one that is on no record, what
// of it is trimtab's.
func (w *world) carried(c runtime.Container, set runtime.Values) runtime.Values {
	f, _, err := w.bench.store.Load(c.ID)
	w.must(err)
	carried, err := w.bench.engine.values(c)
	w.must(err)
	if !w.intended(c, set) {
		maps.DeleteFunc(carried, func(knob runtime.Knob, v runtime.Value) bool { return !f.Knobs[knob].Ours(knob, v) })
	}
	maps.Copy(carried, set)
	return carried
}

func (w *world) holdsForeign(c runtime.Container, set runtime.Values) bool {
	for knob, v := range set {
		if v == w.pending[c.Key()][knob] && v != owner()[knob] {
			return true
		}
	}
	return false
}

// intended reports whether all that is to be written is on record: the way back to an original is not.
func (w *world) intended(c runtime.Container, set runtime.Values) bool {
	f, _, err := w.bench.store.Load(c.ID)
	w.must(err)
	for knob, v := range set {
		if f.Knobs[knob].Writing != v {
			return false
		}
	}
	return true
}

// foreignWrite sets a value that trimtab would never write, past writes that were cut short.
func (w *world) foreignWrite() {
	c := rapid.SampledFrom(w.containers).Draw(w.T, "foreign container")
	w.foreign++
	knob := rapid.SampledFrom(worldKnobs).Draw(w.T, "foreign knob")
	v := map[runtime.Knob]runtime.Value{
		runtime.KnobCPUWeight:   runtime.IntValue(5000 + w.foreign),
		runtime.KnobCPUQuota:    runtime.Quota(50_000+3_000*w.foreign, 100_000),
		runtime.KnobMemoryLimit: runtime.IntValue(1<<30 + w.foreign<<20),
	}[knob]
	// On no record are a way back that a killed process began, and another foreign value on its way
	// again: this one comes after them.
	f, _, err := w.bench.store.Load(c.ID)
	again := func(set runtime.Values) bool { return w.holdsForeign(c, set) }
	if slices.ContainsFunc(w.bench.engine.late[c.Key()], again) || f.Pending == "" && !f.CutShort() {
		err = errors.Join(err, w.bench.engine.land(c))
	}
	w.must(err)
	w.must(w.bench.engine.set(c, runtime.Values{knob: v}))
	w.pending[c.Key()][knob] = v
}

// guarded runs a step of the daemon; true if it died in it.
func (w *world) guarded(step func()) (died bool) {
	defer func() {
		w.crashAt, w.foreignAt = 0, 0
		switch r := recover().(type) {
		case nil:
		case crash:
			died = true
			w.act = w.bench.actuator() // the next process
			w.plans = nil
		default:
			panic(r)
		}
	}()
	step()
	return false
}

func (w *world) apply() {
	var items []actuator.Item
	for _, c := range w.containers {
		if !rapid.Bool().Draw(w.T, "in the plan") {
			continue
		}
		now, err := w.bench.engine.values(c)
		w.must(err)
		var changes []policies.Change
		for _, knob := range worldKnobs {
			if rapid.Bool().Draw(w.T, "change it") {
				changes = append(changes, change(knob, now[knob], w.ours(knob)))
			}
		}
		items = append(items, item(c, allFamilies(), changes...))
	}
	if r := w.act.Apply(context.Background(), order(items...)); r.Applied && len(items) > 0 {
		w.plans = append(w.plans, items)
	}
}

func (w *world) ours(knob runtime.Knob) runtime.Value {
	n := rapid.Int64Range(0, 20).Draw(w.T, "value")
	return map[runtime.Knob]runtime.Value{
		runtime.KnobCPUWeight:   runtime.IntValue(100_000 + n),
		runtime.KnobCPUQuota:    runtime.Quota(6_000_000+2_000*n, 100_000),
		runtime.KnobMemoryLimit: runtime.IntValue(8<<30 + n<<20),
	}[knob]
}

func (w *world) rollback() {
	if len(w.plans) == 0 {
		return
	}
	last := w.plans[len(w.plans)-1]
	w.plans = w.plans[:len(w.plans)-1]
	w.act.Rollback(context.Background(), last)
}

func (w *world) yieldDrift() {
	for _, c := range w.containers {
		_, drift, err := w.act.Drift(c, func() (runtime.Values, error) { return w.bench.engine.values(c) })
		w.must(err)
		for _, d := range drift {
			if err := w.act.Yield(c, d.Knob); !errors.Is(err, actuator.ErrBusy) { // then tried again
				w.must(err)
			}
		}
	}
}

func (w *world) recovery(handover bool) actuator.Recovery {
	return actuator.Recovery{Running: w.containers, Synced: []string{"fake"}, Handover: handover}
}

func (w *world) step() {
	w.crashAt = rapid.IntRange(-60, 30).Draw(w.T, "crash at")
	w.foreignAt = rapid.IntRange(-40, 20).Draw(w.T, "foreign write at")
	w.lateWrite = rapid.Bool().Draw(w.T, "late write")
	w.failing = rapid.SampledFrom([]error{nil, nil, nil, nil, runtime.ErrRefused, runtime.ErrUnavailable}).Draw(w.T, "engine fails")
	w.bench.use = actuator.MemoryUse{Anon: rapid.SampledFrom([]uint64{1 << 20, 1 << 20, 2 << 30, 3 << 30}).Draw(w.T, "anon"),
		Usage: rapid.SampledFrom([]uint64{0, 4 << 30, 9 << 30}).Draw(w.T, "usage")} // page cache takes limits down in steps
	handover := rapid.Bool().Draw(w.T, "handover")
	steps := map[string]func(){
		"apply":    w.apply,
		"apply 2":  w.apply,
		"rollback": w.rollback,
		"restore":  func() { w.act.Restore(context.Background(), w.containers[0], "test") },
		"pending":  func() { _, err := w.act.RestorePending(context.Background(), nil); w.must(err) },
		"drift":    w.yieldDrift,
		"foreign":  w.foreignWrite,
		"restart": func() {
			w.act = w.bench.actuator()
			_, err := w.act.Recover(context.Background(), w.recovery(handover))
			w.must(err)
		},
	}
	name := rapid.SampledFrom([]string{"apply", "apply 2", "rollback", "restore", "pending", "drift", "foreign", "restart"}).Draw(w.T, "step")
	died := w.guarded(steps[name])
	if died && name == "drift" {
		w.guarded(w.yieldDrift)
	}
}

// TestEverythingComesBack: whatever is interleaved, and wherever the process is
// killed, in the end every knob reads its original, or the foreign value that
// replaced it.
func TestEverythingComesBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t)
		w := newWorld(rt, b)
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			w.step()
		}
		w.crashAt, w.foreignAt, w.failing, w.lateWrite = 0, 0, nil, false
		b.use = actuator.MemoryUse{Anon: 1 << 20}
		w.end()
		for _, c := range w.containers {
			if diff := cmp.Diff(w.pending[c.Key()], b.stands(c)); diff != "" {
				rt.Errorf("container %s: %s", c.Name, diff)
			}
		}
		left, err := filepath.Glob(filepath.Join(b.store.Dir(), "*"))
		if len(left) != 0 || err != nil {
			rt.Errorf("left in the originals directory: %v, %v", left, err)
		}
		w.must(os.RemoveAll(b.engine.dir))
	})
}

// end is any of the ways by which everything goes back.
func (w *world) end() {
	way := rapid.SampledFrom([]string{"recover", "offline", "each"}).Draw(w.T, "end")
	switch act := w.bench.actuator(); way {
	case "recover":
		_, err := act.Recover(context.Background(), w.recovery(false))
		w.must(err)
	case "offline":
		_, err := act.RestoreAll(context.Background(), nil, "offline")
		w.must(err)
	case "each":
		for _, c := range w.containers {
			if r := act.Restore(context.Background(), c, "stop"); r.Err != nil {
				w.Fatal(r.Err)
			}
		}
	}
	// Temporary files of killed processes go at the next start.
	w.must(w.bench.store.Sweep())
	for _, c := range w.containers {
		w.must(w.bench.engine.land(c))
	}
}

// TestNeverImposes: no order whatever takes a quota or a memory limit below the
// owner's, and none sets one where there was none.
func TestNeverImposes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t)
		c := container("a")
		quota := rapid.SampledFrom([]runtime.Value{"max 100000", "40000 100000", "100000 50000"}).Draw(rt, "owner's quota")
		limit := rapid.SampledFrom([]runtime.Value{runtime.ValueMax, "1073741824"}).Draw(rt, "owner's limit")
		b.start(c, runtime.Values{runtime.KnobCPUQuota: quota, runtime.KnobMemoryLimit: limit})
		a := b.actuator()
		for range 6 {
			now := b.stands(c)
			to := runtime.Quota(rapid.Int64Range(-1, 300_000).Draw(rt, "quota µs"), rapid.SampledFrom([]int64{1000, 50_000, 100_000}).Draw(rt, "period"))
			a.Apply(t.Context(), order(item(c, allFamilies(), change(runtime.KnobCPUQuota, now[runtime.KnobCPUQuota], to))))
			bytes := runtime.IntValue(rapid.Int64Range(-5, 4<<30).Draw(rt, "bytes"))
			a.Apply(t.Context(), order(item(c, allFamilies(), change(runtime.KnobMemoryLimit, now[runtime.KnobMemoryLimit], bytes))))
			now = b.stands(c)
			if below(quota.CPUs, now[runtime.KnobCPUQuota].CPUs) {
				rt.Fatalf("quota %s over the owner's %s", now[runtime.KnobCPUQuota], quota)
			}
			owners, limited := limit.Int()
			got, isLimited := now[runtime.KnobMemoryLimit].Int()
			if isLimited && (!limited || got < owners) {
				rt.Fatalf("limit %d over the owner's %s", got, limit)
			}
		}
	})
}

// below reports whether what stands bounds more than the owner did.
func below(owner, stands func() (float64, bool)) bool {
	o, bounded := owner()
	s, isBounded := stands()
	return isBounded && (!bounded || s < o)
}
