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

// keyedMutex lets one at a time at each container. What nobody has or waits for is not kept.
type keyedMutex struct {
	mu  sync.Mutex
	all map[string]*turn
}

type turn struct {
	slot  chan struct{} // full while it is taken
	users int           // that have it or wait for it
	// stuck closes when one that did not come back in time does; nil: none.
	stuck <-chan struct{}
}

func newKeyedMutex() *keyedMutex { return &keyedMutex{all: map[string]*turn{}} }

// join makes sure that the turn stays the same one for as long as anybody looks at it.
func (t *keyedMutex) join(key string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[key] == nil {
		t.all[key] = &turn{slot: make(chan struct{}, 1)}
	}
	t.all[key].users++
	return t.all[key]
}

func (t *keyedMutex) leave(key string, of *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of.users--; of.users == 0 {
		delete(t.all, key)
	}
}

// take waits for the turn until ctx ends. A free one is had even then.
func (t *keyedMutex) take(ctx context.Context, key string) (give func(), err error) {
	of := t.join(key)
	give = func() {
		<-of.slot
		t.leave(key, of)
	}
	select {
	case of.slot <- struct{}{}:
		return give, nil
	default:
	}
	if t.isStuck(of) {
		t.leave(key, of)
		return nil, errors.New("who was at it first has yet to come back")
	}
	select {
	case of.slot <- struct{}{}:
		return give, nil
	case <-ctx.Done():
		t.leave(key, of)
		return nil, fmt.Errorf("somebody else is at it: %w", ctx.Err())
	}
}

// try takes the turn if it is free.
func (t *keyedMutex) try(key string) (give func(), ok bool) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	give, err := t.take(done, key)
	return give, err == nil
}

// leftBehind: who has the turn did not come back in time; nobody waits until they do.
func (t *keyedMutex) leftBehind(of *turn, back <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of.stuck = back
}

func (t *keyedMutex) isStuck(of *turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of.stuck == nil {
		return false
	}
	select {
	case <-of.stuck:
		return false
	default:
		return true
	}
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
	key := c.Key()
	give, err := v.files.take(ctx, key)
	if err != nil {
		return out, fmt.Errorf("%w: %w", errStuck, err)
	}
	of := v.files.join(key)
	defer v.files.leave(key, of)
	back, result := make(chan struct{}), make(chan filesOf[T], 1)
	go func() {
		var r filesOf[T]
		defer func() {
			r.panicked = recover()
			give()
			close(back)
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
		v.files.leftBehind(of, back)
		return out, fmt.Errorf("%w: %w", errStuck, ctx.Err())
	}
}
