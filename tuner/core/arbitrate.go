package core

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/arbiter"
	"github.com/trimtab/trimtab/tuner/response"
	"github.com/trimtab/trimtab/tuner/verdict"
	"github.com/trimtab/trimtab/tuner/view"
	"github.com/trimtab/trimtab/tuner/window"
)

// arbiterName is the policy of changes that no policy asked for: weights dealt anew.
const arbiterName = "arbiter"

// params are the arbiter's, as configured.
func (c *Core) params() arbiter.Params {
	p := arbiter.Defaults()
	if c.cfg.Objective != "" {
		p.Objective = c.cfg.Objective
	}
	p.MaxChanges = c.cfg.ChangesPerMinute
	return p
}

// claims are all containers as the arbiter sees them, in the order of their keys.
func (c *Core) claims() []arbiter.Claim {
	parent := c.arena()
	out := make([]arbiter.Claim, 0, len(c.jobs))
	for _, key := range c.keys() {
		j := c.jobs[key]
		e := j.c.Enrolment
		cl := arbiter.Claim{Key: key, Name: j.c.Name, Enrolled: e.Mode == policies.ModeTune, Active: j.active(), Importance: e.Importance,
			Floor: e.CPU.Min, Ceiling: e.CPU.Max, OwnWeight: j.originalWeight(), Weight: j.originalWeight(), Used: j.used(), GPUs: j.gpusUsed(c.now())}
		cl.OwnQuota, _ = j.original(runtime.KnobCPUQuota).CPUs()
		cl.Quota, _ = j.c.Now[runtime.KnobCPUQuota].CPUs()
		if w, ok := j.c.Now[runtime.KnobCPUWeight].Int(); ok && w > 0 {
			cl.Weight = float64(w)
		}
		if _, cl.Waiting = j.mean(c.now()-10*second, c.now()); !j.hasPSI() && cl.Weight < cl.OwnWeight {
			cl.Waiting = 1 // it may, for all that can be told
		}
		if j.unsteady < curveKept {
			cl.CPU = j.curve
		}
		cl.Returnable = cl.Enrolled && c.fixed(c.last, j) == "" && len(c.trialsOf(key)) == 0 && !j.c.Busy && !slices.Contains(j.c.Yielded, runtime.KnobCPUWeight)
		cl.Movable = cl.Returnable && !j.urgent && j.unsteady == 0 && cl.CPU.Known() && c.now() >= j.dealtAgainNs && !c.failedAlready(j, runtime.KnobCPUWeight) && c.notNow(c.last, j) == "" && e.Allows(runtime.KnobCPUWeight) && j.arena() == parent && j.c.Now[runtime.KnobCPUWeight] != ""
		out = append(out, cl)
	}
	return out
}

// curveKept is how many windows that cannot be planned on a curve outlives: what a job
// would make of CPUs is not forgotten for an evaluation.
const curveKept = 5

// arena is the control group below which a container's weight counts: weights compare
// among siblings alone.
func (j *job) arena() string { return path.Dir(j.c.Cgroup.Dir("cpu")) }

// arena is where most of the active containers are; only there weights are dealt.
func (c *Core) arena() string {
	count, best := map[string]int{}, ""
	for _, key := range c.keys() {
		if j := c.jobs[key]; j.active() {
			a := j.arena()
			count[a]++
			if count[a] > count[best] || count[a] == count[best] && a < best {
				best = a
			}
		}
	}
	return best
}

// gpusKeptNs is how long a job that runs no kernel keeps the right that its devices give
// it: a checkpoint or an evaluation on the CPU is no change of what it is.
const gpusKeptNs = 120 * second

// usedShare is the share of a window in which a device must have worked for a container to
// be one that it uses: a context alone makes none work.
const usedShare = 0.01

// noteGPUs notes which of its devices a container used in a closed window: by the driver's
// shares of its processes, else by the device's activity; where neither is told it counts.
func (j *job) noteGPUs(w *window.Window) {
	for _, d := range w.Devices {
		if d.SMReadings > 0 && d.Own < usedShare || d.SMReadings == 0 && d.Samples > 0 && d.Duty < usedShare {
			continue
		}
		if j.gpuNs == nil {
			j.gpuNs = map[string]int64{}
		}
		j.gpuNs[d.UUID] = w.EndNs
	}
}

// gpusUsed counts the devices on which the container lately ran kernels.
func (j *job) gpusUsed(nowNs int64) float64 {
	if j.launchedNs == 0 || nowNs-j.launchedNs > gpusKeptNs {
		return 0
	}
	maps.DeleteFunc(j.gpuNs, func(_ string, ns int64) bool { return nowNs-ns > gpusKeptNs })
	return max(1, float64(len(j.gpuNs)))
}

// learnCurve takes a closed window into the container's response curve.
func (c *Core) learnCurve(j *job, r window.Reading) {
	if !verdict.Steady(c.thresholds(), r) {
		j.unsteady++
		return
	}
	if j.unsteady = 0; r.Rate.PerSecond <= 0 {
		return
	}
	b, had := r.Breakdown, float64(c.last.Host.CPUs)
	if quota, limited := j.c.Now[runtime.KnobCPUQuota].CPUs(); limited {
		had = min(had, quota)
	}
	if b.Share(policies.PartContended)+b.Share(policies.PartInputContended) >= c.cfg.Thresholds.Input {
		had = min(had, r.Window.UsedCPUs()) // others stood before it: it had what it used
	}
	cost := r.Cost
	cost.Queue = 0 // behind others: what the curve is to say is what it would do without
	j.response.Learn(response.Seen{X: had, Rate: r.Rate.PerSecond, Source: r.Rate.Source, Cost: cost})
	j.curve = j.response.Curve(float64(c.last.Host.CPUs))
}

// recallCurves begins a container's curves with those of the known job most like it. They
// are held loosely, and what does not fit them begins anew.
func (c *Core) recallCurves(j *job, s policies.Similar, from []uint64) {
	if s.Confidence < correctAt || len(from) == 0 {
		return
	}
	cpu, memory := c.book.Responses(from[0])
	recall := func(l, known *response.Learner, what string) bool {
		if l.Source != "" || known == nil || j.source != "" && known.Source != j.source {
			return false
		}
		*l = *known
		l.Cells = slices.Clone(known.Cells)
		j.like.taken = append(j.like.taken, what)
		return true
	}
	if recall(&j.response, cpu, "its rate by CPUs") {
		j.curve = j.response.Curve(float64(c.last.Host.CPUs))
	}
	if recall(&j.paging, memory, "its rate by memory") {
		j.byMemory = j.paging.Curve(c.node.Memory)
	}
}

// Responses are what was learnt of each container's rate by CPUs, by key.
func (c *Core) Responses() map[string]response.Learner {
	out := make(map[string]response.Learner, len(c.jobs))
	for key, j := range c.jobs {
		if j.response.Source != "" {
			out[key] = j.response
		}
	}
	return out
}

// arbitrate makes one plan of what policies want of the CPUs and of memory and what the
// weights could do. Plans of containers that are only observed stay their own, and so do
// those of other knobs, those that take, and those of containers that failed a plan they
// shared. What protects goes first.
func (c *Core) arbitrate(plans []policies.Plan, d *Decision) []policies.Plan {
	var out, others, wants []policies.Plan
	for _, p := range c.dealMemory(plans) {
		switch {
		case len(p.Changes) == 0 || c.jobs[p.Changes[0].Key] == nil:
		case c.jobs[p.Changes[0].Key].c.Enrolment.Mode != policies.ModeTune, p.Changes[0].Witness != "" && !p.Changes[0].Take:
			out = append(out, p)
		case !gives(p):
			others = append(others, p)
		case c.alone(p):
			others = append(others, c.passing(p))
		default:
			wants = append(wants, c.passing(p))
		}
	}
	claims := c.claims()
	at := map[string]int{}
	for i, cl := range claims {
		at[cl.Key] = i
	}
	for _, p := range wants {
		for _, ch := range p.Changes {
			if to, ok := ch.To.CPUs(); ok && ch.Knob == runtime.KnobCPUQuota {
				claims[at[ch.Key]].Want = to
			}
			if givesMemory(ch) {
				claims[at[ch.Key]].Beside = c.shareOfMemory(ch) * c.node.CPUs
			}
		}
	}
	c.deal = arbiter.Decide(c.params(), c.node, claims)
	if !c.deal.Release {
		c.releasing = 0
	} else if c.releasing++; c.releasing >= releaseTicks {
		c.release(claims, d)
		return out
	}
	if !c.gathered(wants) {
		return append(out, others...)
	}
	one := c.merge(wants, claims, at)
	if one.Changes = c.choose(one.Changes, claims); len(one.Changes) > 0 {
		out = append(out, one)
	}
	return append(out, others...)
}

// gives reports whether a plan only gives, and only CPU by quota or weight and memory by
// its limit: such plans go together. A raise that had to wait for a quota's trial would
// wait for what it itself makes cheaper: pages read again cost CPU.
func gives(p policies.Plan) bool {
	return !slices.ContainsFunc(p.Changes, func(ch policies.Change) bool {
		switch ch.Knob {
		case runtime.KnobCPUQuota, runtime.KnobCPUWeight, runtime.KnobMemoryLimit, runtime.KnobMemorySwap:
			return ch.Take || ch.Witness != ""
		}
		return true
	})
}

// passing is what of a want may be by the guard on its own, so that what may not does
// not keep the others waiting; why not is told of its container.
func (c *Core) passing(p policies.Plan) policies.Plan {
	var may []policies.Change
	for _, ch := range p.Changes {
		j := c.jobs[ch.Key]
		if j == nil {
			continue
		}
		bounded, why := c.bound(j, ch)
		if why == "" {
			why = c.ready(j, beside(p, bounded))
		}
		if why != "" {
			j.whyNot = why
			continue
		}
		may = append(may, bounded)
	}
	p.Changes = may
	return p
}

// merge joins wants into one plan; what each will gain is corrected by what it will get
// beside the others.
func (c *Core) merge(wants []policies.Plan, claims []arbiter.Claim, at map[string]int) policies.Plan {
	one := policies.Plan{Policy: arbiterName}
	for _, p := range wants {
		for _, ch := range p.Changes {
			j, g := c.jobs[ch.Key], c.deal.Grants[at[ch.Key]]
			if to, ok := ch.To.CPUs(); ok && len(wants) > 1 && g.CPUs < to {
				best, _, _ := claims[at[ch.Key]].CPU.At(to)
				gets, _, _ := claims[at[ch.Key]].CPU.At(g.CPUs)
				if rate := j.rateNow(); best > 0 && rate > 0 {
					ch.RateAfter = min(ch.RateAfter, max(rate, ch.RateAfter*gets/best))
					ch.Gain = min(ch.Gain, ch.RateAfter/rate-1)
				}
			}
			if len(wants) > 1 && ch.Gain < arbiter.Defaults().MinGain {
				j.whyNot = "nothing to gain beside what others are given"
				continue
			}
			one.Policy = p.Policy
			one.Changes = append(one.Changes, ch)
		}
	}
	return one
}

// steering are the changes of weights that the arbiter asks for; none unless all of
// them may be: half of a deal is no deal.
func (c *Core) steering(claims []arbiter.Claim) []policies.Change {
	var out []policies.Change
	for i, g := range c.deal.Grants {
		cl := claims[i]
		if g.Weight == cl.Weight {
			continue
		}
		j := c.jobs[g.Key]
		to := math.Round(min(g.Weight, c.node.MaxWeight))
		rate := j.rateNow()
		ch := policies.Change{Key: g.Key, Name: cl.Name, Knob: runtime.KnobCPUWeight, From: j.c.Now[runtime.KnobCPUWeight], To: runtime.IntValue(int64(to)),
			Take: to < cl.Weight, RateAfter: rate, Reason: fmt.Sprintf("%s; together those that compete gain %.0f %%", g.Why(), 100*c.deal.Gain)}
		if g.RateNow > 0 {
			ch.RateAfter = rate * g.Rate / g.RateNow
			ch.Gain = g.Rate/g.RateNow - 1
		}
		bounded, why := c.bound(j, ch)
		if why == "" {
			why = c.ready(j, bounded)
		}
		if why != "" {
			j.whyNot = why
			return nil
		}
		out = append(out, bounded)
	}
	return out
}

// releaseTicks is for how many ticks in a row somebody must lose by a deal before it is
// undone: one is noise, and every deal undone is dealt again.
const releaseTicks = 3

// maxReleases bounds how often the time doubles until a weight is dealt again;
// forgottenNs after the latest it begins anew.
const (
	maxReleases = 6
	forgottenNs = 600 * second
)

// undealt notes that a container's weight went back: the next deal waits twice as long.
func (j *job) undealt(c *Core) {
	if j.releases > 0 && c.now() > j.dealtAgainNs+forgottenNs {
		j.releases = 0
	}
	j.dealtAgainNs = c.now() + c.cfg.CoolDownNs<<j.releases
	j.releases = min(j.releases+1, maxReleases)
}

// release gives weights back, without a trial, where somebody gets less by them than it
// has a right to. While a trial is open on them, that is its own to find (harmed).
func (c *Core) release(claims []arbiter.Claim, d *Decision) {
	o := Order{Policy: arbiterName, Why: "given back: " + c.deal.Why}
	for i, g := range c.deal.Grants {
		j := c.jobs[g.Key]
		if cl := claims[i]; g.Weight != cl.Weight {
			o.Changes = append(o.Changes, policies.Change{Key: g.Key, Name: cl.Name, Knob: runtime.KnobCPUWeight, From: j.original(runtime.KnobCPUWeight),
				To: j.c.Now[runtime.KnobCPUWeight], Reason: c.deal.Why})
			j.whyNot = "its weight goes back: " + c.deal.Why
			j.coolDown(c)
			j.undealt(c)
		}
	}
	if len(o.Changes) > 0 {
		o.Plan = c.planID()
		d.Rollback = append(d.Rollback, o)
	}
}

// allocation is a container's part in the plan of the node.
func (c *Core) allocation(key string) *view.Allocation {
	j, g := c.jobs[key], c.grant(key)
	if g.Key == "" || !j.c.Watched || j.c.Enrolment.Mode != policies.ModeTune {
		return nil
	}
	return &view.Allocation{Need: g.Need, CPUs: g.CPUs, Rate: g.Rate, Why: g.Why()}
}

// grant is what the latest plan of the node holds for a container; grants are in the
// order of keys.
func (c *Core) grant(key string) arbiter.Grant {
	i, ok := slices.BinarySearchFunc(c.deal.Grants, key, func(g arbiter.Grant, key string) int { return cmp.Compare(g.Key, key) })
	if !ok {
		return arbiter.Grant{}
	}
	return c.deal.Grants[i]
}
