package uprobe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

var (
	errOutOfTime = errors.New("out of time")
	errOnFUSE    = errors.New("on a FUSE mount, where reading could wait for the container")
)

// gone: the process ended while it was looked at.
func gone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// look searches a process's mappings and probes what is new in them.
func (f *Finder) look(p *process, deadline time.Time) error {
	text, err := readCapped(filepath.Join(f.procRoot, strconv.Itoa(int(p.pid)), "maps"), maxMapsBytes)
	if err != nil {
		return fmt.Errorf("read a process's maps: %w", err)
	}
	o := newOpener(f.procRoot, p.pid)
	defer o.close()
	mounts, err := readCapped(filepath.Join(f.procRoot, strconv.Itoa(int(p.pid)), "mountinfo"), maxMapsBytes)
	if err != nil {
		return fmt.Errorf("read a process's mounts: %w", err)
	}
	fuse := fuseDevices(mounts)
	mapped, complete := map[fileKey]bool{}, true
	var errs []error
	for _, m := range executableMaps(text, f.hints) {
		if fuse[m.device] {
			if hinted(m.path, f.hints) {
				errs = append(errs, errOnFUSE)
			}
			continue
		}
		h, err := o.find(m)
		if err != nil {
			if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
				errs, complete = append(errs, err), false
				break
			}
			continue // unmapped meanwhile, or nothing that can be a library
		}
		err = f.enter(p, h, m.addresses, mapped, deadline)
		h.close()
		if errors.Is(err, errOutOfTime) {
			return err
		}
		errs = append(errs, err)
	}
	if complete { // else what is no longer mapped is not known
		f.leaveUnmapped(p, mapped)
	}
	return errors.Join(errs...)
}

// enter makes a process a user of one of its files, for each client that wants
// functions in it.
func (f *Finder) enter(p *process, h handle, addresses string, mapped map[fileKey]bool, deadline time.Time) error {
	if mapped[h.key] {
		return nil
	}
	mapped[h.key] = true
	k, ok := f.known[h.key]
	if !ok || k.stamp != h.stamp {
		if time.Now().After(deadline) {
			return errOutOfTime
		}
		var err error
		if k, err = f.lookInto(h); err != nil {
			return err
		}
	}
	if len(k.symbols) == 0 {
		return nil
	}
	p.at[h.key] = addresses
	var errs []error
	for c := range f.containers[p.key].clients {
		if slices.ContainsFunc(k.symbols, func(s Symbol) bool { return c.spec.matches(s.Name) }) {
			errs = append(errs, f.join(p, c, h, k.symbols))
		}
	}
	return errors.Join(errs...)
}

// lookInto reads a file's symbols; a file that cannot be read as a library has none.
func (f *Finder) lookInto(h handle) (known, error) {
	file, err := h.reopen()
	if err != nil {
		return known{}, fmt.Errorf("open a library: %w", err)
	}
	defer file.Close()
	k := known{stamp: h.stamp}
	if symbols, err := findSymbols(file, f.interest); err == nil {
		k.symbols = symbols
	}
	if len(f.known) >= maxKnown {
		clear(f.known)
	}
	f.known[h.key] = k
	return k, nil
}

// join makes a process a member of a client, with one more library.
func (f *Finder) join(p *process, c *Client, h handle, symbols []Symbol) error {
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
	lib, err := f.open(h, symbols)
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
func (f *Finder) open(h handle, symbols []Symbol) (*library, error) {
	if lib := f.libraries[h.key]; lib != nil {
		return lib, nil
	}
	file, err := h.reopen()
	if err != nil {
		return nil, fmt.Errorf("open a library: %w", err)
	}
	lib := &library{key: h.key, file: file, symbols: symbols}
	f.libraries[h.key] = lib
	return lib, nil
}

// release takes one user from a library; its file is closed with the last.
func (f *Finder) release(lib *library) {
	if lib.users--; lib.users <= 0 {
		// Opened for reading: closing it cannot fail usefully.
		_ = lib.file.Close()
		delete(f.libraries, lib.key)
	}
}

// leaveUnmapped takes the probes off files that a process no longer maps.
func (f *Finder) leaveUnmapped(p *process, mapped map[fileKey]bool) {
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
	delete(f.processes, pid)
}
