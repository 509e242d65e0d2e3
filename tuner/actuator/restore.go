package actuator

import (
	"context"
	"errors"
	"fmt"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/originals"
)

// KnobResult is what became of one knob's way back.
type KnobResult struct {
	Knob     runtime.Knob
	Original runtime.Value // before trimtab's first change
	Target   runtime.Value // what it was to go back to
	Before   runtime.Value // what stood
	Actual   runtime.Value // what stands
	Outcome  Outcome       // Restored, Yielded, Owed, Gone, Failed, Unavailable
	Text     string        // why, one phrase; "" where restored
}

// RestoreResult is what became of one container's way back.
type RestoreResult struct {
	Key     string
	Name    string
	Reason  string
	Knobs   []KnobResult // empty: nothing of trimtab's stood
	Outcome Outcome      // the worst of the knobs'; Restored if there were none
	Err     error        // where reading, writing or recording failed
}

func (r RestoreResult) knob(name runtime.Knob) KnobResult {
	for _, k := range r.Knobs {
		if k.Knob == name {
			return k
		}
	}
	return KnobResult{Outcome: r.Outcome, Text: "nothing of trimtab's stood"}
}

// Rollback takes the changes of plans back, by compare-and-swap, to what stood
// before them. A memory limit that it is not safe to lower stays owed.
func (a *Actuator) Rollback(ctx context.Context, items []Item) []RestoreResult {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []RestoreResult
	for i := len(items) - 1; i >= 0; i-- {
		out = append(out, a.rewind(ctx, items[i]))
	}
	return out
}

func (a *Actuator) rewind(ctx context.Context, item Item) RestoreResult {
	targets := runtime.Values{}
	for _, ch := range item.Changes {
		targets[ch.Knob] = ch.From
	}
	return a.back(ctx, item.Container, "rollback", func(originals.File) runtime.Values { return targets })
}

// Restore puts a container's originals back, each by compare-and-swap: a value
// that trimtab did not write stays. Calling it again is harmless.
func (a *Actuator) Restore(ctx context.Context, c runtime.Container, reason string) RestoreResult {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.restore(ctx, c, reason)
}

func (a *Actuator) restore(ctx context.Context, c runtime.Container, reason string) RestoreResult {
	return a.back(ctx, c, reason, originals.File.Originals)
}

// Lookup finds a running container; ok is false if it is not known to run.
type Lookup func(id runtime.ID) (c runtime.Container, ok bool)

// RestoreAll restores every container that has originals. Where lookup is nil or
// knows nothing, what the file itself says of the container is used, so that it
// works without discovery. The error tells of files that could not be read.
func (a *Actuator) RestoreAll(ctx context.Context, lookup Lookup, reason string) ([]RestoreResult, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.restoreWhere(ctx, lookup, reason, func(originals.File) bool { return true })
}

// PayDebts tries again what is owed: memory limits that were not safe to lower,
// undos and restores that failed. It returns results for these only.
func (a *Actuator) PayDebts(ctx context.Context, lookup Lookup) ([]RestoreResult, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.restoreWhere(ctx, lookup, "debt", func(f originals.File) bool { return a.unsettled(f) != "" })
}

func (a *Actuator) restoreWhere(ctx context.Context, lookup Lookup, reason string, chosen func(originals.File) bool) ([]RestoreResult, error) {
	files, err := a.o.Store.List()
	var out []RestoreResult
	for _, f := range files {
		if !chosen(f) {
			continue
		}
		if ctx.Err() != nil {
			return out, errors.Join(err, fmt.Errorf("container %q and later ones were not tried: %w", f.Name, ctx.Err()))
		}
		c := f.Container()
		if lookup != nil {
			if known, ok := lookup(f.ID); ok {
				c = known
			}
		}
		out = append(out, a.restore(ctx, c, reason))
	}
	return out, err
}

// way is one container on its way back.
type way struct {
	c        runtime.Container
	engine   Engine
	file     originals.File
	saved    originals.File // as on disk
	now      runtime.Values
	set      runtime.Values // what is to be written
	debts    map[runtime.Knob]string
	result   RestoreResult
	recorded bool // an intent had to be saved before the write
	// sendErr is what the engine said of the write.
	sendErr error
}

// back is every way back: undo, rollback, restore, debts. targets chooses where
// each knob goes, from the container's originals file.
func (a *Actuator) back(ctx context.Context, c runtime.Container, reason string, targets func(originals.File) runtime.Values) RestoreResult {
	w := &way{c: c, set: runtime.Values{}, result: RestoreResult{Key: c.Key(), Name: c.Name, Reason: reason, Outcome: Restored}}
	ctx, cancel := a.begun(ctx)
	defer cancel()
	found, err := a.load(ctx, w)
	if err != nil {
		return a.fruitless(w, err)
	}
	if !found {
		return w.result
	}
	w.sort(targets(w.file))
	w.debts = a.safely(ctx, c, w.now, w.set)
	err = a.writeBack(ctx, w)
	if errors.Is(err, runtime.ErrGone) {
		return a.fruitless(w, err)
	}
	w.result.Err = err
	a.conclude(w)
	if lost := a.checkGPU(ctx, c); lost != nil && len(w.set) > 0 {
		w.result.Err = errors.Join(w.result.Err, fmt.Errorf("container %q: GPU access: %w", c.Name, lost))
	}
	return w.result
}

func (a *Actuator) load(ctx context.Context, w *way) (found bool, err error) {
	file, found, err := a.o.Store.Load(w.c.ID)
	if err != nil || !found {
		delete(a.owed, w.c.Key()) // without originals nothing can be paid
		return false, err
	}
	w.file, w.saved = file.Clone(), file
	if w.engine, err = a.engine(w.c); err == nil {
		w.now, err = w.engine.Read(ctx, w.c)
	}
	return true, err
}

// fruitless ends a way back on which nothing could be written.
func (a *Actuator) fruitless(w *way, err error) RestoreResult {
	w.result.Outcome, w.result.Err = outcomeOf(err), fmt.Errorf("container %q: %w", w.c.Name, err)
	if w.result.Outcome == Refused { // a refusal to read is a failure
		w.result.Outcome = Failed
	}
	for _, knob := range w.saved.Originals().Sorted() {
		w.result.Knobs = append(w.result.Knobs, KnobResult{Knob: knob, Original: w.saved.Knobs[knob].Original,
			Outcome: w.result.Outcome, Text: err.Error()})
	}
	switch {
	case w.result.Outcome == Gone:
		w.result.Err = nil
		clear(w.file.Knobs)
		if w.saved.ID == w.c.ID {
			w.result.Err = a.save(w.file)
		}
	case w.saved.ID == w.c.ID:
		a.oweContainer(&w.file, err.Error())
		if !w.unchanged() {
			w.result.Err = errors.Join(w.result.Err, a.save(w.file))
		}
	}
	return w.result
}

// sort decides for each knob whether it goes back, is back already, or is
// somebody else's by now.
func (w *way) sort(targets runtime.Values) {
	for _, name := range targets.Sorted() {
		k, ok := w.file.Knobs[name]
		if !ok {
			continue // nothing of ours stands
		}
		target, stands := targets[name], w.now[name]
		res := KnobResult{Knob: name, Original: k.Original, Target: target, Before: stands, Actual: stands, Outcome: Restored}
		switch {
		case stands == "":
			res.Outcome, res.Text = Failed, "it cannot be read"
		case k.Writing != "" && name.Same(target, stands):
			// A write that was cut short may still land. Writing what stands lines up behind it.
			w.set[name] = target
		case stands == target:
		case k.Ours(name, stands):
			w.set[name] = target
		case name.Same(target, stands):
		case name.Same(k.Original, stands):
			if k.Writing != "" { // likewise
				w.set[name] = k.Original
			}
		default:
			res.Outcome = Yielded
			res.Text = fmt.Sprintf("it reads %s, which trimtab did not write; its original was %s", stands, k.Original)
		}
		w.result.Knobs = append(w.result.Knobs, res)
	}
}

// writeBack records what must be recorded, writes, and reads back.
func (a *Actuator) writeBack(ctx context.Context, w *way) error {
	if len(w.set) == 0 {
		return nil
	}
	intentErr := a.intendBack(w)
	if intentErr != nil {
		// Only values that the file on disk knows may be written.
		for knob, v := range w.set {
			if k := w.saved.Knobs[knob]; v != k.Original && !k.Ours(knob, v) {
				delete(w.set, knob)
			}
		}
	}
	if w.recorded {
		if err := w.verify(ctx); err != nil {
			return errors.Join(intentErr, err)
		}
	}
	w.sendErr = a.sendBack(ctx, w)
	err := w.sendErr
	if errors.Is(err, runtime.ErrGone) {
		return err
	}
	now, readErr := w.engine.Read(ctx, w.c)
	if errors.Is(readErr, runtime.ErrGone) {
		return readErr
	}
	if readErr != nil {
		now = nil
	}
	for i := range w.result.Knobs {
		w.result.Knobs[i].Actual = now[w.result.Knobs[i].Knob]
	}
	return errors.Join(intentErr, err, readErr)
}

// intendBack saves the intent where a value is to be written that the file on
// disk does not know. Going back to an original needs none, so that a full disk
// does not stand in its way.
func (a *Actuator) intendBack(w *way) error {
	needed := false
	for knob, v := range w.set {
		k := w.file.Knobs[knob]
		if v == k.Original || k.Ours(knob, v) {
			continue
		}
		if k.Ours(knob, w.now[knob]) {
			k.Written = w.now[knob]
		}
		k.Writing = v
		w.file.Knobs[knob] = k
		needed = true
	}
	w.recorded = needed
	if !needed {
		return nil
	}
	return a.save(w.file)
}

// verify reads again where time has passed since the last look, in a sync or in
// a refused write: what somebody else wrote in it is left alone.
func (w *way) verify(ctx context.Context) error {
	now, err := w.engine.Read(ctx, w.c)
	if err != nil {
		clear(w.set)
		w.forgetActual()
		return err
	}
	for knob, v := range w.set {
		if now[knob] != w.now[knob] && !knob.Same(v, now[knob]) {
			delete(w.set, knob)
		}
	}
	return nil
}

// forgetActual marks all knobs as not read back.
func (w *way) forgetActual() {
	for i := range w.result.Knobs {
		w.result.Knobs[i].Actual = ""
	}
}

// sendBack writes all at once and, where the runtime refuses, family by family:
// a memory limit that the kernel refuses must not hold back a quota.
func (a *Actuator) sendBack(ctx context.Context, w *way) error {
	if len(w.set) == 0 {
		return nil
	}
	err := a.send(ctx, w.engine, w.c, w.set)
	if !errors.Is(err, runtime.ErrRefused) || len(w.set) < 2 {
		return err
	}
	var errs []error
	for _, family := range []string{"cpu", "cpuset", "memory", "io"} {
		if err := w.verify(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
		set := runtime.Values{}
		for knob, v := range w.set {
			if knob.Family() == family {
				set[knob] = v
			}
		}
		if len(set) > 0 {
			errs = append(errs, a.send(ctx, w.engine, w.c, set))
		}
	}
	return errors.Join(errs...)
}

// conclude turns the read-back into outcomes and brings the file up to date.
func (a *Actuator) conclude(w *way) {
	for i := range w.result.Knobs {
		w.concludeKnob(&w.result.Knobs[i])
		w.result.Outcome = worse(w.result.Outcome, w.result.Knobs[i].Outcome)
	}
	if w.result.Outcome == Failed || w.result.Outcome == Unavailable {
		why := fmt.Sprintf("%s failed", w.result.Reason)
		if w.result.Err != nil {
			why += ": " + w.result.Err.Error()
		}
		a.oweContainer(&w.file, why)
	} else {
		w.file.Owed = ""
		delete(a.owed, w.c.Key())
	}
	if w.unchanged() {
		return
	}
	if err := a.save(w.file); err != nil {
		w.result.Err = errors.Join(w.result.Err, err)
	}
}

func (w *way) concludeKnob(res *KnobResult) {
	name := res.Knob
	k := w.file.Knobs[name]
	debt, owing := w.debts[name]
	asked, sent := w.set[name]
	switch {
	case res.Outcome == Yielded:
		delete(w.file.Knobs, name)
		return
	case res.Outcome == Failed:
		return
	case res.Actual == "":
		res.Outcome, res.Text = Unavailable, "could not be read back"
		return
	case sent && k.Writing != "" && w.sendErr != nil && !errors.Is(w.sendErr, runtime.ErrRefused):
		// What stands may still be overtaken by the write that was cut short.
		res.Outcome, res.Text = outcomeOf(w.sendErr), w.sendErr.Error()
		return
	case owing && (sent && name.Same(asked, res.Actual) || !sent && k.Ours(name, res.Actual)):
		res.Outcome, res.Text = Owed, debt
		k.Written, k.Debt = res.Actual, debt
		if sent {
			k.Writing = ""
		}
	case name.Same(res.Target, res.Actual) || name.Same(k.Original, res.Actual) && !k.Ours(name, res.Actual):
		w.stood(name, k, *res)
		return
	case k.Ours(name, res.Actual):
		res.Outcome, res.Text = Failed, fmt.Sprintf("it still reads %s", res.Actual)
		if name.Family() == "memory" && errors.Is(w.result.Err, runtime.ErrRefused) {
			res.Outcome, res.Text = Owed, fmt.Sprintf("%s %s is owed: the kernel refuses it for now", name, res.Target)
			k.Written, k.Writing, k.Debt = res.Actual, "", res.Text
		}
	default:
		res.Outcome, res.Text = Yielded, fmt.Sprintf("it reads %s, which trimtab did not write; its original was %s", res.Actual, k.Original)
		delete(w.file.Knobs, name)
		return
	}
	w.file.Knobs[name] = k
}

// stood records a knob that is where it was to go.
func (w *way) stood(name runtime.Knob, k originals.Knob, res KnobResult) {
	if res.Target == k.Original || !name.Same(res.Target, res.Actual) {
		delete(w.file.Knobs, name)
		return
	}
	k.Written, k.Writing, k.Debt = res.Target, "", ""
	w.file.Knobs[name] = k
}

// unchanged spares the disk a write that would change nothing.
func (w *way) unchanged() bool {
	if len(w.file.Knobs) == 0 {
		return false
	}
	before, errBefore := originals.Encode(w.saved)
	after, errAfter := originals.Encode(w.file)
	return errBefore == nil && errAfter == nil && string(before) == string(after)
}

// worse orders outcomes of ways back by how much is left to do.
func worse(a, b Outcome) Outcome {
	for _, o := range []Outcome{Failed, Unavailable, Owed, Yielded, Gone} {
		if a == o || b == o {
			return o
		}
	}
	return a
}
