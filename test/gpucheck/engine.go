package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/runtime/containerd"
)

// engineName is how containers of the check are told from others'.
const engineName = "runc"

// runcEngine is the runtime.Engine of the check's containers: it reads control
// groups and writes by `runc update`, the door below Docker's and containerd's.
// The check itself says which containers there are.
type runcEngine struct {
	runc runcTool

	mu  sync.Mutex
	all map[string]runtime.Container
}

func newEngine(r runcTool) *runcEngine {
	return &runcEngine{runc: r, all: map[string]runtime.Container{}}
}

// add tells of a container before the engine runs.
func (e *runcEngine) add(c runtime.Container) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all[c.ID.Container] = c
}

// Name implements runtime.Engine.
func (e *runcEngine) Name() string { return engineName }

// Run implements runtime.Engine.
func (e *runcEngine) Run(ctx context.Context, sink func(runtime.Event)) error {
	e.mu.Lock()
	for _, c := range e.all {
		sink(runtime.Event{Kind: runtime.EventSeen, Engine: engineName, Container: c})
	}
	e.mu.Unlock()
	sink(runtime.Event{Kind: runtime.EventSynced, Engine: engineName})
	<-ctx.Done()
	return ctx.Err()
}

// alive gives ErrGone unless the very process lives: a PID may have another owner by now.
func alive(c runtime.Container) error {
	tick, err := cgroup.StartTick("/proc", c.InitPID)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, runtime.ErrGone) || err == nil && tick != c.ID.StartTick {
		return fmt.Errorf("container %q: %w", c.Name, runtime.ErrGone)
	}
	return err
}

// Read implements runtime.Engine.
func (e *runcEngine) Read(_ context.Context, c runtime.Container) (runtime.Values, error) {
	if err := alive(c); err != nil {
		return nil, err
	}
	return cgroup.ReadValues(c.Cgroup)
}

// Apply implements runtime.Engine. runc replaces its copy of what an update names,
// so the update names all that stands, with set laid over it.
func (e *runcEngine) Apply(ctx context.Context, c runtime.Container, set runtime.Values) error {
	stands, err := e.Read(ctx, c)
	if err != nil {
		return err
	}
	all := stands.Clone()
	for knob, value := range set {
		if _, ok := all[knob]; !ok {
			return fmt.Errorf("container %q: %s: no such knob here: %w", c.Name, knob, runtime.ErrRefused)
		}
		all[knob] = value
	}
	text, err := json.Marshal(containerd.LinuxResources(c.Cgroup, stands, all))
	if err != nil {
		return err
	}
	if _, err := e.runc.do(ctx, string(text), "update", "--resources", "-", c.ID.Container); err != nil {
		return fmt.Errorf("container %q: %w: %w", c.Name, classOf(err), err)
	}
	return nil
}

func classOf(err error) error {
	switch text := err.Error(); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, context.DeadlineExceeded):
		return runtime.ErrUnavailable
	case strings.Contains(text, "does not exist"), strings.Contains(text, "not running"):
		return runtime.ErrGone
	}
	return runtime.ErrRefused
}

// Door implements runtime.Engine.
func (e *runcEngine) Door(context.Context, runtime.Container) string { return "runc update" }
