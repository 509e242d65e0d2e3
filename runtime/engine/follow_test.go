package engine

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// oneContainer is a runtime with a container, whose first session breaks, and which is not found
// once in the second.
type oneContainer struct {
	sessions, looks int
	failed          chan error
	c               runtime.Container
}

func (s *oneContainer) Open(ctx context.Context) (Session, error) {
	failed := make(chan error, 2)
	s.sessions, s.looks, s.failed = s.sessions+1, 0, failed
	if s.sessions == 1 {
		failed <- errors.New("it was restarted")
	}
	context.AfterFunc(ctx, func() { failed <- ctx.Err() })
	return s, nil
}

func (s *oneContainer) List(context.Context) ([]string, error) { return []string{"a"}, nil }

func (s *oneContainer) Inspect(context.Context, string) (runtime.Container, error) {
	if s.looks++; s.sessions == 2 && s.looks == 1 {
		return runtime.Container{}, ErrUnplaced
	}
	return s.c, nil
}

func (s *oneContainer) Notices() <-chan Notice { return nil }

func (s *oneContainer) Failed() <-chan error { return s.failed }

// TestFoundAfterAReconnect: who follows takes what is not told before it is synced for gone. So a
// container that cannot be placed just then is told of again, though nothing of it has changed.
func TestFoundAfterAReconnect(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick, err := cgroup.StartTick("/proc", os.Getpid()) // a process that lives on
	if err != nil {
		t.Fatal(err)
	}
	c := runtime.Container{ID: runtime.ID{Container: "a", StartTick: tick}, Name: "train", InitPID: os.Getpid()}
	synced, seenAfter := 0, false
	err = Follow(ctx, &oneContainer{c: c}, Options{Engine: "fake", Title: "Fake", Logger: slog.New(slog.DiscardHandler),
		CallTimeout: time.Second, RelistEvery: 20 * time.Millisecond, Host: Host{ProcRoot: "/proc"}}, func(e runtime.Event) {
		switch e.Kind {
		case runtime.EventSynced:
			synced++
		case runtime.EventSeen:
			if synced == 2 {
				seenAfter = true
				cancel()
			}
		}
	})
	if !seenAfter {
		t.Errorf("it was not told of again: %v, synced %d times", err, synced)
	}
}
