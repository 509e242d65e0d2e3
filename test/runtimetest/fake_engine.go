package runtimetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/trimtab/trimtab/runtime"
)

// Name implements runtime.Engine. The fake stands in for Docker, so identities look alike.
func (f *Fake) Name() string { return "docker" }

// WritePath implements runtime.Engine.
func (f *Fake) WritePath(context.Context, runtime.Container) string { return "fake" }

// Run implements runtime.Engine.
func (f *Fake) Run(ctx context.Context, sink func(runtime.Event)) error {
	f.mu.Lock()
	f.queue = nil
	if f.lost {
		f.pushLocked(runtime.Event{Kind: runtime.EventLost, Engine: f.Name(), Reason: f.lostWhy})
	} else {
		f.listLocked()
	}
	f.mu.Unlock()
	for {
		for _, event := range f.take() {
			sink(event)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.wake:
		}
	}
}

func (f *Fake) take() []runtime.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.queue
	f.queue = nil
	return out
}

func (f *Fake) listLocked() {
	for _, id := range slices.Sorted(maps.Keys(f.containers)) {
		f.tellLocked(runtime.EventSeen, f.containers[id].c)
	}
	f.pushLocked(runtime.Event{Kind: runtime.EventSynced, Engine: f.Name()})
}

// tellLocked queues an event, unless the connection is broken: the listing after
// it tells the rest, and what ended meanwhile is missing from it.
func (f *Fake) tellLocked(kind runtime.EventKind, c runtime.Container) {
	if f.lost && kind != runtime.EventGone {
		return
	}
	f.pushLocked(runtime.Event{Kind: kind, Engine: f.Name(), Container: c})
}

func (f *Fake) pushLocked(event runtime.Event) {
	f.queue = append(f.queue, event)
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Read implements runtime.Engine.
func (f *Fake) Read(ctx context.Context, c runtime.Container) (runtime.Values, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	held, err := f.aliveLocked(c)
	if err != nil {
		return nil, err
	}
	return held.values.Clone(), nil
}

func (f *Fake) aliveLocked(c runtime.Container) (*fakeContainer, error) {
	held, ok := f.containers[c.ID.Container]
	if !ok || held.c.ID != c.ID {
		return nil, fmt.Errorf("container %q: %w", c.Name, runtime.ErrGone)
	}
	return held, nil
}

// Apply implements runtime.Engine.
func (f *Fake) Apply(ctx context.Context, c runtime.Container, set runtime.Values, _ ...runtime.Values) error {
	f.mu.Lock()
	delay, hook := f.delay, f.refusal
	f.mu.Unlock()
	if err := wait(ctx, delay); err != nil {
		return err
	}
	if hook != nil {
		if err := hook(c, set.Clone()); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost {
		return fmt.Errorf("container %q: %s: %w", c.Name, f.lostWhy, runtime.ErrUnavailable)
	}
	held, err := f.aliveLocked(c)
	if err != nil {
		return err
	}
	next, err := f.mergeLocked(held, set)
	if err != nil {
		return err
	}
	held.values = next
	f.applied = append(f.applied, Applied{Container: c, Set: set.Clone()})
	return nil
}

// mergeLocked refuses what every real write path refuses.
func (f *Fake) mergeLocked(held *fakeContainer, set runtime.Values) (runtime.Values, error) {
	next := held.values.Clone()
	for knob, value := range set {
		if _, ok := next[knob]; !ok {
			return nil, fmt.Errorf("container %q: %s: no such knob: %w", held.c.Name, knob, runtime.ErrRefused)
		}
		if err := fakeCheck(knob, value); err != nil {
			return nil, fmt.Errorf("container %q: %s: %w: %w", held.c.Name, knob, err, runtime.ErrRefused)
		}
		if knob == runtime.KnobCpuset && value == "" {
			value = DefaultValues()[runtime.KnobCpuset]
		}
		next[knob] = value
	}
	limit, limited := next[runtime.KnobMemoryLimit].Int()
	swap, swapLimited := next[runtime.KnobMemorySwap].Int()
	if held.c.Cgroup.Mode != runtime.CgroupV2 && swapLimited && (!limited || limit > swap) {
		return nil, fmt.Errorf("container %q: %s: above %s: %w", held.c.Name, runtime.KnobMemoryLimit, runtime.KnobMemorySwap, runtime.ErrRefused)
	}
	return next, nil
}

const (
	minQuotaUs = 1000 // the kernel's
	fakeCPUs   = 1024 // more than DefaultValues has: tests make larger machines
)

func fakeCheck(knob runtime.Knob, value runtime.Value) (err error) {
	switch knob {
	case runtime.KnobCPUQuota:
		quotaUs, _, parseErr := runtime.ParseQuota(value)
		if err = parseErr; err == nil && quotaUs >= 0 && quotaUs < minQuotaUs {
			err = fmt.Errorf("%q is below %d µs", value, minQuotaUs)
		}
	case runtime.KnobCpuset:
		cpus, parseErr := runtime.ParseCPUList(string(value))
		if err = parseErr; err == nil && len(cpus) > 0 && cpus[len(cpus)-1] >= fakeCPUs {
			err = fmt.Errorf("%q: there are %d CPUs", value, fakeCPUs)
		}
	default:
		if _, ok := value.Int(); !ok && value != runtime.ValueMax {
			err = fmt.Errorf("%q is not a whole number", value)
		}
	}
	return err
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
