package procfs

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/probes"
)

// Owners maps host PIDs to containers by their cgroups. Its methods may be called
// from any goroutine.
type Owners struct {
	procRoot string
	mu       sync.Mutex
	known    map[string]ownGroups  // by container
	groups   map[membership]string // cgroup → container
}

// ownGroups are the cgroups of one container, and the init process they were found by.
type ownGroups struct {
	initPID int
	groups  []membership
}

// NewOwners reads procRoot, "/proc" but for tests.
func NewOwners(procRoot string) *Owners {
	return &Owners{procRoot: procRoot, known: map[string]ownGroups{}, groups: map[membership]string{}}
}

// Set names all running containers, watched or not. The error tells whose cgroups
// could not be found; their processes count as the host's until a later Set finds them.
func (o *Owners) Set(targets []probes.Target) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var errs []error
	known, changed := map[string]ownGroups{}, len(targets) != len(o.known)
	for _, t := range targets {
		own, ok := o.known[t.Key]
		if !ok || own.initPID != t.InitPID || len(own.groups) == 0 {
			changed = true
			var err error
			if own.groups, err = o.find(t); err != nil {
				errs = append(errs, fmt.Errorf("container %q: %w", t.Key, err))
			}
			own.initPID = t.InitPID
		}
		known[t.Key] = own
	}
	if changed {
		o.known = known
		clear(o.groups)
		for key, own := range known {
			for _, g := range own.groups {
				o.groups[g] = key
			}
		}
	}
	return errors.Join(errs...)
}

// find tells a container's cgroups as /proc/PID/cgroup writes them: of its init's
// group and that group's ancestors the one that the container's directory ends with.
// Init may sit below (systemd in a container does).
func (o *Owners) find(t probes.Target) ([]membership, error) {
	groups, err := memberships(o.procRoot, int32(t.InitPID))
	if err != nil {
		return nil, err
	}
	var own []membership
	for _, g := range groups {
		dir := t.Unified
		if g.controllers != "" && t.Dir != nil {
			controller, _, _ := strings.Cut(g.controllers, ",")
			dir = t.Dir(controller)
		}
		for p := g.path; len(p) > 1; p = path.Dir(p) {
			if dir == p || strings.HasSuffix(dir, p) {
				own = append(own, membership{g.controllers, p})
				break
			}
		}
	}
	if len(own) == 0 {
		return nil, fmt.Errorf("init %d is in none of its cgroups", t.InitPID)
	}
	return own, nil
}

// Key is the container of a process; "": the host's, unknown, or gone.
func (o *Owners) Key(pid int32) string {
	groups, err := memberships(o.procRoot, pid)
	if err != nil {
		return ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, g := range groups {
		for p := g.path; len(p) > 1; p = path.Dir(p) {
			if key, ok := o.groups[membership{g.controllers, p}]; ok {
				return key
			}
		}
	}
	return ""
}
