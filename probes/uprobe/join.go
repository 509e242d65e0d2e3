package uprobe

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

var errCrowded = errors.New("its share of the processes that can be counted is taken: a quarter of what it leaves free")

// takeLook takes in what a look saw: the process becomes a user of its libraries.
// size is that of its address space before the look.
func (f *Finder) takeLook(p *process, size uint64, l *look) {
	defer func() {
		for _, s := range l.found {
			if s.file != nil { // it found no user
				f.closeFile(l.key, *s.file)
			}
		}
	}()
	if f.processes[p.pid] != p || errors.Is(l.err, errEnded) {
		return // it ended, or is no longer watched
	}
	err, rest := l.err, p.wait
	if errors.Is(err, errSlow) {
		rest = restFromLooks
	}
	k := f.containers[p.key]
	p.size = size
	var b batch
	for i := range l.found {
		s := &l.found[i]
		if s.file == nil && f.libraries[s.key] == nil {
			p.size, rest = 0, minLookAgain // closed since the look began: seen again soon
			continue
		}
		fresh, e := f.enter(k, p, s)
		b, err = append(b, fresh...), errors.Join(err, e)
	}
	if len(b) > 0 {
		k.batches = append(k.batches, b)
	}
	if l.complete && l.err == nil && f.hash != nil {
		p.mapped = f.hash(strconv.FormatUint(l.content, 16))
	}
	p.openMP = l.openMP
	if l.complete { // else what is no longer mapped is not known
		f.leaveUnmapped(p, l.mapped)
	}
	if err != nil {
		p.size = 0 // tried again
		// What is not in memory is slow to read, once.
		if p.wait > minLookAgain || !errors.Is(err, errOutOfTime) {
			f.problems.add(p.key, "libraries", err)
		}
	}
	p.nextLook = time.Now().Add(rest)
	p.wait = min(2*p.wait, maxLookAgain)
}

// enter makes a process a user of one of its libraries, for each client that wants
// functions in it, and returns what is to be attached.
func (f *Finder) enter(k *container, p *process, s *sighting) (batch, error) {
	if _, have := p.at[s.key]; !have && len(p.at) >= maxLibraries {
		return nil, errManyLibraries
	}
	p.at[s.key] = s.addresses
	lib := f.adopt(k.key, s)
	defer f.release(lib) // but for those who join
	var b batch
	var errs []error
	for c := range k.clients {
		if s.isOf(c) {
			fresh, err := f.join(k, p, c, lib)
			b, errs = append(b, fresh...), append(errs, err)
		}
	}
	return b, errors.Join(errs...)
}

// join makes a process a member of a client, with one more library.
func (f *Finder) join(k *container, p *process, c *Client, lib *library) (batch, error) {
	m := p.members[c]
	if m == nil && f.isIdleCopy(p, c, lib.key) || m != nil && slices.Contains(m.libraries, lib) {
		return nil, nil
	}
	if m == nil {
		var err error
		if m, err = f.admit(k, p, c); err != nil {
			return nil, err
		}
	}
	m.libraries = append(m.libraries, lib)
	lib.users++
	var b batch
	for i := range m.hooks {
		if m.hooks[i].on {
			b = append(b, m.plan(p, i, lib)...)
		}
	}
	if len(b) > 0 {
		m.entering[lib] = len(b)
	}
	for _, a := range b {
		a.isNew = true
	}
	return b, nil
}

// admit makes a process a member of a client, without libraries.
func (f *Finder) admit(k *container, p *process, c *Client) (*member, error) {
	if err := c.admits(k); err != nil {
		return nil, err
	}
	if err := c.spec.Enter(p.pid); err != nil {
		return nil, fmt.Errorf("enter a process: %w", err)
	}
	m := &member{pid: p.pid, key: p.key, client: c, hooks: make([]hookState, len(c.spec.Hooks)), entering: map[*library]int{}}
	state := k.clients[c]
	for i := range m.hooks {
		m.hooks[i].on = state.hooks[c.spec.leader(i)].on
	}
	p.members[c] = m
	c.members++
	state.members++
	return m, nil
}

// admits: a container that holds less of a client's room than a quarter of what is free may have
// more, see has_share in bpf/container.h.
func (c *Client) admits(k *container) error {
	if room := c.spec.Room; room > 0 && 4*k.clients[c].members >= room-c.members {
		return fmt.Errorf("%s: %w", c.spec.Name, errCrowded)
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

// adopt returns the library that was sighted in a container, with one more user; it is opened once
// for all of them.
func (f *Finder) adopt(key string, s *sighting) *library {
	lib := f.libraries[s.key]
	if lib == nil {
		lib = &library{key: s.key, broughtBy: key, file: *s.file, symbols: s.symbols}
		f.libraries[s.key] = lib
		s.file = nil
	}
	lib.users++
	return lib
}

// release takes one user from a library; its file is closed with the last.
func (f *Finder) release(lib *library) {
	if lib.users--; lib.users <= 0 {
		delete(f.libraries, lib.key)
		f.closeFile(lib.broughtBy, lib.file)
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
	m.left = true
	m.drop(func(*library) bool { return false })
	c.members--
	if k := f.containers[p.key]; k != nil && k.clients[c] != nil {
		k.clients[c].members--
	}
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
	if k := f.containers[p.key]; k != nil {
		delete(k.processes, pid)
	}
}
