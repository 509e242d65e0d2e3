package actuator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

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
	Outcome  Outcome       // Restored, Yielded, Pending, Gone, Failed, Unavailable
	Text     string        // why, one phrase; "" where restored

	unread bool // Actual could not be read
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

// Text tells people what became of it.
func (r RestoreResult) Text() string {
	if r.Err != nil {
		return r.Err.Error()
	}
	var all []string
	for _, k := range r.Knobs {
		if k.AsItWas() {
			continue
		}
		if k.Outcome == Restored {
			all = append(all, "restored "+k.Knob.Text(k.Before, k.Actual))
		} else {
			all = append(all, fmt.Sprintf("%s: %s %s", k.Knob, k.Outcome, k.Text))
		}
	}
	return cmp.Or(strings.Join(all, "; "), "nothing to restore")
}

// AsItWas reports whether a knob stood at its target already: nothing is to be said of it.
func (k KnobResult) AsItWas() bool {
	return k.Outcome == Restored && k.Before != "" && k.Knob.Same(k.Before, k.Actual)
}

// NotBack names a container that is left without what is its own. After this nobody is
// there to make a pending restore.
func (r RestoreResult) NotBack() error {
	const again = "`trimtab restore --offline` tries again"
	switch r.Outcome {
	case Failed, Unavailable:
		if r.Err != nil {
			return fmt.Errorf("container %q could not be restored: %w; %s", r.Name, r.Err, again)
		}
		return fmt.Errorf("container %q could not be restored: %s; %s", r.Name, r.Outcome, again)
	case Pending:
		var pending []string
		for _, k := range r.Knobs {
			if k.Outcome == Pending {
				pending = append(pending, k.Text)
			}
		}
		return fmt.Errorf("container %q: %s; %s", r.Name, strings.Join(pending, ", "), again)
	}
	return nil
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
// before them. A memory limit that it is not safe to lower stays pending.
func (a *Actuator) Rollback(ctx context.Context, items []Item) []RestoreResult {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []RestoreResult
	hung := map[string]error{}
	for i := len(items) - 1; i >= 0; i-- {
		out = append(out, a.rewind(ctx, items[i], hung))
	}
	return out
}

// rewind takes one container's part of a plan back. hung holds, by name, the engines that did not
// answer for a part before it. They are not asked again, since each try would cost the whole
// patience: what is left of the plan is restored once they answer.
func (a *Actuator) rewind(ctx context.Context, item Item, hung map[string]error) RestoreResult {
	targets := runtime.Values{}
	for _, ch := range item.Changes {
		targets[ch.Knob] = ch.From
	}
	engine := item.Container.ID.Engine
	r := a.back(ctx, item.Container, "rollback", hung[engine], func(originals.File) runtime.Values { return targets })
	if errors.Is(r.Err, context.DeadlineExceeded) {
		hung[engine] = fmt.Errorf("%s did not answer for container %q: %w", engine, item.Container.Name, runtime.ErrUnavailable)
	}
	return r
}

// Restore puts a container's originals back, each by compare-and-swap: a value
// that trimtab did not write stays. Calling it again is harmless.
func (a *Actuator) Restore(ctx context.Context, c runtime.Container, reason string) RestoreResult {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.restore(ctx, c, reason)
}

func (a *Actuator) restore(ctx context.Context, c runtime.Container, reason string) RestoreResult {
	return a.back(ctx, c, reason, nil, originals.File.Originals)
}

// RestoreThese restores some containers, several at a time, in their order. The error tells which were not
// tried, since the context has ended.
func (a *Actuator) RestoreThese(ctx context.Context, cs []runtime.Container, reason string) ([]RestoreResult, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.restoreEach(ctx, cs, reason)
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

// restoreWhere restores the containers that are chosen; results come in the order of their files.
func (a *Actuator) restoreWhere(ctx context.Context, lookup Lookup, reason string, chosen func(originals.File) bool) ([]RestoreResult, error) {
	files, err := a.o.Store.List()
	files = slices.DeleteFunc(files, func(f originals.File) bool { return !chosen(f) })
	cs := make([]runtime.Container, len(files))
	for i, f := range files {
		cs[i] = f.Container()
		if lookup != nil {
			if known, ok := lookup(f.ID); ok {
				cs[i] = known
			}
		}
	}
	out, later := a.restoreEach(ctx, cs, reason)
	return out, errors.Join(err, later)
}

// restoreEach restores containers, AtOnce at a time; results come in their order.
func (a *Actuator) restoreEach(ctx context.Context, cs []runtime.Container, reason string) ([]RestoreResult, error) {
	out := make([]RestoreResult, len(cs))
	var all errgroup.Group
	all.SetLimit(a.o.AtOnce)
	for i, c := range cs {
		if ctx.Err() != nil {
			_ = all.Wait() // none returns an error: it is in its result
			return out[:i], fmt.Errorf("container %q and later ones were not tried: %w", c.Name, ctx.Err())
		}
		one := func() error {
			out[i] = a.restore(ctx, c, reason)
			return nil
		}
		if a.o.AtOnce == 1 { // in the caller's goroutine, where a test's crash is caught
			_ = one()
			continue
		}
		all.Go(one)
	}
	_ = all.Wait()
	return out, nil
}

// back is every way back: undo, rollback, restore, pending restores. targets chooses where
// each knob goes, from the container's originals file. Where something is to be written, and hung
// says why its engine is not asked, the container's restore is pending.
func (a *Actuator) back(ctx context.Context, c runtime.Container, reason string, hung error, targets func(originals.File) runtime.Values) RestoreResult {
	w := &restoreOp{c: c, set: runtime.Values{}, result: RestoreResult{Key: c.Key(), Name: c.Name, Reason: reason, Outcome: Restored}}
	ctx, cancel := a.begun(ctx)
	defer cancel()
	found, err := a.load(ctx, w)
	if found && errors.Is(err, runtime.ErrGone) {
		return a.ended(ctx, w.saved, reason)
	}
	if err != nil {
		return a.fruitless(w, err)
	}
	if !found {
		return w.result
	}
	for more := true; more; more = hung == nil && a.stepDown(ctx, w) {
		w.sort(targets(w.file))
		w.pending = a.safely(ctx, c, w.now, w.set)
		w.supersedeInFlight()
	}
	if hung != nil && len(w.set) > 0 {
		w.result.Knobs = nil
		return a.fruitless(w, hung)
	}
	err = a.writeBack(ctx, w)
	if errors.Is(err, runtime.ErrGone) {
		return a.ended(ctx, w.file, reason)
	}
	w.result.Err = err
	w.unrecorded = a.recordBack(ctx, w)
	a.conclude(w)
	if lost := a.checkGPU(ctx, c); lost != nil && len(w.set) > 0 {
		w.result.Err = errors.Join(w.result.Err, fmt.Errorf("container %q: GPU access: %w", c.Name, lost))
	}
	return w.result
}

func (a *Actuator) load(ctx context.Context, w *restoreOp) (found bool, err error) {
	file, found, err := a.o.Store.Load(w.c.ID)
	if err != nil || !found {
		if err == nil || errors.Is(err, originals.ErrCorrupt) { // a disk may serve again
			a.notPending(w.c.Key()) // without originals nothing can be restored
		}
		return false, err
	}
	w.file, w.saved = file.Clone(), file
	a.noted(func() { _, w.again = a.pending[w.c.Key()] })
	w.again = w.again || file.Pending != ""
	if w.engine, err = a.engine(w.c); err == nil {
		w.now, err = w.engine.Read(ctx, w.c)
		w.before = w.now
	}
	return true, err
}

// fruitless ends a way back on which nothing could be written.
func (a *Actuator) fruitless(w *restoreOp, err error) RestoreResult {
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
	case w.saved.ID == w.c.ID:
		a.markPending(&w.file, err.Error())
		if !w.unchanged() {
			w.result.Err = errors.Join(w.result.Err, a.save(w.file))
		}
	}
	return w.result
}
