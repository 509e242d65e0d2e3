// Package idle tells who holds a GPU without using it. It is a pure state machine
// over readings: what the device did (NVML's samples), what its holders launched
// (uprobes on CUDA's libraries), and who they are. It needs no enrolment.
//
// The trap is absence: per-process figures drop out, slices have no utilisation,
// launches are counted only in turns, a device does not answer. What was not told
// is never zero. Time that no reading covers is bridged up to BridgeNs and counts
// as use beyond it, so that idle ≤ held ≤ wall time, and a doubt is never idleness.
package idle

import (
	"maps"
	"slices"

	"github.com/trimtab/trimtab/probes"
)

// second in nanoseconds.
const second = int64(1e9)

// Config bounds what counts as idle.
type Config struct {
	// AfterNs is how long a holder must be without a kernel before its time counts: the
	// first stretch of every pause is a checkpoint, an evaluation, a person who thinks.
	AfterNs int64 `json:"after"`
	// BridgeNs is the longest hole between two readings that is taken for granted: a call of
	// NVML may take 2 s to be given up, and the launch probe takes turns of a few seconds.
	BridgeNs int64 `json:"bridge"`
}

// Defaults returns 30 s, and holes of 10 s.
func Defaults() Config { return Config{AfterNs: 30 * second, BridgeNs: 10 * second} }

// Owner is a container that may hold a device.
type Owner struct {
	Key  string // runtime.Container.Key
	Name string
	Team string
}

// Evidence says how it is known that a holder runs nothing, or that nothing is known.
type Evidence string

// The evidence, from the strongest. It is empty where the holder ran something.
const (
	ByDevice   Evidence = "device idle" // no kernel ran on the device at all
	ByShare    Evidence = "by SM share" // others ran; the driver told a share of 0 for all its processes
	ByLaunches Evidence = "by launches" // its processes launched and copied nothing
	Shared     Evidence = "unknown: shared, driver tells nothing"
	Untold     Evidence = "unknown: driver tells nothing"
)

// Holding is one container, or the processes of the host together, on one device.
// Instants are CLOCK_MONOTONIC.
type Holding struct {
	Device string  // UUID
	Key    string  // runtime.Container.Key; "": processes of the host
	Name   string  // of the container; "" if it is not known, or the host
	Team   string  // of the container's enrolment
	PIDs   []int32 // host, sorted, at most maxPIDs of them
	// MemBytes is the device memory of its processes; where none was told and nobody else
	// holds the device, what is used of it.
	MemBytes uint64
	SinceNs  int64 // first seen on the device
	AtNs     int64 // latest reading with it
	// QuietNs is the instant of its latest known use; FirstSight: none was seen since it was
	// first looked at, or since a hole in the readings, and that instant is QuietNs.
	QuietNs    int64
	FirstSight bool
	// CoveredNs is until when it is known to have run nothing since QuietNs.
	CoveredNs int64
	Idle      bool // without a kernel for longer than Config.AfterNs, and that is known
	Evidence  Evidence
	// HeldNs and IdleNs are totals of this container and device, over interruptions.
	HeldNs, IdleNs int64
}

// QuietForNs is how long it is known to have been without a kernel.
func (h Holding) QuietForNs() int64 { return max(0, h.CoveredNs-h.QuietNs) }

// TeamTotal is what a team held, of all its containers and devices; it outlives them.
type TeamTotal struct {
	Team           string
	HeldNs, IdleNs int64
}

const (
	maxPIDs = 16
	// maxTeams bounds the teams that are counted apart, since labels are hostile input; later
	// ones are summed.
	maxTeams  = 100
	othersKey = "(others)"
	// forgetNs is how long totals of a device that is gone are kept, forgetProcessNs the same
	// of a process: readings are thinned to every fourth tick, of at most 10 s.
	forgetNs        = 600 * second
	forgetProcessNs = 60 * second
)

// place is one holder on one device.
type place struct{ device, holder string }

// holding is the state of one, beside its totals.
type holding struct {
	Holding
	// weighedNs is the latest launch of its processes that was judged.
	weighedNs int64
}

type total struct{ heldNs, idleNs, atNs int64 }

// process is what one process launched.
type process struct {
	launched  uint64 // kernels, graphs and copies
	countedNs uint64 // CUDAProcess.LaunchNs
	usedNs    int64  // latest instant at which launched is known to have grown; 0: never
	toldNs    int64  // latest instant up to which launches were counted
	seenNs    int64  // latest sample with it
}

// deviceState is what one device did.
type deviceState struct {
	readNs   int64 // latest reading
	sampleNs int64 // latest duty sample
	busyNs   int64 // latest instant at which something ran; 0: never seen
}

// Tracker is the state between ticks. It is used from one goroutine.
type Tracker struct {
	devices   map[string]deviceState
	holdings  map[place]*holding
	totals    map[place]*total
	processes map[int32]process
	teams     map[string]*TeamTotal
	nowNs     int64
}

// New returns an empty tracker.
func New() *Tracker {
	return &Tracker{devices: map[string]deviceState{}, holdings: map[place]*holding{}, totals: map[place]*total{},
		processes: map[int32]process{}, teams: map[string]*TeamTotal{}}
}

// Step takes one tick's readings in, in any order.
func (t *Tracker) Step(cfg Config, host probes.Host, samples []probes.Sample, owners []Owner) {
	t.nowNs = host.AtNs
	known := make(map[string]Owner, len(owners))
	for _, o := range owners {
		known[o.Key] = o
	}
	t.readProcesses(samples)
	read := t.readDevices(host.Devices)
	uses := processDevices(host.Devices)
	for _, d := range read {
		holders := byHolder(d.dev)
		for _, key := range slices.Sorted(maps.Keys(holders)) {
			t.advance(cfg, d, known[key], key, holders[key], uses)
		}
	}
	t.forget(cfg, host.Devices, known)
}
