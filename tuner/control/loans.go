package control

import (
	"cmp"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/allocate"
	"github.com/trimtab/trimtab/tuner/guard"
	"github.com/trimtab/trimtab/tuner/observe"
	"github.com/trimtab/trimtab/tuner/state"
	"github.com/trimtab/trimtab/tuner/trial"
)

// loan is what is remembered of what a container was lent. How much it is follows from what
// stands and its owner's value, so that a restart loses nothing.
type loan struct {
	// When the latest was: a raise that was written, a write of its quota, one of quota or weight, a recall.
	givenNs, quotaNs, writtenNs, recallNs int64
	doubtedNs                             int64 // when what it settled to turned out too little: what was read before misled
	back                                  backOff
	tooLittle                             int // how often a settled quota was too little
	// known is the quota, CPUs, that it settled to: called in and lent anew, it is lent so much; 0: none.
	known float64
	// enough is the quota, CPUs, that its own use showed to be enough: what others left of it is not.
	enough float64
	// proven is a quota, CPUs, that a trial proved to be worth what others miss; 0: none. What
	// stands above it is lent.
	proven float64
	// brings and doubt are policies.CPUUse's. checkNs is when a doubtful loan was taken back to
	// be measured without; with are the readings under it.
	brings  int
	doubt   bool
	checkNs int64
	with    []observe.RateSample
	// stopped is the largest quota, CPUs, that of late stopped it in bursts, stoppedNs when one did; 0: none.
	stopped   float64
	stoppedNs int64
	why       string // of what stands, for people
	// settledNs is when it shrank last, settledFrom and settledUsed the quota and the use before, CPUs.
	settledNs                int64
	settledFrom, settledUsed float64
}

// settles returns the share of readings whose use must be enough, and the margin above it. Each
// time that turned out too little the one goes half of the way to all, and the other doubles.
func (l *loan) settles(k *policies.Constants) (share, margin float64) {
	return 1 - 0.1/l.doubled(k), k.SettleMargin * l.doubled(k)
}

// doubled is 2 for each time that a settled quota was too little, as often as recalls double.
func (l *loan) doubled(k *policies.Constants) float64 {
	return math.Pow(2, min(float64(l.tooLittle), k.BackOffMax))
}

// noteStop notes a quota that stops a container though it uses less: it works in bursts. What a second's
// mean says is no measure of those, so its loan shrinks by halves towards that quota for a time: a
// longer one each time that what it settled to was too little. While a trial is open that stands still.
func (c *Controller) noteStop(s *containerState) {
	k, l, uses := c.k(), &s.loan, s.latestUses()
	_, throttled := s.obs.Throttled()
	if s.plan != "" {
		l.stoppedNs += c.tickNs
	} else if c.now()-l.stoppedNs > int64(k.UnusedSeconds*l.doubled(k)*1e9) {
		l.stopped = 0
	}
	if throttled && max(uses[0].CPUs, uses[1].CPUs) < k.Full*uses[1].Quota && uses[1].Quota >= l.stopped {
		l.stopped, l.stoppedNs = uses[1].Quota, c.now()
	}
}

// enough is the quota that its readings say is enough, those since the latest raise if they are
// enough to tell; 0: too few say. free is in how many nothing held it back. What has settled
// shrinks further only by a minute of them.
func (s *containerState) enough(k *policies.Constants) (cpus, free float64) {
	uses, least := observe.UsesSince(s.obs.Wants(k), s.loan.doubtedNs), k.SettleReadings
	if s.state != StateLent {
		least = k.UnusedSeconds
	}
	free = float64(len(observe.Free(uses)))
	if _, now := s.quotas(); s.loan.proven > 0 && now <= s.loan.proven*(1+k.MinStep/2) { // CPUs are scarce: what it used while it waited is what others left
		uses = slices.DeleteFunc(uses, func(u observe.Use) bool { return u.Waiting >= k.Notable || !u.HasPSI })
	}
	if float64(len(observe.Free(uses))) < least {
		return 0, free
	}
	share, margin := s.loan.settles(k)
	latest := observe.UsesSince(uses, s.loan.givenNs-1) // it may want more since
	switch fresh := float64(len(observe.Free(latest))); {
	case fresh < k.SettleReadings:
		latest = observe.Latest(uses, k.SettleReadings)
	case fresh > k.UnusedSeconds:
		latest = observe.Latest(latest, k.UnusedSeconds)
	}
	if cpus = observe.Enough(latest, share, margin); cpus > 0 && s.loan.stopped > 0 {
		_, now := s.quotas()
		cpus = max(cpus, math.Sqrt(s.loan.stopped*now))
	}
	return cpus, free
}

// noteEnough notes that what stands is enough: not what others left in a recall before it was free
// for a minute, nor what bursts may be stopped by.
func (c *Controller) noteEnough(s *containerState) {
	k, stands := c.k(), (s.state == StateLent || s.state == StateSettled) && s.loan.stopped == 0
	if stands && (s.loan.givenNs >= s.loan.recallNs || float64(len(observe.Free(observe.UsesSince(s.obs.Wants(k), s.loan.recallNs)))) >= k.UnusedSeconds) {
		_, s.loan.enough = s.quotas()
	}
}

// shrank is the quota from which its loan settled, if it uses less since then though nothing
// holds it back; 0 if not, or if that is a minute ago.
func (c *Controller) shrank(s *containerState) float64 {
	k, l := c.k(), &s.loan
	free := observe.Free(observe.UsesSince(s.obs.Wants(k), l.settledNs))
	if l.settledNs == 0 || l.stopped > 0 || c.now()-l.settledNs > int64(k.UnusedSeconds*1e9) || float64(len(free)) < k.SettleReadings {
		return 0
	}
	share, _ := l.settles(k)
	if used := observe.Enough(free[len(free)-int(k.SettleReadings):], share, 0); used < k.ActiveCPUs || used >= l.settledUsed*(1-2*k.MinStep) {
		return 0
	}
	return l.settledFrom
}

// crowds: at all times one thread more than the host has CPUs wants one.
func (c *Controller) crowds(s *containerState) bool {
	return s.obs.Mean(func(u observe.Use) float64 { return u.Tasks }) >= c.node.CPUs+1
}

// cpuUse is its use of the CPUs as policies see it.
func (c *Controller) cpuUse(s *containerState) policies.CPUUse {
	k := c.k()
	use := policies.CPUUse{Used: s.obs.Used(), Crowds: c.crowds(s), Waiting: c.waiting(s), Obtainable: s.rights.obtainable, Entitlement: s.rights.entitled, Parent: s.parent(), LoanBrings: s.loan.brings, LoanDoubt: s.loan.doubt, HasSettled: s.loan.settledFrom > 0}
	use.Lost, use.Throttled = s.obs.Throttled()
	use.Enough, _ = s.enough(k)
	use.Shrank, use.Known, use.Bursts = c.shrank(s), s.loan.known, s.loan.stopped
	if s.loan.quotaNs == 0 && !s.lent(k) && (s.state == StateWatched || s.state == StateMeasured) {
		use.Last, _ = s.known.run.Last(k)
		use.LastRuns = s.known.run.Runs()
	}
	use.Unseen = use.Throttled && s.c.Enrolment.Loans == policies.LoansProven && s.unseen(k, c.baselineFrom(s))
	return use
}

func (s *containerState) latestUses() []observe.Use { return s.obs.Uses[max(0, len(s.obs.Uses)-2):] } // two, or fewer

// waited is how long a container waited for a CPU in a reading. Where nobody can tell and no
// CPU is idle it counts as the whole time: who gets little must not pass for who wants little.
func (c *Controller) waited(u observe.Use) float64 {
	if !u.HasPSI && c.node.Idle < c.k().ActiveCPUs {
		return 1
	}
	return u.Waiting
}

// waits is how long it waits for a CPU, the less of the latest two readings with what it has now.
func (c *Controller) waits(s *containerState) float64 {
	uses := s.latestUses()
	if len(uses) < 2 || uses[0].EndNs <= s.loan.writtenNs {
		return 0
	}
	return min(c.waited(uses[0]), c.waited(uses[1]))
}

// waiting is how much longer than before anybody was lent something it waits for a CPU.
func (c *Controller) waiting(s *containerState) float64 {
	return max(0, c.waits(s)-s.rights.calmWaiting)
}

// uses is what it uses of the CPUs now, and would use, each by the more of the latest two readings.
func (c *Controller) uses(s *containerState) (cpus, wants float64) {
	for _, u := range s.latestUses() {
		cpus, wants = max(cpus, u.CPUs), max(wants, c.wanted(u))
	}
	return cpus, wants
}

// wanted is the CPUs that a container would have used in a reading.
func (c *Controller) wanted(u observe.Use) float64 {
	return u.CPUs / (1 - min(max(c.waited(u), u.Lost), 0.99))
}

const calmReadings = 30 // that the usual waiting is the mean of

// noteCalm learns how long a container waits for a CPU while all have their owners' values.
func (c *Controller) noteCalm() {
	for _, s := range c.all {
		if s.c.Now[runtime.KnobCPUWeight] != s.original(runtime.KnobCPUWeight) || s.lent(c.k()) {
			return
		}
	}
	for _, s := range c.all {
		n := len(s.obs.Uses)
		if n == 0 || s.obs.Uses[n-1].EndNs != c.now() || !s.obs.Uses[n-1].HasPSI {
			continue
		}
		if w := s.obs.Uses[n-1].Waiting; !s.rights.calmKnown {
			s.rights.calmWaiting, s.rights.calmKnown = w, true
		} else {
			s.rights.calmWaiting += (w - s.rights.calmWaiting) / calmReadings
		}
	}
}

// pendingOrder is a loan or a return that is on its way, and when it was ordered: readings
// from sinceNs up to then are of what stood before. short: the host was short of memory then.
type pendingOrder struct {
	Order
	sinceNs, atNs int64
	short         bool
}

// lentWritten notes a loan, or a part of it that went back, once it stands.
func (c *Controller) lentWritten(o pendingOrder) {
	k := c.k()
	for _, ch := range o.Changes {
		s := c.containers[ch.Key]
		if s == nil {
			continue
		}
		switch ch.Knob {
		case runtime.KnobCPUQuota:
			s.loan.writtenNs, s.loan.quotaNs = c.now(), c.now()
			if s.loan.settledNs = 0; !ch.Take {
				if known := s.loan.known; (known > 0 || s.loan.stopped > 0 && s.loan.settledFrom > 0) && ch.From.Quantity() >= known*(1-k.MinStep/2) { // it was not enough
					s.loan.tooLittle, s.loan.doubtedNs, s.loan.known = s.loan.tooLittle+1, c.now(), 0
				}
				if last, _ := s.known.run.Last(k); last <= ch.From.Quantity()*(1+k.MinStep) {
					ch.Knob = "" // the quota itself asked for it: no more than another pace
				}
				s.loan.known = cmp.Or(s.known.run.Written(ch.Knob, ch.To.Quantity()), s.loan.known)
				s.loan.givenNs, s.loan.why = c.now(), ch.Reason
				s.loan.brings = max(s.loan.brings, 0) // what once made it useless has moved
				s.on(EventLent)
				c.watchNeighbours(s, ch.To.Quantity(), o)
				continue
			}
			s.loan.why = ch.Reason
			if s.loan.recallNs != o.atNs && !s.loan.doubt {
				share, _ := s.loan.settles(k)
				s.loan.settledNs, s.loan.settledFrom, s.loan.known = c.now(), ch.From.Quantity(), ch.To.Quantity()
				if s.loan.enough = 0; s.loan.stopped == 0 { // else half the way to what stopped it may be too little
					s.loan.enough = ch.To.Quantity()
				}
				s.loan.settledUsed = observe.Enough(observe.Free(observe.UsesSince(s.obs.Uses, o.atNs-int64((k.SettleReadings+1)*1e9))), share, 0)
			}
			if s.loan.doubt {
				s.loan.checkNs, s.loan.back.untilNs = c.now(), c.now()+int64(k.UnusedSeconds*1e9)
			}
			if s.loan.proven = min(s.loan.proven, ch.To.Quantity()); s.loan.recallNs == o.atNs {
				s.loan.proven = 0 // others are short of what is theirs
			}
			if own, _ := s.quotas(); ch.To.Quantity() <= own*(1+k.MinStep/2) {
				s.on(EventReturned)
			}
		case runtime.KnobCPUWeight:
			s.loan.writtenNs = c.now()
		case runtime.KnobMemoryLimit:
			c.memoryWritten(s, o, ch)
		}
	}
}

// backOff is for how long nothing is lent to whom a loan was called in from: longer each time,
// so that a neighbour that comes and goes is not followed to and fro.
type backOff struct {
	untilNs int64
	times   int // in a row
}

// again notes a recall of what was given last at an instant. A loan that stood for long enough
// before harmed nobody: who is short now has come since. Nothing is given before its end, so
// what is called in until then is another part of the same.
func (b *backOff) again(k *policies.Constants, nowNs, givenNs int64) {
	switch {
	case nowNs < b.untilNs:
		b.times = max(0, b.times-1)
	case nowNs > max(givenNs, b.untilNs)+int64(k.SettleReadings*1e9):
		b.times = 0
	}
	b.untilNs = nowNs + int64(k.WriteSeconds*math.Pow(2, float64(min(b.times, int(k.BackOffMax))))*1e9)
	b.times++
}

// recalled notes that a loan was called in.
func (c *Controller) recalled(s *containerState, why string) {
	s.loan.back.again(c.k(), c.now(), s.loan.givenNs)
	s.loan.recallNs, s.loan.enough, s.loan.why = c.now(), 0, why
}

// judgeLoans tells of each loan whether the rate, counted at a framework or by the job, shows
// that it is of use, or of none. A loan comes within seconds, when little was read of the time
// before. So where the rate hardly rose with the CPUs, it is taken back once and measured without.
func (c *Controller) judgeLoans() {
	k := c.k()
	for _, s := range c.all {
		l, rates := &s.loan, &s.obs.Rates
		if l.checkNs != 0 && (c.now() >= l.back.untilNs || rates.Source != s.before.source) { // it cannot be told
			l.checkNs, l.doubt, l.with, l.brings = 0, false, nil, 1
		}
		if l.givenNs == 0 || l.brings != 0 || rates.Source == "" || rates.Why != "" || l.checkNs == 0 && !s.obs.Latest.Sure() {
			continue
		}
		settle := int64(k.TrialSettle * 1e9)
		if l.checkNs != 0 {
			c.judgeCheck(s, rates.Since(l.checkNs+settle))
			continue
		}
		with := rates.Since(l.quotaNs + settle)
		if !s.lent(k) || l.doubt || s.before.source != rates.Source || float64(len(with)) < k.SettleReadings {
			continue
		}
		before := until(rates.Since(s.before.fromNs), s.before.atNs)
		rate, cpus := observe.MeanRate(before), s.obs.Worked()/max(s.before.cpus, k.ActiveCPUs)
		switch {
		case rate > 0 && observe.MeanRate(with)/rate < 1+k.Moved*(cpus-1):
			l.doubt, l.with = true, slices.Clone(with)
		case rate > 0:
			l.brings = 1
		}
	}
}

// judgeCheck compares a doubtful loan with the readings since it was taken back.
func (c *Controller) judgeCheck(s *containerState, without []observe.RateSample) {
	k, l := c.k(), &s.loan
	if float64(len(without)) < k.TrialBlock {
		return
	}
	r, ok := trial.Compare(k, []trial.Block{{With: true, Samples: l.with}, {Samples: without}}, k.TrialAlpha/2)
	if !ok || r.High >= 1+k.TrialMinGain && r.Low <= 1 && float64(len(without)) < k.TrialBaseline {
		return // some more will tell
	}
	l.checkNs, l.doubt, l.with, l.back.untilNs = 0, false, nil, 0
	if l.brings = 1; r.High < 1+k.TrialMinGain { // inconclusive is no proof that it is of no use
		l.brings = -1
		s.failures.Add(runtime.KnobCPUQuota, false, c.conditions(s, runtime.KnobCPUQuota, s.original(runtime.KnobCPUQuota)))
	}
}

func until(samples []observe.RateSample, ns int64) []observe.RateSample {
	return slices.DeleteFunc(slices.Clone(samples), func(r observe.RateSample) bool { return r.EndNs > ns })
}

// noteBefore keeps what a container did while all that it has was its owner's, as people see it.
func (c *Controller) noteBefore(s *containerState) {
	if s.changed() {
		return
	}
	until := c.now() - s.obs.Rates.RestNs()
	from := max(until-int64(c.k().CostSeconds*1e9), s.obs.ChangedNs())
	s.before = baseline{rate: observe.RateUntil(s.obs.Rates.ShownSince(from), until), source: s.obs.Rates.Source, fromNs: from, atNs: c.now(), cpus: s.obs.Worked()}
}

// showLoan is a container's loan for people: what a trial gave, or tries, is none.
func (c *Controller) showLoan(s *containerState) *state.Loan {
	k := c.k()
	own, now := s.quotas()
	lent, tried := c.above(s, now)
	if own <= 0 || lent <= (now-lent)*k.MinStep/2 {
		return nil
	}
	settled := s.answers == 0 && (s.state == StateSettled || s.state == StateTrial) && math.Abs(now-s.loan.enough) < k.MinStep/2*now
	return &state.Loan{Own: own, CPUs: lent, Trial: tried, Settled: settled, Whole: c.takesAll(s) > 0, Why: s.loan.why, Used: min(lent, max(0, s.obs.Used()-now+lent)), SinceUnixNs: c.unix(s.loan.givenNs)}
}

// above is what of a quota is lent above its owner's, and what a trial that was kept, or is open, gave.
func (c *Controller) above(s *containerState, quota float64) (lent, tried float64) {
	own, _ := s.quotas()
	base := max(own, min(s.loan.proven, quota))
	lent, tried = quota-base, base-own
	if t := c.trials[s.plan]; t != nil {
		if ch, _ := t.change(s.key); ch.Knob == runtime.KnobCPUQuota && !ch.Take {
			open := max(0, quota-max(base, ch.From.Quantity()))
			lent, tried = lent-open, tried+open
		}
	}
	return lent, tried
}

// writeNs lie between two writes of a loan. On v1 by systemd each stops the container shortly.
func (c *Controller) writeNs(s *containerState) int64 {
	ns := int64(c.k().WriteSeconds * 1e9)
	if s.c.Cgroup.StoppedByWrites() {
		ns *= 3
	}
	return ns
}

// isDealt reports whether a kept trial dealt the weight that stands: it is not a loan's to move.
func (s *containerState) isDealt() bool {
	return s.dealt != "" && s.dealt == s.c.Now[runtime.KnobCPUWeight]
}

// lender is the policy that loans are told by: what it asks for is divided here.
const lender = "lend"

// lendOne orders one container's part of the node's plan of loans.
func (c *Controller) lendOne(s *containerState, p allocate.Party, g allocate.Grant, d *Decision) {
	plan := policies.Plan{Policy: lender, Kind: policies.KindLoan}
	_, periodUs, err := runtime.ParseQuota(s.c.Now[runtime.KnobCPUQuota])
	if g.Quota != p.Quota && err == nil {
		ch := policies.Change{Key: s.key, Name: s.c.Name, Knob: runtime.KnobCPUQuota, From: s.c.Now[runtime.KnobCPUQuota], To: runtime.QuotaFromCPUs(g.Quota, periodUs),
			Take: g.Quota < p.Quota, Reason: g.Why, Gain: p.Gain, RateAfter: s.obs.Rates.Now() * (1 + p.Gain)}
		if ch.Take {
			plan.Kind, ch.Gain = policies.KindReturn, 0
		}
		plan.Changes = append(plan.Changes, ch)
	}
	if g.Weight != p.Weight && s.c.Now[runtime.KnobCPUWeight] != "" && s.c.Enrolment.Allows(runtime.KnobCPUWeight) {
		if len(plan.Changes) == 0 && g.Weight > p.Weight {
			plan.Kind = policies.KindReturn
		}
		plan.Changes = append(plan.Changes, policies.Change{Key: s.key, Name: s.c.Name, Knob: runtime.KnobCPUWeight, From: s.c.Now[runtime.KnobCPUWeight],
			To: runtime.IntValue(int64(math.Min(g.Weight, c.node.MaxWeight))), Take: g.Weight < p.Weight, Reason: weightReason(p, g)})
	}
	if len(plan.Changes) == 0 || !c.lend(plan, d) {
		return
	}
	if g.Recall {
		c.recalled(s, g.Why)
	}
	if p.Dealt && g.Weight != p.Weight {
		s.failures.Add(runtime.KnobCPUWeight, p.Weight < p.OwnWeight, c.conditions(s, runtime.KnobCPUWeight, s.original(runtime.KnobCPUWeight)))
	}
}

// weightReason says why a loan moves a weight.
func weightReason(p allocate.Party, g allocate.Grant) string {
	switch {
	case p.Dealt:
		return "somebody is short of what it has a right to"
	case g.Weight == p.OwnWeight && g.Quota <= p.OwnQuota:
		return "no loan stands any more"
	case g.Weight > p.Weight:
		return "so that it gets what it has a right to"
	}
	return "so that its loan takes nothing that others have a right to"
}

// lend passes a loan or a return through the guard and orders it.
func (c *Controller) lend(plan policies.Plan, d *Decision) bool {
	plan, no := guard.Check(c.k(), c.limits(), c.guarded, plan)
	if len(no) > 0 {
		c.refuse(no)
		return false
	}
	o := Order{Plan: c.planID(), Policy: plan.Policy, Kind: plan.Kind, Changes: plan.Changes}
	s := c.containers[plan.Changes[0].Key]
	c.pending[o.Plan] = pendingOrder{o, s.obs.ChangedNs(), c.now(), c.node.MemoryFree < 0}
	c.expect(o, 1)
	d.Apply = append(d.Apply, o)
	c.noteBefore(s)
	s.refused = guard.Rejection{Container: s.key, Gate: guard.GateFixed, Text: writing}
	return true
}
