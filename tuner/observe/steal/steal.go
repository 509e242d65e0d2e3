// Package steal follows what the hypervisor takes of the machine's CPU time: what it usually takes
// is no reason to distrust a reading.
package steal

import (
	"slices"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/observe"
)

const second = int64(1e9)

// Usual is what it took lately, tick by tick. The zero value is ready.
type Usual struct {
	Share float64 // the median
	// Of each tick: when it was, and what was taken.
	at     []int64
	shares []float64
}

// What is usually stolen is the median of span; beyond most a step needs another number.
const (
	span  = 20 * second
	least = 5
	most  = 0.10
)

// Note takes in what was stolen between two readings.
func (u *Usual) Note(before, now probes.Host) {
	if before.AtNs <= 0 || now.AtNs <= before.AtNs {
		return
	}
	u.at, u.shares = append(u.at, now.AtNs), append(u.shares, now.StolenSince(before))
	old := 0
	for old < len(u.at)-least && u.at[old] < now.AtNs-span {
		old++
	}
	u.at, u.shares = slices.Delete(u.at, 0, old), slices.Delete(u.shares, 0, old)
	if len(u.shares) >= least {
		u.Share = min(observe.Median(u.shares), most)
	}
}
