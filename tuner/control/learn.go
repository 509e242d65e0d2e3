package control

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/model"
	"github.com/trimtab/trimtab/tuner/observe"
	"github.com/trimtab/trimtab/tuner/state"
	"github.com/trimtab/trimtab/tuner/verdict"
)

// closed takes in a full window: what bounds the job, and what it teaches.
func (c *Controller) closed(s *containerState, r *observe.Reading, d *Decision) {
	k := c.k()
	c.neighbourhood(s, r)
	v := verdict.Owned(k, verdict.Judge(k, *r), *r, s.rights.entitled)
	if s.verdicts.Add(v, r.Window.EndNs) {
		d.Records = append(d.Records, c.record(state.RecordVerdict, s, func(rec *state.Record) { rec.Text = fmt.Sprintf("%s; %s", verdict.Name(v), v.Why) }))
	}
	for p := range policies.NumParts {
		s.parts[p] += r.Breakdown.Ns[p]
	}
	c.totals.window(s.c.Enrolment.Team, v, r.Breakdown)
	c.teach(s, *r, d) // what known jobs learned comes before its own first reading
	c.learnCurve(s, *r)
	c.learnPaging(s, *r)
}

// curveKept is how many windows that cannot be planned on a curve outlives: what a job
// would make of CPUs is not forgotten for an evaluation.
const curveKept = 5

// learnCurve takes a closed window into the container's response curve.
func (c *Controller) learnCurve(s *containerState, r observe.Reading) {
	l := &s.learned
	if verdict.Unsteady(c.k(), r, c.stolen.Share) != "" || r.Aggregated {
		l.unsteady++
		return
	}
	if l.unsteady = 0; r.Rate.PerSecond <= 0 {
		return
	}
	b, had := r.Breakdown, float64(c.last.Host.CPUs)
	if quota, limited := s.c.Now[runtime.KnobCPUQuota].CPUs(); limited {
		had = min(had, quota)
	}
	if b.Share(policies.PartContended)+b.Share(policies.PartInputContended) >= c.k().Notable {
		had = min(had, r.Window.UsedCPUs()) // others stood before it: it had what it used
	}
	cost := r.Cost
	cost.Queue = 0 // behind others: what the curve is to say is what it would do without
	l.response.Learn(model.Seen{X: had, Rate: r.Rate.PerSecond, Source: r.Rate.Source, Cost: cost})
	l.curve = l.response.Curve(float64(c.last.Host.CPUs))
}

// learnPaging takes a closed window into the container's curve by memory: what it did under
// a limit that evicts what it reads again, or what it used where nothing was evicted.
// Without a limit page cache grows as it likes, and while a limit fills, or data is read
// for the first time, the rate says nothing of what memory buys.
func (c *Controller) learnPaging(s *containerState, r observe.Reading) {
	k, w := c.k(), r.Window
	limit, limited := s.c.Now[runtime.KnobMemoryLimit].Int()
	if !limited || limit <= 0 || !w.HasCgroup || w.Seconds() <= 0 || verdict.Unsteady(k, r, c.stolen.Share) != "" || !(r.Rate.PerSecond > 0) || r.Aggregated {
		return
	}
	use := s.memoryUse(k)
	seen := model.Seen{Rate: r.Rate.PerSecond, Source: r.Rate.Source}
	tick := 1 / r.Rate.PerSecond
	switch lost := use.Evicted(s.verdicts.Latest(), r.Breakdown); {
	case use.Evicts(k):
		seen.X, seen.Paging = use.Limit, policies.Paging{Base: tick * (1 - lost), Lost: tick * lost, Limit: use.Limit, Set: use.Limit * 2}
	case use.Calm(k) && !use.Fills && r.Breakdown.Share(policies.PartInputStorage) < k.Notable:
		seen.X, seen.Paging = use.Current, policies.Paging{Base: tick, Limit: use.Current, Set: use.Current, Enough: true}
	default:
		return
	}
	s.learned.paging.Learn(seen)
	s.learned.byMemory = s.learned.paging.Curve(c.node.Memory)
}

// neighbourhood adds to a reading what only the node knows: who else works on its
// devices, and which container of the same job keeps it waiting.
func (c *Controller) neighbourhood(s *containerState, r *observe.Reading) {
	s.noteGPUs(r.Window)
	for _, d := range r.Window.Devices {
		for _, key := range d.Holders {
			other := c.containers[key]
			if other != nil && other.obs.LaunchedNs >= r.Window.StartNs && !slices.Contains(r.SharedWith, other.c.Name) {
				r.SharedWith = append(r.SharedWith, other.c.Name)
			}
		}
	}
	slices.Sort(r.SharedWith)
	var job []verdict.Peer
	for _, o := range c.all {
		if o != s && s.c.Enrolment.Job != "" && o.c.Enrolment.Job == s.c.Enrolment.Job && o.steps(c.now()) {
			job = append(job, verdict.Peer{Key: o.key, Name: o.c.Name, Reading: o.obs.Latest, Verdict: o.verdicts.Latest()})
		}
	}
	verdict.Among(c.k(), r, s.key, job)
}

// freshNs is how old a peer's window may be to be compared with.
const freshNs = 15 * second

// steps reports whether the container's latest window shows a rank that steps.
func (s *containerState) steps(nowNs int64) bool {
	r := s.obs.Latest
	return r.Window != nil && nowNs-r.Window.EndNs <= freshNs && r.Ranks > 0 && r.Rate.Ticks >= 2
}
