package core

import (
	"cmp"
	"slices"
	"sort"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/response"
	"github.com/trimtab/trimtab/tuner/verdict"
	"github.com/trimtab/trimtab/tuner/window"
)

// pageBytes is the unit of the kernel's refault counters.
const pageBytes = 4096

// memoryTick is what one tick told of a container's memory. Windows of five steps
// are too long to see a limit coming, or a limit that bites.
type memoryTick struct {
	startNs, endNs  int64
	current, held   float64 // bytes
	grew            float64 // by so much held rose since the tick before
	reread, read    float64 // bytes in the tick: read again after eviction, from disks in all
	reads           float64 // requests to disks
	some, full      float64 // PSI, shares
	ioSome          float64 // likewise, of waits for disks
	hits            float64 // times the limit was hit in the tick
	high            float64 // times memory.high was
	kills           float64
	cpus, throttled float64
}

// memoryState is what the core remembers of a container for the knobs beyond CPU.
type memoryState struct {
	memory []memoryTick
	disks  []diskUse
	urgent bool // see policies.Job.Urgent
	// failedMoves are changes of memory that failed, by direction.
	failedMoves map[move]moveCondition
	paging      response.Learner
	byMemory    policies.Curve // of paging, as learnt last
}

// withKnobs adds to a job what the knobs beyond CPU are decided on.
func (c *Core) withKnobs(j *job, pj policies.Job) policies.Job {
	if pj.Urgent = j.urgent; j.urgent {
		pj.Verdict, _ = c.atRisk(j)
	}
	pj.MemoryUse, pj.Disk, pj.NearCPUs, pj.ThrottledShare = c.memoryUse(j), c.disk(j), c.near(j), j.throttledShare(c.now())
	pj.Memory, pj.Paging = j.byMemory, j.paging.Paging
	return pj
}

const (
	// memorySpanNs is the stretch that rates of memory are read from.
	memorySpanNs = 10 * second
	// keepMemory bounds the ticks kept: those of a stretch before a change and after it.
	keepMemory = 120
)

// noteMemory takes in one tick.
func (j *job) noteMemory(w *window.Window) {
	if !w.HasCgroup {
		return
	}
	g := w.Cgroup
	t := memoryTick{startNs: w.StartNs, endNs: w.EndNs, current: float64(g.MemoryBytes), held: float64(g.Anon + g.Shmem),
		reread: float64(g.RefaultFile+g.RefaultAnon) * pageBytes, read: float64(w.Block.ReadBytes), reads: float64(w.Block.Reads), some: g.MemorySome, full: g.MemoryFull, ioSome: g.IOSome,
		hits: float64(g.EventsMax), high: float64(g.EventsHigh), kills: float64(g.OOMKills), cpus: w.UsedCPUs(), throttled: g.ThrottledShare}
	if n := len(j.memory); n > 0 {
		t.grew = max(0, t.held-j.memory[n-1].held)
	}
	j.memory = append(j.memory, t)
	j.memory = j.memory[max(0, len(j.memory)-keepMemory):] // append makes new room now and then
}

// memoryBetween are the ticks that lie between two instants; not to be written to.
func (j *job) memoryBetween(fromNs, toNs int64) []memoryTick {
	from := sort.Search(len(j.memory), func(i int) bool { return j.memory[i].startNs >= fromNs })
	to := sort.Search(len(j.memory), func(i int) bool { return j.memory[i].endNs > toNs })
	return j.memory[from:max(from, to):max(from, to)]
}

// memoryMeans are per-second rates and mean shares over ticks.
type memoryMeans struct {
	seconds, reread, read, reads, some, full, ioSome, hits, high, kills, cpus, throttled float64
}

func meansOf(ticks []memoryTick) memoryMeans {
	var m memoryMeans
	for _, t := range ticks {
		s := float64(t.endNs-t.startNs) / 1e9
		m.seconds += s
		m.reread, m.read, m.reads, m.hits, m.high, m.kills = m.reread+t.reread, m.read+t.read, m.reads+t.reads, m.hits+t.hits, m.high+t.high, m.kills+t.kills
		m.some, m.full, m.ioSome = m.some+t.some*s, m.full+t.full*s, m.ioSome+t.ioSome*s
		m.cpus, m.throttled = m.cpus+t.cpus*s, m.throttled+t.throttled*s
	}
	if m.seconds <= 0 {
		return memoryMeans{}
	}
	for _, v := range []*float64{&m.reread, &m.read, &m.reads, &m.hits, &m.high, &m.some, &m.full, &m.ioSome, &m.cpus, &m.throttled} {
		*v /= m.seconds
	}
	return m // kills stay a count
}

// memoryUse is a container's memory as policies see it. The limit is the one that
// stands, since readings of it may be older.
func (c *Core) memoryUse(j *job) policies.MemoryUse {
	if len(j.memory) == 0 {
		return policies.MemoryUse{}
	}
	last := j.memory[len(j.memory)-1]
	m := meansOf(j.memoryBetween(last.endNs-memorySpanNs, last.endNs))
	use := policies.MemoryUse{Read: true, Current: last.current, Held: last.held, Reread: m.reread, DiskRead: m.read, Reads: m.reads, Some: m.some, Full: m.full,
		Growth: j.growth(), LowReaches: j.c.LowReaches}
	if limit, ok := j.c.Now[runtime.KnobMemoryLimit].Int(); ok {
		use.Limit = float64(limit)
	}
	return use
}

// growthSpanNs is how long growth must last to count; a job that loads a batch or a
// model grows for a moment and stops. Where ticks are longer it is growthTicks of them.
const (
	growthSpanNs = 4 * second
	growthTicks  = 3
)

// growth of what is held, bytes a second: over the latest stretch, if it grew in
// both halves of it, so that one jump is none.
func (j *job) growth() float64 {
	if len(j.memory) == 0 {
		return 0
	}
	last := j.memory[len(j.memory)-1]
	span := max(growthSpanNs, growthTicks*(last.endNs-last.startNs))
	ticks := j.memoryBetween(last.endNs-span-second/2, last.endNs)
	if len(ticks) < growthTicks {
		return 0
	}
	first, mid := ticks[0], ticks[len(ticks)/2]
	rate := func(a, b memoryTick) float64 { return (b.held - a.held) / (float64(b.endNs-a.endNs) / 1e9) }
	early, late := rate(first, mid), rate(mid, last)
	if whole := rate(first, last); min(early, late) > 0.25*whole {
		return max(0, whole)
	}
	return 0
}

// atRisk says that a container's memory reaches its limit before it would be
// decided on again. It is asked each tick: a window of slow steps may close too late.
func (c *Core) atRisk(j *job) (policies.Verdict, bool) {
	m := c.memoryUse(j)
	if !m.Read || m.Limit <= 0 {
		return policies.Verdict{}, false
	}
	v, ok := verdict.AtRisk(c.cfg.Thresholds, m.Limit, m.Held, m.Growth)
	v.Confidence = 1 // of counters alone
	return v, ok
}

// urgent reports whether a container must be decided on whatever else is open, and
// can be helped.
func (c *Core) urgent(j *job) bool {
	if !j.c.Watched || !j.c.Enrolment.Allows(runtime.KnobMemoryLimit) {
		return false
	}
	m := c.memoryUse(j)
	_, ok := c.atRisk(j)
	return ok && c.ceiling(j) >= (1+minMemoryStep)*m.Limit
}

// balanceMemory computes what the node has of memory.
func (c *Core) balanceMemory() {
	h := c.last.Host
	c.node.Memory = float64(h.MemTotal)
	c.node.ReserveMemory = c.cfg.ReserveMemory + c.cfg.ReserveMemoryShare*c.node.Memory
	c.node.MemoryFree = float64(h.MemAvail) - c.node.ReserveMemory - c.promised()
	c.node.DecisionSeconds = float64(c.cfg.CoolDownNs+protectNs+2*c.cfg.SettleNs) / 1e9
	c.node.MaxIOWeight = maxIOWeight
	for _, key := range c.keys() {
		if c.jobs[key].c.Cgroup.Mode == runtime.CgroupV2 {
			c.node.MaxIOWeight = maxWeight
		}
	}
}

// maxIOWeight is BFQ's ceiling on v1.
const maxIOWeight = 1000

// disk is what containers transfer on the disks that this one uses.
func (c *Core) disk(j *job) policies.Disk {
	var out policies.Disk
	for _, d := range j.disks {
		if out.Own += d.bps; d.bps > 0 {
			out.Others += max(0, c.diskUse[d.device]-d.bps)
		}
	}
	return out
}

// sumDisks takes the sum of what all containers transfer on each disk: once a tick, as
// every container asks for it.
func (c *Core) sumDisks() {
	c.diskUse = make(map[string]float64, len(c.diskUse))
	for _, key := range c.keys() {
		for _, d := range c.jobs[key].disks {
			c.diskUse[d.device] += d.bps
		}
	}
}

// diskUse is what a container transfers on one disk, bytes a second.
type diskUse struct {
	device string
	bps    float64
}

// noteDisks takes in what the cgroup's accounting says of disks, averaged over
// diskTicks or so.
func (j *job) noteDisks(w *window.Window) {
	s := w.Seconds()
	if !w.HasCgroup || s <= 0 {
		return
	}
	old := j.disks
	j.disks = make([]diskUse, 0, len(w.Cgroup.Disks))
	for _, d := range w.Cgroup.Disks {
		var bps float64
		if i := slices.IndexFunc(old, func(o diskUse) bool { return o.device == d.Device }); i >= 0 {
			bps = old[i].bps
		}
		bps += diskSmoothing * (float64(d.Bytes)/s - bps)
		j.disks = append(j.disks, diskUse{d.Device, bps})
	}
}

// diskSmoothing weighs the latest tick: about five ticks are remembered.
const diskSmoothing = 0.2

// near lists the CPUs near a container's devices, as far as NVML tells, where the
// host has more than one node to be near to.
func (c *Core) near(j *job) string {
	if c.last.Host.Nodes < 2 {
		return ""
	}
	near := ""
	for _, d := range c.last.Host.Devices {
		for _, p := range d.Processes {
			if p.Container == j.key && d.CPUs != "" {
				near = cmp.Or(near, d.CPUs)
				if d.CPUs != near {
					return "" // devices on different nodes: no set is near to both
				}
			}
		}
	}
	return near
}
