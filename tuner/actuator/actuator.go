// Package actuator is trimtab's hands: the one caller of runtime.Engine.Apply.
// Whatever the policies propose and the guard lets through is checked once more
// here against what stands, recorded durably, written, read back, and undone
// where a plan could not be carried out whole. It also puts everything back.
//
// It decides nothing: no floors beyond the owner's, no cool-downs, no trials.
//
// The one trap: a value is trimtab's only if the originals file says so, and a
// write may land although its call failed. So what stands is always read, never
// remembered, and every value is on disk as "writing" before it is sent.
package actuator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/originals"
)

// Engine is the part of runtime.Engine that acting needs.
type Engine interface {
	Read(ctx context.Context, c runtime.Container) (runtime.Values, error)
	Apply(ctx context.Context, c runtime.Container, set runtime.Values, inFlight ...runtime.Values) error
}

// Store is the part of originals.Store that acting needs.
type Store interface {
	Load(id runtime.ID) (f originals.File, ok bool, err error)
	List() ([]originals.File, error)
	Lives(id runtime.ID) ([]originals.File, error)
	Save(f originals.File) error
	Remove(id runtime.ID) error
	Sweep() error
}

// defaultSettle bounds the work on one container once it has begun, so that a
// cancelled context cannot leave it half done. A Task.Update takes some tens of
// ms; systemd's D-Bus under a burst takes seconds (runc#4853).
const defaultSettle = 15 * time.Second

// restoredAtOnce bounds how many containers are restored at a time. Measured on two cores with
// Docker, alternating, 60 containers: 2.2 s one by one, 1.7 s eight at a time; a thousand must fit
// the minute that a service has to stop.
const restoredAtOnce = 8

// Options are the actuator's parts. Engines and Store are required.
type Options struct {
	Engines map[string]Engine // by runtime.ID.Engine
	Store   Store
	// Preflight says whether a container may be written to without risk to its GPU access
	// (law: GPU access). Nil: containers that hold a GPU are never written to.
	Preflight func(ctx context.Context, c runtime.Container) (ok bool, why string)
	// CheckGPU proves that a container that holds a GPU still reaches it. Nil: not checked.
	CheckGPU func(ctx context.Context, c runtime.Container) error
	// Memory reads what a container's memory limit must leave room for. Nil: no limit is ever lowered.
	Memory func(ctx context.Context, c runtime.Container) (MemoryUse, error)
	// Disabled stops every write that is not a way back. Nil: never.
	Disabled func() bool
	Now      func() time.Time // time.Now if nil
	AtOnce   int              // containers restored at a time; restoredAtOnce if zero
	Settle   time.Duration    // bound of the work on one container once begun; 15 s if zero
	Logger   *slog.Logger     // slog.Default if nil
	// Fault is called before and after every durable write and every engine write; tests
	// kill the process there. Nil: nothing.
	Fault func(point string)
}

// ErrBusy is what Drift, Yield and Standing answer while another method holds the
// actuator: engines may keep that waiting for many seconds, and a caller that must
// not wait asks again later.
var ErrBusy = errors.New("the actuator is at work")

// Actuator acts. Its methods may be called concurrently; they take turns, but for
// Drift, Yield and Standing, which answer ErrBusy at once.
type Actuator struct {
	o   Options
	log *slog.Logger
	mu  sync.Mutex
	// notes guards what follows while several containers are restored; else mu does.
	notes   sync.Mutex
	pending map[string]string // by container key: pending restores that could not be put on disk
	// retries are the failed tries at pending restores, by container key.
	retries map[string]retry
}

// noted runs f while what is pending is its own.
func (a *Actuator) noted(f func()) {
	a.notes.Lock()
	defer a.notes.Unlock()
	f()
}

// notPending forgets that a container's restore is pending.
func (a *Actuator) notPending(key string) { a.noted(func() { delete(a.pending, key) }) }

// New makes an actuator.
func New(o Options) *Actuator {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Fault == nil {
		o.Fault = func(string) {}
	}
	if o.Disabled == nil {
		o.Disabled = func() bool { return false }
	}
	o.Settle, o.AtOnce = cmp.Or(o.Settle, defaultSettle), cmp.Or(o.AtOnce, restoredAtOnce)
	logger := cmp.Or(o.Logger, slog.Default())
	return &Actuator{o: o, log: logger.With("component", "actuator"), pending: map[string]string{}, retries: map[string]retry{}}
}

// Item is one container's part of a plan.
type Item struct {
	Container runtime.Container
	Enrolment policies.Enrolment
	Changes   []policies.Change
}

// Order is a plan to carry out, as a whole or not at all.
type Order struct {
	Items  []Item
	DryRun bool // observe: everything but the writes
}

// Outcome is how one change or one knob's way back ended.
type Outcome string

// Outcomes of changes, then of ways back.
const (
	Applied     Outcome = "applied"     // stands, read back
	Would       Outcome = "would"       // DryRun: nothing speaks against it
	Yielded     Outcome = "yielded"     // somebody else wrote the knob: theirs stands, trimtab forgot it
	Refused     Outcome = "refused"     // a law, or the runtime, says no
	Unavailable Outcome = "unavailable" // the engine cannot be reached
	Gone        Outcome = "gone"        // the container ended
	Failed      Outcome = "failed"      // anything else: disk, read-back, GPU access
	Skipped     Outcome = "skipped"     // not written, because another part of the plan could not be
	Undone      Outcome = "undone"      // was written, and taken back for the same reason
	Restored    Outcome = "restored"    // stands at what it was to go back to
	Pending     Outcome = "pending"     // going back is not safe now: the lowest safe value stands
)

// ChangeResult is what became of one change.
type ChangeResult struct {
	Change  policies.Change
	Err     error         // what the engine or the disk answered; nil: acknowledged, or never asked
	Actual  runtime.Value // last read; "" if it could not be
	Outcome Outcome
	Text    string        // why, one phrase for people; "" where applied
	Latency time.Duration // of the container's part: original to read-back; 0 if nothing was written
}

// Result is what became of an order; Changes are in the order's order.
type Result struct {
	Applied bool // every change stands (DryRun: would)
	Changes []ChangeResult
	Pending []string // keys of containers whose undo failed: RestorePending repeats it
	GPULost []string // keys of containers that lost GPU access in a write
}

// Failure is what a plan that was not carried out failed on, and not what was left out or
// undone for it: the container, why, and whether it was refused.
func (r Result) Failure() (key, text string, refused bool) {
	if r.Applied {
		return "", "", false
	}
	for _, res := range r.Changes {
		failed := res.Outcome != Skipped && res.Outcome != Undone && res.Text != ""
		if failed || text == "" && res.Text != "" {
			text = fmt.Sprintf("%s: %s", res.Change.Knob, res.Text)
		}
		if failed {
			return res.Change.Key, text, res.Outcome == Refused
		}
	}
	return "", text, false
}

// outcomeOf maps an engine's error to an outcome.
func outcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Applied
	case errors.Is(err, runtime.ErrGone):
		return Gone
	case errors.Is(err, runtime.ErrRefused):
		return Refused
	case errors.Is(err, runtime.ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Unavailable
	}
	return Failed
}

// begun detaches work on a container from the caller's cancellation: once begun
// it ends in a known state, or at the bound.
func (a *Actuator) begun(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), a.o.Settle)
}

func (a *Actuator) engine(c runtime.Container) (Engine, error) {
	if e, ok := a.o.Engines[c.ID.Engine]; ok {
		return e, nil
	}
	return nil, fmt.Errorf("engine %q of container %q: %w: it is not configured", c.ID.Engine, c.Name, runtime.ErrUnavailable)
}

// save puts a file on disk, or removes it when nothing of trimtab's is left in it.
func (a *Actuator) save(f originals.File) error {
	a.o.Fault("save.before")
	var err error
	if len(f.Knobs) == 0 {
		a.noted(func() {
			delete(a.pending, f.ID.Key())
			delete(a.retries, f.ID.Key())
		})
		err = a.o.Store.Remove(f.ID)
	} else {
		err = a.o.Store.Save(f)
	}
	a.o.Fault("save.after")
	return err
}

// send is the only call of an engine's Apply.
func (a *Actuator) send(ctx context.Context, e Engine, c runtime.Container, set runtime.Values, inFlight ...runtime.Values) error {
	a.o.Fault("apply.before")
	err := e.Apply(ctx, c, set, inFlight...)
	a.o.Fault("apply.after")
	return err
}

// markPending marks a container for RestorePending, on disk if that can be written.
func (a *Actuator) markPending(f *originals.File, why string) {
	f.Pending = why
	known := false
	a.noted(func() {
		_, known = a.pending[f.ID.Key()]
		a.pending[f.ID.Key()] = why
	})
	if !known {
		a.log.Warn("a restore is pending", "container", f.Name, "key", f.ID.Key(), "reason", why)
	}
}
