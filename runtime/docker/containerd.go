package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/containerd"
)

// containerdUpdater writes through the containerd at one address.
type containerdUpdater struct{ tasks containerd.Tasks }

func (d containerdUpdater) name() string { return "containerd/" + d.tasks.Namespace }

// updater picks how to write to c: by the containerd that runs its task, else by
// Docker's API. A containerd that hangs stays the one: what Docker's API writes
// is stored for good, which no hiccup should bring about.
func (e *Engine) updater(ctx context.Context, c runtime.Container) updater {
	var reasons []error
	for _, address := range e.containerdSockets() {
		d := containerdUpdater{containerd.Tasks{Address: address, Namespace: containerd.DockerNamespace, Timeout: e.opts.CallTimeout, Host: e.host}}
		err := d.runs(ctx, c)
		if err == nil {
			e.noteUpdater("")
			return d
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return d
		}
		reasons = append(reasons, err)
	}
	if ctx.Err() == nil && e.host.Alive(c) == nil { // else it says nothing about the host
		e.noteUpdater(errors.Join(reasons...).Error())
	}
	return apiUpdater{engine: e}
}

func (e *Engine) containerdSockets() []string {
	if given := e.opts.ContainerdAddress; given != "" {
		return []string{strings.TrimPrefix(given, "unix://")}
	}
	return usualContainerdSockets[:]
}

// Containerd names a socket of containerd's that answers, where no container tells yet
// which one is Docker's; the error says what stands in the way of each.
func (e *Engine) Containerd(ctx context.Context) (string, error) {
	var reasons []error
	for _, address := range e.containerdSockets() {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", address)
		if err != nil {
			reasons = append(reasons, err)
			continue
		}
		return address, conn.Close()
	}
	return "", errors.Join(reasons...)
}

// noteUpdater logs once that containerd cannot be reached, or can be again.
func (e *Engine) noteUpdater(why string) {
	e.mu.Lock()
	open, wasOpen := why == "", e.updaterNote == ""
	e.updaterNote = why
	e.mu.Unlock()
	switch {
	case !open && wasOpen:
		e.opts.Logger.Warn("containerd cannot be reached; writing through Docker's API, which cannot lift a memory limit or --cpus",
			"reason", why, "hint", "give the path of the socket of Docker's containerd")
	case open && !wasOpen:
		e.opts.Logger.Info("containerd can be reached again; writing through it")
	}
}

// runs returns nil if this containerd runs c's task.
func (d containerdUpdater) runs(ctx context.Context, c runtime.Container) error {
	pid, err := d.tasks.InitPID(ctx, c.ID.Container)
	if err == nil && pid != c.InitPID {
		return fmt.Errorf("containerd at %s: its task has process %d, not %d", d.tasks.Address, pid, c.InitPID)
	}
	return err
}

func (d containerdUpdater) apply(ctx context.Context, c runtime.Container, stands, set runtime.Values, inFlight []runtime.Values) error {
	return d.tasks.Apply(ctx, c, stands, set, inFlight)
}
