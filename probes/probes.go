// Package probes holds the plain types of what probes read, and the interface
// they share. Packages below it are the only ones that touch the kernel and the
// GPU. A sample is raw counters at one instant: nothing is inferred here.
package probes

import (
	"context"
	"slices"
)

// State is what a thread did with a stretch of its wall time. Every nanosecond
// of a watched thread falls into exactly one state.
type State uint8

// The states. The kernel program in bpf/ uses the same numbers (bpf/states.h);
// a test compares them.
const (
	StateRun       State = iota // on a CPU
	StateThrottled              // runnable, its cgroup or an ancestor out of quota
	StateQueued                 // runnable, behind other work
	StateBlockIO                // sleeping for block I/O (in_iowait)
	StateFile                   // sleeping in a call on a regular file, no block I/O
	StateNetFile                // the same on a network or FUSE filesystem
	StatePipe                   // sleeping in a call on a pipe
	StateUnix                   // sleeping in a call on a Unix socket
	StateInet                   // sleeping in a call on any other socket
	StateFutex                  // sleeping on a futex
	StateTimer                  // nanosleep and kin: asked for by the thread itself
	StateDevice                 // sleeping in a call on a character device
	StatePoll                   // poll, select, epoll whose first file told nothing
	StateChild                  // wait4, waitid
	StateLock                   // uninterruptible without block I/O: a kernel lock, a fault
	StateOther                  // sleeping anywhere else, stopped or frozen
	NumStates
)

// String returns the state's name, as metrics and recordings show it.
func (s State) String() string {
	names := [NumStates]string{"run", "throttled", "queued", "blockio", "file", "netfile", "pipe", "unix", "inet",
		"futex", "timer", "device", "poll", "child", "lock", "other"}
	if s < NumStates {
		return names[s]
	}
	return "invalid"
}

// Edge counts the waits of one thread, in one state, that one waker ended.
type Edge struct {
	Waker int32  `json:"w"` // host TID; 0: an interrupt or a timer; -1: wakers beyond the table's room
	State State  `json:"s"` // what the waiter was waiting in
	Count uint64 `json:"n"`
	Ns    uint64 `json:"ns"` // asleep, until the waking; not the run queue after it
}

// Thread holds one thread's counters since it was first seen; they only grow.
// AtNs-SinceNs equals the sum of Ns: an open interval is closed at AtNs by the reader.
type Thread struct {
	TID     int32             `json:"tid"`   // host
	TGID    int32             `json:"tgid"`  // host
	PPID    int32             `json:"ppid"`  // host TGID of the parent process
	StartNs uint64            `json:"start"` // CLOCK_BOOTTIME ns; with TID it names the thread
	Comm    string            `json:"comm"`
	Exited  bool              `json:"exited,omitempty"`  // final counters; shown in one sample only
	Stopped bool              `json:"stopped,omitempty"` // a signal has stopped it, and it does not go on yet
	SinceNs int64             `json:"since"`
	AtNs    int64             `json:"at"` // CLOCK_MONOTONIC
	Ns      [NumStates]uint64 `json:"ns"`
	Count   [NumStates]uint64 `json:"n"`    // intervals that ended in this state (Run: switches in)
	LastNs  [NumStates]int64  `json:"last"` // CLOCK_MONOTONIC end of the latest interval
	// ReclaimNs is the part of the above, whatever its state, spent inside direct reclaim.
	ReclaimNs uint64 `json:"reclaim,omitempty"`
	// SiblingNs is the part of Ns[StateQueued] spent behind threads of the same container.
	SiblingNs uint64 `json:"sibling,omitempty"`
	// AloneNs is the part of Ns[StateQueued] behind nobody: put on an idle CPU, until that,
	// or the hypervisor that it is lent by, ran it.
	AloneNs uint64 `json:"alone,omitempty"`
	// Preempted counts switches out while still runnable.
	Preempted uint64 `json:"preempted,omitempty"`
	// IOBytes were read and written by any call, Faults are minor page faults; both since it
	// was taken up. 0 where the kernel does not account them.
	IOBytes uint64 `json:"io,omitempty"`
	Faults  uint64 `json:"faults,omitempty"`
	// WrittenBytes are of files on disks, counted when they are written and not when they reach it.
	WrittenBytes uint64 `json:"written,omitempty"`
	Edges        []Edge `json:"edges,omitempty"`
}

// Ticks counts a periodic event of one process, such as passes of autograd's
// engine: never a step count until ticks per step are known.
type Ticks struct {
	Source string `json:"source"` // "torch.backward", …
	TGID   int32  `json:"tgid"`
	Count  uint64 `json:"n"`
	LastNs int64  `json:"last"` // CLOCK_MONOTONIC of the latest tick
	// Steps: the job itself counts its steps here (its log, its datagrams).
	Steps bool `json:"steps,omitempty"`
	// EveryNs is the longest span between two of its reports of late; 0: not known.
	EveryNs int64 `json:"every,omitempty"`
}

// Kernel is what the kernel probe read of one container.
type Kernel struct {
	Threads []Thread `json:"threads"`           // sorted by TID, then StartNs
	Ticks   []Ticks  `json:"ticks,omitempty"`   // sorted by TGID, then Source
	Block   Block    `json:"block,omitzero"`    // block I/O charged to the container
	Lost    uint64   `json:"lost,omitempty"`    // threads and exits that found no room, since start
	Seeding bool     `json:"seeding,omitempty"` // first sample: threads asleep before it have no history
	Missing []string `json:"missing,omitempty"` // what Ticks leave out, each with why
}

// Block counts completed block I/O of a container.
type Block struct {
	Reads      uint64 `json:"reads"`
	ReadBytes  uint64 `json:"readBytes"`
	ReadNs     uint64 `json:"readNs"` // issue to completion, summed over requests
	Writes     uint64 `json:"writes"`
	WriteBytes uint64 `json:"writeBytes"`
	WriteNs    uint64 `json:"writeNs"`
}

// Plus adds up two stretches.
func (b Block) Plus(o Block) Block {
	return Block{
		Reads: b.Reads + o.Reads, ReadBytes: b.ReadBytes + o.ReadBytes, ReadNs: b.ReadNs + o.ReadNs,
		Writes: b.Writes + o.Writes, WriteBytes: b.WriteBytes + o.WriteBytes, WriteNs: b.WriteNs + o.WriteNs,
	}
}

// Since is what came after an earlier reading; a counter that fell counts as nothing.
func (b Block) Since(earlier Block) Block {
	since := func(now, then uint64) uint64 { return now - min(now, then) }
	return Block{
		Reads: since(b.Reads, earlier.Reads), ReadBytes: since(b.ReadBytes, earlier.ReadBytes), ReadNs: since(b.ReadNs, earlier.ReadNs),
		Writes: since(b.Writes, earlier.Writes), WriteBytes: since(b.WriteBytes, earlier.WriteBytes), WriteNs: since(b.WriteNs, earlier.WriteNs),
	}
}

// Throttling is the bandwidth accounting of one cgroup.
type Throttling struct {
	Periods   uint64 `json:"periods"`
	Throttled uint64 `json:"throttled"` // periods in which it was
	QuotaUs   int64  `json:"quota"`     // -1: none
	PeriodUs  int64  `json:"period"`
}

// Pressure is the stall time of one resource, from PSI, in µs since the cgroup was made.
type Pressure struct {
	SomeUs uint64 `json:"some"`
	FullUs uint64 `json:"full"`
}

// Cgroup is what the cgroup probe read of one container.
type Cgroup struct {
	AtNs       int64  `json:"at"` // CLOCK_MONOTONIC
	CPUUsageNs uint64 `json:"cpu"`
	CPUWeight  uint64 `json:"weight"` // native: v1 shares or v2 weight
	Cpuset     string `json:"cpuset,omitempty"`
	// Throttling of the container's own cgroup first, then of its ancestors, nearest first.
	Throttling []Throttling `json:"throttling,omitempty"`

	MemoryBytes  uint64 `json:"mem"`      // charged now
	MemoryLimit  int64  `json:"memLimit"` // -1: none
	Anon         uint64 `json:"anon"`
	File         uint64 `json:"file"`
	Shmem        uint64 `json:"shmem"`
	InactiveFile uint64 `json:"inactiveFile"`
	RefaultFile  uint64 `json:"refaultFile"` // pages since start
	RefaultAnon  uint64 `json:"refaultAnon"`
	MajorFaults  uint64 `json:"majflt"`
	EventsMax    uint64 `json:"eventsMax"` // times the limit was hit (v1: failcnt)
	OOMKills     uint64 `json:"oomKills"`

	HasPSI bool     `json:"psi,omitempty"`
	CPU    Pressure `json:"psiCPU,omitzero"`
	Memory Pressure `json:"psiMemory,omitzero"`
	IO     Pressure `json:"psiIO,omitzero"`

	// Missing names what could not be read, for confidence and for doctor.
	Missing []string `json:"missing,omitempty"`
}

// UseUnread: CPUUsageNs is of an earlier reading, or 0 if there was none.
func (g *Cgroup) UseUnread() bool {
	return slices.ContainsFunc(g.Missing, func(name string) bool {
		return name == "cpu.stat" || name == "cpu.stat:usage_usec" || name == "cpuacct.usage"
	})
}

// Host is the node at one instant.
type Host struct {
	AtNs     int64  `json:"at"` // CLOCK_MONOTONIC
	CPUs     int    `json:"cpus"`
	BusyNs   uint64 `json:"busy"` // user, nice, system, irq, softirq of all CPUs since boot
	IdleNs   uint64 `json:"idle"`
	StealNs  uint64 `json:"steal"`
	IOWaitNs uint64 `json:"iowait"`
	MemTotal uint64 `json:"memTotal"`
	MemAvail uint64 `json:"memAvail"`
	// Devices are the GPUs, in NVML's order, slices after their GPU; nil: none, or nothing to ask.
	Devices []Device `json:"devices,omitempty"`
	Links   []Link   `json:"links,omitempty"` // the host's interfaces and RDMA ports
}

// StolenSince is the share, 0..1, of all CPUs' time since an earlier reading that the
// hypervisor gave to others.
func (h Host) StolenSince(before Host) float64 {
	total := func(h Host) float64 { return float64(h.BusyNs + h.IdleNs + h.StealNs + h.IOWaitNs) }
	if passed := total(h) - total(before); passed > 0 && h.StealNs > before.StealNs {
		return float64(h.StealNs-before.StealNs) / passed
	}
	return 0
}

// Sample is everything read of one container at one instant. A part that could
// not be read is nil.
type Sample struct {
	Container string   `json:"container"` // runtime.Container.Key
	Kernel    *Kernel  `json:"kernel,omitempty"`
	Cgroup    *Cgroup  `json:"cgroup,omitempty"`
	CUDA      *CUDA    `json:"cuda,omitempty"`
	NCCL      *NCCL    `json:"nccl,omitempty"`
	MPI       *MPI     `json:"mpi,omitempty"`
	Network   *Network `json:"network,omitempty"`
	// Processes are those whose program could be read, sorted by TGID; in older recordings none.
	Processes []Process `json:"processes,omitempty"`
}

// Missing names what the probes leave out of the sample, each once with why, sorted.
func (s Sample) Missing() []string {
	var all []string
	if s.Kernel != nil {
		all = append(all, s.Kernel.Missing...)
	}
	if s.CUDA != nil {
		all = append(all, s.CUDA.Missing...)
	}
	if s.NCCL != nil {
		all = append(all, s.NCCL.Missing...)
	}
	if s.MPI != nil {
		all = append(all, s.MPI.Missing...)
	}
	if s.Network != nil {
		all = append(all, s.Network.Missing...)
	}
	slices.Sort(all)
	return slices.Compact(all) // probes may share a reason
}

// Process is what tells a process apart from its neighbours.
type Process struct {
	TGID   int32  `json:"tgid"`             // host
	Args   uint64 `json:"args"`             // a hash of its arguments, the same where numbers alone differ
	Forked bool   `json:"forked,omitempty"` // by a process whose program it still runs
	// Rank is what its launcher says by an environment variable; Ranked: it says one.
	Rank   int32 `json:"rank,omitempty"`
	Ranked bool  `json:"ranked,omitempty"`
	// Libraries is a keyed hash of the builds of all files that it executes code of; "": not known.
	Libraries string `json:"libraries,omitempty"`
	// OpenMP: it executes code of a library that starts as many threads as OMP_NUM_THREADS says.
	OpenMP bool `json:"openmp,omitempty"`
	// SharedBytes is the size of the tmpfs at its /dev/shm; 0: it has none, or that could not be read.
	SharedBytes uint64 `json:"shm,omitempty"`
	// NetworkMount is where it sees its only network mount; "": it has none or several, or the name is no plain one.
	NetworkMount string `json:"networkMount,omitempty"`
}

// Target is a container that a probe watches.
type Target struct {
	Key      string // runtime.Container.Key
	CgroupID uint64
	InitPID  int
	// Dir returns the directory that holds a v1 controller's files (runtime.Cgroup.Dir).
	Dir     func(controller string) string
	Unified string // directory in the v2 tree, "" on pure v1
	V2      bool   // limits are in the v2 tree
	// ContainerID is the engine's full ID. RateLog is the regular expression of the label
	// trimtab.rate.log, as its owner wrote it: hostile. "": not asked for.
	ContainerID string
	RateLog     string
}

// Probe is a source of readings for watched containers. Its methods are called
// from one goroutine.
type Probe interface {
	// Name is the probe's name in metrics and doctor: "kernel", "cgroup".
	Name() string
	// Watch starts readings for a container; Unwatch ends them and frees what they held.
	Watch(t Target) error
	Unwatch(key string)
	// Read adds its part to the samples of all watched containers, keyed by Target.Key.
	// What could not be read is left out; the error tells, and the rest is still there.
	Read(ctx context.Context, into map[string]*Sample) error
	// Cost returns what the probe has spent so far.
	Cost() Cost
	// Close detaches and frees everything.
	Close() error
}

// CostReporter is a probe whose hooks stop the watched jobs' own threads: uprobes.
// Its methods are called from the same goroutine as Probe's.
type CostReporter interface {
	// Spending lists the hooks that cost a container something, sorted.
	Spending() []Spend
	// SetDutyCycle sets the share of time, 0..1, in which a hook is attached for a container; 1 at first.
	// A hook that other containers want as well stays attached for them.
	SetDutyCycle(container, hook string, share float64)
}

// Spend is what one hook cost one container so far.
type Spend struct {
	Container string  // Target.Key
	Hook      string  // "cuda.launch", "cuda.sync", …
	Hits      uint64  // since Watch
	HitNs     float64 // mean cost of a hit, as measured on this machine
}

// Cost is what a probe has spent since its start.
type Cost struct {
	KernelNs uint64 // in BPF programs, where the kernel's accounting was on
	Runs     uint64 // program runs so accounted
	MapBytes uint64 // kernel memory held in maps
	Lost     uint64 // events dropped, threads beyond the room
	// ChildNs and ChildBytes are the CPU time and resident memory of a child process.
	ChildNs, ChildBytes uint64
}
