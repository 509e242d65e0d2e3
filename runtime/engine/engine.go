// Package engine is what the engines of containers share: following a runtime over
// its restarts, finding a container's control group, and the checks around a
// write. It knows no runtime; each engine brings its own calls.
//
// The trap: a container's identity holds the start time of its init process, and
// whatever reads or writes first makes sure that this process still is the one.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// Labels are hostile input that is kept, compared and recorded: these bounds are
// far above what people write, and far below what would hurt.
const (
	maxLabels          = 128
	maxLabelKeyBytes   = 256
	maxLabelValueBytes = 4096
	maxLabelBytes      = 8 << 10 // of all keys and values of a container: of 8,192 that is 64 MiB
)

// The same of what else an engine says of a container; Docker bounds no name.
const (
	maxNameBytes  = 255
	maxImageBytes = 4096
	maxGPUBytes   = 128 // of one name: a MIG device's has some 50
	shortIDBytes  = 12  // as Docker shows them
)

// ErrUnplaced: the container runs, but its control group cannot be found.
var ErrUnplaced = errors.New("no control group")

// ErrNotBelieved: what the engine says of the container is not what its owner may decide on.
var ErrNotBelieved = errors.New("the engine is not believed")

// Host is the kernel's side of containers.
type Host struct {
	ProcRoot, CgroupRoot string // "/proc" and "/sys/fs/cgroup"
	BootID               string
}

// NewHost is the live host.
func NewHost() (Host, error) {
	const proc = "/proc"
	boot, err := cgroup.BootID(proc)
	return Host{ProcRoot: proc, CgroupRoot: cgroup.DefaultRoot, BootID: boot}, err
}

// Place adds what the kernel knows of a container whose init process is known:
// ErrGone where that ended, ErrUnplaced where its control group cannot be found.
// The start time is read before and after: a process number that went to another
// process in between does not give the container its control group. cgroupsPath is what
// the engine asked its runtime for, "" where it does not tell.
func (h Host) Place(c runtime.Container, cgroupsPath string) (runtime.Container, error) {
	c = bounded(c)
	c.ID.Boot = h.BootID
	before, err := cgroup.StartTick(h.ProcRoot, c.InitPID)
	if err != nil {
		return c, unplaced(c, err)
	}
	c.ID.StartTick = before
	cg, err := cgroup.Locate(h.ProcRoot, h.CgroupRoot, c.InitPID)
	if err != nil {
		return c, unplaced(c, err)
	}
	if cg, err = cgroup.Enclosing(cg, c.ID.Container, cgroupsPath); err != nil {
		return c, unplaced(c, err)
	}
	if err := h.Alive(c); err != nil {
		return c, unplaced(c, err)
	}
	c.Cgroup, c.Kubernetes = cg, c.Kubernetes || cgroup.IsKubernetes(cg)
	return c, nil
}

// bounded is a container without words that are too long: by its ID in place of its name, of an
// image that is not known, and without the GPUs of such names. They are in each reading and record.
func bounded(c runtime.Container) runtime.Container {
	if len(c.Name) > maxNameBytes {
		c.Name = c.ID.Container[:min(len(c.ID.Container), shortIDBytes)]
	}
	if len(c.Image) > maxImageBytes {
		c.Image = ""
	}
	if tooLong := func(gpu string) bool { return len(gpu) > maxGPUBytes }; slices.ContainsFunc(c.GPUs, tooLong) {
		if c.GPUs = slices.DeleteFunc(slices.Clone(c.GPUs), tooLong); len(c.GPUs) == 0 {
			c.GPUVia = ""
		}
	}
	return c
}

func unplaced(c runtime.Container, err error) error {
	if errors.Is(err, runtime.ErrGone) {
		return err
	}
	return fmt.Errorf("container %q: %w: %w", c.Name, ErrUnplaced, err)
}

// Alive returns ErrGone unless the container's init process is still the one of its ID.
func (h Host) Alive(c runtime.Container) error {
	tick, err := cgroup.StartTick(h.ProcRoot, c.InitPID)
	if err != nil {
		return fmt.Errorf("container %q: %w", c.Name, err)
	}
	if tick != c.ID.StartTick {
		return fmt.Errorf("container %q: process %d is another one: %w", c.Name, c.InitPID, runtime.ErrGone)
	}
	return nil
}

// Read is runtime.Engine's.
func (h Host) Read(ctx context.Context, c runtime.Container) (runtime.Values, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := h.Alive(c); err != nil {
		return nil, err
	}
	values, err := cgroup.ReadValues(c.Cgroup)
	if err != nil {
		return nil, fmt.Errorf("container %q: %w", c.Name, err)
	}
	return values, nil
}

// BoundLabels drops labels beyond the bounds, trimtab's own last and, before these, those that something
// is read from. One that is too long is dropped, not cut: half a value says something else.
func BoundLabels(labels map[string]string) (kept map[string]string, dropped int) {
	keys := slices.SortedFunc(maps.Keys(labels), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a, b))
	})
	kept, bytes := make(map[string]string), 0
	for _, key := range keys {
		size := len(key) + len(labels[key])
		if len(key) <= maxLabelKeyBytes && len(labels[key]) <= maxLabelValueBytes && len(kept) < maxLabels && bytes+size <= maxLabelBytes {
			kept[key] = labels[key]
			bytes += size
		}
	}
	return kept, len(labels) - len(kept)
}

// Labels of others that something is read from, or that rules match by most.
const (
	LabelNerdctlName    = "nerdctl/name" // the name that people know
	labelComposeProject = "com.docker.compose.project"
	labelComposeService = "com.docker.compose.service"
)

func rank(key string) int {
	switch {
	case isOurs(key):
		return 0
	case key == LabelNerdctlName, key == labelComposeProject, key == labelComposeService:
		return 1
	}
	return 2
}

// OwnLabels are trimtab's own of these.
func OwnLabels(labels map[string]string) map[string]string {
	own := maps.Clone(labels)
	maps.DeleteFunc(own, func(key, _ string) bool { return !isOurs(key) })
	return own
}

func isOurs(key string) bool { return strings.HasPrefix(key, "trimtab.") }
