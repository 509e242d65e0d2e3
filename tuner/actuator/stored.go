package actuator

import (
	"context"
	"errors"
	"fmt"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/originals"
)

// What one engine's write path writes outlives the container's life: Docker stores what its API
// is told, and starts the container from it. So the file of originals outlives it too,
// until that record holds the owner's values again, or somebody else's.

// stores reports whether a write to a container goes into its engine's own record.
func stores(ctx context.Context, e Engine, c runtime.Container) bool {
	s, ok := e.(runtime.StoringEngine)
	return ok && s.Stores(ctx, c)
}

// storable refuses knobs that the engine's record leaves unset: once a value is in it, no
// update makes it unset again.
func (a *Actuator) storable(ctx context.Context, p *part) error {
	c := p.item.Container
	if p.stored = stores(ctx, p.engine, c); !p.stored {
		return nil
	}
	record, _, err := p.engine.(runtime.StoringEngine).Stored(ctx, c)
	if err != nil {
		return err
	}
	for _, ch := range p.item.Changes {
		if _, set := record[ch.Knob]; !set && ch.From != "" { // without one the host has no such knob, which is told later
			return fmt.Errorf("%s stores what its API is told, and could not be made to forget a %s that the owner never set: make containerd's socket reachable: %w",
				c.ID.Engine, ch.Knob, runtime.ErrRefused)
		}
	}
	return nil
}

// earlier settles earlier lives of a container whose stored values it may have been
// started with: what stands now is no original before that.
func (a *Actuator) earlier(ctx context.Context, c runtime.Container) error {
	lives, err := a.o.Store.Lives(c.ID)
	if err != nil {
		return err
	}
	for _, f := range lives {
		if e, err := a.engine(f.Container()); err == nil {
			switch _, err := e.Read(ctx, f.Container()); {
			case err == nil:
				continue // it runs: another one of that ID, in another namespace
			case !errors.Is(err, runtime.ErrGone):
				return fmt.Errorf("whether an earlier life of it has ended cannot be read: %w", err)
			}
		}
		r := a.ended(ctx, f, "an earlier life of it ended")
		switch {
		case r.Err != nil:
			return fmt.Errorf("values stored for an earlier life of it are not back: %w", r.Err)
		case len(r.Knobs) > 0:
			return errors.New("values stored for an earlier life of it have just been put back")
		}
	}
	return nil
}

// ended settles the file of a life that ended. What its control groups held went with
// them. What the engine stored goes back to the owner's by compare-and-swap: in the record
// of a container that is stopped; by the usual way back where it runs anew, since a memory
// limit may not be safe to lower there. The result's knobs are those that had to go back.
func (a *Actuator) ended(ctx context.Context, f originals.File, reason string) RestoreResult {
	r := RestoreResult{Key: f.ID.Key(), Name: f.Name, Reason: reason, Outcome: Gone}
	e, err := a.engine(f.Container())
	storing, ok := e.(runtime.StoringEngine)
	if err != nil || !ok {
		return a.forgotten(r, f)
	}
	ctx, cancel := a.begun(ctx)
	defer cancel()
	record, live, err := storing.Stored(ctx, f.Container())
	switch {
	case errors.Is(err, runtime.ErrGone):
		return a.forgotten(r, f)
	case err != nil && !f.Stored():
		return a.forgotten(r, f) // nothing of trimtab's is known to be in that record
	case err != nil:
		return a.keepStored(r, f, err)
	}
	back := storedBack(f, record)
	switch {
	case len(back) == 0:
		return a.forgotten(r, f)
	case live != nil && live.ID != f.ID:
		return a.adopt(ctx, f, *live, record)
	}
	if err := storing.Store(ctx, f.Container(), back); err != nil {
		return a.keepStored(r, f, err)
	}
	if record, _, err = storing.Stored(ctx, f.Container()); err != nil {
		return a.keepStored(r, f, err)
	}
	if left := storedBack(f, record); len(left) > 0 {
		return a.keepStored(r, f, fmt.Errorf("%s was acknowledged, and its record still holds trimtab's", left.Sorted()[0]))
	}
	r.Outcome = Restored
	for _, knob := range back.Sorted() {
		k := f.Knobs[knob]
		r.Knobs = append(r.Knobs, KnobResult{Knob: knob, Original: k.Original, Target: k.Original, Before: k.Stored, Actual: record[knob], Outcome: Restored})
	}
	return a.forgotten(r, f)
}

// storedBack is what must go back in an engine's record.
func storedBack(f originals.File, record runtime.Values) runtime.Values {
	back := runtime.Values{}
	for knob, k := range f.Knobs {
		if stored, ok := record[knob]; ok && k.OursStored(knob, stored) {
			back[knob] = k.Original
		}
	}
	return back
}

// adopt hands the originals of a life that ended to the one that was started with what
// trimtab had stored, and puts them back there.
func (a *Actuator) adopt(ctx context.Context, f originals.File, live runtime.Container, record runtime.Values) RestoreResult {
	r := RestoreResult{Key: live.Key(), Name: live.Name, Reason: "restarted with stored values", Outcome: Failed}
	next, err := a.fileOf(live)
	if err != nil {
		r.Err = err
		return r
	}
	for knob := range storedBack(f, record) {
		if _, known := next.Knobs[knob]; !known {
			next.Knobs[knob] = originals.Knob{Original: f.Knobs[knob].Original, Written: record[knob], Stored: record[knob]}
		} else if k := next.Knobs[knob]; k.Original != f.Knobs[knob].Original {
			k.Original, k.Stored = f.Knobs[knob].Original, record[knob]
			next.Knobs[knob] = k
		}
	}
	if err := a.save(next); err != nil {
		r.Err = err
		return r
	}
	if old := a.forgotten(r, f); old.Err != nil {
		return old // both files stand, and say the same
	}
	return a.restore(ctx, live, r.Reason)
}

// forgotten removes the file of a life that ended.
func (a *Actuator) forgotten(r RestoreResult, f originals.File) RestoreResult {
	f = f.Clone()
	clear(f.Knobs)
	if err := a.save(f); err != nil {
		r.Err = fmt.Errorf("forget container %q: %w", f.Name, err)
	}
	return r
}

// keepStored keeps the file: RestorePending and the next start try again.
func (a *Actuator) keepStored(r RestoreResult, f originals.File, err error) RestoreResult {
	saved := f.Pending
	r.Outcome, r.Err = outcomeOf(err), fmt.Errorf("container %q: its owner's values are not back in its engine's record: %w", f.Name, err)
	for _, knob := range f.Originals().Sorted() {
		r.Knobs = append(r.Knobs, KnobResult{Knob: knob, Original: f.Knobs[knob].Original, Outcome: r.Outcome, Text: err.Error()})
	}
	a.markPending(&f, "its engine's record holds trimtab's values")
	if f.Pending != saved {
		r.Err = errors.Join(r.Err, a.save(f))
	}
	return r
}

// recordBack puts the owner's values back into the engine's record where the container
// runs on, and another write path was taken for its control groups. It answers why a knob's
// record does not hold its original yet.
func (a *Actuator) recordBack(ctx context.Context, w *restoreOp) map[runtime.Knob]string {
	storing, ok := w.engine.(runtime.StoringEngine)
	if !ok {
		return nil
	}
	at := runtime.Values{}
	for _, res := range w.result.Knobs {
		k := w.file.Knobs[res.Knob]
		if k.Stored != "" && res.Outcome == Restored && res.Target == k.Original && !res.unread && res.Knob.Same(k.Original, res.Actual) {
			at[res.Knob] = k.Original
		}
	}
	if len(at) == 0 {
		return nil
	}
	err := func() error {
		record, _, err := storing.Stored(ctx, w.c)
		if err != nil {
			return err
		}
		set := runtime.Values{}
		for knob := range storedBack(w.file, record) {
			if _, goesBack := at[knob]; goesBack {
				set[knob] = at[knob]
			}
		}
		if len(set) == 0 {
			return nil
		}
		return storing.Store(ctx, w.c, set)
	}()
	if err == nil || errors.Is(err, runtime.ErrGone) {
		return nil
	}
	why := map[runtime.Knob]string{}
	for knob := range at {
		why[knob] = fmt.Sprintf("%s stands, and its engine's record holds trimtab's still: %v", knob, err)
	}
	return why
}
