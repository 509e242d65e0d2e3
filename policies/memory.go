package policies

import (
	"fmt"

	"github.com/trimtab/trimtab/runtime"
)

// MemoryUse is what a container's memory did in the latest ticks. Amounts are bytes,
// rates are per second.
type MemoryUse struct {
	Read    bool    `json:"read"` // false: it could not be read, and the rest says nothing
	Current float64 `json:"current"`
	Held    float64 `json:"held"`            // anonymous and shared: only swap or a kill frees it
	Limit   float64 `json:"limit,omitempty"` // 0: none
	// Reread is what was read again after it had been evicted, DiskRead all that came
	// from disks.
	Reread   float64 `json:"reread"`
	DiskRead float64 `json:"diskRead"`
	// Growth of Held; 0 unless it lasted.
	Growth float64 `json:"growth"`
	// Some and Full are shares of time in which some, or all, of its tasks waited for memory.
	Some float64 `json:"some"`
	Full float64 `json:"full"`
	// LowReaches: the groups above leave room for its memory.low, which has no effect otherwise.
	LowReaches bool `json:"lowReaches,omitempty"`
}

// Expected says in a phrase what a change is expected to do.
func (ch Change) Expected() string {
	switch {
	case ch.Knob == runtime.KnobGPU && !ch.Take:
		return "it was granted it"
	case ch.Witness == WitnessHarm && ch.Take:
		return "nothing should miss it"
	case ch.Witness == WitnessHarm:
		return "it protects"
	}
	return fmt.Sprintf("%+.0f %% predicted", 100*ch.Gain)
}

const (
	// The margin over what is held that no limit may go below: for memory that is charged
	// and is neither (slab, page tables, socket buffers), and for growth between reading
	// and writing. Chosen, not measured; the actuator holds the same once more.
	heldMarginShare = 0.10
	heldMarginBytes = 64 << 20
)

// Floor is the lowest limit that is safe to set: anonymous and shared memory with a margin.
func (m MemoryUse) Floor() float64 { return m.Held + max(heldMarginShare*m.Held, heldMarginBytes) }

// Disk is what containers transfer from and to the disks that a container uses,
// bytes per second.
type Disk struct {
	Own    float64 `json:"own"`
	Others float64 `json:"others"`
}
