package advice

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

const (
	mib = 1 << 20
	// shmLeast is the least /dev/shm to advise, bytes: it takes up no memory before it is used.
	shmLeast = 1 << 30
)

// memoryLimit is the limit to set for good: what a loan of memory settled to, with which nothing is
// read again.
func (n node) memoryLimit(c state.Container) (a Advice, ok bool) {
	bytes, limited := c.Original[runtime.KnobMemoryLimit].Int()
	own, m := float64(bytes), c.MemoryUse
	settled := m.Read && m.Loan.From > 0 && m.Loan.Helped() && !m.Loan.Missed && !m.Fills && m.Growth == 0 && m.CalmSeconds >= n.k.SettleReadings
	if !limited || own <= 0 || !settled || !slices.Contains(c.Changed, runtime.KnobMemoryLimit) || !(m.Limit > own*(1+n.k.MinStep)) {
		return a, false
	}
	to := math.Ceil(m.Limit/mib) * mib
	s, source := within(c.Paging.Step(own)/c.Paging.Step(m.Limit), modelError), "what a step loses to pages read again"
	if c.ByMemory.Known() {
		s, source = onCurve(c.ByMemory, own, m.Limit), "its rate by memory, as learned"
	}
	return Advice{What: MemoryLimit, Text: "with it nothing that was evicted is read again; as a loan it stands only while the host has memory to spare; where --memory-swap is set, raise it by as much", Paste: memoryLines(to),
		Current: Setting{Value: own, Unit: "B"}, Advised: Setting{Value: to, Unit: "B"}, Gives: gives(OfRunTime, 1, s.low, s.share, s.high),
		Confidence: countedSure, SinceUnixNs: n.s.UnixNs - int64(max(0, min(m.Loan.Seconds, 1e9))*1e9),
		Evidence: []Number{number("its own limit", own, "B", "its control group"), number("read again before", m.Loan.Before, "B per unit of work", "its control group"),
			number("read again now", m.Loan.After, "B per unit of work", "its control group"), number("time that it saves", s.share, "share", source)}}, to <= n.s.Node.Memory-n.s.Node.ReserveMemory
}

// memoryAllow lets trimtab find the limit where it may not yet: how much would do is not known
// before it was lent.
func (n node) memoryAllow(c state.Container) (a Advice, ok bool) {
	v, m := c.Verdict, c.MemoryUse
	if !n.sure(c) || v.Cause != policies.CauseCache && v.Cause != policies.CauseReclaim || c.Enrolment.Allows(runtime.KnobMemoryLimit) || !m.Read || !(n.s.Node.MemoryFree > 0) {
		return a, false
	}
	families := append(slices.DeleteFunc(slices.Clone(c.Enrolment.Knobs), func(f string) bool { return !slices.Contains([]string{"cpu", "cpuset", "gpu"}, f) }), "memory")
	lost := m.Evicted(v, c.Breakdown)
	others, also := strings.Join(families[:len(families)-1], ","), ""
	if others != "" && c.Enrolment.Mode != policies.ModeTune {
		others, also = "", fmt.Sprintf("; the line lets it change %s as well, which it only watches now", others)
	}
	knobs := strings.Join(families, ",")
	return Advice{What: MemoryAllow, Text: "its memory limit evicts what it reads again; trimtab finds the limit that ends it, where it may and the host's config allows" + also, Paste: allowLines(c, knobs),
		Current: Setting{Text: cmp.Or(others, "none")}, Advised: Setting{Text: knobs}, Gives: gives(OfRunTime, 1, 0, lost/2, lost),
		Confidence: predictedSure * v.Confidence, SinceUnixNs: c.VerdictSinceUnixNs,
		Evidence: []Number{number("time lost to evicted pages", lost, "share", "the kernel's accounting of its threads"), number("read again", m.Reread, "B/s", "its control group"),
			number("memory that is free", n.s.Node.MemoryFree, "B", "the host")}}, true
}

// sharedMemory is a larger /dev/shm for a container whose shared memory fills it. What else it shares, as
// memory mapped by several, counts as well: then it may hold more than the tmpfs could, which proves
// nothing. When it saved last no reading tells, so it may lose nothing or all that it ran.
func (n node) sharedMemory(c state.Container) (a Advice, ok bool) {
	size, used, most := c.SharedBytes, c.MemoryUse.Shared, n.s.Node.Memory-n.s.Node.ReserveMemory
	if limit := c.MemoryUse.Limit; limit > 0 {
		most = min(most, limit)
	}
	to := mib * math.Floor(min(max(math.Exp2(math.Ceil(math.Log2(2*used))), shmLeast), most/2)/mib)
	if !c.Watched || !c.MemoryUse.Read || !(size > 0 && used >= n.k.Full*size && used <= size && to >= 2*size) {
		return a, false
	}
	return Advice{What: MemoryShm, Text: "its /dev/shm is nearly full: who finds no room there fails, and the job with it", Paste: shmLines(to),
		Current: Setting{Value: size, Unit: "B"}, Advised: Setting{Value: to, Unit: "B"}, Gives: gives(OfRisk, 1, 0, 0.5, 1), Confidence: spareSure,
		Evidence: []Number{number("size of /dev/shm", size, "B", "its mounts"), number("the most shared memory in a minute", used, "B", "its control group"), number("memory that it may use", most, "B", "the host, or its limit")}}, true
}
