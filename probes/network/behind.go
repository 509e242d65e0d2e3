package network

import (
	"errors"
	"sync"
	"time"
)

// patience is how long a reading is waited for: far longer than one takes on a
// machine that answers, and short beside a tick.
const patience = 100 * time.Millisecond

var errNoAnswer = errors.New("the kernel does not answer: does a network device hang?")

// behind reads what may hang in a goroutine of its own, one reading at a time, so
// that nobody who asks waits longer than patience. One that never returns costs its
// goroutine, and who asks meanwhile leaves nothing behind, as a waiter of singleflight does. Its methods may
// be called from any goroutine.
type behind[T any] struct {
	read func() T

	mu      sync.Mutex
	value   T
	have    bool
	running chan struct{} // closed when the reading in flight is done; nil: none is
}

// latest is the reading that was done last.
func (b *behind[T]) latest() (v T, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.value, b.have
}

// get makes a reading, or, where it takes too long, returns the latest; false: there
// is none.
func (b *behind[T]) get() (v T, ok bool) {
	b.mu.Lock()
	done := b.running
	if done == nil {
		done = make(chan struct{})
		b.running = done
		go b.fill(done)
	}
	b.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	return b.latest()
}

func (b *behind[T]) fill(done chan struct{}) {
	v := b.read()
	b.mu.Lock()
	b.value, b.have, b.running = v, true, nil
	b.mu.Unlock()
	close(done)
}
