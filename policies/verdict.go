package policies

// Class is what bounds a job.
type Class string

// The classes.
const (
	ClassInput         Class = "input"
	ClassCompute       Class = "compute"
	ClassCommunication Class = "communication"
	ClassMemory        Class = "memory"
	ClassBalanced      Class = "balanced"
	ClassIdle          Class = "idle"
	ClassInteractive   Class = "interactive"
	ClassUnknown       Class = "unknown"
)

// Cause says why, within a class; classes that never act have none.
type Cause string

// The causes.
const (
	CauseNone      Cause = ""
	CauseThrottled Cause = "throttled" // input
	CauseContended Cause = "contended" // input
	CauseStorage   Cause = "storage"   // input
	CauseRemote    Cause = "remote"    // input
	CauseCache     Cause = "cache"     // input
	CauseWorkers   Cause = "workers"   // input
	CauseDevice    Cause = "device"    // compute
	CauseShared    Cause = "shared"    // compute
	CauseHost      Cause = "host"      // compute
	CauseClocks    Cause = "clocks"    // compute
	CauseNetwork   Cause = "network"   // communication
	CauseStraggler Cause = "straggler" // communication
	CauseReclaim   Cause = "reclaim"   // memory
	CauseRisk      Cause = "risk"      // memory
)

// Part is one share of a rank's wall time in its breakdown.
type Part uint8

// The parts. Each nanosecond of the trainer's wall time is in exactly one. The
// Input parts are waits for loaders, charged to what the loaders were doing.
const (
	PartCompute        Part = iota // the trainer on a CPU, or behind a thread of its own container
	PartThrottled                  // the trainer runnable, out of quota
	PartContended                  // the trainer runnable, behind other work
	PartDevice                     // the trainer in device or self-paced waits
	PartInputThrottled             // loaders out of quota
	PartInputContended             // loaders behind other work
	PartInputStorage               // loaders (or the trainer itself) in block I/O and file reads
	PartInputRemote                // loaders (or the trainer itself) in socket and network-filesystem reads
	PartInputWorkers               // loaders on CPU: production is the limit
	PartInputOther                 // loaders in anything else
	PartCommunication              // exposed waits for peers
	PartReclaim                    // direct reclaim and memory locks
	PartOther                      // everything else
	NumParts
)

// String returns the part's name, as metrics and explain show it.
func (p Part) String() string {
	names := [NumParts]string{"compute", "throttled", "contended", "device", "input_throttled", "input_contended",
		"input_storage", "input_remote", "input_workers", "input_other", "communication", "reclaim", "other"}
	if p < NumParts {
		return names[p]
	}
	return "invalid"
}

// Breakdown is a rank's wall time split by cause; the parts sum to WallNs exactly.
type Breakdown struct {
	WallNs int64           `json:"wall"`
	Ns     [NumParts]int64 `json:"ns"`
}

// Share returns a part's share of the wall time, 0..1.
func (b Breakdown) Share(p Part) float64 {
	if b.WallNs <= 0 {
		return 0
	}
	return float64(b.Ns[p]) / float64(b.WallNs)
}

// Input returns the share of wall time spent waiting for data, 0..1.
func (b Breakdown) Input() float64 {
	return b.Share(PartInputThrottled) + b.Share(PartInputContended) + b.Share(PartInputStorage) +
		b.Share(PartInputRemote) + b.Share(PartInputWorkers) + b.Share(PartInputOther)
}

// Stalled returns the share of wall time in which the rank was neither
// computing nor waiting for its device, 0..1.
func (b Breakdown) Stalled() float64 {
	if b.WallNs <= 0 {
		return 0
	}
	return 1 - b.Share(PartCompute) - b.Share(PartDevice)
}

// Evidence is one number that a verdict rests on.
type Evidence struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"` // "share", "CPUs", "s", "1/s", "B", "pages/s", …
}

// Rate is ticks per second of a periodic event.
type Rate struct {
	PerSecond float64 `json:"perSecond"` // 0: none found
	Source    string  `json:"source"`    // "torch.backward", "hand-offs", "timer waits", …
	Steps     bool    `json:"steps"`     // ticks per step are confirmed: PerSecond is steps/s
	Ticks     float64 `json:"ticks"`     // ticks that the reading rests on
	// The time that PerSecond is the mean of, CLOCK_MONOTONIC ns: from one event to another
	// where events have times, else between two readings of their count. 0: it names none.
	FromNs int64 `json:"from,omitempty"`
	ToNs   int64 `json:"to,omitempty"`
}

// The reliefs of a lack of CPU. Loaders and trainer pay from one quota, so that of whom a
// verdict tells first may change from window to window, and what is short does not.
const (
	ReliefQuota  = "a higher CPU quota"
	ReliefWeight = "a higher CPU weight"
	// ReliefGrant is of who has its right in full: a weight would take from others what is theirs.
	ReliefGrant = "more CPU from its owner, a higher quota or a larger share: it has all that is its own"
)

// Verdict is what bounds a container, with its evidence.
type Verdict struct {
	Class      Class      `json:"class"`
	Cause      Cause      `json:"cause,omitempty"`
	Severity   float64    `json:"severity"`   // share of wall time lost to the cause, 0..1
	Confidence float64    `json:"confidence"` // 0..1
	Evidence   []Evidence `json:"evidence,omitempty"`
	Relief     string     `json:"relief,omitempty"` // what would relieve it, in plain words
	Why        string     `json:"why,omitempty"`    // one sentence for people; for unknown, what is missing
}

// Cost is what one tick of a rank's rate costs, measured over a window. Times
// are seconds per tick. Time out of quota, and behind threads of the same
// container, is in none of them, so the cost can be read while the job starves.
type Cost struct {
	TrainerCPU float64 `json:"trainerCPU"` // C_t
	LoaderCPU  float64 `json:"loaderCPU"`  // C_l
	OtherCPU   float64 `json:"otherCPU"`   // C_o: every other thread of the container
	Device     float64 `json:"device"`     // D: the trainer's waits that are neither data nor CPU
	Batch      float64 `json:"batch"`      // w: one loader's own wall time for one batch, I/O included
	Loaders    int     `json:"loaders"`    // W
	Ticks      float64 `json:"ticks"`      // ticks measured
	// Queue is the trainer's wait for a CPU behind work of other containers: no quota
	// shortens it, so it belongs to the step's floor.
	Queue float64 `json:"queue,omitempty"`
	// Spin is the part of D that the trainer spends spinning on a CPU, or working ahead of a
	// device without room. More CPUs do not shorten it, so it is no demand; but a quota pays for
	// it as for work.
	Spin float64 `json:"spin,omitempty"`
}

// Step predicts seconds per tick on so many CPUs:
// max(C_t+D, w/W, (C_l+C_t+C_o+S)/c): the one-jump model, with the spinning S that
// a quota is spent on.
func (c Cost) Step(cpus float64) float64 {
	step := c.Floor()
	if cpus > 0 {
		step = max(step, c.CPU()/cpus)
	}
	return step
}

// Floor is seconds per tick with quota in plenty: max(C_t+D, w/W). What neighbours
// keep the trainer waiting counts with C_t: beside a busy neighbour the step is
// that much longer whatever the quota [measured beside one spinning process on two
// CPUs: C_t+D 81 ms, a step without quota 98 ms].
func (c Cost) Floor() float64 {
	floor := c.TrainerCPU + c.Device + c.Queue
	if c.Loaders > 0 {
		floor = max(floor, c.Batch/float64(c.Loaders))
	}
	return floor
}

// CPU is CPU seconds per tick, all threads, spinning included.
func (c Cost) CPU() float64 { return c.TrainerCPU + c.LoaderCPU + c.OtherCPU + c.Spin }

// Knee returns c*, the CPUs beyond which more buy no speed; 0 if nothing was measured.
func (c Cost) Knee() float64 {
	floor := c.Floor()
	if floor <= 0 {
		return 0
	}
	return c.CPU() / floor
}

// Late is the rank of a job that the others wait for, told by its device.
type Late struct {
	TGIDs    []int32 // several where ranks share the device
	Name     string  // for people
	Spinning int     // devices of the job that spin in a collective meanwhile
	Partly   bool    // what the devices of some ranks do is not seen
}
