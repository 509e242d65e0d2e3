package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/trial"
	"github.com/trimtab/trimtab/tuner/trial/correction"
	"github.com/trimtab/trimtab/tuner/view"
)

// openTrial is a plan from the order to its outcome.
type openTrial struct {
	view      view.Trial
	order     Order
	before    []trial.Obs
	turnNs    int64 // over how long rates are compared; 0: from reading to reading
	source    string
	appliedNs int64   // 0: the actuator has not answered yet
	stolen    float64 // share of the machine's CPU time, as it was usual when the plan was made
	frozenNs  int64   // time since then in which everything was frozen
	take      bool
	modelled  bool     // see side
	from      []uint64 // known jobs that the plan was taken from
	sides     []*side  // of a plan that touches several containers
	look      int
	result    trial.Result
	earned    bool   // the windows say keep; only neighbours can still speak against it
	vain      string // whose limit was raised beside other changes, and reads pages again as before

	// Where neighbours moved in the plan's favour, it is taken back and measured once
	// more without: A-B-A (DESIGN.md, Trials).
	phase   phase
	with    []trial.Obs // under the change
	aback   int64       // when the change was taken back; 0: not yet
	abaLook int
	// neighbours' mean CPU use and waiting before the plan, by key
	usedBefore, waitedBefore map[string]float64
	usedWith                 map[string]float64     // CPUs, by neighbours, while before was read
	outsideBefore            float64                // CPUs used outside all containers
	dependedOn               map[string]condition   // by key: what stood when the plan was made
	neededBefore             map[string][]float64   // by key: CPUs, by the latest slices then
	memoryBefore             map[string]memoryMeans // by key
}

// phase is where a trial stands.
type phase uint8

const (
	phaseWith  phase = iota // the change stands, or is on its way
	phaseBack               // it was taken back, to be measured without
	phaseAgain              // it proved itself without, and is on its way once more
)

func (t *openTrial) touches(key string) bool { return t.order.touches(key) }

// subject is the container whose rate judges the plan: the first that changes.
func (t *openTrial) subject() string { return t.order.Changes[0].Key }

// open begins a trial for an order that goes to the actuator now.
func (c *Core) open(o Order, j *job) *openTrial {
	t := &openTrial{order: o, before: append([]trial.Obs(nil), j.obs...), source: j.source, take: o.Changes[0].Take, stolen: c.stolen.usual,
		usedBefore: map[string]float64{}, usedWith: map[string]float64{}, waitedBefore: map[string]float64{}, dependedOn: map[string]condition{}, neededBefore: map[string][]float64{}, memoryBefore: c.memoryMeansNow()}
	for _, ch := range o.Changes {
		t.dependedOn[ch.Key] = c.jobs[ch.Key].condition(c.node)
		t.neededBefore[ch.Key] = slices.Clone(c.jobs[ch.Key].works)
	}
	t.view = view.Trial{Plan: o.Plan, Policy: o.Policy, Changes: o.Changes, StartedUnixNs: c.last.UnixNs, Outcome: view.OutcomeOpen,
		Before: j.rateNow()}
	t.view.Predicted, t.modelled = c.predicted(o, t.subject())
	if ns, before := turn(j, o.Changes[0]); ns > 0 { // what it was is the mean of whole turns, too
		t.turnNs, t.before, t.view.Before = ns, before, meanRate(before)
	}
	if t.sides = c.sides(o); t.sides != nil {
		t.before, t.take = t.together(func(s *side) []trial.Obs { return s.before }), false
		for _, s := range t.sides {
			t.turnNs = max(t.turnNs, s.turnNs)
		}
	}
	for _, key := range c.keys() {
		if !t.touches(key) || t.takesFrom(key) || c.spared(t, key) {
			t.usedBefore[key], t.waitedBefore[key] = c.jobs[key].usedLately(c.now())
			t.usedWith[key], _ = c.jobs[key].mean(t.beganNs(c.now()), c.now())
		}
	}
	t.outsideBefore, _ = meanUse(c.outside, c.now()-10*second, c.now())
	c.trials[o.Plan] = t
	return t
}

// results takes in what the actuator answered.
func (c *Core) results(in Input, d *Decision) {
	for _, r := range in.Results {
		switch r.Kind {
		case ResultApply:
			c.applied(r, d)
		case ResultRollback:
			c.takenBack(r, d)
			c.sightsReturned(r)
		case ResultEnded:
			for _, t := range c.trialsOf(r.Key) {
				c.abandon(t, r.Text, d)
			}
			if j := c.jobs[r.Key]; j != nil {
				j.baseline = 0
				j.resourcesChanged(c.now())
				j.coolDown(c)
			}
		}
	}
}

func (c *Core) applied(r Result, d *Decision) {
	t := c.trials[r.Plan]
	if t == nil {
		c.unjudged(r, d)
		return
	}
	if !r.OK {
		c.notApplied(t, r)
		c.totals.plan(t.order.Policy, "failed")
		c.end(t, view.OutcomeAborted, "not applied: "+r.Text, d)
		return
	}
	if t.phase == phaseAgain {
		c.settleChanged(t)
		c.keepPlan(t, d)
		return
	}
	c.totals.plan(t.order.Policy, "applied")
	t.appliedNs = c.now()
	c.settleChanged(t)
}

// notApplied remembers whom a plan failed on. One that several shared is tried again
// without that one, and that one by itself.
func (c *Core) notApplied(t *openTrial, r Result) {
	j := c.jobs[r.Key]
	switch {
	case j != nil && t.touches(r.Key) && t.onlyGives():
		j.alone = true
	case !r.Refused:
	case j != nil && t.touches(r.Key) && len(t.sides) > 1:
		for _, ch := range t.order.Changes {
			if ch.Key == r.Key && ch.Knob.Family() == "cpu" {
				j.hasFailed(ch.Knob, t.dependedOn[r.Key])
			}
		}
	default:
		c.fail(t)
	}
}

// unjudged takes back what was written for a trial that had ended meanwhile: no
// change stands without a judge (law 7).
func (c *Core) unjudged(r Result, d *Decision) {
	o, known := c.unanswered[r.Plan]
	delete(c.unanswered, r.Plan)
	if known && r.OK {
		d.Rollback = append(d.Rollback, o)
	}
}

// settleChanged notes that an order's containers have other resources now.
func (c *Core) settleChanged(t *openTrial) {
	for _, ch := range t.order.Changes {
		c.changeTimes = append(c.changeTimes, c.now())
		if j := c.jobs[ch.Key]; j != nil {
			if j.baseline == 0 {
				j.baseline, j.baseSource = t.rateBefore(ch.Key), j.source
			}
			j.resourcesChanged(c.now())
		}
	}
}

// judge looks at each open trial that has settled.
func (c *Core) judge(in Input, d *Decision) {
	if in.Frozen != "" { // nothing is judged, so nothing goes back but what bites, and the time does not count
		for _, plan := range slices.Sorted(maps.Keys(c.trials)) {
			c.trials[plan].frozenNs += c.tickNs
			c.escaped(c.trials[plan], d)
		}
		return
	}
	for _, plan := range slices.Sorted(maps.Keys(c.trials)) {
		t := c.trials[plan]
		j := c.jobs[t.subject()]
		if c.held(t) {
			c.abandon(t, "restored and held by hand", d)
			continue
		}
		if t.appliedNs == 0 || t.phase == phaseAgain {
			continue
		}
		if t.phase == phaseBack {
			c.judgeBack(t, d)
			continue
		}
		if c.escaped(t, d) {
			continue
		}
		if who, short := c.crowds(t); short != "" {
			c.rollback(t, view.OutcomeRolledBack, who+": "+short, d)
			continue
		}
		if who, how := c.harmed(t); who != nil {
			c.spare(t, who, how, d)
			continue
		}
		if ofSight(t.order.Changes) {
			c.judgeSight(t, j, d)
			continue
		}
		if t.witness() == policies.WitnessHarm {
			c.judgeHarm(t, j, d)
			continue
		}
		if after := t.after(c, t.appliedNs); !t.earned {
			t.with = append(t.with[:0:0], after...)
			t.note(trial.Judge(c.rules(t), t.before, after, t.look))
			t.view.After = meanRate(t.settled(c, j, t.appliedNs))
			t.earned = t.result.Outcome.Keep()
		}
		c.conclude(t, d)
	}
}

// rules are those of a trial: as many looks as its windows allow in the time that it may take.
func (c *Core) rules(t *openTrial) trial.Params {
	p := trial.DefaultParams(t.take)
	if t.turnNs > 0 {
		p.MaxAfter = max(p.MinAfter, min(p.MaxAfter, int((c.cfg.TrialMaxNs-c.settle(t))/t.turnNs)))
	}
	return p
}

// note takes in a judgement.
func (t *openTrial) note(r trial.Result) {
	t.result, t.look = r, r.Look
	t.view.Ratio, t.view.Low, t.view.High = r.Ratio, r.Low, r.High
}

func (c *Core) conclude(t *openTrial, d *Decision) {
	limit := c.cfg.TrialMaxNs
	if t.take {
		limit = c.cfg.TakeMaxNs
	}
	if t.gaveMemory() {
		limit += fillNs
	}
	lost, proved := c.donors(t)
	t.vain = c.inVain(t)
	switch {
	case t.vain != "":
		c.rollback(t, view.OutcomeInconclusive, c.jobs[t.vain].c.Name+" reads pages again as before, with more memory", d)
	case t.earned && c.now()-t.appliedNs < c.settle(t)+c.guardNs():
		// Neighbours are given time to show a loss before a gain is final.
	case lost != "":
		c.rollback(t, view.OutcomeRolledBack, lost, d)
	case t.earned && !proved && c.now()-t.appliedNs-t.frozenNs <= limit:
		// Nor is it, until those that it takes from have shown that they keep their due.
	case t.earned && !proved:
		c.rollback(t, view.OutcomeInconclusive, "it could not be shown in time that all keep what they are entitled to", d)
	case t.earned && !t.gaveMemory() && c.movedInFavour(t): // pages would go and have to come again
		t.phase = phaseBack
		d.Rollback = append(d.Rollback, t.order)
	case t.earned:
		c.keepPlan(t, d)
	case c.excused(t, d):
		// It has ended.
	case t.result.Outcome == trial.Inferior:
		c.rollback(t, view.OutcomeRolledBack, t.result.Why, d)
	case t.result.Outcome == trial.Inconclusive:
		c.rollback(t, view.OutcomeInconclusive, t.result.Why, d)
	case c.now()-t.appliedNs-t.frozenNs > limit:
		c.rollback(t, view.OutcomeInconclusive, "no answer in time: "+t.result.Why, d)
	}
}

// keepPlan ends a trial that proved its plan.
func (c *Core) keepPlan(t *openTrial, d *Decision) {
	j := c.jobs[t.subject()]
	if t.sides != nil {
		c.learnSides(t)
	} else if t.modelled { // the correction is that of the CPU model
		j.correction = correction.Correct(j.correction, t.view.Predicted, t.view.After)
	}
	c.end(t, view.OutcomeKept, t.result.Why, d)
}

// takenBack goes on with a trial whose change was taken back to be measured without.
func (c *Core) takenBack(r Result, d *Decision) {
	t := c.trials[r.Plan]
	if t == nil || t.phase != phaseBack {
		return
	}
	if !r.OK {
		c.end(t, view.OutcomeAborted, "could not be taken back to be measured without: "+r.Text, d)
		return
	}
	t.aback = c.now()
	c.settleChanged(t)
}

// judgeBack weighs the windows without the change against those with it.
func (c *Core) judgeBack(t *openTrial, d *Decision) {
	if t.aback == 0 {
		return
	}
	r := trial.JudgeABA(c.rules(t), t.before, t.with, t.after(c, t.aback), t.abaLook)
	t.note(r)
	t.abaLook = r.Look
	switch {
	case r.Outcome.Keep():
		t.phase = phaseAgain
		d.Apply = append(d.Apply, t.order)
	case r.Outcome == trial.Inferior, r.Outcome == trial.Inconclusive, c.now()-t.aback-t.frozenNs > c.cfg.TrialMaxNs:
		c.fail(t)
		c.end(t, view.OutcomeInconclusive, "neighbours moved, and without it the rate was much the same: "+r.Why, d)
	}
}

func (c *Core) settle(t *openTrial) int64 {
	if t.take {
		return c.cfg.SettleTakeNs
	}
	return c.cfg.SettleNs
}

// guardNs is how long neighbours are watched at the least.
func (c *Core) guardNs() int64 { return 3 * second }

// settled are the observations after the change took hold.
func (t *openTrial) settled(c *Core, j *job, since int64) []trial.Obs {
	from := since + c.settle(t)
	if t.gaveMemoryTo(j.key) && t.witness() == "" {
		from = c.filledNs(t, j, since)
	}
	if j.source != t.source {
		return nil
	}
	return j.readings(from, t.turnNs)
}

// readings are those of the rate since an instant, compared over a turn.
func (j *job) readings(fromNs, turnNs int64) []trial.Obs {
	i := slices.IndexFunc(j.obs, func(o trial.Obs) bool { return o.StartNs >= fromNs })
	if i < 0 {
		return nil
	}
	return trial.Joined(j.obs[i:], turnNs)
}

// rollback ends a trial and orders its changes undone.
func (c *Core) rollback(t *openTrial, outcome view.Outcome, why string, d *Decision) {
	d.Rollback = append(d.Rollback, t.order)
	c.fail(t)
	c.end(t, outcome, why, d)
}

// fail remembers what a plan that did not earn its place depended on.
func (c *Core) fail(t *openTrial) {
	for _, ch := range t.order.Changes {
		if j := c.jobs[ch.Key]; j != nil {
			switch {
			case ch.Knob.Family() == "memory" && (t.vain == ch.Key || t.vain == "" && !t.onlyGives()):
				j.failMove(c, ch)
			case t.vain != "": // the rest may be tried without
			case t.onlyGives() && !c.sparing(t):
				j.alone = true
			case t.blamed(ch.Key):
				j.hasFailed(ch.Knob, t.dependedOn[ch.Key])
			}
			j.obs, j.pace = nil, nil
		}
	}
}

// end closes a trial, with a record.
func (c *Core) end(t *openTrial, outcome view.Outcome, why string, d *Decision) {
	delete(c.trials, t.order.Plan)
	if t.appliedNs == 0 || t.phase == phaseAgain {
		c.unanswered[t.order.Plan] = t.order
	}
	t.view.Outcome, t.view.EndedUnixNs, t.view.Why = outcome, c.last.UnixNs, why
	c.totals.trial(t.order.Policy, outcome)
	c.judged(t, outcome)
	for _, ch := range t.order.Changes {
		if j := c.jobs[ch.Key]; j != nil && outcome == view.OutcomeKept {
			j.alone, j.spares = false, ""
		}
	}
	told := map[string]bool{}
	for _, ch := range t.order.Changes {
		j := c.jobs[ch.Key]
		if j == nil || told[ch.Key] {
			continue
		}
		told[ch.Key] = true
		v := t.shown(ch.Key)
		j.trials = append([]view.Trial{v}, j.trials[:min(len(j.trials), keepTrials-1)]...)
		j.coolDown(c)
		d.Records = append(d.Records, c.record(view.RecordTrial, j, func(rec *view.Record) {
			rec.Plan, rec.Policy, rec.Knob, rec.From, rec.To = t.order.Plan, t.order.Policy, ch.Knob, ch.From, ch.To
			rec.Outcome, rec.Before, rec.After, rec.Low, rec.High = outcome, v.Before, v.After, v.Low, v.High
			switch {
			case v.Together > 0 && v.Before > 0 && v.After > 0:
				rec.Gain = v.After/v.Before - 1
			case v.Ratio > 0:
				rec.Gain = v.Ratio - 1
			}
			rec.Text = trialText(v)
		}))
	}
}

func trialText(t view.Trial) string {
	what := changesText(t.Changes)
	switch t.Outcome {
	case view.OutcomeKept:
		if t.Changes[0].Witness == policies.WitnessHarm {
			return fmt.Sprintf("%s kept: %s", what, t.Why)
		}
		if t.Together > 0 {
			return fmt.Sprintf("%s kept: rate %.3g → %.3g per second (%.3g predicted; of %d containers in one plan those it gives to gained %.0f %%)",
				what, t.Before, t.After, t.Predicted, t.Together, 100*(t.Ratio-1))
		}
		return fmt.Sprintf("%s kept: rate %.3g → %.3g per second (%+.0f %% measured, %.3g predicted)", what, t.Before, t.After, 100*(t.Ratio-1), t.Predicted)
	case view.OutcomeRolledBack:
		return fmt.Sprintf("%s rolled back: %s", what, t.Why)
	case view.OutcomeInconclusive:
		return fmt.Sprintf("%s rolled back, inconclusive: %s", what, t.Why)
	}
	return fmt.Sprintf("%s: trial ended without outcome: %s", what, t.Why)
}

// changesText names what a plan of one container gave or took; what only goes with a knob, as
// v1's swap with the limit, is not named beside it.
func changesText(changes []policies.Change) string {
	text := changes[0].Knob.Text(changes[0].From, changes[0].To)
	for _, ch := range changes[1:] {
		if ch.Knob != runtime.KnobMemorySwap && ch.Knob != runtime.KnobCPUBurst {
			text += " with " + ch.Knob.Text(ch.From, ch.To)
		}
	}
	return text
}

func (j *job) coolDown(c *Core) {
	wait := c.cfg.CoolDownNs
	if frozenByWrites(j.c.Cgroup) {
		wait *= frozenCoolDowns
	}
	j.cooledNs = c.now() + wait
}

// frozenCoolDowns are the cool-downs between plans for a container that each write stops
// for a moment. Chosen, not measured.
const frozenCoolDowns = 3

// frozenByWrites: runc freezes a container of v1 while it has systemd write its scope.
func frozenByWrites(cg runtime.Cgroup) bool { return strings.HasSuffix(cg.V1["cpu"], ".scope") }

// Open returns the orders whose trials are open, sorted by plan: what of them
// stands, or is about to, has not been proved.
func (c *Core) Open() []Order {
	var out []Order
	for _, plan := range slices.Sorted(maps.Keys(c.trials)) {
		out = append(out, c.trials[plan].order)
	}
	return out
}
