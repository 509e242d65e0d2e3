package control

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/allocate"
	"github.com/trimtab/trimtab/tuner/guard"
	"github.com/trimtab/trimtab/tuner/state"
	"github.com/trimtab/trimtab/tuner/verdict"
)

// propose asks the policies, allocates the node, and passes on what the guard lets through.
func (c *Controller) propose(in Input, d *Decision) {
	jobs := make([]policies.Job, len(c.all))
	for i, s := range c.all {
		s.advice, jobs[i] = nil, c.job(in, s, d)
	}
	var trials, memory []policies.Plan
	var visibilities []policies.GPUVisibility
	for _, p := range c.policies {
		proposal := p.Propose(c.node, jobs)
		for _, a := range proposal.Advice {
			if s := c.containers[a.Key]; s != nil {
				s.advice = append(s.advice, a.Text)
			}
		}
		visibilities = append(visibilities, proposal.GPUVisibility...)
		for _, plan := range proposal.Plans {
			switch {
			case len(plan.Changes) == 0 || c.containers[plan.Changes[0].Key] == nil:
			case c.watchedOnly(plan):
				c.wouldDo(plan, d)
			case plan.Kind == policies.KindTrial:
				trials = append(trials, plan)
			case plan.Changes[0].Knob == runtime.KnobCPUQuota:
				c.ask(plan)
			default:
				memory = append(memory, plan)
			}
		}
	}
	c.lendCPUs(in, d)
	c.lendMemory(memory, d)
	c.try(trials, d)
	c.tryVisibility(in, visibilities, d)
}

// watchedOnly: nothing of it may be changed, so that a plan is told and not carried out.
func (c *Controller) watchedOnly(p policies.Plan) bool {
	return c.containers[p.Changes[0].Key].c.Enrolment.Mode != policies.ModeTune
}

// fixed says why nothing of a container may be changed; "" if it may.
func (c *Controller) fixed(in Input, s *containerState) string {
	e := s.c.Enrolment
	switch {
	case s.c.Pending != "":
		return "a restore is pending"
	case !s.c.Watched:
		return cmp.Or(e.WhyNot, "not watched")
	case e.Mode == policies.ModeOff:
		return cmp.Or(e.WhyNot, "off")
	case in.Frozen != "":
		return in.Frozen
	case s.c.Held:
		return "held since restore"
	case s.c.State != runtime.StateRunning:
		return "container is " + string(s.c.State)
	case s.c.Preflight != "":
		return "preflight: " + s.c.Preflight
	}
	return ""
}

// writing is why a container waits whose values are being changed.
const writing = "a write is under way"

// job is a container as policies see it.
func (c *Controller) job(in Input, s *containerState, d *Decision) policies.Job {
	k := c.k()
	r := s.obs.Latest
	j := policies.Job{
		Key: s.key, Name: s.c.Name, Enrolment: s.c.Enrolment, Now: s.c.Now, Original: s.originals(),
		Verdict: s.verdicts.Agreed(k.Agree), Breakdown: r.Breakdown, Rate: r.Rate, Cost: verdict.Cost(k, r), CostOK: verdict.Unsteady(k, r, c.stolen.Share) == "" && r.Window != nil,
		CPU: c.cpuUse(s), Curve: s.learned.curve, Correction: s.learned.correction, Memory: s.memoryUse(k), ByMemory: s.learned.byMemory, Paging: s.learned.paging.Paging,
		GPUs: s.gpusUsed(c.now()), Devices: c.granted(s), Elastic: s.c.Elastic,
	}
	if s.learned.unsteady >= curveKept {
		j.Curve = policies.Curve{}
	}
	if rate := s.obs.Rates.Now(); rate > 0 && s.obs.Rates.Source == r.Rate.Source {
		j.Rate.PerSecond = rate
	}
	if j.Urgent = c.urgent(s); j.Urgent {
		j.Verdict, _ = c.atRisk(s)
	}
	why, gate := c.fixed(in, s), guard.GateFixed
	if why == "" && (s.c.Busy || s.answers > 0 || d.reverts(s.key)) {
		why = writing
	}
	if why == "" && s.plan != "" && !j.Urgent {
		why, gate = "in trial", guard.GateTrial
	}
	j.May = why == ""
	if why == "" {
		why, gate = c.noPlan(s, j.Memory), guard.GateNone
	}
	s.refused = guard.Rejection{Container: s.key, Gate: gate, Text: why}
	return j
}

// expect counts answers that are to come for an order's containers.
func (c *Controller) expect(o Order, n int) {
	for _, ch := range o.Changes {
		if s := c.containers[ch.Key]; s != nil {
			s.answers = max(0, s.answers+n) // a container that was not listed meanwhile began anew
		}
	}
}

// noPlan says why nothing was proposed for a container of which something may be.
func (c *Controller) noPlan(s *containerState, m policies.MemoryUse) string {
	if k := c.k(); c.node.MemoryFree <= 0 && m.Limit > 0 && m.Evicts(k) && s.c.Enrolment.Allows(runtime.KnobMemoryLimit) {
		return "it reads again what its memory limit evicted, and no memory of this host is free"
	}
	switch s.state {
	case StateWatched:
		return "measuring"
	case StateLent:
		if all := c.takesAll(s); all > 0 {
			return fmt.Sprintf("it has all that it may: %.2f CPUs", all)
		}
		return "measuring what is enough of what it was lent"
	case StateReturned:
		if c.now() < s.loan.back.untilNs {
			return fmt.Sprintf("its loan was called in: %s", s.loan.why)
		}
	}
	return cmp.Or(s.c.Enrolment.WhyNot, verdict.WhyNothing(s.verdicts.Latest()))
}

// refuse keeps why a plan may not be.
func (c *Controller) refuse(no []guard.Rejection) {
	for _, r := range no {
		if s := c.containers[r.Container]; s != nil {
			if c.totals.rejections[state.Count{Result: string(r.Gate)}]++; r.Gate == guard.GateMeasuring && s.state == StateReturned && s.loan.why != "" {
				r.Text = fmt.Sprintf("its loan went back, since %s; %s", s.loan.why, r.Text) // a trial may bring it the same
			}
			s.refused = r
		}
	}
}

// ask enters what a policy wants of the CPUs, or would give back of them, into the node's plan.
func (c *Controller) ask(plan policies.Plan) {
	ch := plan.Changes[0]
	p := c.partyOf(ch.Key)
	p.Why, p.Gain = ch.Reason, ch.Gain
	if plan.Kind == policies.KindReturn {
		p.Settles = ch.To.Quantity()
		return
	}
	p.Asks = ch.To.Quantity()
	c.containers[ch.Key].refused = c.noneIdle(ch.Key)
}

// noneIdle is why nothing is lent where no CPU is idle.
func (c *Controller) noneIdle(key string) guard.Rejection {
	return guard.Rejection{Container: key, Gate: guard.GateIdle, Value: c.node.Idle - c.node.Reserve, Threshold: c.k().ActiveCPUs, Text: "no CPU of this host is idle"}
}

// partyOf is a container's in the node's plan.
func (c *Controller) partyOf(key string) *allocate.Party {
	i, _ := slices.BinarySearchFunc(c.all, key, func(s *containerState, key string) int { return cmp.Compare(s.key, key) })
	return &c.parties[i]
}

// lendCPUs makes the node's plan of loans, and orders each container's part of it.
func (c *Controller) lendCPUs(in Input, d *Decision) {
	k := c.k()
	for i, s := range c.all {
		c.parties[i].Fixed = c.fixed(in, s) != "" || s.c.Enrolment.Mode != policies.ModeTune || s.c.Busy || s.answers > 0 ||
			!s.c.Enrolment.Allows(runtime.KnobCPUQuota) || d.reverts(s.key)
	}
	disturbs := c.interference()
	for i, s := range c.all {
		p := &c.parties[i]
		own, _ := s.quotas()
		p.FixedQuota = slices.Contains(s.c.Yielded, runtime.KnobCPUQuota)
		p.FixedWeight = slices.Contains(s.c.Yielded, runtime.KnobCPUWeight) || s.plan != ""
		p.Dealt = s.isDealt()
		p.Most, p.MostWhy = c.most(i)
		p.Recalled = s.loan.recallNs > 0 && c.now()-s.loan.recallNs < c.writeNs(s)
		if why, ok := disturbs[s.key]; ok {
			p.Settles, p.Asks, p.Why = own, 0, why
			c.recalled(s, why)
			continue
		}
		p.Recent = s.loan.writtenNs > 0 && c.now()-s.loan.writtenNs < c.writeNs(s)
		if no := c.barred(i); p.Asks > 0 && no.Text != "" {
			p.Asks, s.refused = 0, no
		}
	}
	c.rights.Plan(k, c.parties)
	for i, s := range c.all {
		if p := c.parties[i]; !p.Fixed {
			c.lendOne(s, p, c.rights.Grants[i], d)
		}
	}
}

// barred says why a container is lent no more CPU though its quota stops it; without text: it may be.
func (c *Controller) barred(i int) (no guard.Rejection) {
	k, s, p := c.k(), c.all[i], c.parties[i]
	no.Container = s.key
	switch most, why := c.most(i); {
	case s.failures.Blocks(k, runtime.KnobCPUQuota, false, c.conditions(s, runtime.KnobCPUQuota, s.original(runtime.KnobCPUQuota))):
		no.Gate, no.Text = guard.GateFailed, "more CPU brought it nothing; waiting until something that this depended on changes"
	case most <= p.Quota*(1+k.MinStep):
		no.Gate, no.Value, no.Threshold, no.Text = guard.GateRights, p.Quota, most, why
	case !c.interferenceTold(s.key):
		no.Gate, no.Text = guard.GateMeasuring, "a neighbour got less done beside its loan: whether it recovers is being read"
	case c.now() < s.loan.back.untilNs:
		no.Gate, no.Value, no.Text = guard.GateCoolDown, float64(s.loan.back.untilNs-c.now())/1e9, "its loan was called in a moment ago: "+s.loan.why
	case p.Recent:
		no.Gate, no.Value, no.Text = guard.GateCoolDown, float64(s.loan.writtenNs+c.writeNs(s)-c.now())/1e9, "what it is lent was changed a moment ago"
	}
	return no
}

// lendMemory orders returns, divides what is free of the host's memory among raises, and orders those.
func (c *Controller) lendMemory(plans []policies.Plan, d *Decision) {
	plans = slices.DeleteFunc(plans, func(p policies.Plan) bool {
		ch := p.Changes[0]
		m := &c.containers[ch.Key].memory
		until, why := m.refused.untilNs, "its limit could not be written a moment ago"
		switch {
		case ch.Take:
		case ch.Criterion == policies.CriterionNoHarm: // it dies before that
			return false
		case m.back.untilNs > until:
			until, why = m.back.untilNs, "what it was lent was called in a moment ago: the host was short of memory"
		}
		if left := float64(until-c.now()) / 1e9; left > 0 {
			c.refuse([]guard.Rejection{{Container: ch.Key, Gate: guard.GateCoolDown, Value: left, Text: why}})
			return true
		}
		if ch.Take {
			c.lend(p, d)
		}
		return ch.Take
	})
	raises := make([]allocate.Raise, len(plans))
	for i, p := range plans {
		ch := p.Changes[0]
		raises[i] = allocate.Raise{Bytes: ch.To.Quantity() - ch.From.Quantity(), Protects: ch.Criterion == policies.CriterionNoHarm, Gain: ch.Gain,
			Importance: c.containers[ch.Key].c.Enrolment.Importance}
	}
	for i, bytes := range allocate.Memory(c.node.MemoryFree, raises) {
		ch := plans[i].Changes[0]
		ch.To = runtime.IntValue(int64(ch.From.Quantity()+bytes) >> 20 << 20)
		plans[i].Changes = []policies.Change{ch}
		if c.lend(plans[i], d) {
			c.node.MemoryFree -= bytes
		}
	}
}

// try opens a trial for each plan that may be, the largest promise first.
func (c *Controller) try(plans []policies.Plan, d *Decision) {
	promise := func(p policies.Plan) (most float64) {
		for _, ch := range p.Changes {
			most = max(most, ch.Gain)
		}
		return most
	}
	slices.SortStableFunc(plans, func(a, b policies.Plan) int { return cmp.Compare(promise(b), promise(a)) })
	for _, p := range plans {
		plan, no := guard.Check(c.k(), c.limits(), c.guarded, p)
		if len(no) == 0 {
			no = c.unready(plan)
		}
		if len(no) > 0 {
			c.refuse(no)
			continue
		}
		o := Order{Plan: c.planID(), Policy: plan.Policy, Changes: plan.Changes}
		c.open(o)
		for _, ch := range o.Changes {
			c.containers[ch.Key].refused = guard.Rejection{Container: ch.Key, Gate: guard.GateTrial, Text: "in trial"}
		}
		d.Apply = append(d.Apply, o)
	}
}

// unready are the containers of a plan whose state allows no trial, or that a loan is on its way to.
func (c *Controller) unready(p policies.Plan) (no []guard.Rejection) {
	for _, ch := range p.Changes {
		s := c.containers[ch.Key]
		switch {
		case !s.state.mayTry():
			no = append(no, guard.Rejection{Container: ch.Key, Gate: guard.GateMeasuring, Text: "measuring what it can use of what it was lent"})
		case s.answers > 0:
			no = append(no, guard.Rejection{Container: ch.Key, Gate: guard.GateFixed, Text: writing})
		case ch.Knob.Family() == "cpu" && ch.Knob != runtime.KnobCPUQuota && c.loanIsDue(s):
			no = append(no, guard.Rejection{Container: ch.Key, Gate: guard.GateMeasuring, Text: "its quota stops it though CPUs are idle: it is lent some first"})
		}
	}
	return no
}

// limits are the node's, now.
func (c *Controller) limits() guard.Limits {
	l := guard.Limits{Node: c.node, ChangesLeft: c.cfg.ChangesPerMinute - c.recent(), MaxTunedLeft: math.MaxInt, Trials: c.sharedTrial, Rights: c.below}
	if c.cfg.MaxTuned > 0 {
		l.MaxTunedLeft = c.cfg.MaxTuned
		for _, s := range c.all {
			if s.changed() || s.plan != "" {
				l.MaxTunedLeft--
			}
		}
		for _, o := range c.pending {
			if s := c.containers[o.Changes[0].Key]; s != nil && !s.changed() {
				l.MaxTunedLeft--
			}
		}
	}
	return l
}

// recent is how many changes trials made in the last minute, with those that are being made.
func (c *Controller) recent() int {
	n := len(c.changeTimes)
	for _, t := range c.trials {
		if t.answers > 0 {
			n += len(t.order.Changes)
		}
	}
	return n
}

// sharedTrial says which open trial a container shares CPUs with; "" if none: one of a stopped job takes none.
func (c *Controller) sharedTrial(key string) string {
	s := c.containers[key]
	for _, o := range c.Open() {
		for _, ch := range o.Changes {
			if other := c.containers[ch.Key]; other == nil || (other == s || !other.obs.Stopped()) && overlap(other, s) {
				return "another trial is open on its CPUs"
			}
		}
	}
	return ""
}

func overlap(a, b *containerState) bool {
	x, errX := runtime.ParseCPUList(string(a.c.Now[runtime.KnobCpuset]))
	y, errY := runtime.ParseCPUList(string(b.c.Now[runtime.KnobCpuset]))
	if errX != nil || errY != nil || len(x) == 0 || len(y) == 0 {
		return true
	}
	return slices.ContainsFunc(x, func(cpu int) bool { return slices.Contains(y, cpu) })
}

// below says who would fall below what is theirs by changes; "" if nobody would. What the
// host's own processes use is not charged to the plan.
func (c *Controller) below(changes []policies.Change) string {
	free := max(0, c.node.CPUs-c.node.HostCPUs)
	n := len(c.parties)
	owners, before, after := make([]policies.Claim, n), make([]policies.Claim, n), make([]policies.Claim, n)
	for i, p := range c.parties {
		owners[i], before[i], after[i] = p.Owners(), p.Claim, p.Claim
		for _, ch := range changes {
			if ch.Key == p.Key && ch.Knob == runtime.KnobCPUWeight {
				after[i].Weight = number(ch.To)
			}
			if ch.Key == p.Key && ch.Knob == runtime.KnobCPUQuota {
				after[i].Quota, owners[i].Proven = ch.To.Quantity(), ch.To.Quantity()
				if most := c.groupLeaves(i); !ch.Take && ch.To.Quantity() > most*(1+c.k().MinStep) {
					return fmt.Sprintf("the quota of the group above %s leaves it %.2f CPUs beside the others there", p.Name, most)
				}
			}
		}
	}
	rights, _ := policies.Rights(c.node.CPUs, owners)
	now, then := policies.Shares(free, before), policies.Shares(free, after)
	for i, s := range c.all {
		due := min(rights[i]*free/c.node.CPUs, c.parties[i].Demand)
		if then[i] < due*(1-c.k().RightMargin) && then[i] < now[i]*(1-1e-3) {
			return fmt.Sprintf("%s would be left with %.2f of the %.2f CPUs it is entitled to", s.c.Name, then[i], due)
		}
	}
	return ""
}

// guarded is a container as the guard knows it.
func (c *Controller) guarded(key string) *guard.Container {
	s := c.containers[key]
	if s == nil {
		return nil
	}
	k := c.k()
	g := &guard.Container{Enrolment: s.c.Enrolment, Now: s.c.Now, Original: s.c.Original, Yielded: s.c.Yielded, Memory: s.memoryUse(k), Crowds: c.crowds(s), Changed: s.changed() || s.plan != "",
		CoolSeconds: max(0, float64(s.coolNs-c.now())/1e9)}
	if s.c.Busy || s.answers > 0 {
		g.Fixed, g.FixedGate = writing, guard.GateFixed
	}
	_, g.V1Memory = s.c.Cgroup.V1["memory"]
	g.Failed = func(knob runtime.Knob, decrease bool) bool {
		return s.failures.Blocks(k, knob, decrease, c.conditions(s, knob, s.c.Now[knob]))
	}
	from := c.baselineFrom(s)
	g.Readings, g.Unseen = len(s.progressSince(k, from).samples(s, from)), map[bool]string{true: "what it gets done shows nowhere, so that no trial could tell"}[s.unseen(k, from)]
	return g
}

// wouldDo records, once, what would be done in observe mode; its order is a dry run.
func (c *Controller) wouldDo(p policies.Plan, d *Decision) {
	s := c.containers[p.Changes[0].Key]
	if r := c.noneIdle(s.key); p.Kind == policies.KindLoan && p.Changes[0].Knob == runtime.KnobCPUQuota && r.Value < r.Threshold {
		s.refused = r
		return
	}
	plan, no := guard.Check(c.k(), c.limits(), c.guarded, p)
	if len(no) > 0 && no[0].Gate != guard.GateMeasuring && no[0].Gate != guard.GateTrial {
		c.refuse(no)
		return
	}
	if len(no) > 0 {
		plan = p
	}
	ch := plan.Changes[0]
	s.refused = guard.Rejection{Container: s.key, Gate: guard.GateFixed, Text: cmp.Or(s.c.Enrolment.WhyNot, "observe")}
	of := plan.Policy + string(ch.Knob)
	if sameAdvice(s.would[of], ch) {
		return
	}
	s.would[of] = ch
	o := Order{Plan: c.planID(), Policy: plan.Policy, Kind: plan.Kind, Changes: plan.Changes, DryRun: true}
	d.Apply = append(d.Apply, o)
	c.totals.plan(plan.Policy, "would")
	s.trials = append([]state.Trial{{Plan: o.Plan, Policy: plan.Policy, Changes: plan.Changes, StartedUnixNs: c.last.UnixNs, EndedUnixNs: c.last.UnixNs,
		Outcome: state.OutcomeWould, Before: s.obs.Rates.Now(), Unit: s.progressSince(c.k(), c.baselineFrom(s)).unit, Predicted: ch.RateAfter, Why: ch.Reason}}, s.trials[:min(len(s.trials), keepTrials-1)]...)
	d.Records = append(d.Records, c.record(state.RecordWould, s, func(rec *state.Record) {
		rec.Plan, rec.Policy, rec.Knob, rec.From, rec.To, rec.Gain = o.Plan, plan.Policy, ch.Knob, ch.From, ch.To, ch.Gain
		rec.Outcome, rec.Text = state.OutcomeWould, fmt.Sprintf("would have set %s: %s (%s)", changesText(plan.Changes), ch.Reason, ch.Expected())
	}))
}

// sameAdvice: a target that moves by less than a quarter says the same to people.
func sameAdvice(a, b policies.Change) bool {
	x, y := a.To.Quantity(), b.To.Quantity()
	return a.From == b.From && (a.To == b.To || math.Abs(x-y) <= max(x, y)/4)
}
