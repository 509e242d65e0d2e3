package account

import "github.com/trimtab/trimtab/tuner/state"

// Peak is the most CPUs that a container wanted in one reading, from an instant to another, unix ns.
// It stands beside what is counted, so that a daemon that is restarted goes on where the one before ended.
type Peak struct {
	CPUs             float64
	SinceNs, UntilNs int64
}

// Told reports whether there is one.
func (p Peak) Told() bool { return p.SinceNs > 0 }

// maxUnwatchedNs is how long nobody may look on before what a container wanted begins anew: a restart
// or an upgrade takes less. Twice as much would hide a burst of half an hour.
const maxUnwatchedNs = int64(15 * 60e9)

// PeaksSince is how far back stored rows may hold a peak that still counts, unix ns.
func PeaksSince(nowNs int64) int64 { return nowNs - maxUnwatchedNs }

// RecallPeaks takes what containers wanted under an earlier daemon, from what is stored, oldest first.
// What a clock that was ahead left in the future is not believed.
func (b *Book) RecallPeaks(h Hour, nowNs int64) {
	for i := range h.Rows {
		if r := &h.Rows[i]; r.Peak.Told() && r.Peak.UntilNs <= nowNs && r.Peak.UntilNs >= PeaksSince(nowNs) {
			b.peaks[r.Key] = r.Peak
		}
	}
}

// withPeaks adds what was recalled to a snapshot that nobody else reads yet. A container that this
// daemon first read too long after the earlier one begins anew.
func (b *Book) withPeaks(s *state.Snapshot) {
	for i := range s.Containers {
		c := &s.Containers[i]
		p, ok := b.peaks[c.Key]
		switch {
		case !ok || c.PeakSinceUnixNs == 0:
		case c.PeakSinceUnixNs-p.UntilNs > maxUnwatchedNs:
			delete(b.peaks, c.Key)
		default:
			c.PeakCPUs, c.PeakSinceUnixNs = max(c.PeakCPUs, p.CPUs), min(c.PeakSinceUnixNs, p.SinceNs)
		}
	}
}
