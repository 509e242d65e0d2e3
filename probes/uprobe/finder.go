package uprobe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/bpf"
	"github.com/trimtab/trimtab/probes/procfs"
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
	// scanBudget bounds how long one call waits for what it has begun.
	scanBudget = 100 * time.Millisecond
	// scanPause is what a tick's first client leaves to its others: they need not scan.
	scanPause = 200 * time.Millisecond
	// maxClosing detachments wait for the kernel at once: each holds a thread.
	maxClosing = 32
)

// container is a watched container.
type container struct {
	key       string
	listing   listing
	since     time.Time // watched
	clients   map[*Client]*clientState
	processes map[int32]*process
	nextRound time.Time
	due       []int32 // processes to be met
	batches   []batch // to be attached
}

// process is one process that has been met.
type process struct {
	pid      int32
	parent   int32
	start    uint64
	size     uint64 // at the latest look
	statm    held
	key      string
	nextLook time.Time
	wait     time.Duration
	members  map[*Client]*member
	at       map[fileKey]string // where it maps libraries of interest
	mapped   string             // see Client.Libraries
	openMP   bool               // see Client.OpenMP
}

// Finder finds libraries for its clients. It and its clients are used from one
// goroutine, which touches no file of a container: see work.
type Finder struct {
	procRoot   string
	attacher   attacher
	clients    []*Client
	interest   interest
	hash       func(text string) string // nil: builds of libraries are not told
	containers map[string]*container
	processes  map[int32]*process
	reader     *symbols.Reader
	find       finds
	files      *files
	libraries  map[fileKey]*library
	lanes      map[string]*lane
	works      map[*work]bool
	ended      chan *work
	scanned    time.Time
	problems   problems
	price      *price
	closers    sync.WaitGroup
	closing    chan struct{} // one for each that detaches now
	// These are for files: one that waits keeps no probe from being detached.
	fileClosers  sync.WaitGroup
	closingFiles chan struct{}
	failed       sync.Map // errors of closers, by text
	returns      *returns
	room         room
	buf          []byte // of held files
}

// NewFinder makes a finder without clients; it begins to measure what a hit costs
// on this machine. Files are read by children, see [symbols.NewReader] for what the
// program owes them. Close ends it.
func NewFinder() *Finder {
	reader := symbols.NewReader()
	f := &Finder{
		reader: reader, find: reader.Find,
		procRoot: "/proc", attacher: newAttacher(), containers: map[string]*container{}, processes: map[int32]*process{},
		files: newFiles(), libraries: map[fileKey]*library{}, problems: newProblems(),
		lanes: map[string]*lane{}, works: map[*work]bool{}, ended: make(chan *work, maxWorks+maxStuck),
		closing: make(chan struct{}, maxClosing), closingFiles: make(chan struct{}, maxClosing), room: newRoom(),
	}
	f.returns = newReturns(f.attacher)
	f.price = startPricing(f.attacher)
	return f
}

// HashLibraries makes Client.Libraries tell the builds of libraries, by a hash that does not tell
// which they are.
func (f *Finder) HashLibraries(hash func(text string) string) { f.hash = hash }

// Load loads a probe's programs and maps into its objects, for the finder's way of attaching.
func (f *Finder) Load(probe string, object []byte, objects any, opts *ebpf.CollectionOptions) error {
	spec, err := bpf.Spec(object)
	if err != nil {
		return fmt.Errorf("%s probe: %w", probe, err)
	}
	return f.load(probe, spec, objects, opts)
}

func (f *Finder) load(probe string, spec *ebpf.CollectionSpec, objects any, opts *ebpf.CollectionOptions) error {
	f.attacher.prepare(spec)
	if err := spec.LoadAndAssign(objects, opts); err != nil {
		return fmt.Errorf("%s probe: load: %w; needs Linux 5.15 with BTF, CONFIG_UPROBE_EVENTS, CAP_BPF and CAP_PERFMON", probe, err)
	}
	return nil
}

// Add registers a probe. All are added before the first container is watched.
func (f *Finder) Add(spec Spec) *Client {
	spec.Hooks = slices.Clone(spec.Hooks)
	for i := range spec.Hooks {
		spec.Hooks[i].index() // before others ask
	}
	c := &Client{finder: f, spec: spec}
	f.clients = append(f.clients, c)
	f.interest.hints = append(f.interest.hints, spec.Hints...)
	for _, h := range spec.Hooks {
		f.interest.Names = slices.AppendSeq(f.interest.Names, maps.Keys(h.Functions))
	}
	f.interest.Marks = append(f.interest.Marks, spec.Marks...)
	clients := slices.Clone(f.clients) // readings ask, while clients go
	f.interest.wanted = func(name string) bool {
		return slices.ContainsFunc(clients, func(c *Client) bool { return c.spec.matches(name) })
	}
	f.files.forget() // they were looked into for less
	return c
}

// Close ends pricing and waits until all probes are off. Clients are closed first.
func (f *Finder) Close() error {
	f.price.cancel()
	<-f.price.done
	for pid := range f.processes {
		f.forget(pid)
	}
	f.settle()
	f.reader.Close()
	f.closers.Wait()
	f.awaitFiles()
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
		k = &container{
			key: t.Key, listing: listing{dir: dir}, since: time.Now(), clients: map[*Client]*clientState{}, processes: map[int32]*process{},
		}
		f.containers[t.Key] = k
	}
	if k.clients[c] == nil {
		k.clients[c] = newClientState(len(c.spec.Hooks))
	}
	for _, p := range k.processes { // seen already for another client
		p.nextLook, p.size = time.Time{}, 0
	}
	k.nextRound, f.scanned = time.Time{}, time.Time{}
	f.laneOf(t.Key)
	return nil
}

func (f *Finder) unwatch(key string, c *Client) {
	k := f.containers[key]
	if k == nil {
		return
	}
	for _, p := range k.processes {
		f.leave(p, c)
	}
	if delete(k.clients, c); len(k.clients) > 0 {
		return
	}
	k.listing.file.close(&f.room)
	delete(f.containers, key)
	for pid := range k.processes {
		f.forget(pid)
	}
	for _, b := range k.batches {
		f.takeBatch(b)
	}
	f.problems.forget(key)
}

// scan takes in what has ended since, begins what is due, and waits for it a little.
func (f *Finder) scan(ctx context.Context) error {
	f.takeInAll()
	now := time.Now()
	if now.Sub(f.scanned) < scanPause {
		return nil
	}
	deadline := now.Add(scanBudget)
	f.serve(now, deadline)
	f.await(ctx, deadline)
	f.scanned = time.Now()
	return f.problems.fresh()
}

// round lists a container's processes, and forgets those that have ended, whatever its lane does.
func (f *Finder) round(k *container, now time.Time) {
	k.nextRound = now.Add(scanEvery)
	if now.Sub(k.since) < youngFor {
		k.nextRound = now.Add(youngScanEvery)
	}
	pids := k.listing.list(&f.room, &f.buf)
	listed, waits := make(map[int32]bool, len(pids)), make(map[int32]bool, len(k.due))
	for _, pid := range pids {
		listed[pid] = true
	}
	k.due = slices.DeleteFunc(k.due, func(pid int32) bool { return !listed[pid] })
	for _, pid := range k.due { // since an earlier round
		waits[pid] = true
	}
	for _, pid := range pids {
		if !waits[pid] {
			k.due = append(k.due, pid)
		}
	}
	for pid := range k.processes {
		if !listed[pid] {
			f.forget(pid)
		}
	}
}

// due returns a process if it is time to look at it, and the size of its address space.
func (f *Finder) due(k *container, pid int32) (*process, uint64) {
	p, size := f.meet(k, pid)
	if p == nil || time.Now().Before(p.nextLook) || p.size == size {
		return nil, 0
	}
	return p, size
}

// meet returns a container's process and the size of its address space; nil: it has
// ended, or is another watched container's as well, which has it.
func (f *Finder) meet(k *container, pid int32) (*process, uint64) {
	p := f.processes[pid]
	if p != nil && p.key == k.key {
		path := procfs.Path(f.procRoot, pid, "statm")
		if p.statm.isOpen() {
			b, err := p.statm.read(&f.room, path, &f.buf)
			if size, ok := sizeOf(b); ok && err == nil {
				return p, size
			}
		} else {
			p.statm.open(&f.room, path) // of this process, if its start below is
		}
	}
	st, err := procfs.ReadStat(f.procRoot, pid)
	if p != nil && (err != nil || p.start != st.StartTick) {
		f.forget(pid)
		p = nil
	}
	if err != nil || p != nil && p.key != k.key {
		return nil, 0
	}
	if p == nil {
		p = &process{
			pid: pid, parent: st.Parent, start: st.StartTick, key: k.key, wait: minLookAgain,
			members: map[*Client]*member{}, at: map[fileKey]string{},
		}
		f.processes[pid], k.processes[pid] = p, p
	}
	return p, st.SizeBytes
}

// closeFile gives back a library's file that a container brought. It does not wait, see handle.close.
func (f *Finder) closeFile(key string, h handle) {
	f.fileClosers.Go(func() {
		f.closingFiles <- struct{}{}
		defer func() { <-f.closingFiles }()
		h.close()
		f.room.freeFor(key, 1)
	})
}

// awaitFiles waits until files are closed, but not for one that hangs.
func (f *Finder) awaitFiles() {
	closed := make(chan struct{})
	go func() {
		f.fileClosers.Wait()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(2 * fileTime):
	}
}

// closeLater detaches a container's probes without keeping the caller; the channel is closed when it is done.
func (f *Finder) closeLater(key string, links []link.Link) <-chan struct{} {
	done := make(chan struct{})
	f.closers.Go(func() {
		defer close(done)
		f.closing <- struct{}{}
		defer func() { <-f.closing }()
		err := closeAll(links)
		f.room.freeFor(key, len(links)*linkFiles)
		if err != nil {
			f.failed.Store(err.Error(), fmt.Errorf("detach: %w", err))
		}
	})
	return done
}
