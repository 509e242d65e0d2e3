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

// filesOf is what work in a container's files came to.
type filesOf[T any] struct {
	value    T
	err      error
	panicked any
}

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
	result := make(chan filesOf[T], 1)
	go func() {
		var r filesOf[T]
		defer func() {
			r.panicked = recover()
			turn.give()
			result <- r
		}()
		var root *os.File
		if root, r.err = v.inside(c); r.err != nil {
			return
		}
		defer root.Close()
		r.value, r.err = work(ctx, root)
	}()
	select {
	case r := <-result:
		if r.panicked != nil {
			panic(r.panicked) // the caller's
		}
		return r.value, r.err
	case <-ctx.Done():
		turn.leaveBehind()
		return out, fmt.Errorf("%w: %w", errStuck, ctx.Err())
	}
}
