package observe

import (
	"cmp"
	"sort"

	"github.com/trimtab/trimtab/policies"
)

// pageBytes is the unit of the kernel's refault counters.
const pageBytes = 4096

// MemoryTick is what one tick told of a container's memory: windows of steps are too long to
// see a limit coming, or one that bites. Amounts are bytes, of the tick.
type MemoryTick struct {
	StartNs, EndNs     int64
	Current, Held, Shm float64
	Grew               float64 // by so much Held rose since the tick before
	Reread, Read, Reqs float64 // read again after eviction; from disks in all; requests that read
	Some, Full, IOSome float64 // PSI, shares
	Kills, Hits, Limit float64 // Hits: how often it asked for more than its limit; 0: none, or not read
	CPUs               float64
}

// MemoryMeans are per-second rates and mean shares over ticks; Kills stay a count.
type MemoryMeans struct {
	Seconds, Reread, Read, Reqs, Some, Full, IOSome, Kills, CPUs float64
}

// memorySeconds is the stretch that rates of memory are read from.
const memorySeconds = 10

func (s *State) addMemory(w *Window) {
	if !w.HasCgroup {
		return
	}
	g := w.Cgroup
	t := MemoryTick{StartNs: w.StartNs, EndNs: w.EndNs, Current: float64(g.MemoryBytes), Held: float64(g.Anon + g.Shmem), Shm: float64(g.Shmem), Reread: float64(g.RefaultFile+g.RefaultAnon) * pageBytes,
		Read: float64(w.Block.ReadBytes), Reqs: float64(w.Block.Reads), Some: g.MemorySome, Full: g.MemoryFull, IOSome: g.IOSome, Kills: float64(g.OOMKills), Hits: float64(g.Hits), Limit: float64(max(0, g.MemoryLimit)), CPUs: w.UsedCPUs()}
	if n := len(s.Memory); n > 0 {
		t.Grew = max(0, t.Held-s.Memory[n-1].Held)
	}
	s.Memory = keep(append(s.Memory, t))
}

// MemoryBetween are the ticks that lie between two instants; not to be written to.
func (s *State) MemoryBetween(fromNs, toNs int64) []MemoryTick {
	from, to := s.memoryRange(fromNs, toNs)
	return s.Memory[from:to:to]
}

func (s *State) memoryRange(fromNs, toNs int64) (from, to int) {
	from = sort.Search(len(s.Memory), func(i int) bool { return s.Memory[i].StartNs >= fromNs })
	to = sort.Search(len(s.Memory), func(i int) bool { return s.Memory[i].EndNs > toNs })
	return from, max(from, to)
}

// Means are the means over ticks.
func Means(ticks []MemoryTick) MemoryMeans {
	var m MemoryMeans
	for _, t := range ticks {
		secs := float64(t.EndNs-t.StartNs) / 1e9
		m.Seconds += secs
		m.Reread, m.Read, m.Reqs, m.Kills = m.Reread+t.Reread, m.Read+t.Read, m.Reqs+t.Reqs, m.Kills+t.Kills
		m.Some, m.Full, m.IOSome, m.CPUs = m.Some+t.Some*secs, m.Full+t.Full*secs, m.IOSome+t.IOSome*secs, m.CPUs+t.CPUs*secs
	}
	if m.Seconds <= 0 {
		return MemoryMeans{}
	}
	for _, v := range []*float64{&m.Reread, &m.Read, &m.Reqs, &m.Some, &m.Full, &m.IOSome, &m.CPUs} {
		*v /= m.Seconds
	}
	return m
}

// RereadPerWork is bytes read again for each second of CPU time: of one job CPU time stands
// for work done, whether or not its steps are counted.
func (m MemoryMeans) RereadPerWork() float64 {
	if m.CPUs <= 0 {
		return 0
	}
	return m.Reread / m.CPUs
}

// MemoryUse is a container's memory as policies see it, under its limit; 0: none.
func (s *State) MemoryUse(k *policies.Constants, limit float64) policies.MemoryUse {
	if len(s.Memory) == 0 {
		return policies.MemoryUse{}
	}
	now := s.Memory[len(s.Memory)-1]
	m := Means(s.MemoryBetween(now.EndNs-memorySeconds*second, now.EndNs))
	use := policies.MemoryUse{Read: true, Current: now.Current, Held: now.Held, Limit: limit, Reread: m.Reread, DiskRead: m.Read, Reads: m.Reqs, Some: m.Some, Full: m.Full, Growth: s.growth(),
		AtLimit: k.AtLimit(now.Hits, now.Current, min(limit, cmp.Or(now.Limit, limit)))}
	for _, t := range s.MemoryBetween(now.EndNs-int64(k.UnusedSeconds*1e9), now.EndNs) {
		use.Peak, use.Most, use.Shared = max(use.Peak, t.Held), max(use.Most, t.Current), max(use.Shared, t.Shm)
		if t.EndNs <= now.EndNs-int64(k.UnusedSeconds/2*1e9) {
			use.MostBefore = use.Most
		}
	}
	use.CalmSeconds, use.SparedSeconds = s.calmFor(k, limit)
	use.Fills = limit > 0 && s.fills(k, limit)
	return use
}

// calmFor is for how long, s, next to nothing was read again, and next to nothing that its own limit evicted: the lower of what
// stands and what a tick read, perhaps late. What takes use to a new height after that was never there for others to evict.
func (s *State) calmFor(k *policies.Constants, limit float64) (calm, spared float64) {
	most, evicted := 0.0, false
	for _, t := range s.Memory {
		secs := float64(t.EndNs-t.StartNs) / 1e9
		calm, spared = calm+secs, spared+secs
		if secs <= 0 || t.Reread/secs >= k.CalmReread {
			if calm = 0; k.AtLimit(t.Hits, t.Current, min(limit, cmp.Or(t.Limit, limit))) || evicted && t.Current-most >= k.CalmReread*secs {
				spared, evicted = 0, true
			}
		}
		most = max(most, t.Current)
	}
	return calm, spared
}

// fills reports whether what is used grew over the latest stretch, or has room to and mostly waited for a
// disk, which brings none while it stands still: a raised limit is judged once the last of its pages came.
func (s *State) fills(k *policies.Constants, limit float64) bool {
	now := s.Memory[len(s.Memory)-1]
	from, to := s.memoryRange(now.EndNs-memorySeconds*second, now.EndNs)
	ticks := s.Memory[from:to]
	if len(ticks) < memorySeconds/2 {
		return true
	}
	first := s.Memory[max(0, from-1)] // it ends where these begin
	grew := now.Current-first.Current >= k.CalmReread*float64(now.EndNs-first.EndNs)/1e9
	return grew || now.Current < (1-k.MinStep)*limit && Means(ticks).IOSome >= k.Dominant
}

// Growth must last to count; a job that loads a batch or a model grows for a moment and stops.
const (
	growthSpan  = 4 * second
	growthTicks = 3
)

// growth of what is held, bytes a second: over the latest stretch, if it grew in both halves
// of it, so that one jump is none.
func (s *State) growth() float64 {
	now := s.Memory[len(s.Memory)-1]
	span := max(growthSpan, growthTicks*(now.EndNs-now.StartNs))
	ticks := s.MemoryBetween(now.EndNs-span-second/2, now.EndNs)
	if len(ticks) < growthTicks {
		return 0
	}
	first, mid := ticks[0], ticks[len(ticks)/2]
	rate := func(a, b MemoryTick) float64 { return (b.Held - a.Held) / (float64(b.EndNs-a.EndNs) / 1e9) }
	early, late := rate(first, mid), rate(mid, now)
	if whole := rate(first, now); min(early, late) > whole/4 {
		return max(0, whole)
	}
	return 0
}
