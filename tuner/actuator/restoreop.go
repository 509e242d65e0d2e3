package actuator

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/originals"
)

// restoreOp is one container on its way back.
type restoreOp struct {
	c        runtime.Container
	engine   Engine
	file     originals.File
	saved    originals.File // as on disk
	before   runtime.Values // what stood at first
	now      runtime.Values
	set      runtime.Values // what is to be written
	earlier  originals.File // before its intent: what earlier writes may still bring
	pending  map[runtime.Knob]string
	result   RestoreResult
	recorded bool // an intent had to be saved before the write
	again    bool // a way back failed before: it may still land
	stuck    bool // a step down went wrong: the rest is tried at once
	// sendErr is what the engine said of the write, failed whether it did so of a family's knobs.
	sendErr error
	failed  map[string]bool
	// unrecorded says of knobs that are back why their engine's own record is not.
	unrecorded map[runtime.Knob]string
}

// sort decides for each knob whether it goes back, is back already, or is
// somebody else's by now.
func (w *restoreOp) sort(targets runtime.Values) {
	w.result.Knobs, w.set = nil, runtime.Values{}
	for _, name := range targets.Sorted() {
		k, ok := w.file.Knobs[name]
		if !ok {
			continue // nothing of ours stands
		}
		target := targets[name]
		stands, readable := w.now[name]
		res := KnobResult{Knob: name, Original: k.Original, Target: target, Before: w.before[name], Actual: stands, Outcome: Restored}
		switch {
		case !readable:
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
			if k.Writing != "" || w.again { // likewise
				w.set[name] = stands
			}
		}
		w.result.Knobs = append(w.result.Knobs, res)
	}
}

// known reports whether a value may be written without an intent: whoever finds it standing after a crash
// knows it by k, or what stands already is written once more.
func (w *restoreOp) known(k originals.Knob, knob runtime.Knob, v runtime.Value) bool {
	return v == k.Original || k.Ours(knob, v) || knob.Same(v, w.now[knob])
}

// supersedeInFlight puts what stands behind a write that was cut short and may still land, where a
// value is to be written that the record does not know: it has room for one such, and what
// landed without being on it would be taken for somebody else's. The rest is pending.
func (w *restoreOp) supersedeInFlight() {
	for knob := range w.pending { // nothing of it is safe to write now
		if _, moves := w.set[knob]; !moves && w.file.Knobs[knob].Writing != "" {
			w.set[knob] = w.now[knob]
		}
	}
	for _, knob := range w.set.Sorted() {
		k, v := w.file.Knobs[knob], w.set[knob]
		if k.Writing == "" || w.known(k, knob, v) {
			continue
		}
		w.set[knob] = w.now[knob]
		if w.pending[knob] == "" {
			w.pending[knob] = fmt.Sprintf("%s %s is pending: a write that was cut short may still land", knob, v)
		}
	}
}

// stepDown takes a memory limit one step down, recorded like any write, where page cache
// has to go for the way back. true: what stands was read anew, and whether it is still
// ours and what is safe have to be looked at again.
func (a *Actuator) stepDown(ctx context.Context, w *restoreOp) bool {
	const knob = runtime.KnobMemoryLimit
	// A write that was cut short may still land: its value must stay the one on record.
	if _, moves := w.set[knob]; !moves || w.stuck || w.file.Knobs[knob].Writing != "" || ctx.Err() != nil {
		return false
	}
	lowest, errLowest := amount(knob, w.set[knob])
	stands, errStands := amount(knob, w.now[knob])
	if errors.Join(errLowest, errStands) != nil || lowest >= stands {
		return false
	}
	use, err := a.memoryUse(ctx, w.c)
	next := use.step(stands, lowest)
	if err != nil || next <= lowest || next >= stands {
		return false
	}
	step := *w // of which the file's knobs are w's
	step.set, step.earlier = runtime.Values{knob: runtime.IntValue(int64(next))}, w.file.Clone()
	if a.intendBack(&step) != nil { // on a full disk the original alone may be written
		w.file, w.stuck = w.saved.Clone(), true
		return false
	}
	w.file.Carried = step.file.Carried
	w.saved = w.file.Clone()
	if step.verify(ctx) == nil && len(step.set) > 0 {
		err = a.send(ctx, w.engine, w.c, step.set, step.earlier.InFlight()...)
	}
	now, errRead := w.engine.Read(ctx, w.c)
	if errRead != nil {
		w.stuck = true
		return false
	}
	w.now = now
	k := w.file.Knobs[knob]
	asked := runtime.IntValue(int64(next))
	w.stuck = err != nil || !knob.Same(asked, now[knob])
	if !w.stuck {
		k.Written = asked
	}
	if err == nil { // it landed, whoever wrote over it
		k.Writing = ""
	}
	w.file.Knobs[knob] = k
	return true
}

// writeBack records what must be recorded, writes, and reads back.
func (a *Actuator) writeBack(ctx context.Context, w *restoreOp) error {
	if len(w.set) == 0 {
		return nil
	}
	w.earlier = w.file.Clone()
	intentErr := a.intendBack(w)
	if intentErr != nil {
		// Only values that the file on disk knows may be written.
		maps.DeleteFunc(w.set, func(knob runtime.Knob, v runtime.Value) bool {
			return !w.known(w.saved.Knobs[knob], knob, v)
		})
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
		res := &w.result.Knobs[i]
		stands, readable := now[res.Knob]
		res.Actual, res.unread = stands, !readable
	}
	return errors.Join(intentErr, err, readErr)
}

// intendBack saves the intent where a value is to be written that the file on
// disk does not know. Going back to an original needs none, so that a full disk
// does not stand in its way.
func (a *Actuator) intendBack(w *restoreOp) error {
	needed := false
	for knob, v := range w.set {
		k := w.file.Knobs[knob]
		if w.known(k, knob, v) {
			continue
		}
		if !needed {
			w.file.Carry(w.now)
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
// a refused write: what somebody else wrote in it is left alone, and a write that was cut
// short and has landed since is not somebody else's.
func (w *restoreOp) verify(ctx context.Context) error {
	now, err := w.engine.Read(ctx, w.c)
	if err != nil {
		clear(w.set)
		w.forgetActual()
		return err
	}
	maps.DeleteFunc(w.set, func(knob runtime.Knob, v runtime.Value) bool {
		k := w.earlier.Knobs[knob]
		landed := k.Writing != "" && k.Ours(knob, now[knob])
		return now[knob] != w.now[knob] && !knob.Same(v, now[knob]) && !landed
	})
	return nil
}

// forgetActual marks all knobs as not read back.
func (w *restoreOp) forgetActual() {
	for i := range w.result.Knobs {
		w.result.Knobs[i].Actual, w.result.Knobs[i].unread = "", true
	}
}

// sendBack writes all at once and, where the runtime refuses, family by family:
// a memory limit that the kernel refuses must not hold back a quota.
func (a *Actuator) sendBack(ctx context.Context, w *restoreOp) error {
	if len(w.set) == 0 {
		return nil
	}
	err := a.send(ctx, w.engine, w.c, w.set, w.earlier.InFlight()...)
	w.failed = map[string]bool{}
	for knob := range w.set {
		w.failed[knob.Family()] = err != nil
	}
	yields := func(knob runtime.Knob) bool { return w.result.knob(knob).Outcome == Yielded }
	if !errors.Is(err, runtime.ErrRefused) || len(w.set) < 2 && !yields(w.set.Sorted()[0]) {
		return err
	}
	var errs []error
	for _, family := range []string{"cpu", "cpuset", "memory"} {
		for _, theirs := range []bool{false, true} {
			if len(w.set) == 0 {
				break
			}
			err := a.sendPart(ctx, w, func(knob runtime.Knob) bool {
				return knob.Family() == family && yields(knob) == theirs
			})
			if theirs && errors.Is(err, runtime.ErrRefused) {
				continue // it stands already
			}
			errs = append(errs, err)
			w.failed[family] = w.failed[family] && err != nil
		}
	}
	return errors.Join(errs...)
}

// sendPart writes some of what is to go back, if it still is to.
func (a *Actuator) sendPart(ctx context.Context, w *restoreOp, part func(runtime.Knob) bool) error {
	if err := w.verify(ctx); err != nil {
		return err
	}
	set := w.set.Clone()
	maps.DeleteFunc(set, func(knob runtime.Knob, _ runtime.Value) bool { return !part(knob) })
	if len(set) == 0 {
		return nil
	}
	return a.send(ctx, w.engine, w.c, set, w.earlier.InFlight()...)
}

// conclude turns the read-back into outcomes and brings the file up to date.
func (a *Actuator) conclude(w *restoreOp) {
	for i := range w.result.Knobs {
		w.concludeKnob(&w.result.Knobs[i])
		w.concludeRecord(&w.result.Knobs[i])
		w.result.Outcome = worse(w.result.Outcome, w.result.Knobs[i].Outcome)
	}
	if back := w.result.Outcome != Failed && w.result.Outcome != Unavailable; back || !w.unacknowledged() {
		w.forgetYielded()
	}
	if w.result.Outcome == Failed || w.result.Outcome == Unavailable {
		why := fmt.Sprintf("%s failed", w.result.Reason)
		if w.result.Err != nil {
			why += ": " + w.result.Err.Error()
		}
		a.markPending(&w.file, why)
	} else {
		w.file.Pending = ""
		a.notPending(w.c.Key())
	}
	if w.unchanged() {
		return
	}
	if err := a.save(w.file); err != nil {
		w.result.Err = errors.Join(w.result.Err, err)
	}
}

func (w *restoreOp) concludeKnob(res *KnobResult) {
	name := res.Knob
	k := w.file.Knobs[name]
	why, isPending := w.pending[name]
	asked, sent := w.set[name]
	switch {
	case res.Outcome == Yielded && !sent:
		return
	case res.Outcome == Yielded && !res.unread && !w.unacknowledged() && !k.Ours(name, res.Actual):
		return
	case res.Outcome == Failed:
		return
	case res.unread:
		res.Outcome, res.Text = Unavailable, "could not be read back"
		return
	case sent && (k.Writing != "" || res.Outcome == Yielded) && w.unacknowledged():
		// What stands may still be overtaken by the write that was cut short.
		res.Outcome, res.Text = outcomeOf(w.sendErr), w.sendErr.Error()
		return
	case isPending && (sent && name.Same(asked, res.Actual) || !sent && k.Ours(name, res.Actual)):
		res.Outcome, res.Text = Pending, why
		k.Written, k.Pending = res.Actual, why
		if sent && !w.mayLand(name, res.Actual) {
			k.Writing = ""
		}
	case sent && asked == "" && w.sendErr == nil:
		// An unset cpuset goes back as its parent's list, which is what it means.
		w.markRestored(name, k, *res)
		return
	case name.Same(res.Target, res.Actual) || name.Same(k.Original, res.Actual) && !k.Ours(name, res.Actual):
		w.markRestored(name, k, *res)
		return
	case k.Ours(name, res.Actual):
		res.Outcome, res.Text = Failed, fmt.Sprintf("it still reads %s", res.Actual)
		if name.Family() == "memory" && errors.Is(w.result.Err, runtime.ErrRefused) {
			res.Outcome, res.Text = Pending, fmt.Sprintf("%s %s is pending: the kernel refuses it for now", name, res.Target)
			k.Written, k.Pending = res.Actual, res.Text
			if !w.mayLand(name, res.Actual) {
				k.Writing = ""
			}
		}
	case sent && w.unacknowledged(): // somebody set another value, which goes behind it in the next try
		res.Outcome, res.Text = outcomeOf(w.sendErr), w.sendErr.Error()
		return
	default:
		res.Outcome, res.Text = Yielded, fmt.Sprintf("it reads %s, which trimtab did not write; its original was %s", res.Actual, k.Original)
		return
	}
	w.file.Knobs[name] = k
}

// unacknowledged: the engine may still carry out what was sent, and what was sent before it.
func (w *restoreOp) unacknowledged() bool {
	return w.sendErr != nil && !errors.Is(w.sendErr, runtime.ErrRefused)
}

// mayLand reports whether an earlier write that was cut short may still land: who refused what was
// sent behind it may never have asked the runtime.
func (w *restoreOp) mayLand(name runtime.Knob, stands runtime.Value) bool {
	earlier := w.earlier.Knobs[name].Writing
	return earlier != "" && w.failed[name.Family()] && !name.Same(earlier, stands)
}

// forgetYielded drops from the record what is somebody else's now. A write that may still land carries
// all knobs: until then its values must be known to be trimtab's.
func (w *restoreOp) forgetYielded() {
	for _, res := range w.result.Knobs {
		if res.Outcome == Yielded {
			delete(w.file.Knobs, res.Knob)
		}
	}
}

// concludeRecord keeps a knob that is back, and that its engine would start with trimtab's
// value again.
func (w *restoreOp) concludeRecord(res *KnobResult) {
	why, isPending := w.unrecorded[res.Knob]
	if !isPending || res.Outcome != Restored {
		return
	}
	k := w.saved.Knobs[res.Knob]
	k.Written, k.Writing, k.Pending = k.Original, "", why
	w.file.Knobs[res.Knob] = k
	res.Outcome, res.Text = Pending, why
}

// markRestored records a knob that is where it was to go.
func (w *restoreOp) markRestored(name runtime.Knob, k originals.Knob, res KnobResult) {
	if res.Target == k.Original || !name.Same(res.Target, res.Actual) {
		if !w.earlier.CutShort() || !w.unacknowledged() {
			delete(w.file.Knobs, name)
		}
		return
	}
	k.Written, k.Writing, k.Pending = res.Target, "", ""
	w.file.Knobs[name] = k
}

// unchanged spares the disk a write that would change nothing.
func (w *restoreOp) unchanged() bool {
	if len(w.file.Knobs) == 0 {
		return false
	}
	before, errBefore := originals.Encode(w.saved)
	after, errAfter := originals.Encode(w.file)
	return errBefore == nil && errAfter == nil && string(before) == string(after)
}

// worse orders outcomes of ways back by how much is left to do.
func worse(a, b Outcome) Outcome {
	for _, o := range []Outcome{Failed, Unavailable, Pending, Yielded, Gone} {
		if a == o || b == o {
			return o
		}
	}
	return a
}
