// Package network reads what containers' TCP sockets moved, and what the host's
// links can give. Sockets that were connected long before are found: a BPF
// iterator walks the open files of the host, in whatever network namespace the
// sockets are, so that no namespace is entered and CAP_BPF with CAP_PERFMON will do.
//
// What is not seen: UDP by socket (it is in Links), MPTCP's subflows, sockets in no
// descriptor table, and a shaping queue inside a container's namespace: one at
// the host's end of its veth is.
//
// The trap: the walk costs what the host has of open files, not what the
// containers have, so it is spaced out to a bounded share of one CPU, and
// Network.AtNs tells when it was.
package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/bpf"
	"github.com/trimtab/trimtab/probes/procfs"
)

const (
	// A pass over the host's open files comes at most once in readEvery, and so seldom
	// that passes take 1/restFactor of one CPU: 0.3 %.
	readEvery  = time.Second
	restFactor = 300
	// longestRest keeps a slow pass from ending the readings.
	longestRest = time.Minute
	// longestPass bounds a pass, which keeps all other readings waiting, to half a tick.
	longestPass = 500 * time.Millisecond
)

// Options configures a Probe; the zero value is a host with a v2 tree.
type Options struct {
	// TasksByV1CPU takes a task's container from v1's cpu hierarchy, whose inode
	// Target.CgroupID then is: for hosts without a v2 tree. Sockets that close then
	// lose what they moved since the last reading.
	TasksByV1CPU bool
	// ProcRoot and SysRoot are "/proc" and "/sys" if empty.
	ProcRoot, SysRoot string
	// ReadEvery is the least time between two passes; 0: 1 s.
	ReadEvery time.Duration

	maxRecords  uint32        // 0: the program's own bound
	longestPass time.Duration // 0: longestPass
}

// container is one watched container.
type container struct {
	cgroup  uint64
	initPID int
	slot    uint32
	gen     uint32
	account *account
	latest  *probes.Network // nil before the first pass
}

// Probe reads sockets and links. Its methods are called from one goroutine.
type Probe struct {
	opts         Options
	loaded       *loaded // nil: refused
	refused      string  // why
	containers   map[string]*container
	bySlot       map[uint32]*container
	links        *links
	hostLinks    behind[hostReading]
	nextGen      uint32
	pass         uint32
	walkNs       int64 // when the latest pass began
	nextWalk     time.Time
	buf          []byte
	closedRecord ringbuf.Record
}

// New loads and attaches the programs. Where the kernel refuses them, links are
// read all the same, and Missing says what is lost.
func New(opts Options) *Probe {
	opts.ProcRoot, opts.SysRoot = cmp.Or(opts.ProcRoot, "/proc"), cmp.Or(opts.SysRoot, "/sys")
	opts.ReadEvery, opts.longestPass = cmp.Or(opts.ReadEvery, readEvery), cmp.Or(opts.longestPass, longestPass)
	p := &Probe{
		opts: opts, containers: map[string]*container{}, bySlot: map[uint32]*container{},
		links: newLinks(opts.ProcRoot, opts.SysRoot), buf: make([]byte, 64<<10),
	}
	p.hostLinks.read = func() (r hostReading) {
		r.links, r.err = p.links.host()
		return r
	}
	var err error
	if p.loaded, err = load(opts); err != nil {
		p.loaded, p.refused = nil, err.Error()
	}
	return p
}

// Name is "network".
func (p *Probe) Name() string { return "network" }

// Missing names what this host does not give, each with why.
func (p *Probe) Missing() []string {
	if p.loaded == nil {
		return []string{"sockets: " + p.refused}
	}
	return append([]string(nil), p.loaded.missing...)
}

// HostLinks reads the host's interfaces and RDMA ports; where a device hangs, it
// returns the latest reading instead, within a moment. It may be called from any
// goroutine.
func (p *Probe) HostLinks() ([]probes.Link, error) {
	r, ok := p.hostLinks.get()
	if !ok {
		return nil, fmt.Errorf("network links: %w", errNoAnswer)
	}
	return r.links, r.err
}

// hostReading is one reading of the host's links.
type hostReading struct {
	links []probes.Link
	err   error
}

// Watch starts readings for a container.
func (p *Probe) Watch(t probes.Target) error {
	if _, ok := p.containers[t.Key]; ok {
		return nil
	}
	if t.CgroupID == 0 {
		return fmt.Errorf("network probe: container %s: no cgroup ID", t.Key)
	}
	slot, err := bpf.FreeSlot(p.bySlot)
	if err != nil {
		return fmt.Errorf("network probe: container %s: %w", t.Key, err)
	}
	p.nextGen++
	c := &container{cgroup: t.CgroupID, initPID: t.InitPID, slot: slot, gen: p.nextGen, account: newAccount()}
	if p.loaded != nil {
		key := socketsCgroupKey{Id: c.cgroup}
		if err := p.loaded.objs.Watched.Put(key, socketsSlotRef{Slot: slot, Gen: c.gen}); err != nil {
			return fmt.Errorf("network probe: container %s: watch cgroup %d: %w", t.Key, c.cgroup, err)
		}
	}
	p.containers[t.Key], p.bySlot[slot] = c, c
	p.nextWalk = time.Time{}
	return nil
}

// Unwatch ends readings for a container.
func (p *Probe) Unwatch(key string) {
	c, ok := p.containers[key]
	if !ok {
		return
	}
	if p.loaded != nil {
		// Absent is what is wanted.
		_ = p.loaded.objs.Watched.Delete(socketsCgroupKey{Id: c.cgroup})
	}
	delete(p.containers, key)
	delete(p.bySlot, c.slot)
}

// Read adds a Network part for each watched container: a new one if it was time
// for a pass, else the latest, whose AtNs tells.
func (p *Probe) Read(ctx context.Context, into map[string]*probes.Sample) error {
	if len(p.containers) == 0 {
		return nil
	}
	p.drainClosed()
	var err error
	if begin := time.Now(); !begin.Before(p.nextWalk) {
		err = p.read(ctx)
		rest := min(restFactor*time.Since(begin), longestRest)
		// A tick that comes a little early is on time.
		p.nextWalk = begin.Add(max(p.opts.ReadEvery*9/10, rest))
	}
	for key, c := range p.containers {
		if c.latest == nil {
			continue
		}
		if into[key] == nil {
			into[key] = &probes.Sample{Container: key}
		}
		n := *c.latest
		into[key].Network = &n
	}
	return err
}

// read makes a pass and a new reading of each container.
func (p *Probe) read(ctx context.Context) error {
	cut := false
	if p.loaded != nil {
		pass, cancel := context.WithTimeout(ctx, p.opts.longestPass)
		defer cancel()
		err := p.walk(pass)
		if cut = errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil; err != nil && !cut {
			return fmt.Errorf("network probe: %w", err)
		}
		p.drainClosed() // of what closed before the pass came to it
	}
	now := procfs.MonotonicNs()
	p.links.begin()
	defer p.links.end()
	for _, c := range p.containers {
		if !cut { // else what it did not see may be open
			c.account.end(p.pass, now)
		}
		n := c.account.take()
		n.AtNs = now
		if cut {
			n.Missing = append(n.Missing, "sockets: the pass was cut")
		}
		n.Missing = append(n.Missing, p.missingOf(c)...)
		if err := p.links.of(c.initPID, &n); err != nil {
			n.Missing = append(n.Missing, "links: "+err.Error())
		}
		c.latest = &n
	}
	return nil
}

// missingOf names what a pass could not read of a container.
func (p *Probe) missingOf(c *container) []string {
	if p.loaded == nil {
		return []string{"sockets: " + p.refused}
	}
	var count socketsPassCount
	if err := p.loaded.objs.Passes.Lookup(c.slot, &count); err == nil && count.Pass == p.pass && count.Dropped > 0 {
		return []string{fmt.Sprintf("sockets: %d of %d descriptors read", count.Records, count.Records+count.Dropped)}
	}
	return nil
}

// Cost returns the memory of the maps, and sockets whose final counters were lost.
func (p *Probe) Cost() probes.Cost {
	if p.loaded == nil {
		return probes.Cost{}
	}
	var cost probes.Cost
	cost.MapBytes = bpf.ObjectBytes(&p.loaded.objs)
	_ = p.loaded.objs.LostTotal.Get(&cost.Lost) // 0 where it cannot be read
	return cost
}

// Close detaches and frees everything.
func (p *Probe) Close() error {
	if p.loaded == nil {
		return nil
	}
	return p.loaded.close()
}

const recordBytes = int(unsafe.Sizeof(socketsSockRecord{}))

// decode reads one record, of one socket of one container, from the front of b.
func decode(b []byte) (r socketsSockRecord, err error) {
	if len(b) < recordBytes {
		return r, fmt.Errorf("socket record has %d bytes of %d", len(b), recordBytes)
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r)), recordBytes), b)
	return r, nil
}

// accountOf finds the container that a record is of; nil: no longer watched.
func (p *Probe) accountOf(r socketsSockRecord) *account {
	c := p.bySlot[r.Slot]
	if c == nil || c.gen != r.Gen {
		return nil
	}
	return c.account
}

// drainClosed takes the final counters of sockets that closed.
func (p *Probe) drainClosed() {
	if p.loaded == nil || p.loaded.closed == nil {
		return
	}
	now := procfs.MonotonicNs()
	p.loaded.closed.SetDeadline(time.Unix(0, 0)) // what is there, without waiting
	for {
		if p.loaded.closed.ReadInto(&p.closedRecord) != nil {
			return // empty, or nothing more to come
		}
		r, err := decode(p.closedRecord.RawSample)
		if a := p.accountOf(r); err == nil && a != nil {
			a.closed(r, now)
		}
	}
}

// walk makes one pass over the open files of the host.
func (p *Probe) walk(ctx context.Context) error {
	p.pass++
	p.walkNs = procfs.MonotonicNs()
	if err := p.loaded.objs.Pass.Set(p.pass); err != nil {
		return fmt.Errorf("begin a pass: %w", err)
	}
	size := func([]byte) (int, error) { return recordBytes, nil }
	return bpf.Records(ctx, p.loaded.iter, p.buf, size, func(b []byte) error {
		r, err := decode(b)
		if a := p.accountOf(r); err == nil && a != nil {
			a.seen(r, p.pass, p.walkNs)
		}
		return err
	})
}
