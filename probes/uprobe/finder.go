package uprobe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes"
)

const (
	scanEvery = 3 * time.Second
	// A container that has just begun is scanned more often: communicators are made, and
	// the first libraries loaded, within seconds.
	youngScanEvery = time.Second
	youngFor       = time.Minute
	// A process may load a library later, so it is looked at again when its size has
	// changed: soon while it is young, then at longer intervals.
	minLookAgain = time.Second
	maxLookAgain = 15 * time.Second
	// scanBudget bounds one call's share of a scan; a file is looked into in about 0.3 ms, a
	// Python process maps a few hundred. Attaching takes some 10 ms a library.
	scanBudget = 100 * time.Millisecond
	// scanPause is what a tick's first client leaves to its others: they need not scan.
	scanPause = 200 * time.Millisecond
	maxKnown  = 16384 // files remembered
)

// known is what a file held when it was looked into.
type known struct {
	stamp   stamp
	symbols []Symbol
}

// container is a watched container.
type container struct {
	dir     string
	since   time.Time // watched
	clients map[*Client]*clientState
}

// process is one process that has been looked at.
type process struct {
	pid        int32
	start      uint64
	size       uint64 // at the latest look
	key        string
	nextLook   time.Time
	wait       time.Duration
	unfinished bool // the latest look ran out of time
	members    map[*Client]*member
}

type visit struct {
	key string
	pid int32
}

// Finder finds libraries for its clients. It and its clients are used from one
// goroutine.
type Finder struct {
	procRoot   string
	attacher   attacher
	clients    []*Client
	interest   interest
	hints      []string
	containers map[string]*container
	processes  map[int32]*process
	known      map[fileKey]known
	libraries  map[fileKey]*library
	queue      []visit
	seen       map[int32]bool // in the scan that the queue is of
	full       bool           // that scan is of all containers
	scanned    time.Time
	nextScan   time.Time
	nextYoung  time.Time // of young containers alone
	problems   problems
	price      *price
	closers    sync.WaitGroup
	failed     sync.Map // errors of closers, by text
}

// NewFinder makes a finder without clients; it begins to measure what a hit costs
// on this machine. Close ends it.
func NewFinder() *Finder {
	f := &Finder{
		procRoot: "/proc", attacher: newAttacher(), containers: map[string]*container{}, processes: map[int32]*process{},
		known: map[fileKey]known{}, libraries: map[fileKey]*library{}, seen: map[int32]bool{}, problems: newProblems(),
		interest: interest{marks: map[string]bool{}},
	}
	f.price = startPricing(f.attacher)
	return f
}

// Prepare makes a BPF object loadable for the finder's way of attaching.
func (f *Finder) Prepare(spec *ebpf.CollectionSpec) { f.attacher.prepare(spec) }

// Add registers a probe. All are added before the first container is watched.
func (f *Finder) Add(spec Spec) (*Client, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	c := &Client{finder: f, spec: spec}
	f.clients = append(f.clients, c)
	f.hints = append(f.hints, spec.Hints...)
	for _, p := range spec.Prefixes {
		if !slices.Contains(f.interest.prefixes, p) {
			f.interest.prefixes = append(f.interest.prefixes, p)
		}
	}
	for _, name := range spec.Marks {
		f.interest.marks[name] = true
	}
	f.interest.wanted = func(name string) bool {
		return f.interest.marks[name] || slices.ContainsFunc(f.clients, func(c *Client) bool { return c.spec.matches(name) })
	}
	clear(f.known) // they were looked into for less
	return c, nil
}

// Close ends pricing and waits until all probes are off. Clients are closed first.
func (f *Finder) Close() error {
	f.price.stop()
	for pid := range f.processes {
		f.forget(pid)
	}
	f.closers.Wait()
	var errs []error
	f.failed.Range(func(_, err any) bool {
		errs = append(errs, err.(error))
		return true
	})
	return errors.Join(errs...)
}

func (f *Finder) watch(t probes.Target, c *Client) error {
	dir := t.Unified
	if dir == "" && t.Dir != nil {
		dir = t.Dir("cpu")
	}
	if dir == "" {
		return fmt.Errorf("%s probe: container %s: no cgroup directory", c.spec.Name, t.Key)
	}
	k := f.containers[t.Key]
	if k == nil {
		k = &container{dir: dir, since: time.Now(), clients: map[*Client]*clientState{}}
		f.containers[t.Key] = k
	}
	if k.clients[c] == nil {
		k.clients[c] = newClientState(len(c.spec.Hooks))
	}
	for _, p := range f.processes { // seen already for another client
		if p.key == t.Key {
			p.nextLook, p.size = time.Time{}, 0
		}
	}
	f.nextScan = time.Time{}
	return nil
}

func (f *Finder) unwatch(key string, c *Client) {
	k := f.containers[key]
	if k == nil {
		return
	}
	for _, p := range f.processes {
		if p.key == key {
			f.leave(p, c)
		}
	}
	if delete(k.clients, c); len(k.clients) > 0 {
		return
	}
	delete(f.containers, key)
	for pid, p := range f.processes {
		if p.key == key {
			delete(f.processes, pid)
		}
	}
	f.problems.forget(key)
}

// scan carries the present round of visits on, and begins one when it is time.
func (f *Finder) scan(ctx context.Context) error {
	now := time.Now()
	if now.Sub(f.scanned) < scanPause && !f.nextScan.IsZero() {
		return nil
	}
	f.scanned = now
	if len(f.queue) == 0 {
		if f.full = !now.Before(f.nextScan); f.full {
			f.nextScan = now.Add(scanEvery)
		} else if now.Before(f.nextYoung) {
			return nil
		}
		f.nextYoung = now.Add(youngScanEvery)
		f.enqueue(now)
	}
	for len(f.queue) > 0 && ctx.Err() == nil && time.Since(now) < scanBudget {
		v := f.queue[0]
		f.queue = f.queue[1:]
		f.visit(v, now.Add(scanBudget))
	}
	if len(f.queue) == 0 && f.full {
		f.sweep()
	}
	f.scanned = time.Now()
	return f.problems.fresh()
}

func (f *Finder) enqueue(now time.Time) {
	clear(f.seen)
	for _, key := range slices.Sorted(maps.Keys(f.containers)) {
		if !f.full && now.Sub(f.containers[key].since) > youngFor {
			continue
		}
		for _, pid := range processesIn(f.containers[key].dir) {
			if !f.seen[pid] {
				f.seen[pid] = true
				f.queue = append(f.queue, visit{key, pid})
			}
		}
	}
}

// sweep forgets the processes that the round did not meet.
func (f *Finder) sweep() {
	for pid := range f.processes {
		if !f.seen[pid] {
			f.forget(pid)
		}
	}
}

// visit looks at a process if it is time to.
func (f *Finder) visit(v visit, deadline time.Time) {
	now := time.Now()
	st, err := readStat(f.procRoot, v.pid)
	p := f.processes[v.pid]
	if p != nil && (err != nil || p.start != st.startTick || p.key != v.key) {
		f.forget(v.pid)
		p = nil
	}
	if err != nil || f.containers[v.key] == nil {
		return // it has ended
	}
	if p == nil {
		p = &process{pid: v.pid, start: st.startTick, key: v.key, wait: minLookAgain, members: map[*Client]*member{}}
		f.processes[v.pid] = p
	}
	if !p.unfinished && (now.Before(p.nextLook) || p.size == st.sizeBytes) {
		return
	}
	err = f.look(p, deadline)
	if p.unfinished = errors.Is(err, errOutOfTime); p.unfinished {
		f.queue = append(f.queue, v)
		return
	}
	p.size = st.sizeBytes
	if err != nil && !gone(err) {
		f.problems.add(p.key, "libraries", err)
		p.size = 0 // tried again
	}
	p.nextLook = now.Add(p.wait)
	p.wait = min(2*p.wait, maxLookAgain)
}

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
		err = f.enter(p, h, mapped, deadline)
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
func (f *Finder) enter(p *process, h handle, mapped map[fileKey]bool, deadline time.Time) error {
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

// closeLater detaches without keeping the caller; the channel is closed when it is done.
func (f *Finder) closeLater(links []link.Link) <-chan struct{} {
	done := make(chan struct{})
	f.closers.Add(1)
	go func() {
		defer f.closers.Done()
		defer close(done)
		if err := closeAll(links); err != nil {
			f.failed.Store(err.Error(), fmt.Errorf("detach: %w", err))
		}
	}()
	return done
}
