package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/containerd"
)

// containerdDoor writes through the containerd at one address.
type containerdDoor struct{ tasks containerd.Tasks }

func (d containerdDoor) name() string { return "containerd/" + d.tasks.Namespace }

// door picks the way to write to c: the containerd that runs its task, else
// Docker's API. A containerd that hangs stays the door: what Docker's API writes
// is stored for good, which no hiccup should bring about.
func (e *Engine) door(ctx context.Context, c runtime.Container) door {
	addresses := usualContainerdSockets[:]
	if given := e.opts.ContainerdAddress; given != "" {
		addresses = []string{strings.TrimPrefix(given, "unix://")}
	}
	var reasons []error
	for _, address := range addresses {
		d := containerdDoor{containerd.Tasks{Address: address, Namespace: e.opts.ContainerdNamespace, Timeout: e.opts.CallTimeout}}
		err := d.runs(ctx, c)
		if err == nil {
			e.noteDoor("")
			return d
		}
		if errors.Is(err, context.DeadlineExceeded) {
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

// runs returns nil if this containerd runs c's task.
func (d containerdDoor) runs(ctx context.Context, c runtime.Container) error {
	pid, err := d.tasks.InitPID(ctx, c.ID.Container)
	if err == nil && pid != c.InitPID {
		return fmt.Errorf("containerd at %s: its task has process %d, not %d", d.tasks.Address, pid, c.InitPID)
	}
	return err
}

// apply sends the complete set of values. A burst above the new quota has to go
// first, so that may take a second update.
func (d containerdDoor) apply(ctx context.Context, c runtime.Container, stands, set runtime.Values) error {
	all := merge(stands, set)
	if err := checkTogether(c, all, set); err != nil {
		return err
	}
	if burstBlocks(stands, all) {
		first := merge(stands, runtime.Values{runtime.KnobCPUBurst: "0"})
		if err := d.tasks.Update(ctx, c.ID.Container, containerd.LinuxResources(c.Cgroup, stands, first)); err != nil {
			return fmt.Errorf("container %q: %s: %w", c.Name, runtime.KnobCPUBurst, err)
		}
	}
	if err := d.tasks.Update(ctx, c.ID.Container, containerd.LinuxResources(c.Cgroup, stands, all)); err != nil {
		return fmt.Errorf("container %q: %s: %w", c.Name, knobNames(set), err)
	}
	return nil
}

// merge returns what will stand once set is applied.
func merge(stands, set runtime.Values) runtime.Values {
	all := stands.Clone()
	maps.Copy(all, set)
	return all
}

func knobNames(set runtime.Values) string {
	var names []string
	for _, knob := range sortedKnobs(set) {
		names = append(names, string(knob))
	}
	return strings.Join(names, ", ")
}
