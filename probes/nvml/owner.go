package nvml

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml/wire"
	"github.com/trimtab/trimtab/probes/procfs"
)

// maxCached PIDs are remembered before the memory is begun anew.
const maxCached = 8192

// Owners maps host PIDs to containers by their cgroups. Its methods may be called
// from any goroutine.
type Owners struct {
	procRoot string
	mu       sync.Mutex
	known    map[string]ownGroups         // by container
	groups   map[procfs.Membership]string // cgroup → container
	cache    map[holder]string
}

// ownGroups are the cgroups of one container, and the init process they were found by.
type ownGroups struct {
	initPID int
	groups  []procfs.Membership
}

type holder struct {
	pid       int32
	startTick uint64 // a PID that is used again is another process
}

// NewOwners reads procRoot, "/proc" but for tests.
func NewOwners(procRoot string) *Owners {
	return &Owners{procRoot: procRoot, known: map[string]ownGroups{}, groups: map[procfs.Membership]string{}, cache: map[holder]string{}}
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
		clear(o.cache)
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
func (o *Owners) find(t probes.Target) ([]procfs.Membership, error) {
	groups, err := procfs.Memberships(o.procRoot, int32(t.InitPID))
	if err != nil {
		return nil, err
	}
	var own []procfs.Membership
	for _, g := range groups {
		dir := t.Unified
		if g.Controllers != "" && t.Dir != nil {
			controller, _, _ := strings.Cut(g.Controllers, ",")
			dir = t.Dir(controller)
		}
		for p := g.Path; len(p) > 1; p = path.Dir(p) {
			if dir == p || strings.HasSuffix(dir, p) {
				own = append(own, procfs.Membership{Controllers: g.Controllers, Path: p})
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
	stat, err := procfs.ReadStat(o.procRoot, pid)
	if err != nil {
		return ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	id := holder{pid, stat.StartTick}
	if key, ok := o.cache[id]; ok {
		return key
	}
	groups, err := procfs.Memberships(o.procRoot, pid)
	if err != nil {
		return ""
	}
	key := o.lookUp(groups)
	if len(o.cache) >= maxCached {
		clear(o.cache)
	}
	o.cache[id] = key
	return key
}

func (o *Owners) lookUp(groups []procfs.Membership) string {
	for _, g := range groups {
		for p := g.Path; len(p) > 1; p = path.Dir(p) {
			if key, ok := o.groups[procfs.Membership{Controllers: g.Controllers, Path: p}]; ok {
				return key
			}
		}
	}
	return ""
}

// maxComm bounds a process's name, of 16 bytes.
const maxComm = 64

// mpsServer is the server's name as the kernel cuts it; the control daemon bears
// the same, and holds no device.
const mpsServer = "nvidia-cuda-mps"

// ofHost reports whether a process is in the PID namespace that trimtab's own /proc is of.
func (r *Reader) ofHost(pid int32) bool {
	own, err := os.Readlink(filepath.Join(r.o.ProcRoot, "self/ns/pid"))
	its, errIts := os.Readlink(procfs.Path(r.o.ProcRoot, pid, "ns/pid"))
	return errors.Join(err, errIts) == nil && own == its
}

// attribute names the containers of processes, and knows MPS by its server. A
// process could bear that name to look shared; it would only spare itself trials.
// One in a container, of this host's engines or another's, is a holder like any other,
// lest a job hide its work by a name.
func (r *Reader) attribute(list []probes.Device) {
	for i := range list {
		d := &list[i]
		for j := range d.Processes {
			p := &d.Processes[j]
			if r.o.Owner != nil {
				p.Container = r.o.Owner(p.PID)
			}
			if d.Sharing == wire.SharingMIG {
				continue
			}
			comm, err := procfs.Read(procfs.Path(r.o.ProcRoot, p.PID, "comm"), maxComm)
			if err == nil && strings.HasPrefix(string(comm), mpsServer) {
				d.Sharing, p.Server = wire.SharingMPS, p.Container == "" && r.ofHost(p.PID)
			}
		}
	}
}
