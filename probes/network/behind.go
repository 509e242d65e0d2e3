package network

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// patience is how long a reading is waited for: far longer than one takes on a
// machine that answers, and short beside a tick.
const patience = 100 * time.Millisecond

var errNoAnswer = errors.New("the kernel does not answer: does a network device hang?")

// behind reads what may hang in a goroutine of its own, one reading at a time, so
// that nobody who asks waits longer than patience. One that never returns costs its
// goroutine. Its methods may be called from any goroutine.
type behind[T any] struct {
	read   func() T
	flight singleflight.Group
	value  atomic.Pointer[T] // nil: no reading was done
}

// latest is the reading that was done last.
func (b *behind[T]) latest() (v T, ok bool) {
	if done := b.value.Load(); done != nil {
		return *done, true
	}
	return v, false
}

// get makes a reading, or, where it takes too long, returns the latest; false: there
// is none.
func (b *behind[T]) get() (v T, ok bool) {
	done := b.flight.DoChan("", func() (any, error) {
		v := b.read()
		b.value.Store(&v)
		return nil, nil
	})
	select {
	case <-done:
	case <-time.After(patience):
	}
	return b.latest()
}
