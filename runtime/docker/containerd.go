package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/trimtab/trimtab/runtime"
)

const (
	// namespaceHeader and resourcesType are containerd's wire names
	// (pkg/namespaces/grpc.go, client/client.go).
	namespaceHeader = "containerd-namespace"
	resourcesType   = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources"
)

// containerdDoor writes through the containerd at one address. Each use has a
// connection of its own: writes are rare, and an idle connection would have to
// be watched over restarts of containerd.
type containerdDoor struct {
	engine  *Engine
	address string
}

func (d containerdDoor) name() string { return "containerd/" + d.engine.opts.ContainerdNamespace }

// door picks the way to write to c: the containerd that runs its task, else Docker's API.
func (e *Engine) door(ctx context.Context, c runtime.Container) door {
	addresses := usualContainerdSockets[:]
	if given := e.opts.ContainerdAddress; given != "" {
		addresses = []string{strings.TrimPrefix(given, "unix://")}
	}
	var reasons []error
	for _, address := range addresses {
		d := containerdDoor{engine: e, address: address}
		err := d.runs(ctx, c)
		if err == nil {
			e.noteDoor("")
			return d
		}
		reasons = append(reasons, err)
	}
	if ctx.Err() == nil && e.alive(c) == nil { // else it says nothing about the host
		e.noteDoor(errors.Join(reasons...).Error())
	}
	return apiDoor{engine: e}
}

// noteDoor logs once that containerd's door is shut, or open again.
func (e *Engine) noteDoor(why string) {
	e.mu.Lock()
	open, wasOpen := why == "", e.doorNote == ""
	e.doorNote = why
	e.mu.Unlock()
	switch {
	case !open && wasOpen:
		e.opts.Logger.Warn("containerd cannot be reached; writing through Docker's API, which cannot lift a memory limit or --cpus",
			"reason", why, "mend", "give the path of the socket of Docker's containerd")
	case open && !wasOpen:
		e.opts.Logger.Info("containerd can be reached again; writing through it")
	}
}

// call connects, and calls with the namespace and a deadline set.
func (d containerdDoor) call(ctx context.Context, use func(context.Context, tasks.TasksClient) error) error {
	if _, err := os.Stat(d.address); err != nil {
		return fmt.Errorf("containerd's socket: %w: %w", err, runtime.ErrUnavailable)
	}
	conn, err := grpc.NewClient("unix://"+d.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("containerd at %s: %w: %w", d.address, err, runtime.ErrUnavailable)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, d.engine.opts.CallTimeout)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, namespaceHeader, d.engine.opts.ContainerdNamespace)
	if err := use(ctx, tasks.NewTasksClient(conn)); err != nil {
		return fmt.Errorf("containerd at %s: %w", d.address, err)
	}
	return nil
}

// runs returns nil if this containerd runs c's task.
func (d containerdDoor) runs(ctx context.Context, c runtime.Container) error {
	return d.call(ctx, func(ctx context.Context, client tasks.TasksClient) error {
		answer, err := client.Get(ctx, &tasks.GetRequest{ContainerID: c.ID.Container})
		if err != nil {
			return err
		}
		if pid := int(answer.GetProcess().GetPid()); pid != c.InitPID {
			return fmt.Errorf("its task has process %d, not %d", pid, c.InitPID)
		}
		return nil
	})
}

// apply sends the complete set of fields. A burst above the new quota has to go
// first, so that may take a second update.
func (d containerdDoor) apply(ctx context.Context, c runtime.Container, stands, set runtime.Values) error {
	all := stands.Clone()
	for knob, value := range set {
		all[knob] = value
	}
	if err := checkTogether(c, all, set); err != nil {
		return err
	}
	if burstBlocks(stands, all) {
		first := stands.Clone()
		first[runtime.KnobCPUBurst] = "0"
		if err := d.update(ctx, c, linuxResources(c.Cgroup, stands, first)); err != nil {
			return fmt.Errorf("container %q: %s: %w", c.Name, runtime.KnobCPUBurst, classify(err))
		}
	}
	if err := d.update(ctx, c, linuxResources(c.Cgroup, stands, all)); err != nil {
		return fmt.Errorf("container %q: %s: %w", c.Name, knobNames(set), classify(err))
	}
	return nil
}

func (d containerdDoor) update(ctx context.Context, c runtime.Container, r *specs.LinuxResources) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return d.call(ctx, func(ctx context.Context, client tasks.TasksClient) error {
		_, err := client.Update(ctx, &tasks.UpdateTaskRequest{
			ContainerID: c.ID.Container,
			Resources:   &anypb.Any{TypeUrl: resourcesType, Value: data},
		})
		return err
	})
}

// classify adds the class that a caller acts on. runc's own complaints come
// without a code of their own: what is not known otherwise is a refusal.
func classify(err error) error {
	if errors.Is(err, runtime.ErrUnavailable) || errors.Is(err, context.Canceled) {
		return err
	}
	switch status.Code(err) {
	case codes.Canceled:
		return fmt.Errorf("%w: %w", err, context.Canceled)
	case codes.NotFound:
		return fmt.Errorf("%w: %w", err, runtime.ErrGone)
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.PermissionDenied, codes.Unauthenticated:
		return fmt.Errorf("%w: %w", err, runtime.ErrUnavailable)
	}
	return fmt.Errorf("%w: %w", err, runtime.ErrRefused)
}

func knobNames(set runtime.Values) string {
	var names []string
	for _, knob := range sortedKnobs(set) {
		names = append(names, string(knob))
	}
	return strings.Join(names, ", ")
}
