package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/engine"
)

// inspect asks Docker for one container. One that does not run gives ErrGone.
func (e *Engine) inspect(ctx context.Context, id string) (runtime.Container, error) {
	answer, err := e.client.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if errors.Is(err, errTooLong) || errors.Is(err, errTooMany) { // one container's trouble
		return runtime.Container{}, fmt.Errorf("container %.64q: %w: %w", id, engine.ErrNotBelieved, err)
	}
	if err != nil {
		return runtime.Container{}, err
	}
	info := answer.Container
	if info.State == nil || !info.State.Running || info.State.Pid <= 0 || info.Config == nil || info.HostConfig == nil {
		e.updates.Delete(id)
		return runtime.Container{}, fmt.Errorf("container %s does not run: %w", id, runtime.ErrGone)
	}
	if !isID(info.ID) {
		return runtime.Container{}, fmt.Errorf("container %.64q: %w: no engine of Docker's gives such an ID", info.ID, engine.ErrNotBelieved)
	}
	c := runtime.Container{
		ID:      runtime.ID{Engine: EngineName, Container: info.ID, Boot: e.host.BootID},
		Name:    strings.TrimPrefix(info.Name, "/"),
		Image:   info.Config.Image,
		State:   stateOf(info.State),
		InitPID: info.State.Pid,
		Start:   startOf(info),
	}
	c.Labels, c.LabelsDropped = engine.BoundLabels(e.ownLabels(ctx, info.Image, info.Config.Labels))
	c.GPUs, c.GPUVia = gpusOf(info.Config, info.HostConfig)
	placed, err := e.host.Place(c, "")
	if err == nil {
		err = e.owner.check(e.host, placed)
	}
	if err == nil {
		e.updates.LoadOrStore(info.ID, ownersValues(info.HostConfig.Resources, placed.Cgroup.Mode))
	}
	return placed, err
}

// isID tells Docker's IDs. By the ID a container's control group is found: another word, such
// as "user.slice", would name one that holds more than the container.
func isID(id string) bool {
	return id != "" && len(id) <= 64 && strings.Trim(id, "0123456789abcdef") == ""
}

// startOf is what Docker made a container of.
func startOf(info container.InspectResponse) *runtime.Start {
	s := &runtime.Start{ImageDigest: info.Image, Entrypoint: info.Config.Entrypoint, Command: info.Config.Cmd, Env: info.Config.Env}
	for _, m := range info.Mounts {
		s.Mounts = append(s.Mounts, runtime.Mount{Source: cmp.Or(m.Name, m.Source), Target: m.Destination})
	}
	slices.SortFunc(s.Mounts, func(a, b runtime.Mount) int { return cmp.Compare(a.Target, b.Target) }) // told in no order
	return s
}

func stateOf(s *container.State) runtime.State {
	if s.Paused {
		return runtime.StatePaused
	}
	return runtime.StateRunning
}
