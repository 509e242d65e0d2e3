package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// Labels are hostile input that is kept, compared and recorded: these bounds are
// far above what people write, and far below what would hurt.
const (
	maxLabels          = 128
	maxLabelKeyBytes   = 256
	maxLabelValueBytes = 4096
)

// errUnplaced: the container runs, but its control group cannot be found.
var errUnplaced = errors.New("no control group")

// inspect asks Docker for one container. One that does not run gives ErrGone.
func (e *Engine) inspect(ctx context.Context, id string) (runtime.Container, error) {
	answer, err := e.client.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return runtime.Container{}, err
	}
	info := answer.Container
	if info.State == nil || !info.State.Running || info.State.Pid <= 0 || info.Config == nil || info.HostConfig == nil {
		return runtime.Container{}, fmt.Errorf("container %s does not run: %w", id, runtime.ErrGone)
	}
	c := runtime.Container{
		ID:      runtime.ID{Engine: EngineName, Container: info.ID, Boot: e.bootID},
		Name:    strings.TrimPrefix(info.Name, "/"),
		Image:   info.Config.Image,
		Labels:  boundLabels(info.Config.Labels),
		State:   stateOf(info.State),
		InitPID: info.State.Pid,
	}
	c.GPUs, c.GPUVia = gpusOf(info.Config, info.HostConfig)
	if created, err := time.Parse(time.RFC3339Nano, info.Created); err == nil {
		c.CreatedUnixNs = created.UnixNano()
	}
	return e.place(c)
}

func stateOf(s *container.State) runtime.State {
	if s.Paused {
		return runtime.StatePaused
	}
	return runtime.StateRunning
}

// place adds what the kernel knows of the container. The start time is read
// before and after: a process number that went to another process in between
// does not give the container its control group.
func (e *Engine) place(c runtime.Container) (runtime.Container, error) {
	before, err := cgroup.StartTick(e.opts.ProcRoot, c.InitPID)
	if err != nil {
		return c, unplaced(c, err)
	}
	c.ID.StartTick = before
	cg, err := cgroup.Locate(e.opts.ProcRoot, e.opts.CgroupRoot, c.InitPID)
	if err != nil {
		return c, unplaced(c, err)
	}
	if cg, err = cgroup.Enclosing(cg, c.ID.Container); err != nil {
		return c, unplaced(c, err)
	}
	if err := e.alive(c); err != nil {
		return c, unplaced(c, err)
	}
	c.Cgroup, c.Kubernetes = cg, cgroup.IsKubernetes(cg)
	return c, nil
}

func unplaced(c runtime.Container, err error) error {
	if errors.Is(err, runtime.ErrGone) {
		return err
	}
	return fmt.Errorf("container %q: %w: %w", c.Name, errUnplaced, err)
}

// boundLabels drops labels beyond the bounds, trimtab's own last. One that is too
// long is dropped, not cut: half a value says something else.
func boundLabels(labels map[string]string) map[string]string {
	keys := slices.SortedFunc(maps.Keys(labels), func(a, b string) int {
		if ours := isOurs(a); ours != isOurs(b) {
			if ours {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	out := make(map[string]string)
	for _, key := range keys {
		if len(key) <= maxLabelKeyBytes && len(labels[key]) <= maxLabelValueBytes && len(out) < maxLabels {
			out[key] = labels[key]
		}
	}
	return out
}

func isOurs(key string) bool { return strings.HasPrefix(key, "trimtab.") }
