package uprobe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/uprobe/symbols"
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
	// maxClosing detachments wait for the kernel at once: each holds a thread.
	maxClosing = 32
)

// known is what a file held when it was looked into.
type known struct {
	stamp   stamp
	symbols []symbols.Symbol
}

// container is a watched container.
type container struct {
	listing listing
	since   time.Time // watched
	clients map[*Client]*clientState
}

// process is one process that has been looked at.
type process struct {
	pid        int32
	parent     int32
	start      uint64
	size       uint64 // at the latest look
	statm      held
	key        string
	nextLook   time.Time
	wait       time.Duration
	unfinished bool // the latest look ran out of time
	looks      int  // unfinished ones in a row
	members    map[*Client]*member
	at         map[fileKey]string // where it maps libraries of interest
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
	reader     *symbols.Reader
	find       finds
	failing    map[fileKey]failing
	readings   map[fileKey]*reading
	reading    sync.WaitGroup // their goroutines
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
	closing    chan struct{} // one for each that detaches now
	failed     sync.Map      // errors of closers, by text
	returns    *returns
	room       room
	buf        []byte // of held files
	pids       []int32
}

// NewFinder makes a finder without clients; it begins to measure what a hit costs
// on this machine. Files are read by children, see [symbols.NewReader] for what the
// program owes them. Close ends it.
func NewFinder() *Finder {
	reader := symbols.NewReader()
	f := &Finder{
		reader: reader, find: reader.Find,
		procRoot: "/proc", attacher: newAttacher(), containers: map[string]*container{}, processes: map[int32]*process{},
		known: map[fileKey]known{}, failing: map[fileKey]failing{}, readings: map[fileKey]*reading{}, libraries: map[fileKey]*library{}, seen: map[int32]bool{}, problems: newProblems(),
		closing: make(chan struct{}, maxClosing), room: newRoom(),
	}
	f.returns = newReturns(f.attacher)
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
	f.interest.Names = append(f.interest.Names, spec.Names...)
	f.interest.Marks = append(f.interest.Marks, spec.Marks...)
	clients := slices.Clone(f.clients) // readings ask, while clients go
	f.interest.wanted = func(name string) bool {
		return slices.ContainsFunc(clients, func(c *Client) bool { return c.spec.matches(name) })
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
	f.endReadings()
	f.reader.Close()
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
		k = &container{listing: listing{dir: dir}, since: time.Now(), clients: map[*Client]*clientState{}}
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
	k.listing.file.close(&f.room)
	delete(f.containers, key)
	for pid, p := range f.processes {
		if p.key == key {
			f.forget(pid)
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
		f.pids = f.containers[key].listing.list(&f.room, &f.buf, f.pids[:0])
		for _, pid := range f.pids {
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
	p, size := f.meet(v)
	if p == nil || !p.unfinished && (now.Before(p.nextLook) || p.size == size) {
		return
	}
	err := f.look(p, deadline)
	rest := p.wait
	if p.unfinished = errors.Is(err, errOutOfTime); p.unfinished {
		if p.looks++; p.looks < maxLooks {
			f.queue = append(f.queue, v)
			return
		}
		p.unfinished, rest, err = false, restFromLooks, errSlow
	}
	p.looks, p.size = 0, size
	if err != nil && !gone(err) {
		f.problems.add(p.key, "libraries", err)
		p.size = 0 // tried again
	}
	p.nextLook = now.Add(rest)
	p.wait = min(2*p.wait, maxLookAgain)
}

// meet returns the process of a visit and the size of its address space; nil: it has
// ended, or its container is no longer watched.
func (f *Finder) meet(v visit) (*process, uint64) {
	p := f.processes[v.pid]
	if p != nil && p.key == v.key {
		path := filepath.Join(f.procRoot, strconv.Itoa(int(v.pid)), "statm")
		if p.statm.isOpen() {
			b, err := p.statm.read(&f.room, path, &f.buf)
			if size, ok := sizeOf(b); ok && err == nil {
				return p, size
			}
		} else {
			p.statm.open(&f.room, path) // of this process, if its start below is
		}
	}
	st, err := readStat(f.procRoot, v.pid)
	if p != nil && (err != nil || p.start != st.startTick || p.key != v.key) {
		f.forget(v.pid)
		p = nil
	}
	if err != nil || f.containers[v.key] == nil {
		return nil, 0
	}
	if p == nil {
		p = &process{
			pid: v.pid, parent: st.parent, start: st.startTick, key: v.key, wait: minLookAgain,
			members: map[*Client]*member{}, at: map[fileKey]string{},
		}
		f.processes[v.pid] = p
	}
	return p, st.sizeBytes
}

// closeLater detaches without keeping the caller; the channel is closed when it is done.
func (f *Finder) closeLater(links []link.Link) <-chan struct{} {
	done := make(chan struct{})
	f.closers.Add(1)
	go func() {
		defer f.closers.Done()
		defer close(done)
		f.closing <- struct{}{}
		defer func() { <-f.closing }()
		err := closeAll(links)
		f.room.free(len(links) * linkFiles)
		if err != nil {
			f.failed.Store(err.Error(), fmt.Errorf("detach: %w", err))
		}
	}()
	return done
}
