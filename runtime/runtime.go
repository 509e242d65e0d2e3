// Package runtime holds the plain types for containers and for the knobs that
// bound them, and the interface an engine implements. Implementations live
// below it; they alone write to Docker, containerd, systemd and cgroups.
//
// The name is shared with the standard library, which is imported as
// goruntime wherever both are needed.
package runtime

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// ID identifies one life of one container. A restart makes another ID, because
// the init process starts anew; the boot ID keeps start times of different
// boots apart.
type ID struct {
	Engine    string `json:"engine"`    // "docker", "containerd"
	Container string `json:"container"` // the engine's full container ID
	Boot      string `json:"boot"`      // /proc/sys/kernel/random/boot_id
	StartTick uint64 `json:"start"`     // start time of init: field 22 of /proc/PID/stat, clock ticks since boot
}

// Key is the ID as a short, file-name-safe string, unique on one host.
func (id ID) Key() string {
	boot := clip(id.Boot, 8)
	if strings.Contains(boot, "-") { // a UUID's first dash comes after eight digits
		boot = clip(strings.ReplaceAll(id.Boot, "-", ""), 8)
	}
	return id.Engine + "-" + short(id.Container) + "-" + boot + "-" + strconv.FormatUint(id.StartTick, 10)
}

// SameContainer reports whether a key may be that of another life of the container.
func (id ID) SameContainer(key string) bool {
	return strings.HasPrefix(key, id.Engine+"-"+short(id.Container)+"-")
}

// shownDigits is how much of an ID engines show.
const shownDigits = 12

// Names reports whether a word names the container with an ID: by all of it, or by its beginning in
// hexadecimal, as engines show it. containerd's IDs are chosen by people: one may well begin another.
func Names(word, id string) bool {
	return word == id || len(word) >= shownDigits && strings.HasPrefix(id, word) && strings.Trim(word, "0123456789abcdef") == ""
}

// leastBegun is the least of an ID that people find a container by.
const leastBegun = 4

// Find finds the containers that a word of a person's means: by its key, else by its name or ID, else by the
// beginning of its ID. Names, and containerd's IDs, are given by whoever makes a container: several may be
// found. begun: none has the word as its name.
func Find[T any](all []T, word string, of func(T) (key, name, id string)) (found []T, begun bool) {
	var byPrefix []T
	for _, c := range all {
		switch key, name, id := of(c); {
		case key == word:
			return []T{c}, false
		case name == word || Names(word, id):
			found = append(found, c)
		case len(word) >= leastBegun && strings.HasPrefix(id, word):
			byPrefix = append(byPrefix, c)
		}
	}
	if len(found) == 0 {
		return byPrefix, true
	}
	return found, false
}

// short is a container ID in 16 characters. Random ones, in hex, differ from the
// start; those that people choose, as containerd lets them, may share a beginning. Of one
// that an engine should not give, only what a file's name may hold is in it.
func short(s string) string {
	if safe := strings.IndexFunc(s, unsafe) < 0; safe && len(s) <= 16 || strings.Trim(s, "0123456789abcdef") == "" {
		return clip(s, 16)
	}
	h := fnv.New32a()
	h.Write([]byte(s))
	begin := strings.Map(func(r rune) rune {
		if unsafe(r) {
			return '_'
		}
		return r
	}, clip(s, 7))
	return fmt.Sprintf("%s-%08x", begin, h.Sum32())
}

// unsafe is what neither engine's IDs hold, and what would make a path of a file's name.
func unsafe(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
}

func clip(s string, n int) string { return s[:min(len(s), n)] }

// State is what the engine says of the container's life.
type State string

// The states a container passes through; a stopped one is removed from view.
const (
	StateRunning State = "running"
	StatePaused  State = "paused"
)

// CgroupMode is the cgroup layout of the host.
type CgroupMode string

// Hybrid: v1 controllers carry the limits, a v2 tree beside them carries
// membership and pressure.
const (
	CgroupV1     CgroupMode = "v1"
	CgroupV2     CgroupMode = "v2"
	CgroupHybrid CgroupMode = "hybrid"
)

// Cgroup says where a container's cgroup stands.
type Cgroup struct {
	Mode CgroupMode `json:"mode"`
	// ID is the inode of the cgroup's directory: in the v2 tree on v2 and hybrid hosts
	// (what bpf_get_current_cgroup_id reports), in v1's cpu hierarchy on pure v1.
	ID uint64 `json:"id"`
	// Unified is the absolute path of the directory in the v2 tree; "" on pure v1.
	Unified string `json:"unified,omitempty"`
	// V1 maps a v1 controller ("cpu", "cpuacct", "cpuset", "memory", "blkio", "pids", "devices")
	// to the absolute path of its directory; empty on v2.
	V1 map[string]string `json:"v1,omitempty"`
}

// StoppedByWrites reports whether each write stops the container for a moment: runc freezes
// one of v1 while it has systemd write its scope.
func (c Cgroup) StoppedByWrites() bool { return strings.HasSuffix(c.V1["cpu"], ".scope") }

// Dir returns the directory that holds the limit files of a v1 controller name:
// the v1 directory where the controller is mounted as v1, else the v2 one.
func (c Cgroup) Dir(controller string) string {
	if d, ok := c.V1[controller]; ok {
		return d
	}
	return c.Unified
}

// Container is one life of one container, immutable: a change of name, state or
// resources arrives as a new value in an Event.
type Container struct {
	ID      ID                `json:"id"`
	Name    string            `json:"name"` // without Docker's leading slash
	Image   string            `json:"image"`
	Labels  map[string]string `json:"labels,omitempty"` // hostile: written by whoever made the container
	State   State             `json:"state"`
	InitPID int               `json:"initPID"` // host PID
	Cgroup  Cgroup            `json:"cgroup"`
	// GPUs holds the devices granted ("all", indices or UUIDs, as asked for); nil: none.
	GPUs []string `json:"gpus,omitempty"`
	// GPUVia is the way they were granted: "device-requests", "legacy-hook", "cdi", "devices"; "" without any.
	GPUVia string `json:"gpuVia,omitempty"`
	// Kubernetes is true below kubepods or in containerd's k8s.io: observe only (law: below Kubernetes).
	Kubernetes bool `json:"kubernetes,omitempty"`
	// LabelsDropped is how many labels it has besides, beyond what is kept.
	LabelsDropped int `json:"labelsDropped,omitempty"`
	// Start is what it was made of; nil: not told. It may hold secrets, so it is never encoded.
	Start *Start `json:"-"`
}

// Start is what a container was made of, as the engine resolved it. All of it is hostile.
type Start struct {
	ImageDigest         string   // of the image's content; "": not told
	Entrypoint, Command []string // together the first process's arguments
	Env                 []string // "NAME=VALUE"
	Mounts              []Mount
}

// Mount is what of the host, or which volume, a container has at a path of its own.
type Mount struct{ Source, Target string }

// Key is the container's identity as a string; see ID.Key.
func (c Container) Key() string { return c.ID.Key() }

// EventKind says what happened to a container.
type EventKind string

// Event kinds. Synced follows the first full listing after each (re)connection:
// what was not listed by then is gone, but for what it names as unseen. Lost: the engine cannot be reached, the
// containers known so far may well run on.
const (
	EventSeen   EventKind = "seen"   // new, or changed: name, state
	EventGone   EventKind = "gone"   // its init process ended
	EventUpdate EventKind = "update" // somebody updated its resources through the engine
	EventSynced EventKind = "synced"
	EventLost   EventKind = "lost"
)

// Event is one observation of an engine.
type Event struct {
	Kind      EventKind `json:"kind"`
	Engine    string    `json:"engine"`
	Container Container `json:"container,omitzero"` // Seen, Gone, Update
	Reason    string    `json:"reason,omitempty"`   // Lost: why, and the fix
	// Unseen, of Synced: containers, by the engine's ID, that may run and cannot be watched.
	Unseen []string `json:"unseen,omitempty"`
}

// Engine is a container runtime.
type Engine interface {
	// Name is "docker" or "containerd".
	Name() string
	// Run lists all running containers, then follows events, reconnecting with
	// backoff, until ctx ends; it calls sink from one goroutine, in order. It
	// returns only ctx's error: a dead engine is an EventLost, not an exit.
	Run(ctx context.Context, sink func(Event)) error
	// Read returns the values that stand in the kernel now for every knob that
	// this host has. A container that is gone gives ErrGone.
	Read(ctx context.Context, c Container) (Values, error)
	// Apply sets the given knobs and leaves all others as they stand, foreign
	// ones included; it goes through the runtime's write path, never to cgroup files.
	// inFlight are values that the caller's earlier writes, cut short, may still bring: seen during
	// this one they are not taken for somebody else's. It does not read back. Errors: ErrGone,
	// ErrRefused, ErrUnavailable.
	Apply(ctx context.Context, c Container, set Values, inFlight ...Values) error
	// WritePath names the way Apply would take for c now ("containerd/moby", "docker-api").
	WritePath(ctx context.Context, c Container) string
}

// StoringEngine is an Engine that keeps a record of its own of each container's
// resources, and starts the container from it again. What is written there outlives
// the container's life, so its owner's values have to be put back there too.
type StoringEngine interface {
	// Stores reports whether Apply would write c's values into that record now.
	Stores(ctx context.Context, c Container) bool
	// Stored reads the record of c's container, whichever life of it c is. Knobs that the
	// record leaves unset are missing. live is the life that runs now; nil: none. A
	// container that the engine no longer knows gives ErrGone.
	Stored(ctx context.Context, c Container) (values Values, live *Container, err error)
	// Store writes knobs into the record, and to the container where it runs.
	Store(ctx context.Context, c Container, set Values) error
}

// Classes of error that a caller acts on.
var (
	ErrGone        = errors.New("container is gone")
	ErrRefused     = errors.New("the runtime refused the value")
	ErrUnavailable = errors.New("the engine cannot be reached")
	ErrBusy        = errors.New("the container is being changed at this moment")
)
