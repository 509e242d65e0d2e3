package device

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/turns"
)

// Hidden is what trimtab did to one container's view of its GPUs, and all that is
// needed to undo it, without the engine. It is on disk before the first write, and
// while a change is under way it covers what stood before and what will stand: each
// step of undoing asks first whether it is to be undone. On disk fields may be
// added, none is ever taken away or given another meaning.
type Hidden struct {
	Container runtime.Container `json:"container"` // id, name, init process, control group, GPUs
	Minors    []int             `json:"minors"`    // N of /dev/nvidiaN that are hidden; may be empty: the file alone stands
	// ByPolicy are those of Minors that a policy asked for, and no person.
	ByPolicy []int `json:"byPolicy,omitempty"`
	// All: no GPU is left, so nvidiactl, uvm and caps are hidden as well.
	All bool `json:"all,omitempty"`
	// Kept are the minor numbers that a rule for all of them is narrowed to.
	Kept []int `json:"kept,omitempty"`
	// Removed were taken from v1's list and go back, Added stand in their place and
	// go. On v2 the replaced program tells by itself what is before and after (hide.go).
	Removed []runtime.DeviceRule `json:"removed,omitempty"`
	Added   []runtime.DeviceRule `json:"added,omitempty"`
	// Open: v1's list allows everything; Removed are exceptions, which it does not show.
	Open bool `json:"open,omitempty"`
	// UnitRemoved and UnitAdded are the same of the scope's DeviceAllow.
	UnitRemoved []Allow `json:"unitRemoved,omitempty"`
	UnitAdded   []Allow `json:"unitAdded,omitempty"`
	Nodes       []Node  `json:"nodes,omitempty"` // removed from the container's /dev
	File        bool    `json:"file,omitempty"`  // its /run/trimtab/gpus is trimtab's
	// Unsettled: a change is under way, or was cut off. It stands until all that was
	// written is known to be whole again, or undone.
	Unsettled bool `json:"unsettled,omitempty"`
}

// Node is a device node that was removed from a container's /dev.
type Node struct {
	Name  string `json:"name"`
	Major int    `json:"major"`
	Minor int    `json:"minor"`
	Mode  uint32 `json:"mode"` // permissions
	UID   int    `json:"uid"`
	GID   int    `json:"gid"`
}

// Records keep, over restarts and crashes, what was hidden, by container key: each by
// itself, so that one that cannot be read costs one container. Save and Remove are
// durable when they return.
type Records interface {
	// Load also tells of which containers the record cannot be read.
	Load() (all map[string]Hidden, unread map[string]error, err error)
	Save(key string, h Hidden) error
	Remove(key string) error
}

// ledger is the records in force, and turns: rules are written by one at a time.
type ledger struct {
	mu     sync.Mutex
	store  Records          // nil: nothing may be hidden
	err    error            // of loading: nothing may be written over what could not be read
	unread map[string]error // likewise, of single containers
	all    map[string]Hidden
	turns  turns.Turns
}

func openLedger(store Records) *ledger {
	l := &ledger{store: store, all: map[string]Hidden{}}
	if store == nil {
		l.err = errors.New("what is hidden cannot be remembered, so nothing is hidden")
		return l
	}
	all, unread, err := store.Load()
	if err == nil && all != nil {
		l.all = all
	}
	l.unread, l.err = unread, err
	return l
}

func (l *ledger) get(key string) (Hidden, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.all[key]
	return h, ok
}

func (l *ledger) copy() map[string]Hidden {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.all)
}

// put makes a record durable; nil removes it.
func (l *ledger) put(key string, h *Hidden) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := cmp.Or(l.err, l.unread[key]); err != nil {
		return err
	}
	if h == nil {
		if err := l.store.Remove(key); err != nil {
			return err
		}
		delete(l.all, key)
		return nil
	}
	if err := l.store.Save(key, *h); err != nil {
		return err
	}
	l.all[key] = *h
	return nil
}

// narrow is what stands of GPU rules while h is in force.
func (h Hidden) narrow(all []runtime.DeviceRule) []runtime.DeviceRule {
	if len(h.Minors) == 0 {
		return all
	}
	var out []runtime.DeviceRule
	for _, r := range all {
		switch {
		case h.All:
		case r.Major != nvidiaMajor:
			out = append(out, r)
		case r.Minor == runtime.AnyDevice:
			for _, minor := range h.Kept {
				out = append(out, runtime.DeviceRule{Kind: "c", Major: nvidiaMajor, Minor: minor, Access: r.Access})
			}
		case !slices.Contains(h.Minors, r.Minor):
			out = append(out, r)
		}
	}
	return combine(out, nil)
}

// whole turns what was seen to stand back into what stands when nothing is hidden.
func (h Hidden) whole(stands []runtime.DeviceRule) []runtime.DeviceRule {
	if h.Open || len(h.Minors) == 0 {
		return stands
	}
	return combine(without(stands, h.Added), readable(h.Removed))
}

func readable(all []runtime.DeviceRule) []runtime.DeviceRule {
	return slices.DeleteFunc(slices.Clone(all), func(r runtime.DeviceRule) bool { return !opens(r.Access) })
}

// seen is the container with the GPUs that it has left.
func (h Hidden) seen(c runtime.Container) runtime.Container {
	switch {
	case h.All:
		c.GPUs = nil
	case len(h.Minors) > 0:
		c.GPUs = slices.DeleteFunc(slices.Clone(c.GPUs), func(gpu string) bool {
			minor, err := strconv.Atoi(gpu)
			return err == nil && slices.Contains(h.Minors, minor)
		})
	}
	return c
}

// accessByRule is how v1 keeps rules, here without their access: one for each kind and numbers,
// of which it adds and takes single letters.
type accessByRule map[runtime.DeviceRule]int32

func byNumbers(all []runtime.DeviceRule) accessByRule {
	out := accessByRule{}
	for _, r := range all {
		bits := accessBits(r.Access)
		r.Access = ""
		out[r] |= bits
	}
	return out
}

func (all accessByRule) rules() []runtime.DeviceRule {
	var out []runtime.DeviceRule
	for r, bits := range all {
		for _, letter := range []string{"r", "w", "m"} {
			if bits&accessBits(letter) != 0 {
				r.Access += letter
			}
		}
		if r.Access != "" {
			out = append(out, r)
		}
	}
	return sorted(out)
}

// combine is a list after devices.allow of more, as the kernel keeps it.
func combine(list, more []runtime.DeviceRule) []runtime.DeviceRule {
	return byNumbers(slices.Concat(list, more)).rules()
}

// without is a list after devices.deny of less.
func without(list, less []runtime.DeviceRule) []runtime.DeviceRule {
	out := byNumbers(list)
	for n, bits := range byNumbers(less) {
		out[n] &^= bits
	}
	return out.rules()
}
