package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes"
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
	// driverAlone: the driver sees the runtime's launches, which are no longer probed there.
	driverAlone bool
	launchFor   time.Duration    // counted so far
	countedFor  [2]time.Duration // by the runtime's hook and the driver's, when last asked
}

// provenLaunches is how many of the runtime's launches must have been seen in the
// driver, and none missed, before the driver alone is believed.
const provenLaunches = 1000

func seesAll(kernels [numLevels]uint64) bool {
	return kernels[levelRuntime] >= provenLaunches && kernels[levelNested] >= kernels[levelRuntime]
}

// count adds the time in which launches were counted, at one level or both.
func (proc *process) count(runtime, driver time.Duration) {
	proc.launchFor += max(runtime-proc.countedFor[0], driver-proc.countedFor[1])
	proc.countedFor = [2]time.Duration{runtime, driver}
}

// thread sums a thread's counters: the kernel's table is LRU, and a thread may
// fall out of it and begin anew.
type thread struct {
	last callsThread
	sum  probes.CUDAThread
}

// enter makes room for a process in the kernel.
func (p *Probe) enter(pid int32) error {
	p.epochs++
	if err := p.objs.Processes.Put(uint32(pid), callsProcess{Epoch: p.epochs}); err != nil {
		return fmt.Errorf("make room for its counters: %w", err)
	}
	p.processes[pid] = &process{epoch: p.epochs, threads: map[int32]*thread{}}
	return nil
}

func (p *Probe) leave(pid int32) {
	delete(p.processes, pid)
	// Absent is what is wanted. Its threads fall out of their table by themselves, and
	// count for nothing without the epoch.
	_ = p.objs.Processes.Delete(uint32(pid))
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
		p.lost += proc.raw.Lost - proc.lost
		proc.lost = proc.raw.Lost
	}
	return errors.Join(append(errs, p.refreshThreads())...)
}

// refreshThreads walks the table of threads in batches.
func (p *Probe) refreshThreads() error {
	const batch = 1024
	ids, values := make([]uint64, batch), make([]callsThread, batch)
	nowNs, err := monotonic()
	if err != nil {
		return err
	}
	var cursor ebpf.MapBatchCursor
	for {
		n, err := p.objs.Threads.BatchLookup(&cursor, ids, values, nil)
		for i := range n {
			proc := p.processes[int32(ids[i]>>32)]
			if proc != nil && proc.epoch == values[i].Epoch {
				proc.note(int32(ids[i]>>32), int32(ids[i]), values[i], nowNs)
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cuda probe: read the threads: %w", err)
		}
	}
}

func monotonic() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return ts.Nano(), nil
}

// note takes over one thread's counters, with the call that is open now.
func (proc *process) note(tgid, tid int32, now callsThread, nowNs int64) {
	t := proc.threads[tid]
	if t == nil {
		if now.Syncs == 0 && now.CopyNs == 0 && now.OpenNs == 0 {
			return // it only launches
		}
		t = &thread{sum: probes.CUDAThread{TID: tid}}
		proc.threads[tid] = t
	}
	if now.Syncs < t.last.Syncs || now.CopyNs < t.last.CopyNs {
		t.last = callsThread{}
	}
	t.sum.Syncs += now.Syncs - t.last.Syncs
	last := now
	if now.OpenNs != 0 && uint64(nowNs) > now.OpenNs {
		wall := uint64(nowNs) - now.OpenNs
		ran := min(ranSince(tgid, tid, now.OpenSum), wall)
		if now.OpenOp == opCopy {
			last.CopyNs, last.CopyRunNs = last.CopyNs+wall, last.CopyRunNs+ran
		} else {
			last.SyncNs, last.SyncRunNs = last.SyncNs+wall, last.SyncRunNs+ran
		}
	}
	// What an open call was credited with may exceed what it came to: counters only grow.
	grow(&t.sum.SyncNs, &t.last.SyncNs, last.SyncNs)
	grow(&t.sum.SyncRunNs, &t.last.SyncRunNs, last.SyncRunNs)
	grow(&t.sum.CopyNs, &t.last.CopyNs, last.CopyNs)
	grow(&t.sum.CopyRunNs, &t.last.CopyRunNs, last.CopyRunNs)
	t.last.Syncs = now.Syncs
	t.sum.LastNs = max(t.sum.LastNs, int64(now.LastNs))
}

func grow(sum, last *uint64, now uint64) {
	if now > *last {
		*sum += now - *last
		*last = now
	}
}

// ranSince is how long a thread has run since the scheduler's counter stood at
// sum; exact to a tick of the scheduler, which the call's end then corrects.
func ranSince(tgid, tid int32, sum uint64) uint64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(int(tgid)) + "/task/" + strconv.Itoa(int(tid)) + "/schedstat")
	if err != nil {
		return 0
	}
	f := bytes.Fields(b)
	if len(f) == 0 {
		return 0
	}
	ran, err := strconv.ParseUint(string(f[0]), 10, 64)
	if err != nil || ran < sum {
		return 0
	}
	return ran - sum
}

// reading turns the counters into what the sample holds.
func (proc *process) reading(pid int32) probes.CUDAProcess {
	raw := &proc.raw
	out := probes.CUDAProcess{
		TGID: pid, Launches: once(raw.Kernels), LaunchNs: uint64(proc.launchFor), Graphs: once(raw.Graphs), LastNs: int64(raw.LastNs), Marks: proc.marks(),
	}
	out.Copies, out.CopyBytes = copies(raw.Copies, raw.Bytes)
	for _, tid := range slices.Sorted(maps.Keys(proc.threads)) {
		out.Threads = append(out.Threads, proc.threads[tid].sum)
	}
	return out
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
