package control

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/model"
	"github.com/trimtab/trimtab/tuner/observe"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
	"github.com/trimtab/trimtab/tuner/trial"
	"github.com/trimtab/trimtab/tuner/verdict"
)

const (
	// teachEveryNs is how often one container teaches.
	teachEveryNs = 15 * second
	// teachTicks is the least that a cost must rest on to be remembered.
	teachTicks = 10
	// maxTaken bounds what is told of what was taken over.
	maxTaken = 5
)

// Remember gives the known jobs to begin with; call it before the first Step.
func (c *Controller) Remember(b *profiles.Store) { c.profiles = b }

// Profiles are the known jobs; they change with each Step.
func (c *Controller) Profiles() *profiles.Store { return c.profiles }

// place takes over what the known jobs most like one learned, until its own readings say more.
func (c *Controller) place(s *containerState, p profiles.Print, cost policies.Cost) {
	n := &s.known
	n.similar, n.from = nil, nil
	found, from, ok := c.profiles.Place(p, cost, n.entry)
	if !ok {
		return
	}
	n.similar, n.from = &found, from
	if found.Confidence < c.k().MinConfidence {
		return
	}
	c.beginCurves(s, from[0])
	if s.learned.correction == 1 && found.Correction != 1 && len(s.trials) == 0 {
		s.learned.correction = found.Correction
		n.take(fmt.Sprintf("its predictions, times %.2f", found.Correction))
	}
}

func (n *known) take(what string) {
	n.taken = append(n.taken[max(0, len(n.taken)+1-maxTaken):], what)
}

// recognise looks a container up that starts, by its identity.
func (c *Controller) recognise(s *containerState) {
	s.known.run.Begin(c.profiles, s.c.Start, s.key, profiles.Granted(c.last.Host.Devices, c.granted(s)), c.now())
	if entry := s.known.run.Entry(); entry != 0 {
		c.beginCurves(s, entry)
		s.learned.unsteady = 0
	}
}

// remember keeps what a container's run has come to.
func (c *Controller) remember(s *containerState, ended bool) {
	if s.c.Watched && s.known.run.Due(c.now(), ended) {
		s.known.run.Keep(c.profiles, s.known.entry, s.c.Name, c.sofar(s), c.takesAll(s), c.now(), ended)
	}
}

// sofar is what a container's run has come to.
func (c *Controller) sofar(s *containerState) profiles.End {
	e := profiles.EndOf(&s.obs.Latest, s.learned.paging.Paging, c.last.Host.Devices, s.key)
	e.UnixNs, e.Allowed = c.last.UnixNs, c.allowed(s)
	if e.CPUs, _ = s.enough(c.k()); (e.CPUs == 0 || s.loan.stopped > 0) && s.state == StateSettled && s.lent(c.k()) {
		_, e.CPUs = s.quotas() // also where another process trains since it settled
	}
	own := number(s.original(runtime.KnobMemoryLimit))
	if m := s.memoryUse(c.k()); e.Memory == 0 && own > 0 && m.Limit > own && !m.Fills && m.CalmSeconds >= c.k().SettleReadings {
		e.Memory = max(m.Current, m.Peak)
	}
	return e
}

// takesAll is the CPUs that it may use where that is all that may be lent to it, and none of it went back; else 0.
func (c *Controller) takesAll(s *containerState) float64 {
	if _, now := s.quotas(); s.lent(c.k()) && now >= c.node.MostCPUs(s.c.Enrolment, c.crowds(s))*(1-c.k().MinStep) {
		return now
	}
	return 0
}

// slower takes a reading of the rate into a container's run, and tells once that it is slower than usual.
func (c *Controller) slower(s *containerState, r *observe.RateSample, d *Decision) {
	if _, throttled := s.obs.Throttled(); r == nil && s.c.Watched {
		return
	} else if r == nil || s.plan != "" || throttled {
		s.known.run.Missed() // its quota or a trial bounds it: no pace of its own
	} else if slow := s.known.run.Rate(s.obs.Rates.Source, *r, func() profiles.End { return c.sofar(s) }); slow != nil {
		d.Records = append(d.Records, c.record(state.RecordSlower, s, func(rec *state.Record) { rec.Gain, rec.Text = -slow.Below, slow.String() }))
	}
}

// beginCurves begins a container's curves with those of a known job. They are held loosely, and what
// does not fit them begins anew.
func (c *Controller) beginCurves(s *containerState, from uint64) {
	cpu, memory := c.profiles.Responses(from)
	begin := func(l, known *model.Learner, what string) bool {
		if l.Source != "" || known == nil || s.obs.Rates.Source != "" && known.Source != s.obs.Rates.Source {
			return false
		}
		*l = *known
		l.Cells = slices.Clone(known.Cells)
		s.known.take(what)
		return true
	}
	if begin(&s.learned.response, cpu, "its rate by CPUs") {
		s.learned.curve = s.learned.response.Curve(float64(c.last.Host.CPUs))
	}
	if begin(&s.learned.paging, memory, "its rate by memory") {
		s.learned.byMemory = s.learned.paging.Curve(c.node.Memory)
	}
}

// anotherJob forgets what was known of the job: another may run there now, with what stands.
func (c *Controller) anotherJob(s *containerState, d *Decision) {
	c.abandon(s, "another job runs in it now", d)
	s.obs.Forget()
	s.resourcesChanged(c.now())
	s.known, s.learned, s.failures, s.before = known{run: s.known.run, sinceNs: c.now()}, learned{correction: 1, unsteady: curveKept}, trial.Failures{}, baseline{}
	if own, _ := s.quotas(); s.lent(c.k()) { // whatever runs now, with its owner's quota it would use no more than that
		s.before = baseline{fromNs: c.now(), atNs: c.now(), cpus: own, least: 1}
	}
	s.memory.from, s.memory.before, s.memory.atNs = 0, 0, 0
	s.loan.tooLittle, s.loan.proven, s.retries, s.dealt, s.rights = 0, 0, 0, "", rights{}
	s.loan.brings, s.loan.doubt, s.loan.checkNs, s.loan.with, s.loan.known, s.loan.enough, s.loan.settledNs, s.loan.settledFrom, s.loan.stopped = 0, false, 0, nil, 0, 0, 0, 0, 0
}

// teach places a job by a closed window, and puts what the window says of it among the known
// jobs. What a job does that hangs, is on trial or has just been changed is no measurement.
func (c *Controller) teach(s *containerState, r observe.Reading, d *Decision) {
	n, k := &s.known, c.k()
	if root := profiles.FirstRoot(r); root != 0 && !slices.ContainsFunc(r.Peers, func(p observe.Peer) bool { return p.Root == n.root }) {
		if n.root != 0 { // its training process was started anew
			c.anotherJob(s, d)
		}
		n.root = root
	}
	switch s.verdicts.Latest().Class {
	case policies.ClassIdle, policies.ClassInteractive, policies.ClassUnknown, "":
		return
	}
	n.firstNs = cmp.Or(n.firstNs, c.now())
	p, ok := profiles.Of(r, profiles.FactsOf(s.c.Image, s.key, c.last.Host.Devices))
	if !ok || r.Aggregated || verdict.Unsteady(k, r, c.stolen.Share) != "" {
		return
	}
	// Its first batches also fill the loaders' queues, which makes steps look dearer.
	settled := float64(c.now()-s.obs.ChangedNs())/1e9 >= k.TrialSettle && c.now()-n.firstNs >= teachEveryNs
	if _, doubt := c.against(s, r.Rate); doubt || !settled || s.verdicts.Agreed(k.Agree).Class == "" || r.Cost.Ticks < teachTicks || s.plan != "" {
		if n.similar == nil {
			c.place(s, p, r.Cost)
		}
		return
	}
	if n.taughtNs > 0 && c.now()-n.taughtNs < teachEveryNs {
		return
	}
	n.taughtNs = c.now()
	c.place(s, p, r.Cost)
	cost := r.Cost
	cost.Queue = 0 // its neighbours' doing, and no property of the job
	measured := profiles.Measurement{Name: s.c.Name, UnixNs: c.last.UnixNs, Print: p, Cost: cost,
		Lost: r.Breakdown.Share(policies.PartThrottled) + r.Breakdown.Share(policies.PartInputThrottled)}
	if s.learned.correction != 1 {
		measured.Correction = s.learned.correction
	}
	if learned := s.learned.response.Remembered(); learned.Source != "" {
		measured.Response = &learned
	}
	if learned := s.learned.paging.Remembered(); learned.Source != "" {
		measured.Memory = &learned
	}
	c.profiles.Expire(c.last.UnixNs)
	n.entry = c.profiles.Update(n.entry, measured)
	n.speeds = c.profiles.Speeds(n.entry, p, r.Cost, c.allowed(s), profiles.Models(c.last.Host.Devices))
}

// allowed is the CPUs that a container may use as things stand.
func (c *Controller) allowed(s *containerState) float64 {
	_, quota := s.quotas()
	return min(c.node.MostCPUs(policies.Enrolment{}, c.crowds(s)), cmp.Or(quota, math.Inf(1)))
}

// profileJudged tells the known jobs how a trial ended that rested on them.
func (c *Controller) profileJudged(t *openTrial) {
	kept := t.Result.Outcome == trial.Better
	if !kept && t.Result.Outcome != trial.Worse {
		return
	}
	if len(t.from) > 0 {
		c.profiles.Judge(t.from, kept)
	}
	if s := c.containers[t.order.Changes[0].Key]; s != nil && s.known.entry != 0 {
		c.profiles.Trial(s.known.entry, kept, s.learned.correction)
	}
}

// showSimilar fills in the known jobs most like one, and its speed on other devices.
func (c *Controller) showSimilar(s *containerState, v *state.Container) {
	if s.known.similar != nil {
		v.Similar = &state.Similar{Similar: *s.known.similar, Taken: slices.Clone(s.known.taken)}
	}
	v.LastRuns = s.known.run.Show()
	if here := s.obs.Rates.Now(); here > 0 && s.obs.Rates.Source == v.Rate.Source {
		v.Devices = state.SpeedsOf(s.known.speeds, here, s.verdicts.Latest())
	}
}
