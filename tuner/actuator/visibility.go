package actuator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
)

// GPUVisibilities hides and shows GPUs of running containers, and knows by itself what is to
// be undone: the original of this knob is the owner's grant, which stands in the container's
// control group and in a record of its own. See, Hide and Sweep are given what is known of the
// host's GPUs.
type GPUVisibilities interface {
	See(ctx context.Context, c runtime.Container, known runtime.GPUView) ([]runtime.GPUVisibility, error)
	// Hide makes known.Hidden the hidden set; notes tell what could not be done beside it.
	Hide(ctx context.Context, c runtime.Container, known runtime.GPUView) (notes []string, err error)
	Restore(ctx context.Context, key string) (did bool, notes []string, err error)
	RestoreAll(ctx context.Context, each func(key, name string, did bool, notes []string, err error)) error
	// Sweep clears what is left in a container of which nothing is hidden, of a life of
	// its own before or of records that were lost. Done: it need not be called again.
	Sweep(ctx context.Context, c runtime.Container, known runtime.GPUView) (done bool, notes []string, err error)
	// Yielded tells which hidden devices somebody else has allowed again.
	Yielded(ctx context.Context, key string) []int
	Hiding() map[string][]int
	// Unsettled: a change failed or was cut off, and could not be undone.
	Unsettled(key string) bool
	// Containers are those with a record, by key; the name, at least, is known.
	Containers() map[string]runtime.Container
	Signal(c runtime.Container, s syscall.Signal) error
}

// Visibility is the actuator of KnobGPU. It holds the laws of that knob once more, against what
// stands. Its mutex is held from asking what may be done to having done it.
type Visibility struct {
	GPUVisibilities
	sync.Mutex
}

// VisibilityChange is what is to be hidden or shown, and what is known around it.
type VisibilityChange struct {
	Container runtime.Container
	Devices   GPUs                    // of the host
	Seen      []runtime.GPUVisibility // by the container, as See told
	Minors    []int                   // which to change
	Hide      bool
	By        policies.Hider
}

// VisibilityMoved is what became of one.
type VisibilityMoved struct {
	Minors []int
	Notes  []string
}

// Text tells people; hide is the change's.
func (m VisibilityMoved) Text(hide bool) string {
	if hide {
		return "hidden: " + runtime.GPUNames(m.Minors...)
	}
	return "shown: " + runtime.GPUNames(m.Minors...)
}

// Apply makes the difference between a change's two values, or undoes it. Only what a policy hid is
// shown, whatever the change says: what people hid is theirs. The caller holds the mutex.
func (v *Visibility) Apply(ctx context.Context, c runtime.Container, devices GPUs, ch policies.Change, undo bool) (did VisibilityMoved, err error) {
	hide := ch.Take != undo
	seen, err := v.See(ctx, c, runtime.GPUView{UUIDs: devices.UUIDs()})
	if err != nil {
		return did, err
	}
	more, less := strings.Split(string(ch.From), ","), strings.Split(string(ch.To), ",")
	if !ch.Take {
		more, less = less, more
	}
	var minors []int
	left := 0
	for _, s := range seen {
		switch moves := s.UUID != "" && slices.Contains(more, s.UUID) && !slices.Contains(less, s.UUID); {
		case moves && hide == s.Visible && (hide || s.ByPolicy):
			minors = append(minors, s.Minor)
		case s.Visible:
			left++
		}
	}
	if hide && left == 0 {
		return did, errors.New("it would see no device any more")
	}
	return v.Set(ctx, VisibilityChange{Container: c, Devices: devices, Seen: seen, Minors: minors, Hide: hide, By: policies.HiddenByPolicy})
}

// Set hides or shows what was picked; a device in use is never hidden (law: GPU access). The
// caller holds the mutex, since the new set is made of the one that was read. What a person
// asks for is no longer a policy's, also where it stands already.
func (v *Visibility) Set(ctx context.Context, s VisibilityChange) (did VisibilityMoved, err error) {
	known := runtime.GPUView{UUIDs: s.Devices.UUIDs()}
	owners := 0 // devices that are hidden and change hands
	for _, at := range s.Seen {
		if !at.Hidden {
			continue
		}
		known.Hidden = append(known.Hidden, at.Minor)
		switch picked := slices.Contains(s.Minors, at.Minor); {
		case at.ByPolicy && picked && s.Hide && s.By == policies.HiddenByPerson:
			owners++
		case at.ByPolicy:
			known.ByPolicy = append(known.ByPolicy, at.Minor)
		}
	}
	for _, minor := range s.Minors {
		if slices.Contains(known.Hidden, minor) == s.Hide {
			continue // it is already
		}
		if pids := s.Devices.Users(s.Container.Key(), minor); s.Hide && len(pids) > 0 {
			return did, fmt.Errorf("%s is in use: NVML lists process %d of this container on it; a device in use is never hidden", runtime.GPUNames(minor), pids[0])
		}
		did.Minors = append(did.Minors, minor)
	}
	if len(did.Minors)+owners == 0 {
		return did, nil
	}
	if s.Hide {
		known.Hidden = slices.Concat(known.Hidden, did.Minors)
		if s.By == policies.HiddenByPolicy {
			known.ByPolicy = slices.Concat(known.ByPolicy, did.Minors)
		}
	} else {
		gone := func(minor int) bool { return slices.Contains(did.Minors, minor) }
		known.Hidden, known.ByPolicy = slices.DeleteFunc(slices.Clone(known.Hidden), gone), slices.DeleteFunc(slices.Clone(known.ByPolicy), gone)
	}
	did.Notes, err = v.Hide(ctx, s.Container, known)
	return did, err
}

// GPUs are the host's devices, as NVML tells of them.
type GPUs []probes.Device

// UUIDs are those of whole GPUs, by minor number.
func (g GPUs) UUIDs() map[int]string {
	out := map[int]string{}
	for _, d := range g {
		if d.Parent == "" && d.UUID != "" {
			out[d.Minor] = d.UUID
		}
	}
	return out
}

// Names are what an engine may call each GPU, by its minor number.
func (g GPUs) Names() map[int][]string {
	out := map[int][]string{}
	for _, d := range g {
		if d.Parent == "" {
			out[d.Minor] = append(out[d.Minor], strconv.Itoa(d.Index))
		}
		if d.UUID != "" {
			out[d.Minor] = append(out[d.Minor], d.UUID)
		}
	}
	return out
}

// Index is NVML's index of a whole GPU; nil: it is not told.
func (g GPUs) Index(minor int) *int {
	for _, d := range g {
		if d.Parent == "" && d.Minor == minor {
			return &d.Index
		}
	}
	return nil
}

// Users are a container's processes on a device, its slices included, sorted.
func (g GPUs) Users(key string, minor int) (pids []int32) {
	for _, d := range g {
		for _, p := range d.Processes {
			if d.Minor == minor && p.Container == key {
				pids = append(pids, p.PID)
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}
