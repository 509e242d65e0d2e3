package core

import (
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/verdict"
	"github.com/trimtab/trimtab/tuner/view"
)

// propose asks the policy and passes on what the guard lets through. All laws
// that need no writing are held here, so that no policy can skip them.
func (c *Core) propose(in Input, d *Decision) {
	c.sumDisks()
	jobs := c.offered[:0]
	for _, key := range c.keys() {
		j := c.jobs[key]
		j.advice, j.urgent = nil, c.urgent(j)
		if j.whyNot = c.notNow(in, j); j.whyNot == "" && d.takesBack(key) {
			j.whyNot = writing // what it would be changed from is on its way out
		}
		if j.whyNot == "" {
			jobs = append(jobs, c.withKnobs(j, c.asJob(key, j)))
		}
	}
	c.offered = jobs
	clear(jobs[len(jobs):cap(jobs)]) // of containers that are gone
	if len(jobs) == 0 {
		c.arbitrate(nil, d)
		return
	}
	proposal := c.policy.Propose(c.node, jobs)
	for _, a := range proposal.Advice {
		if j := c.jobs[a.Key]; j != nil {
			j.advice = append(j.advice, a.Text)
		}
	}
	for i := range jobs {
		job := &jobs[i]
		c.jobs[job.Key].whyNot = orElse(job.Enrolment.WhyNot, c.noPlan(*job))
	}
	for _, p := range c.arbitrate(withoutGPUs(proposal.Plans), d) {
		c.consider(p, d)
	}
	for _, s := range proposal.Sights {
		// Where nothing is applied, one wish of a container's is told; two would take turns.
		told := func(ch policies.Change) bool {
			j := c.jobs[s.Key]
			return ch.Key == s.Key && j != nil && j.c.Enrolment.Mode != policies.ModeTune && j.c.Enrolment.Allows(ch.Knob)
		}
		if !slices.ContainsFunc(proposal.Plans, func(p policies.Plan) bool { return slices.ContainsFunc(p.Changes, told) }) {
			c.considerSight(in, s, d)
		}
	}
}

// writing is why a container waits whose values are being changed.
const writing = "a write is under way"

// notNow says why nothing can be proposed for a container at this moment; "" if it can.
func (c *Core) notNow(in Input, j *job) string {
	e := j.c.Enrolment
	if why := c.frozen(in, j); why != "" {
		return why
	}
	switch {
	case j.c.Busy:
		return writing
	case j.urgent:
		return c.wouldInterfere(j)
	case len(c.trialsOf(j.key)) > 0:
		return "in trial"
	case e.Mode == policies.ModeTune && c.now() < j.cooledNs:
		return fmt.Sprintf("cool-down %d s", (j.cooledNs-c.now()+second-1)/second)
	case c.earlyFor(j):
		return ""
	case j.verdict.Class == "":
		return "measuring"
	case !j.settled(c.cfg.Agree):
		return "verdict not settled"
	case j.varies():
		return "measuring: what it needs varies"
	}
	return ""
}

// frozen says why nothing of a container may be changed; "" if it may.
func (c *Core) frozen(in Input, j *job) string {
	why := c.fixed(in, j)
	if why == "" && j.c.Preflight != "" {
		return "preflight: " + j.c.Preflight
	}
	return why
}

// fixed says why what stands on a container must stand; "" if it may go back. Law 9's
// preflight is no reason: a way back needs none.
func (c *Core) fixed(in Input, j *job) string {
	e := j.c.Enrolment
	switch {
	case j.c.Owed != "":
		return "a restore is owed"
	case !j.c.Watched:
		return orElse(e.WhyNot, "not watched")
	case e.Mode == policies.ModeOff:
		return orElse(e.WhyNot, "off")
	case in.Frozen != "":
		return in.Frozen
	case j.c.Held:
		return "held since restore"
	case j.c.State != runtime.StateRunning:
		return "container is " + string(j.c.State)
	}
	return ""
}

// noPlan says why nothing was proposed for a job.
func (c *Core) noPlan(j policies.Job) string {
	if j.Early {
		return "measuring"
	}
	return orElse(verdict.Unsteady(c.thresholds(), c.jobs[j.Key].reading), "nothing to gain")
}

func orElse(s, otherwise string) string {
	if s != "" {
		return s
	}
	return otherwise
}

func (c *Core) asJob(key string, j *job) policies.Job {
	rate := j.reading.Rate
	if rate.Source == j.source && len(j.obs) >= shownLeast {
		rate = j.ofNow(rate)
	}
	p := policies.Job{
		Key: key, Name: j.c.Name, Enrolment: j.c.Enrolment, Now: j.c.Now, Original: j.originals(),
		Verdict: j.verdict, Breakdown: j.reading.Breakdown, Rate: rate, Cost: j.reading.Cost,
		CostOK:   verdict.Steady(c.thresholds(), j.reading),
		UsedCPUs: j.used(), Correction: j.correction, Entitlement: j.entitled, Obtainable: j.obtainable, Peak: j.peak(), CPU: j.curve, GPUs: j.gpusUsed(c.now()),
		Settled: c.now()-j.changedNs >= c.cfg.TakeAfterNs,
		Steady:  j.steady(), Tried: j.tried(),
	}
	if p.Peak > 0 {
		p.Needs = j.needsNow()
	}
	if v, b, ok := j.byTurns(c.cfg.Agree); ok {
		p.Verdict, p.Breakdown = v, b
	}
	p.Devices, p.Elastic = c.granted(j), j.c.Elastic
	c.asEarly(j, &p)
	return p
}

// consider passes one plan through the guard and opens its trial.
func (c *Core) consider(p policies.Plan, d *Decision) {
	if len(p.Changes) == 0 {
		return
	}
	p, known := c.withSpared(p)
	if !known {
		return
	}
	for i, ch := range p.Changes {
		j := c.jobs[ch.Key]
		if j.urgent && p.Changes[0].Witness != policies.WitnessHarm {
			return // it is here to be protected alone; anything else waits for its turn
		}
		bounded, why := c.bound(j, ch)
		if why != "" {
			j.whyNot = why
			return
		}
		p.Changes[i] = bounded
	}
	changes, why := c.withSwap(p.Changes)
	if why == "" {
		changes, why = c.withBurst(changes)
	}
	if why != "" {
		c.jobs[p.Changes[0].Key].whyNot = why
		return
	}
	p.Changes = changes
	subject := c.jobs[p.Changes[0].Key]
	if subject.c.Enrolment.Mode != policies.ModeTune {
		c.would(subject, p, d)
		return
	}
	why = c.wait(p)
	switch why {
	case "":
		why = c.guards(p)
	case waitsForTrial:
		if c.giveWay(p, d) {
			why = "measuring: a trial that promised far less ends for it"
		}
	}
	if why != "" {
		for _, ch := range p.Changes {
			c.jobs[ch.Key].whyNot = why
		}
		return
	}
	o := Order{Plan: c.planID(), Policy: p.Policy, Changes: p.Changes}
	t := c.open(o, subject)
	c.promise(p)
	for _, ch := range p.Changes {
		j := c.jobs[ch.Key]
		if c.earlyFor(j) {
			t.from = append(t.from, j.like.from...)
			j.like.taken = last(append(j.like.taken, "its first allocation, "+changesText([]policies.Change{ch})), maxTaken)
		}
		j.whyNot = "in trial"
	}
	d.Apply = append(d.Apply, o)
}

// bound holds a change within floors, ceilings and the laws; why says what
// forbids it altogether.
func (c *Core) bound(j *job, ch policies.Change) (_ policies.Change, why string) {
	e := j.c.Enrolment
	if !e.Allows(ch.Knob) {
		return ch, fmt.Sprintf("knob %s is not allowed (trimtab.knobs)", ch.Knob.Family())
	}
	for _, k := range j.c.Yielded {
		if k == ch.Knob {
			return ch, fmt.Sprintf("%s was set by somebody else", ch.Knob)
		}
	}
	if ch.From != j.c.Now[ch.Knob] {
		return ch, fmt.Sprintf("%s changed in the meantime", ch.Knob)
	}
	switch ch.Knob {
	case runtime.KnobCPUQuota:
		return c.boundQuota(j, ch)
	case runtime.KnobMemoryLimit, runtime.KnobMemoryHigh, runtime.KnobMemoryLow, runtime.KnobIOWeight, runtime.KnobCPUBurst, runtime.KnobCpuset:
		return c.boundKnob(j, ch)
	case runtime.KnobGPU:
		return c.boundSight(j, ch)
	}
	if original, ok := j.original(ch.Knob).Int(); ok && ch.Knob == runtime.KnobCPUWeight {
		// Less weight than its owner gave takes what it uses above its entitlement, never below:
		// guards() looks at the whole plan for it.
		now, _ := ch.From.Int()
		if to, isNumber := ch.To.Int(); !isNumber || to < min(now, original) && !e.BestEffort && !ch.Take {
			return ch, "below its owner's weight"
		}
	}
	if c.failedAlready(j, ch.Knob) {
		return ch, "a like change failed; waiting until something it depended on changes"
	}
	return ch, ""
}

// minStep is the least relative change of a quota worth a write.
const minStep = 0.05

func (c *Core) boundQuota(j *job, ch policies.Change) (policies.Change, string) {
	original, limited := j.original(runtime.KnobCPUQuota).CPUs()
	now, nowLimited := ch.From.CPUs()
	to, toLimited := ch.To.CPUs()
	if !limited || !nowLimited || !toLimited {
		return ch, "no CPU quota to move: its owner set none"
	}
	e := j.c.Enrolment
	ceiling := c.node.CPUs - c.node.Reserve
	if e.CPU.Max > 0 {
		ceiling = min(ceiling, e.CPU.Max)
	}
	floor := max(e.CPU.Min, 0)
	if !e.BestEffort {
		floor = max(floor, original)
	}
	to = max(min(to, ceiling), floor)
	if math.Abs(to-now) < minStep*now {
		if ceiling <= now*(1+minStep) && !ch.Take {
			return ch, fmt.Sprintf("at its CPU ceiling of %.2f", ceiling)
		}
		return ch, "nothing to gain"
	}
	if (to < now) != ch.Take {
		return ch, "its bounds leave no room"
	}
	_, period, err := runtime.ParseQuota(ch.From)
	if err != nil {
		return ch, err.Error()
	}
	ch.To = runtime.QuotaFromCPUs(to, period)
	if c.failedAlready(j, ch.Knob) {
		return ch, "a like change failed; waiting until something it depended on changes"
	}
	return ch, ""
}

// beside is a change as one plan's readiness is asked of it: what is given of memory is judged
// together with what else its container is given, and needs no steadier rate than that.
func beside(p policies.Plan, ch policies.Change) policies.Change {
	for _, o := range p.Changes {
		if ch.Knob.Family() == "memory" && !ch.Take && o.Key == ch.Key {
			ch.Gain = max(ch.Gain, o.Gain)
		}
	}
	return ch
}

// wait says why a plan must wait; "" if it may start.
func (c *Core) wait(p policies.Plan) string {
	if subject := c.jobs[p.Changes[0].Key]; p.Changes[0].Witness == policies.WitnessHarm && !ofSight(p.Changes) {
		return c.waitHarm(subject, p)
	}
	for _, ch := range p.Changes {
		subject := c.jobs[ch.Key]
		if why := c.ready(subject, beside(p, ch)); why != "" {
			return why
		}
		for _, t := range c.trials {
			if c.share(t, subject) {
				return waitsForTrial
			}
		}
	}
	return c.room(p)
}

// room says which of the node's limits of change is reached; "" if none.
func (c *Core) room(p policies.Plan) string {
	fresh := map[string]bool{} // containers that trimtab has not changed yet
	for _, ch := range p.Changes {
		if !c.jobs[ch.Key].changed() {
			fresh[ch.Key] = true
		}
	}
	if c.cfg.Ramp > 0 && len(fresh) > 0 && c.tuned()+len(c.trials)+len(fresh) > c.cfg.Ramp {
		return fmt.Sprintf("ramp: %d containers are tuned already", c.cfg.Ramp)
	}
	if c.recent()+len(p.Changes) > c.cfg.ChangesPerMinute {
		return "the node's limit of changes a minute is reached"
	}
	return ""
}

// recent is how many changes were made in the last minute.
func (c *Core) recent() int {
	recent := c.changeTimes[:0:0]
	for _, at := range c.changeTimes {
		if c.now()-at < 60*second {
			recent = append(recent, at)
		}
	}
	c.changeTimes = recent
	return len(recent)
}

// changed reports whether some knob stands at trimtab's value.
func (j *job) changed() bool { return len(j.c.Original) > 0 }

func (c *Core) tuned() int {
	n := 0
	for _, j := range c.jobs {
		if j.changed() {
			n++
		}
	}
	return n
}

// share reports whether an open trial and a container share CPUs or a job:
// unless both are pinned to disjoint CPUs, they do.
func (c *Core) share(t *openTrial, subject *job) bool {
	for _, ch := range t.order.Changes {
		other := c.jobs[ch.Key]
		if other == nil || other.c.Enrolment.Job != "" && other.c.Enrolment.Job == subject.c.Enrolment.Job || overlap(other, subject) {
			return true
		}
	}
	return false
}

func overlap(a, b *job) bool {
	x, errX := runtime.ParseCPUList(string(a.c.Now[runtime.KnobCpuset]))
	y, errY := runtime.ParseCPUList(string(b.c.Now[runtime.KnobCpuset]))
	if errX != nil || errY != nil || len(x) == 0 || len(y) == 0 {
		return true
	}
	for _, cpu := range x {
		for _, other := range y {
			if cpu == other {
				return true
			}
		}
	}
	return false
}

// sameAdvice reports whether two changes say the same to people: a target that
// moves by less than a tenth does.
func sameAdvice(a, b policies.Change) bool {
	if a.Knob != b.Knob || a.From != b.From {
		return false
	}
	x, okX := a.To.CPUs()
	y, okY := b.To.CPUs()
	if okX && okY {
		return math.Abs(x-y) <= 0.1*x
	}
	if a.Knob.Family() == "memory" {
		return sameAmount(a.To, b.To)
	}
	return a.To == b.To
}

// would records, once, what would have been done in observe mode; the order
// goes through the actuator as a dry run.
func (c *Core) would(j *job, p policies.Plan, d *Decision) {
	ch := p.Changes[0]
	j.whyNot = orElse(j.c.Enrolment.WhyNot, "observe")
	text := fmt.Sprintf("would have set %s: %s (%s)", changesText(p.Changes), ch.Reason, ch.Expected())
	if sameAdvice(j.would, ch) {
		return
	}
	j.would = ch
	o := Order{Plan: c.planID(), Policy: p.Policy, Changes: p.Changes, DryRun: true}
	d.Apply = append(d.Apply, o)
	c.totals.plan(p.Policy, "would")
	j.trials = append([]view.Trial{{Plan: o.Plan, Policy: p.Policy, Changes: p.Changes, StartedUnixNs: c.last.UnixNs, EndedUnixNs: c.last.UnixNs,
		Outcome: view.OutcomeWould, Before: j.rateNow(), Predicted: ch.RateAfter, Why: ch.Reason}}, j.trials[:min(len(j.trials), keepTrials-1)]...)
	d.Records = append(d.Records, c.record(view.RecordWould, j, func(rec *view.Record) {
		rec.Plan, rec.Policy, rec.Knob, rec.From, rec.To, rec.Gain = o.Plan, p.Policy, ch.Knob, ch.From, ch.To, ch.Gain
		rec.Outcome, rec.Text = view.OutcomeWould, text
	}))
}
