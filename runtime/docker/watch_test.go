package docker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/docker"
	"github.com/trimtab/trimtab/test/runtimetest"
)

// patience is how long a test waits for what must come; only a failure takes it all.
const patience = 30 * time.Second

// recorder runs an engine and keeps what it says.
type recorder struct {
	mu     sync.Mutex
	events []runtime.Event
	wake   chan struct{}
}

// watch runs e until the test ends.
func watch(t *testing.T, e *docker.Engine) *recorder {
	t.Helper()
	r := &recorder{wake: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx, r.add) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != context.Canceled {
			t.Errorf("Run ended with %v", err)
		}
	})
	return r
}

func (r *recorder) add(event runtime.Event) {
	r.mu.Lock()
	r.events = append(r.events, event)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *recorder) snapshot() []runtime.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]runtime.Event(nil), r.events...)
}

// find waits for the first event from index from on that matches, and returns it
// with the index after it.
func (r *recorder) find(t *testing.T, from int, what string, match func(runtime.Event) bool) (runtime.Event, int) {
	t.Helper()
	deadline := time.After(patience)
	for {
		events := r.snapshot()
		for i := from; i < len(events); i++ {
			if match(events[i]) {
				return events[i], i + 1
			}
		}
		select {
		case <-r.wake:
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			t.Fatalf("no event: %s; had %s", what, brief(events))
		}
	}
}

// expect waits for an event of one kind about one container.
func (r *recorder) expect(t *testing.T, from int, kind runtime.EventKind, id string) (runtime.Container, int) {
	t.Helper()
	event, next := r.find(t, from, fmt.Sprintf("%s of %.12s", kind, id), func(e runtime.Event) bool {
		return e.Kind == kind && e.Container.ID.Container == id
	})
	return event.Container, next
}

func (r *recorder) expectKind(t *testing.T, from int, kind runtime.EventKind) (runtime.Event, int) {
	t.Helper()
	return r.find(t, from, string(kind), func(e runtime.Event) bool { return e.Kind == kind })
}

func brief(events []runtime.Event) (out []string) {
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s %s %s %s", e.Kind, e.Container.Name, e.Container.State, e.Reason))
	}
	return out
}

func newEngine(t *testing.T, opts docker.Options) *docker.Engine {
	t.Helper()
	e, err := docker.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func TestLifeOfAContainer(t *testing.T) {
	host := runtimetest.NeedDocker(t)
	early := host.Start(t, "--label", "trimtab.mode=tune", "--label", "a=b")
	r := watch(t, newEngine(t, docker.Options{}))

	listed, at := r.expect(t, 0, runtime.EventSeen, early)
	_, synced := r.expectKind(t, 0, runtime.EventSynced)
	if at >= synced {
		t.Errorf("the container that ran before was told after the end of the listing")
	}
	if listed.Labels["trimtab.mode"] != "tune" || listed.State != runtime.StateRunning || listed.InitPID == 0 ||
		listed.Cgroup.ID == 0 || listed.ID.StartTick == 0 || listed.Image != runtimetest.ImageName || listed.GPUs != nil {
		t.Errorf("listed: %+v", listed)
	}

	late := host.Start(t)
	started, at := r.expect(t, 0, runtime.EventSeen, late)
	host.Run(t, "pause", late)
	paused, at := r.expect(t, at, runtime.EventSeen, late)
	if paused.State != runtime.StatePaused || paused.ID != started.ID {
		t.Errorf("paused: %+v", paused)
	}
	host.Run(t, "unpause", late)
	if c, next := r.expect(t, at, runtime.EventSeen, late); c.State != runtime.StateRunning {
		t.Errorf("unpaused: %+v", c)
	} else {
		at = next
	}
	renamed := started.Name + "-b"
	host.Run(t, "rename", late, renamed)
	if c, next := r.expect(t, at, runtime.EventSeen, late); c.Name != renamed {
		t.Errorf("renamed: %+v", c)
	} else {
		at = next
	}
	t.Cleanup(func() { host.Remove(t, renamed) })
	host.Run(t, "update", "--cpu-shares", "512", late)
	_, at = r.expect(t, at, runtime.EventUpdate, late)

	host.Run(t, "restart", "-t", "0", late)
	gone, at := r.expect(t, at, runtime.EventGone, late)
	again, at := r.expect(t, at, runtime.EventSeen, late)
	if gone.ID != started.ID || again.ID == started.ID || again.Key() == started.Key() {
		t.Errorf("a restart is another life: %v then %v", started.ID, again.ID)
	}
	host.Run(t, "kill", late)
	if gone, _ := r.expect(t, at, runtime.EventGone, late); gone.ID != again.ID {
		t.Errorf("gone: %+v", gone)
	}
}

// TestCrashLoop: a container that Docker keeps restarting comes and goes, each life
// of its own, and between two it is not there.
func TestCrashLoop(t *testing.T) {
	host := runtimetest.NeedDocker(t)
	r := watch(t, newEngine(t, docker.Options{}))
	_, at := r.expectKind(t, 0, runtime.EventSynced)
	id := host.StartCommand(t, []string{"--restart=always"}, "sleep", "0.3")
	lives := make(map[runtime.ID]bool)
	for range 3 {
		var seen, gone runtime.Container
		seen, at = r.expect(t, at, runtime.EventSeen, id)
		gone, at = r.expect(t, at, runtime.EventGone, id)
		if gone.ID != seen.ID || lives[seen.ID] {
			t.Errorf("seen %v, gone %v, before %v", seen.ID, gone.ID, lives)
		}
		lives[seen.ID] = true
	}
	for _, event := range r.snapshot() {
		if event.Kind == runtime.EventLost {
			t.Errorf("Docker counts as lost: %s", event.Reason)
		}
	}
}
