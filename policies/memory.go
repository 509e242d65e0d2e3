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
	// Reads are requests to disks that read.
	Reads float64 `json:"reads,omitempty"`
	// Growth of Held; 0 unless it lasted.
	Growth float64 `json:"growth"`
	// Some and Full are shares of time in which some, or all, of its tasks waited for memory.
	Some float64 `json:"some"`
	Full float64 `json:"full"`
	// LowReaches: the groups above leave room for its memory.low, which has no effect otherwise.
	LowReaches bool `json:"lowReaches,omitempty"`
}

// What tells a want of memory from first touches: calmReread bytes a second are read again
// before anything is wanted, and rereadShare of all that comes from disks.
const (
	calmReread  = 256 << 10
	rereadShare = 0.3
)

// Rereads reports whether it reads again what was evicted, and not for the first time.
func (m MemoryUse) Rereads() bool {
	return m.Reread >= calmReread && m.Reread >= rereadShare*m.DiskRead
}

// Calm reports whether next to nothing is read again.
func (m MemoryUse) Calm() bool { return m.Reread < calmReread }

// HorizonSeconds: what is read again within it would be kept by a raised limit. A data set
// that is gone through once in a minute stays cached.
const HorizonSeconds = 60

// leastMissing is the least part of a limit that is taken to be missing, where little or
// nothing tells how much is.
const leastMissing = 0.25

// Missing is how much more would keep what is read again, as far as one reading tells: what
// is read again within a minute. That may be more than its data set.
func (m MemoryUse) Missing() float64 { return max(m.Reread*HorizonSeconds, leastMissing*m.Limit) }

// spareShare and spareBytes stay above what is used when unused memory is taken back, and
// above what was enough when it is asked for.
const (
	spareShare = 0.10
	spareBytes = 64 << 20
)

// WithRoom is an amount that is used with what stays above it.
func WithRoom(used float64) float64 { return used + max(spareShare*used, spareBytes) }

// Evicted is the share of its time that a job loses to pages that it reads again.
func (m MemoryUse) Evicted(v Verdict, b Breakdown) float64 {
	lost := v.Severity
	if v.Cause != CauseReclaim {
		lost = b.Share(PartInputStorage)
		if m.DiskRead > 0 {
			lost *= min(1, m.Reread/m.DiskRead)
		}
	}
	return min(max(lost, 0), 0.9)
}

// readCPU is CPU seconds that a read from a disk costs more than one from memory: 24 to 26 µs
// for a single page, on Linux 6.18 in a virtual machine [measured]; less than half of that
// counts, as disks and kernels differ.
const readCPU = 10e-6

// RereadCPU is the share of the CPU time of a job that uses so many CPUs which goes into
// reading again what was evicted. It shows in no wait: a job that is short of CPU waits for that.
func (m MemoryUse) RereadCPU(used float64) float64 {
	if !m.Rereads() || !(used > 0) {
		return 0
	}
	again := 1.0
	if m.DiskRead > 0 {
		again = min(1, m.Reread/m.DiskRead)
	}
	return min(m.Reads*again*readCPU/used, 0.9)
}

// Paging is what a tick costs a job whose memory limit evicts what it reads again.
type Paging struct {
	Base  float64 `json:"base,omitempty"`  // seconds, with all its pages in memory
	Lost  float64 `json:"lost,omitempty"`  // seconds more under Limit
	Limit float64 `json:"limit,omitempty"` // bytes
	Set   float64 `json:"set,omitempty"`   // bytes that would end it
	// Enough: Set was measured, not guessed: with so much nothing is read again.
	Enough bool `json:"enough,omitempty"`
}

// Step is seconds per tick under a limit: what is lost ends in proportion to what is still
// missing. A set that is gone through round and round loses all until the last of it fits.
func (p Paging) Step(bytes float64) float64 {
	if p.Set <= p.Limit {
		return p.Base
	}
	return p.Base + p.Lost*max(0, (p.Set-bytes)/(p.Set-p.Limit))
}

// Knee is the memory beyond which more buys no speed; 0 if nothing was read.
func (p Paging) Knee() float64 { return p.Set }

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
