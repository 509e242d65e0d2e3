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
	Held    float64 `json:"held"`           // anonymous and shared: only swap or a kill frees it
	Peak    float64 `json:"peak,omitempty"` // the most of that in the latest minute
	Most    float64 `json:"most,omitempty"` // the most of Current in it
	// MostBefore is the same of its first half; 0: not known.
	MostBefore float64 `json:"mostBefore,omitempty"`
	Limit      float64 `json:"limit,omitempty"` // 0: none
	// Shared is the most shared memory in the latest minute, files of any tmpfs among it.
	Shared float64 `json:"shared,omitempty"`
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
	// CalmSeconds is for how long next to nothing was read again, SparedSeconds for how long next to
	// nothing that its own limit evicted.
	CalmSeconds   float64 `json:"calmSeconds,omitempty"`
	SparedSeconds float64 `json:"sparedSeconds,omitempty"`
	// AtLimit: in the latest tick its limit was hit, or use stood at it.
	AtLimit bool `json:"atLimit,omitempty"`
	// Last is the limit, bytes, with which its last runs read nothing again, at its start; 0: not known.
	Last float64 `json:"last,omitempty"`
	// Fills: what it uses still grows into its limit. Loan is what became of the latest raise.
	Fills bool       `json:"fills,omitempty"`
	Loan  MemoryLoan `json:"loan,omitzero"`
}

// MemoryLoan is a raise of a memory limit, from the readings before it on.
type MemoryLoan struct {
	From    float64 `json:"from,omitempty"`    // bytes, the limit before; 0: none was made
	Before  float64 `json:"before,omitempty"`  // bytes read again per unit of work, before; 0: its last runs told of it
	After   float64 `json:"after,omitempty"`   // the same, of late
	Seconds float64 `json:"seconds,omitempty"` // since
	// Missed: some of it was taken back, and was missed; nothing that this depended on has moved.
	Missed bool `json:"missed,omitempty"`
}

// Helped reports whether what is read again for a unit of work fell by a third at least.
func (l MemoryLoan) Helped() bool { return l.After <= l.Before*2/3 }

// Rereads reports whether it reads again what was evicted, and not for the first time.
func (m MemoryUse) Rereads(k *Constants) bool {
	return m.Reread >= k.CalmReread && m.Reread >= k.RereadShare*m.DiskRead
}

// Grows reports whether in the latest half minute it used more than in the half before, or that is not known.
func (m MemoryUse) Grows(k *Constants) bool {
	return m.MostBefore <= 0 || m.Most-m.MostBefore >= k.CalmReread*k.UnusedSeconds/2
}

// Evicts reports whether its own limit still evicts what it reads again, and has little room any more: what a
// raise brings back was evicted by the lower limit, and says nothing of the one that stands.
func (m MemoryUse) Evicts(k *Constants) bool {
	return m.Rereads(k) && m.SparedSeconds == 0 && m.Current >= k.Full*m.Limit
}

// AtLimit reports whether a memory limit, bytes, evicts: it was hit, or use stands at it. Under any other
// somebody else evicted what is read again, as a host does that is short. Where swap is forbidden v1 counts
// no hits.
func (k *Constants) AtLimit(hits, current, limit float64) bool {
	return limit > 0 && (hits > 0 || current > (1-k.MinStep/2)*limit)
}

// Enough reports whether the latest raise was, for a minute. Where nothing was read again before it, a
// limit that is full proves nothing: it may hold what was read for the first time.
func (m MemoryUse) Enough(k *Constants) bool {
	return min(m.Loan.Seconds, m.SparedSeconds) >= k.UnusedSeconds && (m.Loan.Before > 0 || m.Current < k.Full*m.Limit)
}

// Calm reports whether next to nothing is read again.
func (m MemoryUse) Calm(k *Constants) bool { return m.Reread < k.CalmReread }

// WithRoom is an amount that is used or held with what stays above it.
func (k *Constants) WithRoom(bytes float64) float64 {
	return bytes + max(k.MemoryMargin*bytes, k.MemoryMarginBytes)
}

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
	case ch.Criterion == CriterionNoHarm && ch.Take:
		return "nothing should miss it"
	case ch.Criterion == CriterionNoHarm:
		return "it protects"
	case ch.Gain == 0: // by its mean use it needs no more, or nothing was measured
		return "its gain is not predicted"
	}
	return fmt.Sprintf("%+.0f %% predicted", 100*ch.Gain)
}

// Floor is the lowest limit that is safe to set: anonymous and shared memory with a margin.
func (m MemoryUse) Floor(k *Constants) float64 { return k.WithRoom(m.Held) }
