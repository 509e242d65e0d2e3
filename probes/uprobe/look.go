package uprobe

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/uprobe/symbols"
)

// Bounds on what one process can make the finder do.
const (
	// fileTime is how long one file may be read: libtorch_cpu takes some 20 ms where its
	// pages are in memory.
	fileTime = 500 * time.Millisecond
	// maxLibraries with functions of interest; PyTorch with all of CUDA maps about 10.
	maxLibraries = 32
	// A process that is not looked through in maxLooks is left alone for restFromLooks.
	maxLooks      = 20
	restFromLooks = time.Minute
)

var (
	errOutOfTime     = errors.New("out of time")
	errManyMounts    = errors.New("more mounts than are read: one could keep a reader waiting")
	errMapsCut       = errors.New("more mappings than are read")
	errSlow          = fmt.Errorf("not looked through in %d looks: tried again in %v", maxLooks, restFromLooks)
	errManyLibraries = fmt.Errorf("more than %d with functions of interest in a process", maxLibraries)
)

// gone: the process ended while it was looked at.
func gone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// looking is one look at one process.
type looking struct {
	p        *process
	mapped   map[fileKey]bool
	deadline time.Time
	worked   bool // at one file that was new
}

// over: the time is up, and the next look goes on behind what this one did.
func (l *looking) over() bool { return l.worked && time.Now().After(l.deadline) }

// patience is until when one file is waited for: the first new one of a look at least
// as long as a scan may take, for a look that waits for none would never end.
func (l *looking) patience() time.Time {
	if first := time.Now().Add(scanBudget); !l.worked && first.After(l.deadline) {
		return first
	}
	return l.deadline
}

// look searches a process's mappings and probes what is new in them.
func (f *Finder) look(p *process, deadline time.Time) error {
	dir := filepath.Join(f.procRoot, strconv.Itoa(int(p.pid)))
	text, err := readCapped(filepath.Join(dir, "maps"), maxMapsBytes)
	if err != nil {
		return fmt.Errorf("read a process's maps: %w", err)
	}
	mounts, err := readCapped(filepath.Join(dir, "mountinfo"), maxMapsBytes)
	if err != nil {
		return fmt.Errorf("read a process's mounts: %w", err)
	}
	if len(mounts) >= maxMapsBytes {
		return errManyMounts
	}
	l := &looking{p: p, mapped: map[fileKey]bool{}, deadline: deadline}
	mappings := executableMaps(text, f.hints)
	complete, err := f.lookAt(l, mappings, remoteDevices(mounts))
	if errors.Is(err, errOutOfTime) {
		return err
	}
	if len(text) >= maxMapsBytes || len(mappings) > maxMappings {
		complete, err = false, errors.Join(err, errMapsCut)
	}
	if complete { // else what is no longer mapped is not known
		f.leaveUnmapped(p, l.mapped)
	}
	return err
}

// lookAt looks at each mapping; complete says that all could be reached.
func (f *Finder) lookAt(l *looking, mappings []mapping, remote map[string]string) (complete bool, err error) {
	o := newOpener(f.procRoot, l.p.pid)
	defer o.close()
	var errs []error
	for _, m := range mappings {
		if l.over() {
			return false, errOutOfTime
		}
		if kind, yes := remote[m.device]; yes {
			if hinted(m.path, f.hints) {
				errs = append(errs, fmt.Errorf("on a mount of type %s, where reading could wait for ever", kind))
			}
			continue
		}
		h, err := o.find(m)
		if err != nil {
			if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
				return false, errors.Join(append(errs, err)...)
			}
			continue // unmapped meanwhile, or nothing that can be a library
		}
		err = f.enter(l, h, m.addresses)
		h.close()
		if errors.Is(err, errOutOfTime) {
			return false, err
		}
		errs = append(errs, err)
	}
	return true, errors.Join(errs...)
}

// enter makes a process a user of one of its files, for each client that wants
// functions in it.
func (f *Finder) enter(l *looking, h handle, addresses string) error {
	p := l.p
	if l.mapped[h.key] {
		return nil
	}
	l.mapped[h.key] = true
	k, ok := f.known[h.key]
	if !ok || k.stamp != h.stamp {
		until := l.patience()
		l.worked = true
		var err error
		if k, err = f.lookInto(h, until); err != nil {
			return err
		}
	}
	if len(k.symbols) == 0 {
		return nil
	}
	if _, have := p.at[h.key]; !have && len(p.at) >= maxLibraries {
		return errManyLibraries
	}
	p.at[h.key] = addresses
	var errs []error
	for c := range f.containers[p.key].clients {
		if slices.ContainsFunc(k.symbols, func(s symbols.Symbol) bool { return c.spec.matches(s.Name) }) {
			if l.over() {
				return errOutOfTime
			}
			errs = append(errs, f.join(l, c, h, k.symbols))
		}
	}
	return errors.Join(errs...)
}

// join makes a process a member of a client, with one more library.
func (f *Finder) join(l *looking, c *Client, h handle, found []symbols.Symbol) error {
	p := l.p
	m := p.members[c]
	if m == nil && f.isIdleCopy(p, c, h.key) {
		return nil
	}
	if m == nil {
		if err := c.spec.Enter(p.pid); err != nil {
			return fmt.Errorf("enter a process: %w", err)
		}
		m = &member{pid: p.pid, client: c, hooks: make([]hookState, len(c.spec.Hooks))}
		for i := range m.hooks {
			m.hooks[i].on = f.containers[p.key].clients[c].hooks[c.spec.leader(i)].on
		}
		p.members[c] = m
	}
	if slices.ContainsFunc(m.libraries, func(l *library) bool { return l.key == h.key }) {
		return nil
	}
	l.worked = true
	lib, err := f.open(h, found)
	if err != nil {
		return err
	}
	if err := m.add(lib); err != nil {
		m.drop(func(l *library) bool { return l != lib })
		return err
	}
	return nil
}

// isIdleCopy: the process was forked, without an exec, from one that had used the
// library before. Contexts of CUDA do not survive a fork, so what has the library
// in such a copy is a data loader, of which there may be dozens; each attachment
// would cost every hit of the others some.
func (f *Finder) isIdleCopy(p *process, c *Client, key fileKey) bool {
	if !c.spec.NotAfterFork {
		return false
	}
	parent := f.processes[p.parent]
	if parent == nil || parent.members[c] == nil || parent.at[key] != p.at[key] {
		return false
	}
	used := parent.members[c].usedTick
	return used > 0 && p.start > used
}

// open returns the library that a file is, opened once for all its users.
func (f *Finder) open(h handle, found []symbols.Symbol) (*library, error) {
	if lib := f.libraries[h.key]; lib != nil {
		return lib, nil
	}
	if err := f.room.take(1); err != nil {
		return nil, err
	}
	file, err := h.reopen()
	if err != nil {
		f.room.free(1)
		return nil, fmt.Errorf("open a library: %w", err)
	}
	lib := &library{key: h.key, file: file, symbols: found}
	f.libraries[h.key] = lib
	return lib, nil
}

// release takes one user from a library; its file is closed with the last.
func (f *Finder) release(lib *library) {
	if lib.users--; lib.users <= 0 {
		// Opened for reading: closing it cannot fail usefully.
		_ = lib.file.Close()
		f.room.free(1)
		delete(f.libraries, lib.key)
	}
}

// leaveUnmapped takes the probes off files that a process no longer maps.
func (f *Finder) leaveUnmapped(p *process, mapped map[fileKey]bool) {
	maps.DeleteFunc(p.at, func(key fileKey, _ string) bool { return !mapped[key] })
	for c, m := range p.members {
		if m.drop(func(l *library) bool { return mapped[l.key] }); len(m.libraries) == 0 {
			f.leave(p, c)
		}
	}
}

// leave ends a process's membership of a client.
func (f *Finder) leave(p *process, c *Client) {
	m := p.members[c]
	if m == nil {
		return
	}
	c.settle(p, m)
	delete(p.members, c)
	m.drop(func(*library) bool { return false })
	c.spec.Leave(p.pid)
}

func (f *Finder) forget(pid int32) {
	p := f.processes[pid]
	if p == nil {
		return
	}
	for c := range p.members {
		f.leave(p, c)
	}
	p.statm.close(&f.room)
	delete(f.processes, pid)
}
