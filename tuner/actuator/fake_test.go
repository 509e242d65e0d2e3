package actuator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/originals"
)

// fakeEngine keeps containers' values in one small file each, so that they
// outlive a process that is killed, as cgroups do.
type fakeEngine struct {
	dir string
	// onApply, if set, runs before values are stored; its error is Apply's, and stops the write.
	onApply func(c runtime.Container, set runtime.Values) error
	// after runs when values are stored; its error is Apply's although they stand.
	after   func(c runtime.Container, set runtime.Values) error
	onRead  func(c runtime.Container) error
	applies int
	// late holds, by container, writes of a process that died, or lost patience, while they were under
	// way: they land during the container's next one. What that is not told to be in flight is taken for somebody's, and set again,
	// as engines do: a write carries all values, as they stood when it began.
	late map[string][]runtime.Values
}

func (e *fakeEngine) path(c runtime.Container) string {
	return filepath.Join(e.dir, c.Key())
}

func (e *fakeEngine) Read(_ context.Context, c runtime.Container) (runtime.Values, error) {
	if e.onRead != nil {
		if err := e.onRead(c); err != nil {
			return nil, err
		}
	}
	return e.values(c)
}

func (e *fakeEngine) values(c runtime.Container) (runtime.Values, error) {
	data, err := os.ReadFile(e.path(c))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("container %q: %w", c.Name, runtime.ErrGone)
	}
	if err != nil {
		return nil, err
	}
	var v runtime.Values
	return v, json.Unmarshal(data, &v)
}

func (e *fakeEngine) Apply(_ context.Context, c runtime.Container, set runtime.Values, inFlight ...runtime.Values) error {
	stood, err := e.values(c)
	if err != nil {
		return err
	}
	e.applies++
	if e.onApply != nil {
		err = e.onApply(c, set)
	}
	if !errors.Is(err, runtime.ErrUnavailable) { // in order: who does not get to this one has not got to those before it
		err = errors.Join(err, e.land(c))
	}
	if err != nil {
		return err
	}
	theirs, err := e.values(c)
	if err != nil {
		return err
	}
	maps.DeleteFunc(theirs, func(knob runtime.Knob, v runtime.Value) bool {
		return slices.ContainsFunc(append(inFlight, stood, set), func(known runtime.Values) bool { return known[knob] == v })
	})
	if err := errors.Join(e.set(c, stood), e.set(c, set), e.set(c, theirs)); err != nil {
		return err
	}
	if e.after != nil {
		return e.after(c, set)
	}
	return nil
}

// later is a write of a process that did not see its end.
func (e *fakeEngine) later(c runtime.Container, set runtime.Values) {
	if e.late == nil {
		e.late = map[string][]runtime.Values{}
	}
	e.late[c.Key()] = append(e.late[c.Key()], set.Clone())
}

func (e *fakeEngine) land(c runtime.Container) error {
	for _, set := range e.late[c.Key()] {
		if err := e.set(c, set); err != nil {
			return err
		}
	}
	delete(e.late, c.Key())
	return nil
}

// set stores values atomically, with nobody asked: also the foreign writer.
func (e *fakeEngine) set(c runtime.Container, set runtime.Values) error {
	now, err := e.values(c)
	if err != nil && !errors.Is(err, runtime.ErrGone) {
		return err
	}
	if now == nil {
		now = runtime.Values{}
	}
	for k, v := range set {
		now[k] = v
	}
	data, err := json.Marshal(now)
	if err != nil {
		return err
	}
	temp := filepath.Join(e.dir, "."+c.Key())
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, e.path(c))
}

// end makes a container one that has ended.
func (e *fakeEngine) end(t testing.TB, c runtime.Container) {
	t.Helper()
	if err := os.Remove(e.path(c)); err != nil {
		t.Fatal(err)
	}
}

// owner is what containers start with.
func owner() runtime.Values {
	return runtime.Values{
		runtime.KnobCPUWeight:   "1024",
		runtime.KnobCPUQuota:    "40000 100000",
		runtime.KnobCpuset:      "0-3",
		runtime.KnobMemoryLimit: "1073741824",
		runtime.KnobMemorySwap:  "2147483648",
	}
}

func container(name string) runtime.Container {
	return runtime.Container{ID: runtime.ID{Engine: "fake", Container: name, Boot: "b00t", StartTick: 7}, Name: name,
		State: runtime.StateRunning, InitPID: 42}
}

// bench is an actuator with its surroundings.
type bench struct {
	t        testing.TB
	engine   *fakeEngine
	store    *originals.Store
	options  actuator.Options
	disabled bool
	use      actuator.MemoryUse
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{t: t, engine: &fakeEngine{dir: t.TempDir()}}
	b.store = originals.New(originals.Options{Dir: filepath.Join(t.TempDir(), "originals")})
	b.options = actuator.Options{
		Engines:  map[string]actuator.Engine{"fake": b.engine},
		Store:    b.store,
		Disabled: func() bool { return b.disabled },
		Memory:   func(context.Context, runtime.Container) (actuator.MemoryUse, error) { return b.use, nil },
		Logger:   slog.New(slog.DiscardHandler),
		AtOnce:   1, // crashes are panics, which must end in the test's own goroutine
	}
	return b
}

func (b *bench) actuator() *actuator.Actuator { return actuator.New(b.options) }

func (b *bench) start(c runtime.Container, v runtime.Values) runtime.Container {
	b.t.Helper()
	if err := b.engine.set(c, v); err != nil {
		b.t.Fatal(err)
	}
	return c
}

func (b *bench) stands(c runtime.Container) runtime.Values {
	b.t.Helper()
	v, err := b.engine.values(c)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// files counts the originals files.
func (b *bench) files() int {
	b.t.Helper()
	files, err := b.store.List()
	if err != nil {
		b.t.Fatal(err)
	}
	return len(files)
}

func tune(families ...string) policies.Enrolment {
	return policies.Enrolment{Mode: policies.ModeTune, Knobs: families}
}

func allFamilies() policies.Enrolment { return tune("cpu", "cpuset", "memory") }

func item(c runtime.Container, e policies.Enrolment, changes ...policies.Change) actuator.Item {
	return actuator.Item{Container: c, Enrolment: e, Changes: changes}
}

func change(knob runtime.Knob, from, to runtime.Value) policies.Change {
	return policies.Change{Knob: knob, From: from, To: to}
}

func quotaUp() policies.Change {
	return change(runtime.KnobCPUQuota, "40000 100000", "150000 100000")
}

func order(items ...actuator.Item) actuator.Order {
	return actuator.Order{Items: items}
}

func outcomes(r actuator.Result) []actuator.Outcome {
	var out []actuator.Outcome
	for _, c := range r.Changes {
		out = append(out, c.Outcome)
	}
	return out
}
