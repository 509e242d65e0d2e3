// Package turns lets one at a time do something to each of several things, by key. Who waits may give up.
package turns

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Turns are those at all keys; what nobody has is not kept. The zero Turns is ready, and safe for concurrent use.
type Turns struct {
	mu    sync.Mutex
	taken map[string]*Turn
}

// Turn is had by one at a time.
type Turn struct {
	of    *Turns
	key   string
	back  chan struct{} // closes when it is given back
	stuck bool          // who has it did not come back in time: nobody waits for it
}

// Take waits for the turn until ctx ends. A free one is had even then.
func (m *Turns) Take(ctx context.Context, key string) (*Turn, error) {
	for {
		m.mu.Lock()
		other := m.taken[key]
		if other == nil {
			own := &Turn{of: m, key: key, back: make(chan struct{})}
			if m.taken == nil {
				m.taken = map[string]*Turn{}
			}
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

// Try takes the turn if it is free.
func (m *Turns) Try(key string) (_ *Turn, ok bool) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	own, err := m.Take(done, key)
	return own, err == nil
}

// Give gives it back.
func (t *Turn) Give() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	delete(t.of.taken, t.key)
	close(t.back)
}

// LeaveBehind says that who has it did not come back in time.
func (t *Turn) LeaveBehind() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.stuck = true
}
