package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/trimtab/trimtab/runtime"
)

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
	turn, err := v.files.Take(ctx, c.Key())
	if err != nil {
		return out, fmt.Errorf("%w: %w", errStuck, err)
	}
	out, err = aside(ctx, func() (out T, err error) {
		defer turn.Give()
		root, err := v.inside(c)
		if err != nil {
			return out, err
		}
		defer root.Close()
		return work(ctx, root)
	})
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		turn.LeaveBehind()
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
