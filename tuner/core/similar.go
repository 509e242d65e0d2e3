package core

import (
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/fingerprint"
	"github.com/trimtab/trimtab/tuner/response"
	"github.com/trimtab/trimtab/tuner/trial"
	"github.com/trimtab/trimtab/tuner/verdict"
	"github.com/trimtab/trimtab/tuner/view"
	"github.com/trimtab/trimtab/tuner/window"
)

// likeness is what the core keeps of one container beside the known jobs.
type likeness struct {
	// early is the stretch since the rate was first seen; its reading serves until the job's
	// own windows are good, which ends it.
	early   window.Builder
	sinceNs int64
	ticking bool // it begins with the framework's first tick
	over    bool
	reading window.Reading
	verdict policies.Verdict

	known    *policies.Similar // what the known jobs most like it say
	from     []uint64          // their entries
	misled   bool              // a first allocation taken from them failed
	root     int32             // the first of its training processes
	entry    uint64            // what it teaches
	taughtNs int64
	firstNs  int64    // when its steps were first seen
	taken    []string // what was taken over from known jobs, for people
	device   string   // its model
	speeds   []fingerprint.Speed
}

const (
	// earlyNs bounds the early stretch: a job that cannot be measured for so long is not new.
	earlyNs = 60 * second
	// teachEveryNs is how often one container teaches.
	teachEveryNs = 15 * second
	// teachTicks is the least that a cost must rest on to be remembered.
	teachTicks = 10
	// correctAt is the confidence in a known job from which its correction is taken over.
	correctAt = 0.5
	// maxTaken bounds what is told of what was taken over.
	maxTaken = 5
	// maxModels bounds the models of device that a node tells apart.
	maxModels = 8
)

// Remember gives the core the known jobs to begin with; call it before the first Step.
func (c *Core) Remember(b *fingerprint.Book) { c.book = b }

// Book is what the core knows; it changes with each Step.
func (c *Core) Book() *fingerprint.Book { return c.book }

// lookEarly reads a job from its first ticks on, and places it among the known ones.
func (c *Core) lookEarly(j *job, slice *window.Window) {
	l := &j.like
	if l.over || !j.c.Watched || c.book.Len() == 0 {
		return
	}
	if j.source == "" { // what it does before its first steps is no part of their cost
		if !l.ticking && len(slice.Ticks) == 0 {
			return
		}
		if w := l.early.Add(slice); !l.ticking && len(w.Ticks) > 0 || w.EndNs-w.StartNs > firstTicksNs {
			l.early.Cut()
			l.ticking = len(w.Ticks) > 0
		}
		return
	}
	if l.sinceNs == 0 {
		l.sinceNs = c.now()
	}
	if c.own(j) || c.now()-l.sinceNs > earlyNs {
		l.over, l.early, l.reading = true, window.Builder{}, window.Reading{}
		return
	}
	w := l.early.Add(slice).Apart() // what is read of it is kept
	if w.StealShare > c.thresholds().Steal {
		l.early.Cut() // a robbed stretch is no evidence
		return
	}
	r := window.Read(w, j.perStep)
	p, ok := fingerprint.Of(r, c.facts(j))
	if !ok {
		return
	}
	l.reading, l.verdict = r, verdict.Judge(c.thresholds(), r)
	c.place(j, p, r.Cost)
}

// own reports whether the job's own measurement is good enough to decide on.
func (c *Core) own(j *job) bool {
	return j.agree >= c.cfg.Agree && verdict.Steady(c.thresholds(), j.reading) && j.verdict.Confidence >= 0.5
}

// place looks for the known jobs most like one, and takes over what they learned of
// predictions until its own trials say more.
func (c *Core) place(j *job, p fingerprint.Print, cost policies.Cost) {
	l := &j.like
	l.known, l.from, l.device = nil, nil, p.Device
	s, from, ok := c.book.Place(p, cost, l.entry)
	if !ok {
		return
	}
	l.known, l.from = &s, from
	c.recallCurves(j, s, from)
	if s.Confidence >= correctAt && j.correction == 1 && s.Correction != 1 && len(j.trials) == 0 {
		j.correction = s.Correction
		l.taken = append(l.taken, fmt.Sprintf("its predictions, times %.2f", s.Correction))
	}
}

// earlyFor reports whether the known jobs speak for a job now: the policy wants
// them to, they are like enough, and its own measurement is not good yet.
func (c *Core) earlyFor(j *job) bool {
	p, wants := c.policy.(policies.EarlyPolicy)
	return wants && !j.like.over && !j.urgent && j.like.known != nil && j.like.known.Confidence >= p.EarlyConfidence() &&
		verdict.Steady(c.thresholds(), j.like.reading)
}

// asEarly fills in what a policy sees of the known jobs.
func (c *Core) asEarly(j *job, p *policies.Job) {
	p.Similar = j.like.known
	if !c.earlyFor(j) {
		return
	}
	r := j.like.reading
	p.Early, p.Verdict, p.Breakdown, p.Cost, p.CostOK = true, j.like.verdict, r.Breakdown, r.Cost, true
	if p.Rate = r.Rate; r.Rate.Source == j.source && len(j.obs) >= shownLeast {
		p.Rate = j.ofNow(p.Rate)
	}
}

// rateSource is the source of the rate that a plan for the job is made in.
func (c *Core) rateSource(j *job) string {
	if c.earlyFor(j) {
		return j.like.reading.Rate.Source
	}
	return j.reading.Rate.Source
}

// facts are what a window does not hold of a container.
func (c *Core) facts(j *job) fingerprint.Facts {
	f := fingerprint.Facts{Image: j.c.Image}
	for _, d := range c.last.Host.Devices {
		held := false
		for _, p := range d.Processes {
			if p.Container == j.key && !p.Graphics {
				held, f.VRAM = true, f.VRAM+float64(p.MemBytes)
			}
		}
		switch {
		case !held || d.Name == f.Device:
		case f.Device == "":
			f.Device = d.Name
		default:
			f.Device += " and " + d.Name
		}
	}
	return f
}

// teach puts what a closed window says of a job into the book. What a job does that
// hangs, is on trial or has just been changed is no lesson.
func (c *Core) teach(j *job, r window.Reading) {
	l := &j.like
	if root := firstRoot(r); root != 0 && !slices.ContainsFunc(r.Peers, func(p window.Peer) bool { return p.Root == l.root }) {
		if l.root != 0 { // its training process was started anew: it may be another job now
			*l, j.response, j.curve, j.correction = likeness{}, response.Learner{}, policies.Curve{}, 1
			j.paging, j.byMemory = response.Learner{}, policies.Curve{}
		}
		l.root = root
	}
	switch j.verdict.Class {
	case policies.ClassIdle, policies.ClassInteractive, policies.ClassUnknown, "":
		return
	}
	// Its first batches also fill the loaders' queues, which makes steps look dearer.
	settled := c.now()-j.changedNs >= c.cfg.SettleNs && c.now()-l.firstNs >= teachEveryNs
	if !c.own(j) || !settled || r.Cost.Ticks < teachTicks || len(c.trialsOf(j.key)) > 0 || l.taughtNs > 0 && c.now()-l.taughtNs < teachEveryNs {
		return
	}
	p, ok := fingerprint.Of(r, c.facts(j))
	if !ok {
		return
	}
	l.taughtNs = c.now()
	c.place(j, p, r.Cost)
	cost := r.Cost
	cost.Queue = 0 // its neighbours' doing, and no property of the job
	lesson := fingerprint.Lesson{Misled: l.misled, Name: j.c.Name, UnixNs: c.last.UnixNs, Print: p, Cost: cost,
		Lost: r.Breakdown.Share(policies.PartThrottled) + r.Breakdown.Share(policies.PartInputThrottled)}
	if j.correction != 1 {
		lesson.Correction = j.correction
	}
	if learned := j.response.Remembered(); learned.Source != "" {
		lesson.Response = &learned
	}
	if learned := j.paging.Remembered(); learned.Source != "" {
		lesson.Memory = &learned
	}
	c.book.Expire(c.last.UnixNs)
	l.entry = c.book.Teach(l.entry, lesson)
	l.speeds = c.book.Speeds(p, r.Cost, c.allowed(j), c.models())
}

func firstRoot(r window.Reading) int32 {
	var root int32
	for i, p := range r.Peers {
		if i == 0 || p.Root < root {
			root = p.Root
		}
	}
	return root
}

// allowed is the CPUs that a container may use as things stand.
func (c *Core) allowed(j *job) float64 {
	cpus := c.node.CPUs - c.node.Reserve
	if quota, ok := j.c.Now[runtime.KnobCPUQuota].CPUs(); ok {
		cpus = min(cpus, quota)
	}
	return cpus
}

// models are those of the node's usable devices, sorted.
func (c *Core) models() []string {
	sliced := map[string]bool{}
	for _, d := range c.last.Host.Devices {
		sliced[d.Parent] = true
	}
	found := map[string]bool{}
	for _, d := range c.last.Host.Devices {
		if d.Lost == "" && d.Name != "" && !sliced[d.UUID] {
			found[d.Name] = true
		}
	}
	out := slices.Sorted(maps.Keys(found))
	return out[:min(len(out), maxModels)]
}

// judged tells the book how a trial ended. A trial that ended for the neighbours'
// sake says nothing of the prediction, and one without outcome says nothing at all.
func (c *Core) judged(t *openTrial, outcome view.Outcome) {
	kept := outcome == view.OutcomeKept
	if !kept && (outcome == view.OutcomeAborted || t.result.Outcome != trial.Inferior && t.result.Outcome != trial.Inconclusive) {
		return
	}
	if len(t.from) > 0 {
		c.book.Judge(t.from, kept)
		if j := c.jobs[t.subject()]; j != nil && !kept {
			j.like.misled = true
		}
	}
	if j := c.jobs[t.subject()]; j != nil && j.like.entry != 0 {
		correction := 0.0
		if kept {
			correction = j.correction
		}
		c.book.Trial(j.like.entry, kept, correction)
	}
}

// showSimilar fills in the known jobs most like one, and its speed on other devices.
func (c *Core) showSimilar(j *job, v *view.Container) {
	l := &j.like
	if l.known != nil {
		v.Similar = &view.Similar{Similar: *l.known, Taken: slices.Clone(l.taken)}
	}
	if len(l.speeds) == 0 {
		return
	}
	here := j.rateNow()
	if here <= 0 || j.source != v.Rate.Source {
		return
	}
	bound := !deviceBound(j.verdict)
	for _, s := range l.speeds {
		v.Devices = append(v.Devices, view.DeviceSpeed{Model: s.Device, PerSecond: s.PerSecond, Ratio: s.PerSecond / here, HostBound: bound || s.HostBound})
	}
}

// deviceBound: bottleneck before speed. Only a job whose device is what bounds it
// would gain by a faster one.
func deviceBound(v policies.Verdict) bool {
	return v.Class == policies.ClassCompute && (v.Cause == policies.CauseDevice || v.Cause == policies.CauseShared || v.Cause == policies.CauseClocks)
}
