// Package kernel reads, by eBPF, where the wall time of each thread of the
// watched containers goes, and who ended its waits. The programs are in bpf/;
// they aggregate in the kernel, and a reading is one pass of a task iterator.
//
// It infers nothing: roles, windows and causes are made elsewhere from its
// counters. It pins nothing, so all it holds in the kernel goes with the process.
//
// The trap: counters of one thread are consistent among themselves and sum to
// AtNs-SinceNs, but each thread is read at its own AtNs.
package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/bpf"
)

// Numbers of bpf/thread.h.
const (
	maxContainers = bpf.MaxContainers
	treeTasks     = 0
	treeBlkio     = 1
)

// Options bound what the probe may hold in the kernel. A container that holds as much as a
// quarter of what is free gets no more: bpf/container.h, has_share.
type Options struct {
	// MaxThreads bounds the followed threads of the host (0: 16,384), and
	// MaxThreadsPerContainer those of one container (0: 4,096). A thread takes about
	// 1 KiB of kernel memory; threads beyond the bound are counted in Kernel.Lost.
	MaxThreads, MaxThreadsPerContainer int
	// MaxRequests bounds the block requests in flight that are timed (0: 8,192).
	MaxRequests int
	// TasksByV1CPU takes a task's container from v1's cpu hierarchy, whose inode
	// Target.CgroupID then is: for hosts without a v2 tree.
	TasksByV1CPU bool
}

// otherMapBytes is what all maps of all probes hold but for the threads followed here:
// rings, slots, cgroups, and calls by process, all of them full.
const otherMapBytes = 18 << 20

// FitMaps bounds the followed threads so that the maps of all probes stay within bytes
// of kernel memory (at least 24 MiB), less than a quarter of them for any one container.
func (o Options) FitMaps(bytes uint64) Options {
	o.MaxThreads = int((max(bytes, 24<<20) - otherMapBytes) / storageBytes)
	o.MaxThreadsPerContainer = o.MaxThreads / 4
	return o
}

// seedPause is the least time between passes that Watch makes: each goes over all
// threads of the host.
const seedPause = 100 * time.Millisecond

// container is one watched container.
type container struct {
	key     string
	slot    uint32
	gen     uint32
	cgroups []countersCgroupKey
	seeding bool
	exited  []probes.Thread // drained, to be shown by the next Read
	threads int             // in the latest Read
	lost    uint64          // records that could not be decoded
}

// Probe is the kernel probe. Its methods are called from one goroutine.
type Probe struct {
	loaded      *loaded
	containers  map[string]*container
	bySlot      map[uint32]*container
	nextGen     uint32
	exits       *ringbuf.Reader
	exitRecord  ringbuf.Record
	exitTurn    uint32
	buf         []byte
	slots       []uint32 // room for reading all containers at once
	counts      []countersContainer
	last, spare map[threadName]probes.Thread // the latest reading, and room for the next
	seedNext    bool
	freeNext    bool // somebody left: the next pass frees counters
	seeded      time.Time
	undecoded   uint64
	spent       probes.Cost
	spending    spending
}

// New loads and attaches the programs. An error names the cause and the fix;
// what the kernel refuses in part is in Missing.
func New(opts Options) (*Probe, error) {
	opts.MaxThreads = cmp.Or(opts.MaxThreads, 16384)
	opts.MaxThreadsPerContainer = cmp.Or(opts.MaxThreadsPerContainer, 4096)
	opts.MaxRequests = cmp.Or(opts.MaxRequests, 8192)
	l, err := load(opts)
	if err != nil {
		return nil, err
	}
	exits, err := ringbuf.NewReader(l.coll.Maps["exits"])
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kernel probe: open the exit buffer: %w", err), l.close())
	}
	return &Probe{
		loaded:     l,
		containers: map[string]*container{},
		bySlot:     map[uint32]*container{},
		exits:      exits,
		buf:        make([]byte, 256<<10),
		last:       map[threadName]probes.Thread{},
		spare:      map[threadName]probes.Thread{},
		spending:   spending{switches: map[string]uint64{}},
	}, nil
}

// Name is "kernel".
func (p *Probe) Name() string { return "kernel" }

// Missing names the programs that the kernel refused, each with what is lost.
func (p *Probe) Missing() []string { return slices.Clone(p.loaded.missing) }

// Watch starts counting for a container. Threads that exist already are found
// by the next Read, whose sample says Seeding.
func (p *Probe) Watch(t probes.Target) error {
	if t.CgroupID == 0 {
		return fmt.Errorf("kernel probe: container %s: no cgroup ID", t.Key)
	}
	if _, ok := p.containers[t.Key]; ok {
		return nil
	}
	slot, err := bpf.FreeSlot(p.bySlot)
	if err != nil {
		return fmt.Errorf("kernel probe: container %s: %w", t.Key, err)
	}
	p.nextGen++
	c := &container{key: t.Key, slot: slot, gen: p.nextGen, seeding: true, cgroups: cgroupKeys(t)}
	value := countersContainer{Gen: c.gen}
	if blockByCgroup(t, c.cgroups) {
		value.BlockByCgroup = 1
	}
	if err := p.loaded.coll.Maps["containers"].Put(slot, value); err != nil {
		return fmt.Errorf("kernel probe: container %s: take a slot: %w", t.Key, err)
	}
	for _, key := range c.cgroups {
		if err := p.loaded.coll.Maps["watched"].Put(key, countersSlotRef{Slot: slot, Gen: c.gen}); err != nil {
			p.release(c)
			return fmt.Errorf("kernel probe: container %s: watch cgroup %d: %w", t.Key, key.Id, err)
		}
	}
	p.containers[t.Key] = c
	p.bySlot[slot] = c
	p.seedNext = true
	if time.Since(p.seeded) < seedPause {
		return nil // one of many that come at once: Read, which is soon, seeds for all
	}
	if err := p.seedNow(); err != nil {
		p.Unwatch(t.Key)
		return fmt.Errorf("kernel probe: container %s: %w", t.Key, err)
	}
	return nil
}

// cgroupKeys are the cgroups that name a container: of its tasks, and of its
// block I/O where v1's blkio hierarchy carries that.
func cgroupKeys(t probes.Target) []countersCgroupKey {
	keys := []countersCgroupKey{{Id: t.CgroupID, Tree: treeTasks}}
	if t.V2 || t.Dir == nil {
		return keys
	}
	dir := t.Dir("blkio")
	if dir == "" || filepath.Clean(dir) == filepath.Clean(t.Unified) {
		return keys
	}
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return keys // block I/O is then charged by the thread that issues it
	}
	return append(keys, countersCgroupKey{Id: st.Ino, Tree: treeBlkio})
}

// blockByCgroup says whether the kernel charges the container's block I/O to a cgroup
// of its own: v1's blkio, or v2's where the controller is on.
func blockByCgroup(t probes.Target, keys []countersCgroupKey) bool {
	if len(keys) > 1 {
		return true
	}
	controllers, err := os.ReadFile(filepath.Join(t.Unified, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(controllers)), "io")
}

// Unwatch ends counting for a container; its threads' counters are freed by the next pass: a
// thousand that end at once cost one.
func (p *Probe) Unwatch(key string) {
	c, ok := p.containers[key]
	if !ok {
		return
	}
	p.release(c)
	delete(p.containers, key)
	delete(p.bySlot, c.slot)
	delete(p.spending.switches, key)
	p.freeNext = true
}

// free frees the counters of threads whose slot has another generation, as each pass does.
func (p *Probe) free(ctx context.Context) error {
	if !p.freeNext {
		return nil
	}
	err := p.pass(ctx, func(decoded) {})
	p.freeNext = err != nil
	return err
}

func (p *Probe) release(c *container) {
	for _, key := range c.cgroups {
		// Absent is what is wanted.
		_ = p.loaded.coll.Maps["watched"].Delete(key)
	}
	// An update of an existing array element cannot fail.
	_ = p.loaded.coll.Maps["containers"].Put(c.slot, countersContainer{})
}

// Close detaches and frees everything.
func (p *Probe) Close() error {
	if p.spending.turn != nil {
		p.endTurn()
	}
	return errors.Join(p.exits.Close(), p.loaded.close())
}
