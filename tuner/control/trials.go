package control

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/allocate"
	"github.com/trimtab/trimtab/tuner/model"
	"github.com/trimtab/trimtab/tuner/observe"
	"github.com/trimtab/trimtab/tuner/state"
	"github.com/trimtab/trimtab/tuner/trial"
)

// openTrial is a plan from its order to its outcome.
type openTrial struct {
	*trial.Trial
	order   Order
	view    state.Trial
	answers int // orders that the actuator has not answered
	// by is what each receiver's progress is read from, and references its level before.
	by         map[string]progress
	references map[string]float64
	on         map[string]trial.Conditions // by container: what its change depended on
	surround   surroundings
	from       []uint64 // known jobs that the plan was taken from
	harmed     bool     // it ends since somebody lacked CPU under it
}

// surroundings are what a trial's rates depend on besides its plan.
type surroundings struct {
	room  float64 // CPUs that all others together do not want
	own   float64 // CPUs used by the plan's containers
	steal float64 // share of the machine's CPU time that its hypervisor took
}

func (c *Controller) surroundings(o Order) surroundings {
	s := surroundings{room: c.node.CPUs - c.node.HostCPUs, steal: c.stolen.Share}
	for i, x := range c.all {
		if o.touches(x.key) {
			s.own += x.obs.Used()
		} else {
			s.room -= c.parties[i].Wants
		}
	}
	s.room = max(0, s.room)
	return s
}

// void says what changed around a plan by more than the effect that is sought; "" if nothing
// did. A trial that goes back and forth bears what comes and goes; this is for what does not.
// Who is pushed aside by the plan wants as much as before, and makes no room.
func (s surroundings) void(k *policies.Constants, now surroundings) string {
	switch room := now.room - s.room; {
	case math.Abs(now.steal-s.steal) > k.MaxSteal:
		return fmt.Sprintf("the hypervisor takes %.0f %% of the machine's CPU time, %.0f before", 100*now.steal, 100*s.steal)
	case s.room < s.own && room > k.Moved*max(s.own, now.own):
		return fmt.Sprintf("others made room for %.2f CPUs meanwhile", room)
	}
	return ""
}

// receivers are the containers that a plan gives to, or all where it only takes.
func (t *openTrial) receivers() (keys []string) {
	for _, taking := range []bool{false, true} {
		for _, ch := range t.order.Changes {
			if ch.Take == taking && ch.Knob != runtime.KnobMemorySwap && !slices.Contains(keys, ch.Key) {
				keys = append(keys, ch.Key)
			}
		}
		if len(keys) > 0 {
			return keys
		}
	}
	return keys
}

// open begins a trial for an order that goes to the actuator now.
func (c *Controller) open(o Order) *openTrial {
	t := &openTrial{order: o, answers: 1, by: map[string]progress{}, references: map[string]float64{}, on: map[string]trial.Conditions{}, surround: c.surroundings(o)}
	first := o.Changes[0]
	var receivers []*containerState
	for _, key := range t.receivers() {
		receivers = append(receivers, c.containers[key])
	}
	from := c.baselineFrom(receivers...)
	for _, s := range receivers {
		t.by[s.key] = s.progressSince(c.k(), from)
		t.references[s.key] = observe.MeanRate(t.by[s.key].samples(s, from))
	}
	for _, ch := range o.Changes {
		s := c.containers[ch.Key]
		if _, ok := t.on[ch.Key]; !ok { // the swap limit that goes with a memory limit is not what is tried
			t.on[ch.Key] = c.conditions(s, ch.Knob, ch.From)
		}
		s.plan = o.Plan
		s.on(EventOpened)
		c.noteBefore(s)
	}
	t.Trial = trial.New(criterion(first), c.samplesOf(t, from))
	s := c.containers[first.Key]
	t.from = slices.Clone(s.known.from)
	t.view = state.Trial{Plan: o.Plan, Policy: o.Policy, Changes: o.Changes, StartedUnixNs: c.last.UnixNs, Outcome: state.OutcomeOpen, Before: s.obs.Rates.Now(), Predicted: first.RateAfter}
	if len(t.on) > 1 {
		t.view.Together = len(t.on)
	}
	c.trials[o.Plan] = t
	return t
}

// criterion is what judges a change.
func criterion(ch policies.Change) trial.Criterion {
	if ch.Criterion == policies.CriterionNoHarm {
		return trial.NoHarm{Seen: ch.Take}
	}
	return trial.Progress{Decrease: ch.Take}
}

// samplesOf is the progress of a plan's receivers together since an instant: the mean of their
// rates, each over its own level before.
func (c *Controller) samplesOf(t *openTrial, fromNs int64) []observe.RateSample {
	keys := t.receivers()
	var series [][]observe.RateSample
	for _, key := range keys {
		s := c.containers[key]
		if s == nil || t.references[key] <= 0 {
			return nil
		}
		series = append(series, over(t.by[key].samples(s, fromNs), t.references[key]))
	}
	return trial.Together(series)
}

// over are rates over a level.
func over(samples []observe.RateSample, level float64) []observe.RateSample {
	out := slices.Clone(samples)
	for i := range out {
		out[i].Rate /= level
	}
	return out
}

// seenNs is when progress of each of a plan's receivers was last seen.
func (c *Controller) seenNs(t *openTrial) int64 {
	seen := c.now()
	for key, by := range t.by {
		if s := c.containers[key]; s != nil {
			seen = min(seen, by.seenNs(s))
		}
	}
	return seen
}

// conditions are what a change of a knob depends on now. A weight that a loan moved counts as its
// owner's: loans come and go, and what failed did not fail for them.
func (c *Controller) conditions(s *containerState, k runtime.Knob, value runtime.Value) trial.Conditions {
	if k == runtime.KnobCPUWeight && !s.isDealt() {
		value = s.original(k)
	}
	switch k.Family() {
	case "memory":
		return memoryConditions(s.memoryUse(c.k()), value)
	case "gpu":
		return trial.Conditions{Value: value}
	}
	return trial.Conditions{Value: value, Need: s.obs.Latest.Cost.Knee(), Others: c.node.CPUs + c.node.OtherCPUs + c.node.HostCPUs}
}

// memoryConditions are what a change of a memory limit depends on. What others hold says not whether more helps.
func memoryConditions(m policies.MemoryUse, limit runtime.Value) trial.Conditions {
	return trial.Conditions{Value: limit, Need: m.Held + m.Reread}
}

// stepTrials judges each open trial.
func (c *Controller) stepTrials(in Input, d *Decision) {
	k := c.k()
	for _, plan := range slices.Sorted(maps.Keys(c.trials)) {
		t := c.trials[plan]
		if s := c.containers[t.order.Changes[0].Key]; s != nil && t.order.IsVisibility() && t.SinceNs > 0 && s.notOurs() != "" { // whatever is frozen
			t.Abandon(s.notOurs())
			c.end(t, d)
			continue
		}
		if slices.ContainsFunc(t.order.Changes, func(ch policies.Change) bool { s := c.containers[ch.Key]; return s != nil && s.answers > 0 }) {
			continue // a loan of it is called in: what stands is known once that is written
		}
		why := c.disturbed(t)
		if in.Frozen != "" || why == "" && slices.ContainsFunc(t.order.Changes, func(ch policies.Change) bool { return c.containers[ch.Key].obs.Stopped() }) { // nothing is judged but harm, and the time does not count
			t.FrozenNs += c.tickNs
			if why := c.harm(t); why != "" && t.SinceNs > 0 {
				t.Result, t.harmed = trial.Result{Outcome: trial.Worse, Why: why}, !t.order.IsVisibility()
				c.end(t, d)
			}
			continue
		}
		if why != "" {
			t.Abandon(why)
			c.end(t, d)
			continue
		}
		if t.SinceNs == 0 {
			continue
		}
		s := c.containers[t.order.Changes[0].Key]
		e := trial.Evidence{NowNs: c.now(), Samples: c.samplesOf(t, t.SinceNs), SeenNs: c.seenNs(t), Harm: c.harm(t)}
		t.harmed = e.Harm != "" && !t.order.IsVisibility()
		if t.With() {
			t.view.After = s.obs.Rates.Now()
		}
		action := t.Step(k, e)
		if t.Result.Ratio > 0 {
			t.view.Ratio, t.view.Low, t.view.High = t.Result.Ratio, t.Result.Low, t.Result.High
		}
		switch action {
		case trial.Switch:
			c.switchTo(t, d)
		case trial.End:
			c.end(t, d)
		}
	}
}

// disturbed says what voids a trial; "" if nothing does.
func (c *Controller) disturbed(t *openTrial) string {
	for _, ch := range t.order.Changes {
		s := c.containers[ch.Key]
		switch {
		case s == nil:
			return "the container ended"
		case s.c.Held:
			return "restored and held by hand"
		case ch.Knob != runtime.KnobCPUQuota && !t.order.IsVisibility() && c.loanIsDue(s):
			return "its quota stops it though CPUs are idle: it is lent some"
		case t.by[ch.Key].source != "" && t.by[ch.Key].sound == nil && s.obs.Rates.Source != t.by[ch.Key].source:
			return "its steps are counted another way now"
		}
	}
	return t.surround.void(c.k(), c.surroundings(t.order))
}

// loanIsDue: its quota stops a container while CPUs are idle. What nobody uses needs no trial, and
// none keeps it from the container.
func (c *Controller) loanIsDue(s *containerState) bool {
	k, e, i := c.k(), s.c.Enrolment, slices.Index(c.all, s)
	_, now := s.quotas()
	_, throttled := s.obs.Throttled()
	return throttled && e.Loans != policies.LoansOff && e.Loans != policies.LoansProven && e.Allows(runtime.KnobCPUQuota) && !slices.Contains(s.c.Yielded, runtime.KnobCPUQuota) &&
		c.node.Idle-c.node.Reserve >= max(k.ActiveCPUs, k.MinStep*now) && c.node.MostCPUs(e, c.crowds(s)) > now*(1+k.MinStep) && !c.urgent(s) && !c.short() && c.barred(i).Text == ""
}

// harm says who is short of what is theirs under a plan; "" if nobody is.
func (c *Controller) harm(t *openTrial) string {
	if !t.With() || c.now()-t.SinceNs < second {
		return ""
	}
	if t.order.IsVisibility() {
		if ch := t.order.Changes[0]; ch.Take {
			return c.missed(c.containers[ch.Key])
		}
		return ""
	}
	for i, s := range c.all {
		given := slices.ContainsFunc(t.order.Changes, func(ch policies.Change) bool { return ch.Key == s.key && !ch.Take })
		if p := c.parties[i]; !given && allocate.Short(c.k(), p, c.rights.Grants[i].Due) > 0 {
			return fmt.Sprintf("%s gets %.2f of the %.2f CPUs it has a right to", s.c.Name, p.Used, c.rights.Grants[i].Due)
		}
	}
	return ""
}

// switchTo orders what a trial's next block needs.
func (c *Controller) switchTo(t *openTrial, d *Decision) {
	t.answers++
	if t.With() {
		d.Apply = append(d.Apply, t.order)
		return
	}
	d.Rollback = append(d.Rollback, t.order)
}

// abandon ends a container's open trial without a verdict, and reports whether there was one.
func (c *Controller) abandon(s *containerState, why string, d *Decision) bool {
	t := c.trials[s.plan]
	if t != nil {
		t.Abandon(why)
		c.end(t, d)
	}
	return t != nil
}

// end closes a trial: what did not prove itself goes back.
func (c *Controller) end(t *openTrial, d *Decision) {
	delete(c.trials, t.order.Plan)
	if t.answers > 0 && t.SinceNs == 0 {
		c.unanswered[t.order.Plan] = t.order
		c.expect(t.order, 1)
	}
	outcome, stands := t.Result.Outcome, c.harmless(t)
	if outcome != trial.Better && !stands && t.With() && t.SinceNs > 0 {
		d.Rollback = append(d.Rollback, t.order)
	}
	judged := map[trial.Outcome]state.Outcome{trial.Better: state.OutcomeKept, trial.Worse: state.OutcomeRolledBack, trial.Inconclusive: state.OutcomeInconclusive}
	if t.view.Outcome = cmp.Or(judged[outcome], state.OutcomeAborted); stands {
		t.view.Outcome = state.OutcomeUnproven
		c.containers[t.order.Changes[0].Key].unproven = &t.order
	}
	t.view.EndedUnixNs, t.view.Why = c.last.UnixNs, t.Result.Why
	c.totals.trial(t.order.Policy, t.view.Outcome)
	for _, key := range slices.Sorted(maps.Keys(t.on)) {
		if s := c.containers[key]; s != nil {
			c.ended(t, s, outcome)
			c.tellTrial(t, s, d)
		}
	}
	c.profileJudged(t) // with the correction that this trial taught
}

// harmless: an inconclusive trial may leave its change, since it only gives, nobody waits
// for what it gives, and the host does not ask for a proof.
func (c *Controller) harmless(t *openTrial) bool {
	if t.Result.Outcome != trial.Inconclusive || !t.With() || t.SinceNs == 0 || t.order.IsVisibility() {
		return false
	}
	for _, ch := range t.order.Changes {
		s := c.containers[ch.Key]
		if s == nil || ch.Take || s.c.Enrolment.Loans == policies.LoansProven && ch.Knob != runtime.KnobCPUWeight ||
			ch.Knob.Family() == "memory" && c.node.MemoryFree < 0 {
			return false
		}
	}
	return !slices.ContainsFunc(c.all, func(s *containerState) bool { return !t.order.touches(s.key) && c.waits(s) >= c.k().RightMargin })
}

// proven is a container's quota that a trial proved, or is about to; 0: none.
func (c *Controller) proven(s *containerState) float64 {
	if t := c.trials[s.plan]; t != nil {
		if ch, ok := t.change(s.key); ok && ch.Knob == runtime.KnobCPUQuota && !ch.Take {
			return ch.To.Quantity()
		}
	}
	return s.loan.proven
}

// askAgain reverts what stands without a proof once its container may be tried again.
func (c *Controller) askAgain(d *Decision) {
	for _, s := range c.all {
		switch o := s.unproven; {
		case o == nil || s.c.Held || s.plan != "" || !stands(s, o):
			s.unproven = nil
		case c.now() >= s.coolNs && !s.c.Busy && !d.reverts(s.key):
			s.unproven, o.Why = nil, "it was not told whether it helps: it is asked again"
			c.revert(*o, o.Plan, d)
			s.coolNs = c.now() + int64(c.k().TrialBaseline*1e9)
		}
	}
}

// stands reports whether an order's changes of a container stand.
func stands(s *containerState, o *Order) bool {
	return !slices.ContainsFunc(o.Changes, func(ch policies.Change) bool { return ch.Key == s.key && !ch.Knob.Same(ch.To, s.c.Now[ch.Knob]) })
}

// ended notes on one container how its trial ended.
func (c *Controller) ended(t *openTrial, s *containerState, outcome trial.Outcome) {
	k := c.k()
	s.plan = ""
	s.on(EventJudged)
	if ch, _ := t.change(s.key); ch.Knob == runtime.KnobCPUWeight && (t.view.Outcome == state.OutcomeKept || t.view.Outcome == state.OutcomeUnproven) {
		s.dealt = ch.To
	}
	wait := k.CoolSeconds
	if s.c.Cgroup.StoppedByWrites() {
		wait *= 3 // each write stops it for a moment
	}
	if ch, _ := t.change(s.key); t.harmed && ch.Knob == runtime.KnobCPUQuota && !ch.Take { // others lacked what it was given: whether it is of use is not known
		outcome = trial.Inconclusive
	}
	switch outcome {
	case trial.Better:
		s.retries = 0
		if ch, ok := t.change(s.key); ok && ch.Knob == runtime.KnobCPUQuota && !ch.Take {
			s.loan.proven = ch.To.Quantity()
		}
		if ch, ok := t.change(s.key); ok && ch.Knob.Family() == "cpu" && len(t.on) == 1 && t.view.After > 0 {
			s.learned.correction = model.Correct(s.learned.correction, ch.RateAfter, t.view.After)
		}
		if t.order.IsVisibility() && t.order.Changes[0].Take {
			s.gpu.hide = &keptHide{plan: t.order.Plan, since: c.now(), before: t.Blocks[0].Samples, reference: t.references[s.key], by: t.by[s.key], on: t.on[s.key]}
		}
	case trial.Worse:
		for _, ch := range t.order.Changes {
			if ch.Key == s.key && ch.Knob != runtime.KnobMemorySwap {
				s.failures.Add(ch.Knob, ch.Take, t.on[s.key])
			}
		}
	default: // it may be tried again, later each time
		wait *= math.Pow(2, float64(min(s.retries, int(k.BackOffMax))))
		s.retries++
	}
	s.coolNs = c.now() + int64(wait*1e9)
}

func (t *openTrial) change(key string) (policies.Change, bool) {
	for _, ch := range t.order.Changes {
		if ch.Key == key {
			return ch, true
		}
	}
	return policies.Change{}, false
}

// shown is the trial as one of its containers sees it.
func (t *openTrial) shown(key string) state.Trial {
	v := t.view
	v.Unit = t.by[key].unit
	if v.Together > 0 {
		v.Changes = slices.DeleteFunc(slices.Clone(v.Changes), func(ch policies.Change) bool { return ch.Key != key })
		ch, _ := t.change(key)
		if v.Predicted = ch.RateAfter; key != t.order.Changes[0].Key { // whose rates the view holds
			v.Before, v.After = t.references[key], 0
		}
	}
	return v
}

const keepTrials = 10

func (c *Controller) tellTrial(t *openTrial, s *containerState, d *Decision) {
	v := t.shown(s.key)
	s.trials = append([]state.Trial{v}, s.trials[:min(len(s.trials), keepTrials-1)]...)
	d.Records = append(d.Records, c.record(state.RecordTrial, s, func(rec *state.Record) {
		first := v.Changes[0]
		rec.Plan, rec.Policy, rec.Knob, rec.From, rec.To = t.order.Plan, t.order.Policy, first.Knob, first.From, first.To
		rec.Outcome, rec.Before, rec.After, rec.Unit, rec.Low, rec.High = v.Outcome, v.Before, v.After, v.Unit, v.Low, v.High
		if v.Ratio > 0 {
			rec.Gain = v.Ratio - 1
		}
		rec.Text = trialText(v)
	}))
}

func trialText(t state.Trial) string {
	became := map[state.Outcome]string{state.OutcomeKept: " kept", state.OutcomeRolledBack: " reverted", state.OutcomeInconclusive: " reverted, not told",
		state.OutcomeUnproven: " stands, not told, and nobody lacks it"}[t.Outcome]
	return changesText(t.Changes) + cmp.Or(became, ": the trial is void") + ": " + t.Why
}

// changesText names what a plan of one container gave or took; what only goes with a knob, as
// v1's swap with the limit, is not named beside it.
func changesText(changes []policies.Change) string {
	text := changes[0].Knob.Text(changes[0].From, changes[0].To)
	for _, ch := range changes[1:] {
		if ch.Knob != runtime.KnobMemorySwap {
			text += " with " + ch.Knob.Text(ch.From, ch.To)
		}
	}
	return text
}

// Open returns the orders whose trials are open, sorted by plan: what of them stands, or is
// about to, has not been proved.
func (c *Controller) Open() []Order {
	var out []Order
	for _, plan := range slices.Sorted(maps.Keys(c.trials)) {
		out = append(out, c.trials[plan].order)
	}
	return out
}
