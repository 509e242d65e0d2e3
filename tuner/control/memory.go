package control

import (
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/guard"
	"github.com/trimtab/trimtab/tuner/observe"
	"github.com/trimtab/trimtab/tuner/verdict"
)

// memoryLoan is what is remembered of the latest raise of a memory limit.
type memoryLoan struct {
	from   float64 // bytes, the limit before
	before float64 // read again per unit of work, before
	atNs   int64
	// back is since the host was short of it, refused since a write of the limit was.
	back, refused backOff
	// lowered is the latest return, watched for harm until it has stood for a while.
	lowered   []policies.Change
	loweredNs int64
	calm      observe.MemoryMeans // before it
}

// seen is what became of it, by the latest readings.
func (m *memoryLoan) seen(obs *observe.State) policies.MemoryLoan {
	n := len(obs.Memory)
	if m.atNs == 0 || n == 0 {
		return policies.MemoryLoan{}
	}
	now := obs.Memory[n-1].EndNs
	return policies.MemoryLoan{From: m.from, Before: m.before, After: observe.Means(obs.MemoryBetween(now-10*second, now)).RereadPerWork(), Seconds: float64(now-m.atNs) / 1e9}
}

// memoryWritten notes a limit that stands.
func (c *Controller) memoryWritten(s *containerState, o pendingOrder, ch policies.Change) {
	now := c.now()
	if ch.Take {
		if o.short { // others lack it, whoever misses it now
			s.memory.back.again(c.k(), now, s.memory.atNs)
			return
		}
		if most := s.c.Enrolment.Memory.Max; most > 0 && ch.From.Quantity() > most {
			return // more may not be given back
		}
		if m := s.memoryUse(c.k()); m.Rereads(c.k()) && m.SparedSeconds < c.k().SettleReadings && !m.Loan.Helped() { // it went back since it was of no use
			s.failures.Add(ch.Knob, false, memoryConditions(m, s.original(ch.Knob)))
			return
		}
		s.memory.loweredNs = now
		s.memory.lowered = append([]policies.Change{ch}, slices.DeleteFunc(slices.Clone(o.Changes), func(o policies.Change) bool { return o.Key != ch.Key || o.Knob != runtime.KnobMemorySwap })...)
		s.memory.calm = observe.Means(s.obs.MemoryBetween(now-10*second, now))
		return
	}
	m, protects := &s.memory, ch.Criterion == policies.CriterionNoHarm // what is read again tells nothing of a raise that protects
	if _, last := s.known.run.Last(c.k()); !protects && ch.From == s.original(ch.Knob) && last >= ch.From.Quantity()*(1+c.k().MinStep) && float64(len(s.obs.Uses)) < c.k().UnusedSeconds {
		s.known.run.Written(ch.Knob, ch.To.Quantity())
		m.from, m.atNs = ch.From.Quantity(), now
		return // at its start: nothing was read before that could tell what it brings
	}
	m.loweredNs = 0
	if !protects && (m.atNs == 0 || m.before == 0 || ch.From.Quantity() <= m.from) { // the first of several raises tells what was before
		m.from, m.before = ch.From.Quantity(), observe.Means(s.obs.MemoryBetween(now-10*second, now)).RereadPerWork()
	}
	if !protects || m.atNs != 0 {
		m.atNs = now
	}
}

// balanceMemory computes what the node has of memory.
func (c *Controller) balanceMemory() {
	h := c.last.Host
	c.node.Memory = float64(h.MemTotal)
	c.node.ReserveMemory = c.cfg.ReserveMemory + c.cfg.ReserveMemoryShare*c.node.Memory
	c.node.MemoryFree = float64(h.MemAvail) - c.node.ReserveMemory - c.committed()
	for _, s := range c.all { // a raise that has helped for a minute says nothing of what is read later
		if m := &s.memory; m.atNs != 0 && s.memoryUse(c.k()).Enough(c.k()) {
			m.from, m.before, m.atNs = 0, 0, 0
		}
	}
}

// committed is what raised limits may still take of the host's memory: it reads as available
// until it is used, and must not be given twice. What an owner allows is not trimtab's promise.
func (c *Controller) committed() (sum float64) {
	for _, s := range c.all {
		if s.answers == 0 && s.c.Now[runtime.KnobMemoryLimit] == s.original(runtime.KnobMemoryLimit) || len(s.obs.Memory) == 0 {
			continue
		}
		own, errOwn := guard.Bytes(s.original(runtime.KnobMemoryLimit))
		limit, errNow := guard.Bytes(s.c.Now[runtime.KnobMemoryLimit])
		if errOwn != nil || errNow != nil || math.IsInf(own, 1) || math.IsInf(limit, 1) {
			continue
		}
		for _, o := range c.pending { // on its way
			for _, ch := range o.Changes {
				if ch.Key == s.key && ch.Knob == runtime.KnobMemoryLimit {
					limit = max(limit, ch.To.Quantity())
				}
			}
		}
		sum += max(0, limit-max(own, s.obs.Memory[len(s.obs.Memory)-1].Current))
	}
	return sum
}

// atRisk says that a container's memory reaches its limit before it would be decided on
// again. It is asked each tick: a window of slow steps may close too late.
func (c *Controller) atRisk(s *containerState) (policies.Verdict, bool) {
	m := s.memoryUse(c.k())
	if !m.Read || m.Limit <= 0 {
		return policies.Verdict{}, false
	}
	v, ok := verdict.AtRisk(c.k(), m.Limit, m.Held, m.Growth)
	v.Confidence = 1 // of counters alone
	return v, ok
}

// urgent reports whether a container must be decided on whatever else is open, and can be helped.
func (c *Controller) urgent(s *containerState) bool {
	if !s.c.Watched || !s.c.Enrolment.Allows(runtime.KnobMemoryLimit) {
		return false
	}
	m := s.memoryUse(c.k())
	_, risk := c.atRisk(s)
	own, err := guard.Bytes(s.original(runtime.KnobMemoryLimit))
	return risk && err == nil && max(c.node.Ceiling(s.c.Enrolment, m), own) >= (1+c.k().MinStep)*m.Limit
}

// emergencyRevert gives back, within the tick, memory that was taken and is missed. It does so while all
// is frozen too: it only gives back.
func (c *Controller) emergencyRevert(d *Decision) {
	for _, s := range c.all {
		m, n := &s.memory, len(s.obs.Memory)
		if m.loweredNs == 0 || n == 0 || s.c.Busy || s.c.Held {
			continue
		}
		ch := m.lowered[0]
		if !ch.Knob.Same(ch.To, s.c.Now[ch.Knob]) || slices.Contains(s.c.Yielded, ch.Knob) || c.now()-m.loweredNs > int64(c.k().UnusedSeconds*1e9) {
			m.loweredNs = 0
			continue
		}
		t := s.obs.Memory[n-1]
		if t.StartNs < m.loweredNs-second/2 {
			continue
		}
		if why := verdict.LoweredHarm(c.k(), t, m.calm, ch.To.Quantity()); why != "" {
			m.loweredNs = 0
			s.failures.Add(ch.Knob, true, memoryConditions(policies.MemoryUse{Held: t.Held}, ch.From)) // what it reads again ends with the return
			c.revert(Order{Plan: c.planID(), Policy: lender, Changes: m.lowered, Why: why}, "", d)
		}
	}
}

// TookMemory reports whether memory that was taken is watched: each tick, whatever that costs.
func (c *Controller) TookMemory() bool {
	return slices.ContainsFunc(c.all, func(s *containerState) bool { return s.memory.loweredNs != 0 })
}
