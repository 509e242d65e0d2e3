package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/trimtab/trimtab/runtime"
)

// keyedMutex lets one at a time at each container. What nobody has is not kept.
type keyedMutex struct {
	mu    sync.Mutex
	taken map[string]*turn
}

// turn is had by one at a time.
type turn struct {
	of    *keyedMutex
	key   string
	back  chan struct{} // closes when it is given back
	stuck bool          // who has it did not come back in time: nobody waits for it
}

func newKeyedMutex() *keyedMutex { return &keyedMutex{taken: map[string]*turn{}} }

// take waits for the turn until ctx ends. A free one is had even then.
func (m *keyedMutex) take(ctx context.Context, key string) (*turn, error) {
	for {
		m.mu.Lock()
		other := m.taken[key]
		if other == nil {
			own := &turn{of: m, key: key, back: make(chan struct{})}
			m.taken[key] = own
			m.mu.Unlock()
			return own, nil
		}
		stuck := other.stuck
		m.mu.Unlock()
		if stuck {
			return nil, errors.New("who was at it first has yet to come back")
		}
		select {
		case <-other.back:
		case <-ctx.Done():
			return nil, fmt.Errorf("somebody else is at it: %w", ctx.Err())
		}
	}
}

// try takes the turn if it is free.
func (m *keyedMutex) try(key string) (_ *turn, ok bool) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	own, err := m.take(done, key)
	return own, err == nil
}

func (t *turn) give() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	delete(t.of.taken, t.key)
	close(t.back)
}

// leaveBehind: who has it did not come back in time.
func (t *turn) leaveBehind() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.stuck = true
}

// filesTimeout bounds one piece of work in a container's files; it is some system
// calls, unless a file system of its own (FUSE, NFS) hangs.
const filesTimeout = 10 * time.Second

// errStuck: a file system of the container's does not answer.
var errStuck = errors.New("its file system does not answer")

// inFiles works in a container's files, below its root, on a goroutine that owns all
// that it opens: one that hangs holds nobody, and is the only one that does. Work asks
// ctx before each step, and touches nothing that it was not given. Errors:
// runtime.ErrGone; errStuck.
func inFiles[T any](ctx context.Context, v *Visibility, c runtime.Container, work func(ctx context.Context, root *os.File) (T, error)) (out T, err error) {
	ctx, cancel := context.WithTimeout(ctx, v.filesTimeout)
	defer cancel()
	turn, err := v.files.take(ctx, c.Key())
	if err != nil {
		return out, fmt.Errorf("%w: %w", errStuck, err)
	}
	out, err = aside(ctx, func() (out T, err error) {
		defer turn.give()
		root, err := v.inside(c)
		if err != nil {
			return out, err
		}
		defer root.Close()
		return work(ctx, root)
	})
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		turn.leaveBehind()
		err = fmt.Errorf("%w: %w", errStuck, err)
	}
	return out, err
}

// aside works on a goroutine of its own, and leaves it behind when ctx ends: a system call may hang.
func aside[T any](ctx context.Context, work func() (T, error)) (out T, err error) {
	type answer struct {
		value    T
		err      error
		panicked any
	}
	result := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			a.panicked = recover()
			result <- a
		}()
		a.value, a.err = work()
	}()
	select {
	case a := <-result:
		if a.panicked != nil {
			panic(a.panicked) // the caller's
		}
		return a.value, a.err
	case <-ctx.Done():
		return out, ctx.Err()
	}
}
