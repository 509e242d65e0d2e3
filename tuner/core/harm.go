package core

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/trial"
	"github.com/trimtab/trimtab/tuner/view"
)

// Trials whose witness is harm: what protects a job, or takes memory that nothing
// misses, may leave its rate as it was and be right all the same. Such a change is
// kept unless harm is seen: to the container's own rate, to its memory, or to
// neighbours. Whatever takes memory is watched each tick, on trial and for as long
// as it stands, and goes back at the first sign.
const (
	protectNs   = 10 * second // how long a change that gives must do no harm
	takeWatchNs = 30 * second // and one that takes
	// fillNs is the most that is waited for pages to come back after a limit was raised.
	fillNs = 60 * second
)

// Signs of harm in one tick, over what was before.
const (
	harmReread = 1 << 20 // bytes/s read again: 256 pages
	harmTimes  = 1.5     // of what was read again before
	harmFull   = 0.05    // share of time in which all tasks wait for memory
	harmSome   = 0.10    // in which some do
	harmHigh   = 0.5     // of the CPU use before, under memory.high: it no longer gets on
)

// tookMemory reports whether a change takes memory from its container.
func tookMemory(ch policies.Change) bool {
	return ch.Take && (ch.Knob == runtime.KnobMemoryLimit || ch.Knob == runtime.KnobMemoryHigh)
}

// standing is a change that took memory, was kept, and is watched as long as it stands.
type standing struct {
	order  Order
	before map[string]memoryMeans // by container
}

// memoryMeansNow are the latest means of all containers.
func (c *Core) memoryMeansNow() map[string]memoryMeans {
	out := map[string]memoryMeans{}
	for key, j := range c.jobs {
		out[key] = meansOf(j.memoryBetween(c.now()-memorySpanNs, c.now()))
	}
	return out
}

// bites says how a change that took memory hurts, by the latest tick; "" if it does not.
func (c *Core) bites(o Order, before map[string]memoryMeans, sinceNs int64) string {
	for _, ch := range o.Changes {
		j := c.jobs[ch.Key]
		if j == nil || !tookMemory(ch) {
			continue
		}
		ticks := j.memoryBetween(sinceNs, c.now())
		if len(ticks) == 0 {
			continue
		}
		last := ticks[len(ticks)-1]
		if why := last.hurts(before[ch.Key], ch); why != "" {
			return why
		}
		if meansOf(ticks).kills > 0 {
			return "a process was killed for want of memory"
		}
	}
	return ""
}

// hurts says what one tick shows of harm by a change that took memory, what kills first.
func (t memoryTick) hurts(before memoryMeans, ch policies.Change) string {
	m := meansOf([]memoryTick{t})
	to, err := bytesOf(ch.To)
	switch {
	case m.kills > 0:
		return "a process was killed for want of memory"
	case err == nil && (t.held > to-heldRoom*to || t.held+aheadTicks*t.grew > to):
		return fmt.Sprintf("it holds %.0f MiB and grows into the limit of %.0f MiB", t.held/(1<<20), to/(1<<20))
	case m.reread > harmTimes*before.reread+harmReread:
		return fmt.Sprintf("it reads %.1f MiB/s again that were evicted, %.1f before", m.reread/(1<<20), before.reread/(1<<20))
	case m.full > before.full+harmFull:
		return fmt.Sprintf("all of it waits for memory %.0f %% of the time", 100*m.full)
	case m.some > before.some+harmSome:
		return fmt.Sprintf("some of it waits for memory %.0f %% of the time", 100*m.some)
	case ch.Knob == runtime.KnobMemoryHigh && m.high > 0 && m.cpus < harmHigh*before.cpus:
		return fmt.Sprintf("memory.high holds it up: it uses %.2f CPUs, %.2f before", m.cpus, before.cpus)
	}
	return ""
}

// heldRoom is the share of a limit that must stay free of what only a kill frees, and
// aheadTicks for how many ticks there must be room at the pace of the latest: the sign is
// a tick old when it is read, and the way back takes a write. So the 64 MiB that policies
// leave meet growth of some 35 MiB/s, however small the limit [computed].
const (
	heldRoom   = 0.05
	aheadTicks = 2
)

// crowds says whether a change that gave left neighbours short of it. A limit takes from
// them only where the host is short; memory.low and an I/O weight stand before them always.
func (c *Core) crowds(t *openTrial) (who, how string) {
	memory := t.gave(runtime.KnobMemoryLow) || t.gaveMemory() && c.hostShort()
	disk := t.gave(runtime.KnobIOWeight)
	if !memory && !disk {
		return "", ""
	}
	for _, key := range slices.Sorted(maps.Keys(t.memoryBefore)) {
		j := c.jobs[key]
		if j == nil || t.touches(key) {
			continue
		}
		before, m := t.memoryBefore[key], meansOf(j.memoryBetween(t.appliedNs, c.now()))
		switch {
		case memory && m.full > before.full+harmFull:
			return j.c.Name, fmt.Sprintf("all of it waits for memory %.0f %% of the time, %.0f before", 100*m.full, 100*before.full)
		case disk && m.seconds >= float64(c.guardNs())/1e9 && m.ioSome > before.ioSome+harmSome:
			return j.c.Name, fmt.Sprintf("some of it waits for disks %.0f %% of the time, %.0f before", 100*m.ioSome, 100*before.ioSome)
		}
	}
	return "", ""
}

// hostShort: less is available than the reserve, whatever is promised.
func (c *Core) hostShort() bool { return float64(c.last.Host.MemAvail) < c.node.ReserveMemory }

func (t *openTrial) gaveMemory() bool { return t.gave(runtime.KnobMemoryLimit) }

func (t *openTrial) gaveMemoryTo(key string) bool {
	return slices.ContainsFunc(t.order.Changes, func(ch policies.Change) bool { return ch.Key == key && givesMemory(ch) })
}

func (t *openTrial) gave(k runtime.Knob) bool {
	return slices.ContainsFunc(t.order.Changes, func(ch policies.Change) bool { return ch.Knob == k && !ch.Take })
}

// witness says what judges a trial.
func (t *openTrial) witness() policies.Witness { return t.order.Changes[0].Witness }

// judgeHarm ends a trial whose witness is harm.
func (c *Core) judgeHarm(t *openTrial, j *job, d *Decision) {
	after := t.settled(c, j, t.appliedNs)
	t.view.After = meanRate(after)
	if r, fell := regressed(t.before, after); fell && t.take {
		t.note(r)
		c.rollback(t, view.OutcomeRolledBack, r.Why, d)
		return
	}
	watch := protectNs
	if t.take {
		watch = takeWatchNs
	}
	if c.now()-t.appliedNs-t.frozenNs < watch {
		return
	}
	why := "it protects, and did no harm"
	if t.take {
		why = "nothing missed what was taken; it is watched as long as it stands"
		c.standing[t.order.Plan] = standing{order: t.order, before: t.memoryBefore}
	}
	c.end(t, view.OutcomeKept, why, d)
}

// regressed finds a clear fall of the rate; small ones are the noise of a few
// windows. It counts against a take alone: more room slows nobody down, and to take
// it back from a job that grows would kill it [simulated: a fall of 3 % by chance did].
func regressed(before, after []trial.Obs) (trial.Result, bool) {
	p := trial.DefaultParams(true)
	p.MinBefore = 3
	r := trial.Judge(p, before, after, 0)
	return r, r.Outcome == trial.Inferior && r.Ratio <= 1-p.Regression
}

// escape gives back, within the tick, what was taken and bites by now. It does so while
// all is frozen too: it only gives back.
func (c *Core) escape(d *Decision) {
	since := c.now() - c.tickNs - second/2
	for _, plan := range slices.Sorted(maps.Keys(c.standing)) {
		s := c.standing[plan]
		if !c.stands(s.order) {
			delete(c.standing, plan)
			continue
		}
		if why := c.bites(s.order, s.before, since); why != "" {
			delete(c.standing, plan)
			c.giveBack(c.ownersBack(s.order), why, d)
		}
	}
	for _, key := range c.keys() {
		o := c.below(c.jobs[key])
		if d.takesBack(key) {
			continue
		}
		if why := c.bites(o, nil, since); why != "" { // of before nothing is known: it counts as calm
			o.Plan = c.planID()
			c.giveBack(o, why, d)
		}
	}
}

// escaped ends a trial whose change took memory and bites, or hid a device that is missed.
func (c *Core) escaped(t *openTrial, d *Decision) bool {
	if t.appliedNs == 0 || t.phase != phaseWith {
		return false
	}
	why := c.bites(t.order, t.memoryBefore, t.appliedNs-c.tickNs-second/10)
	if t.take && ofSight(t.order.Changes) {
		why = c.missed(c.jobs[t.subject()])
	}
	if why != "" {
		t.order = c.ownersBack(t.order)
		c.rollback(t, view.OutcomeRolledBack, why, d)
	}
	return why != ""
}

// giveBack orders a take undone that bites.
func (c *Core) giveBack(o Order, why string, d *Decision) {
	d.Rollback = append(d.Rollback, o)
	ch := o.Changes[0]
	j := c.jobs[ch.Key]
	j.failMove(c, ch)
	j.coolDown(c)
	d.Records = append(d.Records, c.record(view.RecordTrial, j, func(rec *view.Record) {
		rec.Plan, rec.Policy, rec.Knob, rec.From, rec.To, rec.Outcome = o.Plan, o.Policy, ch.Knob, ch.From, ch.To, view.OutcomeRolledBack
		rec.Text = fmt.Sprintf("%s taken back: %s", changesText(o.Changes), why)
	}))
}

// stands reports whether an order's values are in force still, and nobody's else.
func (c *Core) stands(o Order) bool {
	for _, ch := range o.Changes {
		j := c.jobs[ch.Key]
		if j == nil || j.c.Held || !ch.Knob.Same(ch.To, j.c.Now[ch.Knob]) || slices.Contains(j.c.Yielded, ch.Knob) {
			return false
		}
	}
	return true
}

// filledNs is the instant from which readings count after a limit was raised: pages
// must come back first. MaxInt64 while they do.
func (c *Core) filledNs(t *openTrial, j *job, since int64) int64 {
	before := t.memoryBefore[j.key].reread
	calm := 0
	for _, tick := range j.memoryBetween(since, c.now()) {
		if m := meansOf([]memoryTick{tick}); m.reread < 0.3*before {
			calm++
		} else {
			calm = 0
		}
		if calm == 3 {
			return max(since+c.cfg.SettleNs, tick.startNs-2*second)
		}
	}
	if c.now()-since < fillNs {
		return math.MaxInt64
	}
	return since + fillNs
}

// inVain is a container whose limit was raised in one plan with other changes, and that
// reads pages again as before: what those bring would be taken for what memory did.
func (c *Core) inVain(t *openTrial) string {
	given := slices.DeleteFunc(slices.Clone(t.order.Changes), func(ch policies.Change) bool { return ch.Knob == runtime.KnobMemorySwap })
	for _, ch := range given {
		if j := c.jobs[ch.Key]; len(given) > 1 && givesMemory(ch) && j != nil && c.filledNs(t, j, t.appliedNs) == t.appliedNs+fillNs {
			return ch.Key
		}
	}
	return ""
}

// move is a change by its direction and by what judges it: that a limit could not be
// taken says nothing against raising it, nor that more page cache brought nothing against
// the raise that keeps the job alive.
type move struct {
	knob    runtime.Knob
	take    bool
	witness policies.Witness
}

// moveCondition is what a change of memory depended on.
type moveCondition struct {
	limit        runtime.Value
	held, reread float64
	nodeFree     bool
}

func (j *job) moveCondition(c *Core, k runtime.Knob) moveCondition {
	use := c.memoryUse(j)
	return moveCondition{limit: j.c.Now[k], held: use.Held, reread: use.Reread, nodeFree: c.node.MemoryFree > 0}
}

func (j *job) failMove(c *Core, ch policies.Change) {
	if j.failedMoves == nil {
		j.failedMoves = map[move]moveCondition{}
	}
	cond := j.moveCondition(c, ch.Knob)
	cond.limit = ch.From // what stands once it is back
	j.failedMoves[move{ch.Knob, ch.Take, ch.Witness}] = cond
}

// failedMove reports whether a like change failed and nothing that it depended on
// has changed: the limit, what is held within a fifth, what is read again within half.
func (j *job) failedMove(c *Core, ch policies.Change) bool {
	was, failed := j.failedMoves[move{ch.Knob, ch.Take, ch.Witness}]
	now := j.moveCondition(c, ch.Knob)
	return failed && was.limit == now.limit && was.nodeFree == now.nodeFree &&
		math.Abs(now.held-was.held) <= 0.2*was.held && (ch.Take || math.Abs(now.reread-was.reread) <= 0.5*was.reread)
}
