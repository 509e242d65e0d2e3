package actuator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/originals"
)

// ErrUnlisted: a container runs, and its engine does not list it.
var ErrUnlisted = errors.New("not listed, but runs")

// Recovery is what is known at start.
type Recovery struct {
	Running []runtime.Container
	// Synced says of which engines Running is complete. Containers of others are left
	// alone: that they cannot be seen does not mean that they ended.
	Synced []string
	// Handover keeps what the daemon before left standing: a restart or an upgrade. It
	// is honoured for containers whose file is settled; a write that was cut short, or
	// a pending restore, is restored all the same.
	Handover bool
}

// Recover settles at start what an earlier daemon left: files of containers that
// ended are removed, the others restored or, at a handover, kept. Harmless to
// repeat, at any time and after a crash at any instant. The results are of the
// containers that were restored; the error tells of files that could not be
// read or removed, and names containers that are not listed but were not found
// to have ended: their files stay.
func (a *Actuator) Recover(ctx context.Context, r Recovery) ([]RestoreResult, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	running := map[runtime.ID]runtime.Container{}
	boots := map[string]string{} // by engine
	for _, c := range r.Running {
		running[c.ID] = c
		boots[c.ID.Engine] = c.ID.Boot
	}
	synced := map[string]bool{}
	for _, engine := range r.Synced {
		synced[engine] = true
	}
	sweepErr := a.o.Store.Sweep()
	files, err := a.o.Store.List()
	errs := []error{sweepErr, err}
	var out []RestoreResult
	for _, f := range files {
		c, runs := running[f.ID]
		switch {
		case !runs && !synced[f.ID.Engine]:
		case !runs && boots[f.ID.Engine] != "" && boots[f.ID.Engine] != f.ID.Boot:
			ended, err := told(a.ended(ctx, f, "recovery")) // only what its engine stored outlives the kernel that it ran on
			out, errs = append(out, ended...), append(errs, err)
		case !runs:
			ended, err := a.forgetEnded(ctx, f)
			out, errs = append(out, ended...), append(errs, err)
		case r.Handover && f.Unsettled() == "":
		default:
			out = append(out, a.restore(ctx, c, "recovery"))
		}
	}
	return out, errors.Join(errs...)
}

// told is a settled file for a caller: a life that ended with nothing stored is no news.
func told(r RestoreResult) ([]RestoreResult, error) {
	if len(r.Knobs) == 0 {
		return nil, r.Err
	}
	return []RestoreResult{r}, r.Err
}

// Gone forgets a container that ended: with it went everything trimtab set, but for what
// its engine stored, which goes back there; the results tell of that. One that is merely
// said to be gone keeps its file, and the error names it.
func (a *Actuator) Gone(ctx context.Context, id runtime.ID) ([]RestoreResult, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f, ok, err := a.o.Store.Load(id)
	if err != nil || !ok {
		return nil, err
	}
	return a.forgetEnded(ctx, f)
}

// forgetEnded forgets a container if its engine's read says that it ended. Not
// being listed is no proof: an inspect that failed once looks the same, and a
// container without originals could never be put back.
func (a *Actuator) forgetEnded(ctx context.Context, f originals.File) ([]RestoreResult, error) {
	engine, err := a.engine(f.Container())
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, a.o.Settle)
		defer cancel()
		_, err = engine.Read(ctx, f.Container())
	}
	switch {
	case errors.Is(err, runtime.ErrGone):
		return told(a.ended(ctx, f, "it ended"))
	case err != nil:
		return nil, fmt.Errorf("container %q is not listed, and whether it ended cannot be read (its originals are kept): %w", f.Name, err)
	}
	return nil, fmt.Errorf("container %q is %w (process %d): its originals are kept, and the next start that sees it settles them", f.Name, ErrUnlisted, f.InitPID)
}

// Drift is a knob that somebody else has written.
type Drift struct {
	Knob    runtime.Knob
	Written runtime.Value // what trimtab had set
	Actual  runtime.Value
}

// Drift compares what stands with what trimtab wrote. Knobs that now lacks are
// left out: not readable is not foreign. So is a container whose restore is pending, which finds
// it. Where the originals cannot be read, what stands comes with the error. It never waits:
// ErrBusy while a write is under way.
func (a *Actuator) Drift(c runtime.Container, read func() (runtime.Values, error)) (now runtime.Values, out []Drift, err error) {
	if !a.mu.TryLock() {
		return nil, nil, ErrBusy
	}
	defer a.mu.Unlock()
	if now, err = read(); err != nil {
		return nil, nil, err
	}
	f, _, err := a.o.Store.Load(c.ID)
	if err != nil {
		return now, nil, err
	}
	if a.unsettled(f) != "" {
		return now, nil, nil
	}
	for _, name := range f.Originals().Sorted() {
		k := f.Knobs[name]
		stands, readable := now[name]
		untouched := k.Written == "" && name.Same(k.Original, stands)
		if readable && !untouched && !k.Ours(name, stands) {
			out = append(out, Drift{Knob: name, Written: k.Written, Actual: stands})
		}
	}
	return now, out, nil
}

// Yield forgets knobs: their values are somebody else's now, and so are their originals.
// It never waits: ErrBusy while a write is under way, or where a restore is pending, which comes first.
func (a *Actuator) Yield(c runtime.Container, knobs ...runtime.Knob) error {
	if !a.mu.TryLock() {
		return ErrBusy
	}
	defer a.mu.Unlock()
	f, ok, err := a.o.Store.Load(c.ID)
	if err != nil || !ok {
		return err
	}
	if a.unsettled(f) != "" {
		return ErrBusy
	}
	had := len(f.Knobs)
	maps.DeleteFunc(f.Knobs, func(name runtime.Knob, _ originals.Knob) bool { return slices.Contains(knobs, name) })
	if len(f.Knobs) == had {
		return nil
	}
	return a.save(f)
}

// Standing is what trimtab has changed on a container.
type Standing struct {
	Original runtime.Values // of changed knobs only
	Written  runtime.Values // what trimtab set; absent where nothing was read back yet
	Pending  string         // what is pending, and why; "" if nothing
}

// Standing tells what trimtab has changed on a container, for display.
// It never waits: ErrBusy while a write is under way.
func (a *Actuator) Standing(id runtime.ID) (Standing, error) {
	if !a.mu.TryLock() {
		return Standing{}, ErrBusy
	}
	defer a.mu.Unlock()
	f, ok, err := a.o.Store.Load(id)
	s := Standing{Original: runtime.Values{}, Written: runtime.Values{}}
	if !ok {
		return s, err
	}
	for name, k := range f.Knobs {
		if k.Written == k.Original && k.Writing == "" {
			continue // a take-back: what stands is the original
		}
		s.Original[name] = k.Original
		if k.Written != "" {
			s.Written[name] = k.Written
		}
	}
	s.Pending = a.unsettled(f)
	return s, nil
}
