package observe

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
)

// TestFills: a raised limit is judged once the pages that it is to keep have come. Each case is
// twelve seconds of a job that reads files into 1 GiB, of which 100 MiB are used before.
func TestFills(t *testing.T) {
	const mib = 1 << 20
	k := policies.DefaultConstants()
	for name, c := range map[string]struct {
		grew, waits float64 // bytes a tick; share of time that it waits for a disk
		limit       float64
		want        bool
	}{
		"pages come":                        {mib, 1, 1024 * mib, true},
		"pages come, and nobody tells PSI":  {mib, 0, 1024 * mib, true},
		"the disk stands still":             {0, 1, 1024 * mib, true},
		"all have come":                     {0, 0, 1024 * mib, false},
		"all have come, and it logs":        {0, 0.1, 1024 * mib, false},
		"the limit is reached":              {0, 1, 102 * mib, false},
		"there is no limit":                 {mib, 1, 0, false},
		"pages come so slowly that few are": {100 << 10, 0.1, 1024 * mib, false},
	} {
		var s State
		for i := range int64(12) {
			s.Memory = append(s.Memory, MemoryTick{StartNs: i * second, EndNs: (i + 1) * second, Current: 100*mib + float64(i)*c.grew, IOSome: c.waits})
		}
		if got := s.MemoryUse(k, c.limit).Fills; got != c.want {
			t.Errorf("%s: fills %v", name, got)
		}
	}
}

// TestARoundEnds: once the last file has come, what was read again of late came into memory to
// stay. In none of the seconds that follow does that look like reading in vain.
func TestARoundEnds(t *testing.T) {
	const mib = 1 << 20
	k := policies.DefaultConstants()
	for _, rate := range []float64{mib / 3, mib, 3 * mib, 100 * mib} {
		var s State
		current := 100.0 * mib
		for i := range int64(40) {
			tick := MemoryTick{StartNs: i * second, EndNs: (i + 1) * second}
			if i < 20 {
				current += rate
				tick.Reread, tick.Read = rate, rate
			}
			tick.Current = current
			s.Memory = append(s.Memory, tick)
			if u := s.MemoryUse(k, 8192*mib); u.Rereads(k) && !u.Fills {
				t.Errorf("%.1f MiB/s, second %d: %+v", rate/mib, i, u)
			}
		}
	}
}

// TestSharedIsTheMostOfAMinute: a queue of batches in shared memory fills and drains.
func TestSharedIsTheMostOfAMinute(t *testing.T) {
	var s State
	for i, shmem := range []uint64{9e6, 5e6, 7e6, 1e6} {
		start := int64(i) * 25 * second
		s.addMemory(&Window{StartNs: start, EndNs: start + 25*second, HasCgroup: true, Cgroup: Cgroup{Anon: 1e9, Shmem: shmem}})
	}
	if got := s.MemoryUse(policies.DefaultConstants(), 0).Shared; got != 7e6 {
		t.Errorf("%.0f bytes, want the most that the last minute's readings had", got)
	}
}

// TestCalmIsOfItsOwnLimit: what is read again counts against a limit that is hit, or stood at, and not
// against one that others evict below. A raise says nothing of the ticks before it.
func TestCalmIsOfItsOwnLimit(t *testing.T) {
	const mib = 1 << 20
	k := policies.DefaultConstants()
	for name, c := range map[string]struct {
		current, hits, stood float64 // MiB in use; hits; the limit that stood, MiB; 0: not read
		calm, evicts         bool
	}{
		"hit":                           {900, 7, 1000, false, true},
		"stood at":                      {990, 0, 1000, false, true},
		"others evict":                  {930, 0, 1000, true, false},
		"before it was raised":          {590, 0, 600, false, false},
		"what stood could not be read":  {930, 0, 0, true, false},
		"that is not known, and it hit": {930, 1, 0, false, true},
	} {
		var s State
		for i := range int64(20) {
			s.Memory = append(s.Memory, MemoryTick{StartNs: i * second, EndNs: (i + 1) * second, Current: c.current * mib, Hits: c.hits, Limit: c.stood * mib, Reread: 5 * mib, Read: 5 * mib})
		}
		u := s.MemoryUse(k, 1000*mib)
		if want := map[bool]float64{true: 20}[c.calm]; u.SparedSeconds != want || u.Evicts(k) != c.evicts {
			t.Errorf("%s: spared for %.0f s, evicts %v", name, u.SparedSeconds, u.Evicts(k))
		}
	}
}

// TestRefillIsOfTheLimitBefore: what is read again while use rises to a new height, after a limit evicted, is
// what that limit evicted. Below that height others did.
func TestRefillIsOfTheLimitBefore(t *testing.T) {
	const mib = 1 << 20
	var s State
	for i, current := range []float64{400, 400, 500, 600, 700, 800, 900, 700, 800, 890, 890} { // of 400, then of 1,000
		stood := map[bool]float64{true: 400, false: 1000}[i < 2]
		s.Memory = append(s.Memory, MemoryTick{StartNs: int64(i) * second, EndNs: int64(i+1) * second, Current: current * mib, Limit: stood * mib, Reread: 100 * mib, Read: 100 * mib})
		if got, want := s.MemoryUse(policies.DefaultConstants(), stood*mib).SparedSeconds, float64(max(0, i-6)); got != want {
			t.Errorf("second %d: spared for %.0f s, want %.0f", i, got, want)
		}
	}
}
