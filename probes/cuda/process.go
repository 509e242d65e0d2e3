package cuda

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/procfs"
	"github.com/trimtab/trimtab/probes/uprobe"
)

// Levels of bpf/cuda_process.h.
const (
	levelRuntime = iota
	levelNested
	levelDirect
	numLevels
)

const marksKept = 64 // of each kind, as in bpf/cuda_process.h

// process is what is known of one CUDA process.
type process struct {
	epoch   uint64
	raw     callsProcess
	heads   [probes.NumMarkKinds]uint64 // marks delivered
	lost    uint64                      // of raw.Lost, counted already
	threads map[int32]*thread
	limit   uint64 // of raw.Entered, see room.go
	short   bool   // calls were lost since the reading before
	// driverAlone: the driver sees the runtime's launches, which are no longer probed there.
	driverAlone bool
	launchFor   time.Duration    // counted so far
	countedFor  [2]time.Duration // by the runtime's hook and the driver's, when last asked
	seen, late  [numLevels]uint64
}

// provenLaunches is how many of the runtime's launches must have been seen in the
// driver, and none missed, before the driver alone is believed.
const provenLaunches = 1000

func seesAll(kernels [numLevels]uint64) bool {
	return kernels[levelRuntime] >= provenLaunches && kernels[levelNested] >= kernels[levelRuntime]
}

// count adds the time in which launches were counted, at one level or both. A hook that
// was taken off hits until the kernel has done so, which no time is counted for: with
// tens of thousands of launches a second that would be a rate of millions. on says
// whether it was still to hit since the latest reading; else what has come is late,
// and left out.
func (proc *process) count(runtime, driver time.Duration, on bool) {
	for level, n := range proc.raw.Kernels {
		if !on {
			proc.late[level] += n - proc.seen[level]
		}
		proc.seen[level] = n
	}
	proc.launchFor += max(runtime-proc.countedFor[0], driver-proc.countedFor[1])
	proc.countedFor = [2]time.Duration{runtime, driver}
}

// thread sums a thread's counters: one that was deleted from the kernel's table and calls
// again begins anew there.
type thread struct {
	raw  callsThread // as the kernel had it
	last callsThread // with what an open call is credited with
	sum  probes.CUDAThread
	open bool   // in a call whose return will be seen
	walk uint64 // the latest walk that met it
	atNs int64  // it called last, as far as the readings tell
}

// Bounds on the threads of a process, which may make thousands: one that has called
// nothing for forgetAfter is forgotten, and the latest maxThreads are told of.
const (
	forgetAfter = 5 * time.Minute // the budget may leave launches out for one
	maxThreads  = 256
	keptThreads = 8 * maxThreads // above it those that called longest ago are forgotten as well
)

// enter makes room for a process in the kernel.
func (p *Probe) enter(pid int32) error {
	p.epochs++
	if err := p.objs.Processes.Put(uint32(pid), callsProcess{Epoch: p.epochs}); err != nil {
		return fmt.Errorf("make room for its counters: %w", err)
	}
	if err := p.objs.ThreadLimits.Put(uint32(pid), uint64(firstThreads)); err != nil {
		p.leave(pid) // nobody else does of one that is refused
		return fmt.Errorf("make room for its threads: %w", err)
	}
	p.processes[pid] = &process{epoch: p.epochs, threads: map[int32]*thread{}, limit: firstThreads}
	return nil
}

func (p *Probe) leave(pid int32) {
	delete(p.processes, pid)
	// Absent is what is wanted. Its threads count for nothing without the epoch, and are
	// deleted at the next reading.
	_ = p.objs.Processes.Delete(uint32(pid))
	_ = p.objs.ThreadLimits.Delete(uint32(pid))
}

func (p *Probe) hits(pid int32, hook int) uprobe.Hits {
	proc := p.processes[pid]
	if proc == nil {
		return uprobe.Hits{}
	}
	return uprobe.Hits{Emulated: proc.raw.Hits[hook][0], Stepped: proc.raw.Hits[hook][1], Returns: proc.raw.Returns[hook]}
}

// refresh reads all counters.
func (p *Probe) refresh() error {
	if len(p.processes) == 0 {
		return nil
	}
	var errs []error
	for pid, proc := range p.processes {
		if err := p.objs.Processes.Lookup(uint32(pid), &proc.raw); err != nil {
			errs = append(errs, fmt.Errorf("cuda probe: read the counters of process %d: %w", pid, err))
			continue
		}
		proc.short = proc.raw.Lost > proc.lost
		p.lost += proc.raw.Lost - proc.lost
		proc.lost = proc.raw.Lost
	}
	return errors.Join(append(errs, p.refreshThreads())...)
}

// refreshThreads walks the table of threads in batches.
func (p *Probe) refreshThreads() error {
	const batch = 1024
	ids, values := make([]uint64, batch), make([]callsThread, batch)
	nowNs := procfs.MonotonicNs()
	p.walks++
	var held, over []uint64
	var cursor ebpf.MapBatchCursor
	for {
		n, err := p.objs.Threads.BatchLookup(&cursor, ids, values, nil)
		for i := range n {
			proc := p.processes[int32(ids[i]>>32)]
			if proc == nil || proc.epoch != values[i].Epoch {
				over = append(over, ids[i])
				continue
			}
			held = append(held, ids[i])
			p.note(proc, ids[i], values[i], nowNs)
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			p.forgetThreads(nowNs)
			p.free(over)
			return p.share(held)
		}
		if err != nil {
			return fmt.Errorf("cuda probe: read the threads: %w", err)
		}
	}
}

// note takes over one thread's counters, with the call that is open now.
func (p *Probe) note(proc *process, id uint64, now callsThread, nowNs int64) {
	tgid, tid := int32(id>>32), int32(id)
	t := proc.threads[tid]
	if t == nil {
		if now.Syncs == 0 && now.CopyNs == 0 && (now.OpenNs == 0 || now.OpenOp == opStaged) && once(now.Launches) == 0 {
			return // it only copies
		}
		t = &thread{sum: probes.CUDAThread{TID: tid}}
		proc.threads[tid] = t
	}
	t.walk = p.walks
	wall, ran := uint64(0), uint64(0)
	if t.open = p.believed(tgid, now); t.open && uint64(nowNs) > now.OpenNs {
		wall = uint64(nowNs) - now.OpenNs
		ran, t.open = ranSince(tgid, tid, now.OpenSum)
	}
	if !t.open {
		wall = 0
	}
	if once(now.Launches) != once(t.raw.Launches) {
		t.atNs = nowNs
	}
	t.take(now, wall, min(ran, wall))
	t.atNs = max(t.atNs, t.sum.LastNs)
}

// believed: a call that blocks is open and its return will be seen. The hook was attached all
// the while, else the return may have passed by, and the call be long over.
func (p *Probe) believed(tgid int32, now callsThread) bool {
	hook := hookSync
	if now.OpenOp == opCopy {
		hook = hookCopy
	}
	turn, attached := p.Attached(tgid, hook)
	return now.OpenNs != 0 && now.OpenOp != opStaged && attached && uint32(turn) == now.OpenTurn
}

// take adds what has come since the last time, and the open call's time so far.
func (t *thread) take(now callsThread, wall, ran uint64) {
	if now.Syncs < t.raw.Syncs || now.SyncNs < t.raw.SyncNs || now.CopyNs < t.raw.CopyNs || now.Staged < t.raw.Staged || once(now.Launches) < once(t.raw.Launches) {
		t.raw, t.last = callsThread{}, callsThread{}
	}
	t.sum.Syncs += now.Syncs - t.raw.Syncs
	t.sum.Launches += once(now.Launches) - once(t.raw.Launches)
	t.sum.Staged += now.Staged - t.raw.Staged
	t.sum.StagedNs += now.StagedNs - t.raw.StagedNs
	t.sum.StagedKiB += now.StagedKib - t.raw.StagedKib
	t.raw = now
	if now.OpenOp == opCopy {
		now.CopyNs, now.CopyRunNs = now.CopyNs+wall, now.CopyRunNs+ran
	} else {
		now.SyncNs, now.SyncRunNs = now.SyncNs+wall, now.SyncRunNs+ran
	}
	// What an open call was credited with may exceed what it came to: counters only grow.
	grow(&t.sum.SyncNs, &t.last.SyncNs, now.SyncNs)
	grow(&t.sum.SyncRunNs, &t.last.SyncRunNs, now.SyncRunNs)
	grow(&t.sum.CopyNs, &t.last.CopyNs, now.CopyNs)
	grow(&t.sum.CopyRunNs, &t.last.CopyRunNs, now.CopyRunNs)
	t.sum.LastNs = max(t.sum.LastNs, int64(now.LastNs))
}

// forgetThreads drops, after a whole walk, threads that have called nothing of late;
// one that calls again begins anew, here and in the kernel.
func (p *Probe) forgetThreads(nowNs int64) {
	for pid, proc := range p.processes {
		byAge := slices.SortedFunc(maps.Values(proc.threads), func(a, b *thread) int { return cmp.Compare(a.atNs, b.atNs) })
		for i, t := range byAge {
			t.open = t.open && t.walk == p.walks
			if t.open || nowNs-t.atNs < int64(forgetAfter) && len(byAge)-i <= keptThreads {
				continue
			}
			delete(proc.threads, t.sum.TID)
			// Absent is what is wanted.
			_ = p.objs.Threads.Delete(uint64(uint32(pid))<<32 | uint64(uint32(t.sum.TID)))
		}
	}
}

// latest returns the threads that are told of, sorted by TID: those in a call
// first, then those that called last. The others begin at nothing, so that what is
// told of one later is what it did since.
func (proc *process) latest() []probes.CUDAThread {
	all := slices.SortedFunc(maps.Values(proc.threads), func(a, b *thread) int {
		if a.open != b.open {
			if a.open {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.atNs, a.atNs), cmp.Compare(a.sum.TID, b.sum.TID))
	})
	var out []probes.CUDAThread
	for i, t := range all {
		if i < maxThreads {
			out = append(out, t.sum)
		} else {
			t.sum = probes.CUDAThread{TID: t.sum.TID, LastNs: t.sum.LastNs}
		}
	}
	slices.SortFunc(out, func(a, b probes.CUDAThread) int { return cmp.Compare(a.TID, b.TID) })
	return out
}

func grow(sum, last *uint64, now uint64) {
	if now > *last {
		*sum += now - *last
		*last = now
	}
}

// ranSince is how long a thread has run since the scheduler's counter stood at
// sum; exact to a tick of the scheduler, which the call's end then corrects. false:
// it has ended, or another has its number.
func ranSince(tgid, tid int32, sum uint64) (ranNs uint64, alive bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(int(tgid)) + "/task/" + strconv.Itoa(int(tid)) + "/schedstat")
	if err != nil {
		return 0, false
	}
	f := bytes.Fields(b)
	if len(f) == 0 {
		return 0, false
	}
	ran, err := strconv.ParseUint(string(f[0]), 10, 64)
	if err != nil || ran < sum {
		return 0, false
	}
	return ran - sum, true
}

// reading turns the counters into what the sample holds.
func (proc *process) reading(pid int32) probes.CUDAProcess {
	raw := &proc.raw
	out := probes.CUDAProcess{
		TGID: pid, Launches: once(proc.inTime()), LaunchNs: uint64(proc.launchFor), Graphs: once(raw.Graphs), LastNs: int64(raw.LastNs), Marks: proc.marks(),
	}
	out.Copies, out.CopyBytes = copies(raw.Copies, raw.Bytes)
	out.Threads = proc.latest()
	return out
}

// inTime is the launches that came while they were counted.
func (proc *process) inTime() (kernels [numLevels]uint64) {
	for level := range kernels {
		kernels[level] = proc.raw.Kernels[level] - proc.late[level]
	}
	return kernels
}

// once counts each call once, whichever levels it passed.
func once(byLevel [numLevels]uint64) uint64 {
	return byLevel[levelDirect] + max(byLevel[levelRuntime], byLevel[levelNested])
}

// copies counts each copy once. The runtime is told a copy's direction more often
// than the driver, and at times the driver is told what the runtime was not: of
// the levels that saw as many, the one with fewer unknown is believed.
func copies(n, b [numLevels][probes.NumDirections]uint64) (count, bytes [probes.NumDirections]uint64) {
	level := levelRuntime
	runtime, nested := total(n[levelRuntime]), total(n[levelNested])
	if nested > runtime || (nested == runtime && n[levelNested][probes.CopyDefault] < n[levelRuntime][probes.CopyDefault]) {
		level = levelNested
	}
	for d := range count {
		count[d] = n[levelDirect][d] + n[level][d]
		bytes[d] = b[levelDirect][d] + b[level][d]
	}
	return count, bytes
}

func total(byDirection [probes.NumDirections]uint64) uint64 {
	var sum uint64
	for _, n := range byDirection {
		sum += n
	}
	return sum
}

// marks returns what came since the last reading, oldest first.
func (proc *process) marks() []probes.Mark {
	var out []probes.Mark
	for kind := range probes.NumMarkKinds {
		head := proc.raw.Heads[kind]
		from := proc.heads[kind]
		if head > marksKept {
			from = max(from, head-marksKept)
		}
		for n := from; n < head; n++ {
			m := proc.raw.Marks[kind][n%marksKept]
			if m.Seq != uint32(n)+1 || m.AtNs == 0 {
				continue // being written, or overwritten by a newer one
			}
			out = append(out, probes.Mark{AtNs: int64(m.AtNs), Kind: kind, TID: int32(m.Tid), Launches: m.Launches})
		}
		proc.heads[kind] = head
	}
	slices.SortStableFunc(out, func(a, b probes.Mark) int { return int(a.AtNs - b.AtNs) })
	return out
}
