package rivals

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/docker"
)

// Fleet is the containers whose names have a prefix, followed by the engine that
// trimtab writes through.
type Fleet struct {
	Engine *docker.Engine
	prefix string
	cancel context.CancelFunc
	done   chan error

	mu         sync.Mutex
	containers map[string]runtime.Container
	synced     chan struct{}
}

// syncWithin bounds the first listing.
const syncWithin = 20 * time.Second

// Follow returns once all containers that run are known; the caller closes the fleet.
func Follow(ctx context.Context, prefix string) (*Fleet, error) {
	e, err := docker.New(docker.Options{})
	if err != nil {
		return nil, err
	}
	f := &Fleet{Engine: e, prefix: prefix, done: make(chan error, 1), containers: map[string]runtime.Container{}, synced: make(chan struct{})}
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f.cancel = cancel
	go func() { f.done <- e.Run(following, f.event) }()
	select {
	case <-f.synced:
		return f, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(syncWithin):
		err = fmt.Errorf("Docker did not list its containers within %s", syncWithin)
	}
	return nil, errors.Join(err, f.Close())
}

func (f *Fleet) event(e runtime.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch e.Kind {
	case runtime.EventSeen, runtime.EventUpdate:
		if strings.HasPrefix(e.Container.Name, f.prefix) {
			f.containers[e.Container.Key()] = e.Container
		}
	case runtime.EventGone:
		delete(f.containers, e.Container.Key())
	case runtime.EventSynced:
		select {
		case <-f.synced: // a later listing
		default:
			close(f.synced)
		}
	}
}

// Containers returns those that run now, by key.
func (f *Fleet) Containers() map[string]runtime.Container {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.containers)
}

// Named returns the container of that name.
func (f *Fleet) Named(name string) (runtime.Container, error) {
	for _, c := range f.Containers() {
		if c.Name == name {
			return c, nil
		}
	}
	return runtime.Container{}, fmt.Errorf("container %q: Docker does not list it", name)
}

// Close ends the following.
func (f *Fleet) Close() error {
	f.cancel()
	<-f.done
	return f.Engine.Close()
}
