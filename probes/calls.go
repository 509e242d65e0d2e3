package probes

// Direction is where a copy goes.
type Direction uint8

// The directions of cudaMemcpyKind, in its order; CopyDefault is told by addresses.
const (
	CopyHostToHost Direction = iota
	CopyHostToDevice
	CopyDeviceToHost
	CopyDeviceToDevice
	CopyDefault
	NumDirections
)

// Mark is one event of a process that may recur once a step, with what it had
// launched until then: the steps' period is found in them.
type Mark struct {
	AtNs     int64    `json:"at"` // CLOCK_MONOTONIC
	Kind     MarkKind `json:"k"`
	TID      int32    `json:"tid"` // host
	Launches uint64   `json:"l"`   // kernel and graph launches of the process so far
}

// MarkKind is what a mark was.
type MarkKind uint8

// The kinds of mark. Sync ends a blocking call; the others begin one.
const (
	MarkSync MarkKind = iota
	MarkGraph
	MarkCollective
	MarkCopy // host to device, blocking or not
	NumMarkKinds
)

// OverBudget is the reason, after a name and a colon, for calls that are not counted at all
// since the budget does not pay for it.
const OverBudget = "over the budget"

// CUDA is what uprobes on CUDA's libraries counted in one container.
type CUDA struct {
	Processes []CUDAProcess `json:"processes"`         // sorted by TGID
	Virtual   bool          `json:"virtual,omitempty"` // the library is trimtab's virtual GPU
	// Missing names calls that are not counted now, each with why ("launches: over the budget").
	Missing []string `json:"missing,omitempty"`
}

// CUDAProcess holds one process's counters since it was first seen; they only grow.
type CUDAProcess struct {
	TGID int32 `json:"tgid"` // host
	// Launches counts kernels, each once, whichever library it passed. LaunchNs is the time
	// during which they were counted: less than the wall time where the budget makes the
	// probe take turns.
	Launches  uint64                `json:"launches"`
	LaunchNs  uint64                `json:"launchNs"`
	Graphs    uint64                `json:"graphs,omitempty"`
	Copies    [NumDirections]uint64 `json:"copies"`
	CopyBytes [NumDirections]uint64 `json:"copyBytes"`
	Threads   []CUDAThread          `json:"threads,omitempty"` // sorted by TID
	// Marks are the latest ones since the last reading, oldest first, 256 at the most.
	Marks []Mark `json:"marks,omitempty"`
	// LastNs is CLOCK_MONOTONIC of the latest launch, graph, copy or synchronisation; 0: none.
	LastNs int64 `json:"last"`
	// Thinned: graphs or copies are not counted all the time, so where none is seen, some
	// may have been.
	Thinned bool `json:"thinned,omitempty"`
}

// LatestNs is CLOCK_MONOTONIC of the latest call of any process; 0: none.
func (c *CUDA) LatestNs() (ns int64) {
	if c != nil {
		for _, p := range c.Processes {
			ns = max(ns, p.LastNs)
		}
	}
	return ns
}

// CUDAThread holds what one thread called.
type CUDAThread struct {
	TID int32 `json:"tid"` // host
	// Launches counts kernels and graphs, as far as they were counted.
	Launches uint64 `json:"launches,omitempty"`
	Syncs    uint64 `json:"syncs"`
	SyncNs   uint64 `json:"syncNs"` // wall time inside, spinning or asleep; an open call counts up to now
	// SyncRunNs is the part of SyncNs on a CPU: the library spins.
	SyncRunNs uint64 `json:"syncRunNs,omitempty"`
	CopyNs    uint64 `json:"copyNs,omitempty"` // inside blocking copies to and from the device
	CopyRunNs uint64 `json:"copyRunNs,omitempty"`
	// Staged counts asynchronous copies of more than 64 KiB to the device that have returned, with
	// their time inside and their size. From pinned memory they return at once.
	Staged    uint64 `json:"staged,omitempty"`
	StagedNs  uint64 `json:"stagedNs,omitempty"`
	StagedKiB uint64 `json:"stagedKiB,omitempty"`
	LastNs    int64  `json:"last"` // end of the latest call that blocked, CLOCK_MONOTONIC; 0: none
}

// Collective is a kind of NCCL call.
type Collective uint8

// The kinds of collective.
const (
	AllReduce Collective = iota
	ReduceScatter
	AllGather
	Broadcast
	Reduce
	AllToAll
	Send
	Recv
	NumCollectives
)

// NCCL is what uprobes on NCCL counted in one container.
type NCCL struct {
	Processes []NCCLProcess `json:"processes"` // sorted by TGID
	Missing   []string      `json:"missing,omitempty"`
}

// NCCLProcess holds one process's counters since it was first seen; they only grow.
type NCCLProcess struct {
	TGID  int32                  `json:"tgid"`
	Calls [NumCollectives]uint64 `json:"calls"`
	Bytes [NumCollectives]uint64 `json:"bytes"`           // of the caller's buffer
	Ranks int                    `json:"ranks,omitempty"` // size of the largest communicator seen; 0: not told
	Rank  int                    `json:"rank,omitempty"`  // this process's place in it
	// LastNs is CLOCK_MONOTONIC of the latest call.
	LastNs int64 `json:"last"`
}

// MPI is what uprobes on MPI's functions timed in one container.
type MPI struct {
	Processes []MPIProcess `json:"processes"` // sorted by TGID
	Missing   []string     `json:"missing,omitempty"`
}

// MPIProcess holds one process's counters since it was first seen; they only grow.
type MPIProcess struct {
	TGID  int32  `json:"tgid"`  // host
	Calls uint64 `json:"calls"` // that wait for other ranks, the outermost
	// WaitNs is the time inside them, spinning or asleep; an open call counts up to now. CountedNs
	// is the time during which they were timed: less than the wall time where the budget makes
	// the probe take turns.
	WaitNs    uint64 `json:"waitNs"`
	CountedNs uint64 `json:"countedNs"`
	LastNs    int64  `json:"last"` // CLOCK_MONOTONIC of the latest entry or return; 0: none
	// Caller is the thread, host TID, that called the latest; 0: none. One call of a process is
	// timed at a time.
	Caller int32 `json:"caller,omitempty"`
}
