package kernel

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/bpf"
)

// Read adds a Kernel part for each watched container. One pass over the tasks
// of the host serves all of them.
func (p *Probe) Read(ctx context.Context, into map[string]*probes.Sample) error {
	p.drainExits()
	p.account(time.Now())
	if len(p.containers) == 0 {
		return p.free(ctx)
	}
	if p.movedUnseen() {
		p.seedNext = true
	}
	var errs []error
	if p.seedNext {
		errs = append(errs, p.seedNow())
	}
	parts := make(map[uint32]*probes.Kernel, len(p.containers))
	counts := p.containerCounts()
	for slot, c := range p.bySlot {
		parts[slot] = p.newPart(c, counts)
	}
	seen := p.spare
	clear(seen)
	err := p.pass(ctx, func(d decoded) {
		c, ok := p.bySlot[d.slot]
		if !ok || c.gen != d.gen {
			return
		}
		if t, ok := p.settle(d, seen); ok {
			p.spending.note(c.key, t, p.last)
			parts[d.slot].Threads = append(parts[d.slot].Threads, t)
		}
	})
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("kernel probe: %w", err))...)
	}
	p.freeNext = false
	p.last, p.spare = seen, p.last
	for slot, c := range p.bySlot {
		part := parts[slot]
		slices.SortFunc(part.Threads, compareThreads)
		if into[c.key] == nil {
			into[c.key] = &probes.Sample{Container: c.key}
		}
		if earlier := into[c.key].Kernel; earlier != nil {
			part.Ticks = earlier.Ticks // another probe's
		}
		into[c.key].Kernel = part
		c.seeding, c.threads, c.exited = false, len(part.Threads)-len(c.exited), nil
	}
	return errors.Join(errs...)
}

// newPart starts a container's part with what does not come from the pass.
func (p *Probe) newPart(c *container, counts []countersContainer) *probes.Kernel {
	part := &probes.Kernel{Seeding: c.seeding, Lost: c.lost}
	// Little room beyond the threads of before: most containers have few, and there may be a thousand.
	part.Threads = make([]probes.Thread, 0, len(c.exited)+c.threads+c.threads/8+1)
	for _, t := range c.exited {
		part.Threads = append(part.Threads, p.finish(t))
	}
	if counts != nil {
		v := &counts[c.slot]
		part.Lost += v.Lost
		part.Block = probes.Block{
			Reads: v.Reads, ReadBytes: v.ReadBytes, ReadNs: v.ReadNs,
			Writes: v.Writes, WriteBytes: v.WriteBytes, WriteNs: v.WriteNs,
		}
	}
	return part
}

// containerCounts are the counters of all slots, read with one call; nil: they cannot be read.
func (p *Probe) containerCounts() []countersContainer {
	if p.slots == nil {
		p.slots, p.counts = make([]uint32, maxContainers), make([]countersContainer, maxContainers)
	}
	var cursor ebpf.MapBatchCursor
	n, err := p.loaded.coll.Maps["containers"].BatchLookup(&cursor, p.slots, p.counts, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) || n != maxContainers || p.slots[n-1] != maxContainers-1 {
		return nil
	}
	return p.counts
}

// drainExits takes the final records that have come, without waiting.
func (p *Probe) drainExits() {
	p.exitTurn++
	// It cannot fail for a variable of this type; if it did, each container would have one share for good.
	_ = p.loaded.coll.Variables["exit_turn"].Set(p.exitTurn)
	p.exits.SetDeadline(time.Unix(1, 0))
	for {
		if err := p.exits.ReadInto(&p.exitRecord); err != nil {
			return // the buffer is empty
		}
		d, err := decode(p.exitRecord.RawSample)
		if err != nil {
			p.undecoded++
			continue
		}
		c, ok := p.bySlot[d.slot]
		if !ok || c.gen != d.gen {
			continue
		}
		if d.torn {
			c.lost++
			continue
		}
		c.exited = append(c.exited, d.thread)
	}
}

// movedUnseen asks whether threads were moved between cgroups that no program visited.
func (p *Probe) movedUnseen() bool {
	v := p.loaded.coll.Variables["want_seed"]
	var want uint32
	if v.Get(&want) != nil || want == 0 {
		return false
	}
	return v.Set(uint32(0)) == nil
}

// seedNow takes threads that exist already into the count.
func (p *Probe) seedNow() error {
	v := p.loaded.coll.Variables["seed"]
	if err := v.Set(uint32(1)); err != nil {
		return fmt.Errorf("start seeding: %w", err)
	}
	err := p.pass(context.Background(), func(decoded) {})
	if err == nil {
		p.seedNext, p.seeded = false, time.Now()
	}
	return errors.Join(err, v.Set(uint32(0)))
}

// pass runs the task iterator once.
func (p *Probe) pass(ctx context.Context, visit func(decoded)) error {
	return bpf.Records(ctx, p.loaded.iter, p.buf, recordSize, func(record []byte) error {
		d, err := decode(record)
		if err == nil {
			visit(d)
		}
		return err
	})
}

// settle makes a reading of a thread fit the one before it.
func (p *Probe) settle(d decoded, seen map[threadName]probes.Thread) (probes.Thread, bool) {
	name := threadName{d.thread.TID, d.thread.StartNs}
	before, known := p.last[name]
	if d.torn || known && d.thread.SinceNs == before.SinceNs && d.thread.AtNs < before.AtNs {
		if known {
			seen[name] = before
		}
		return before, known
	}
	known = known && d.thread.SinceNs == before.SinceNs // else it left and came back: counted anew
	if known {
		monotone(&d.thread.Ns, &before.Ns)
		d.thread.ReclaimNs = max(d.thread.ReclaimNs, before.ReclaimNs)
	}
	seen[name] = d.thread
	return d.thread, true
}

// finish makes final counters fit the last reading, and forgets the thread.
func (p *Probe) finish(t probes.Thread) probes.Thread {
	name := threadName{t.TID, t.StartNs}
	if before, ok := p.last[name]; ok && before.SinceNs == t.SinceNs && t.AtNs >= before.AtNs {
		monotone(&t.Ns, &before.Ns)
		t.ReclaimNs = max(t.ReclaimNs, before.ReclaimNs)
	}
	delete(p.last, name)
	return t
}

func compareThreads(a, b probes.Thread) int {
	return cmp.Or(cmp.Compare(a.TID, b.TID), cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(a.SinceNs, b.SinceNs))
}

// Layout of struct record (bpf/thread.h), from the types that bpf2go made of it.
const (
	recordHead = int(unsafe.Offsetof(countersRecord{}.Thread) + unsafe.Offsetof(countersThread{}.Edges))
	edgeBytes  = int(unsafe.Sizeof(countersEdge{}))
	maxEdges   = len(countersThread{}.Edges)
)

const (
	flagExited  = 1
	flagTorn    = 2
	flagStopped = 4
)

// decoded is one record.
type decoded struct {
	slot, gen uint32
	torn      bool
	thread    probes.Thread
}

// decode reads one record from the front of b.
func decode(b []byte) (decoded, error) {
	size, err := recordSize(b)
	if err != nil {
		return decoded{}, err
	}
	if size == 0 || len(b) < size {
		return decoded{}, fmt.Errorf("record has %d bytes of %d", len(b), max(size, recordHead))
	}
	var r countersRecord
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r)), size), b)
	th := &r.Thread
	d := decoded{slot: th.Slot, gen: th.Gen, torn: r.Flags&flagTorn != 0}
	d.thread = probes.Thread{
		TID:       r.Tid,
		TGID:      r.Tgid,
		PPID:      r.Ppid,
		StartNs:   r.StartBootNs,
		Comm:      comm(b[unsafe.Offsetof(r.Comm):][:len(r.Comm)]),
		Exited:    r.Flags&flagExited != 0,
		Stopped:   r.Flags&flagStopped != 0,
		SinceNs:   int64(th.FirstNs),
		AtNs:      int64(r.AtNs),
		Ns:        th.Ns,
		Count:     th.Count,
		ReclaimNs: th.ReclaimNs,
		Preempted: th.Preempted,
		SiblingNs: th.SiblingNs,
		AloneNs:   th.AloneNs,
		IOBytes:   th.IoBytes,
		Faults:    th.Faults,

		WrittenBytes: th.Written,
	}
	for s, ns := range th.LastNs {
		d.thread.LastNs[s] = int64(ns)
	}
	d.thread.Edges = slices.Grow(d.thread.Edges, int(th.NumEdges))
	for _, e := range th.Edges[:th.NumEdges] {
		d.thread.Edges = append(d.thread.Edges, probes.Edge{
			Waker: e.Waker, State: probes.State(e.State % uint32(probes.NumStates)), Count: e.Count, Ns: e.Ns,
		})
	}
	return d, nil
}

// comm is a thread's name up to its NUL; a container chooses it, so what is not
// printable ASCII becomes '?'.
func comm(b []byte) string {
	out := make([]byte, 0, len(b))
	for _, c := range b {
		if c == 0 {
			break
		}
		if c < 0x20 || c > 0x7e {
			c = '?'
		}
		out = append(out, c)
	}
	return string(out)
}

// recordSize is the size of the record whose head stands at the front of b; 0: it is not whole.
func recordSize(b []byte) (int, error) {
	if len(b) < recordHead {
		return 0, nil
	}
	at := unsafe.Offsetof(countersRecord{}.Thread) + unsafe.Offsetof(countersThread{}.NumEdges)
	edges := int(binary.NativeEndian.Uint32(b[at:]))
	if edges > maxEdges {
		return 0, fmt.Errorf("record has %d edges, there is room for %d", edges, maxEdges)
	}
	return recordHead + edges*edgeBytes, nil
}

// threadName names a thread for as long as the host is up.
type threadName struct {
	tid     int32
	startNs uint64
}

// monotone keeps counters from shrinking between readings. An open interval is
// read with what is known then: a run-queue wait may later turn out to have been
// throttled for longer, a clock may lag by less than a microsecond. What was
// told stays told, and the state that grew most pays for it, so that the sum is
// still exact.
func monotone(now, before *[probes.NumStates]uint64) {
	var deficit uint64
	for s := range now {
		if now[s] < before[s] {
			deficit += before[s] - now[s]
			now[s] = before[s]
		}
	}
	for deficit > 0 {
		most := 0
		for s := range now {
			if now[s]-before[s] > now[most]-before[most] {
				most = s
			}
		}
		part := min(deficit, now[most]-before[most])
		if part == 0 {
			return // the sum itself went back; the caller keeps the earlier reading then
		}
		now[most] -= part
		deficit -= part
	}
}
