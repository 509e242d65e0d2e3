package control

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/observe"
	"github.com/trimtab/trimtab/tuner/state"
	"github.com/trimtab/trimtab/tuner/verdict"
)

// Show fills the parts of a snapshot that the control step knows.
func (c *Controller) Show(s *state.Snapshot) {
	s.Node = c.node
	c.showDevices(s)
	s.Totals.Plans, s.Totals.Trials, s.Totals.Rejections = state.Counts(c.totals.plans), state.Counts(c.totals.trials), state.Counts(c.totals.rejections)
	s.Totals.TeamParts, s.Totals.TeamVerdicts = state.Counts(c.totals.teamParts), state.Counts(c.totals.teamVerdicts)
	order := make([]int, len(c.all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(c.all[a].c.Name, c.all[b].c.Name), cmp.Compare(c.all[a].key, c.all[b].key))
	})
	s.Containers = make([]state.Container, 0, len(c.all))
	for _, i := range order {
		s.Containers = append(s.Containers, c.show(i))
	}
}

func (c *Controller) show(i int) state.Container {
	s, k, r := c.all[i], c.k(), &c.all[i].obs.Latest
	v := state.Container{
		Key: s.key, ID: s.c.ID.Container, Engine: s.c.ID.Engine, Name: s.c.Name, Image: s.c.Image, State: s.c.State, GPUs: s.c.GPUs,
		Watched: s.c.Watched, Enrolment: s.c.Enrolment, WhyNot: s.refused.Text, Gate: string(s.refused.Gate), Value: s.refused.Value, Threshold: s.refused.Threshold,
		Tuning: string(s.state), Loan: c.showLoan(s), Breakdown: r.Breakdown, Verdict: s.verdicts.Shown(), WindowVerdict: s.verdicts.Latest(), Cost: verdict.Cost(k, *r), Aggregated: r.Aggregated,
		Ranks: r.Ranks, UsedCPUs: s.obs.Used(), QueuedCPUs: s.obs.Mean(func(u observe.Use) float64 { return u.Queued }), Windows: s.obs.Windows, PartNs: s.parts, MemoryUse: s.memoryUse(k), Deciders: whose(s),
		Now: s.c.Now, Original: s.originals(), Yielded: s.c.Yielded, Held: s.c.Held, Pending: s.c.Pending, Preflight: s.c.Preflight,
		Entitled: s.rights.entitled, Obtainable: s.rights.obtainable, Allocation: c.allocation(i), ByCPUs: s.learned.curve, ByMemory: s.learned.byMemory, Paging: s.learned.paging.Paging,
		Advice: s.advice, Trials: slices.Clone(s.trials), Team: verdict.TeamOf(r), SharedBytes: verdict.SharedBytes(r), NetworkMount: verdict.NetworkMount(r), Pauses: s.obs.Work.Pauses.Seen(), Staging: verdict.StagingOf(r),
	}
	v.VerdictSinceUnixNs, v.PeakCPUs, v.PeakSinceUnixNs = c.unix(s.verdicts.SinceNs()), s.obs.PeakCPUs, c.unix(s.obs.PeakNs)
	v.Rate, v.RateWhy = c.showRate(s)
	c.showSimilar(s, &v)
	if v.Bursts = s.loan.stopped; v.Bursts > 0 { // a knee is made of means
		v.Verdict, v.WindowVerdict = verdict.WithoutKnee(v.Verdict), verdict.WithoutKnee(v.WindowVerdict)
	} else if r.CostOK {
		v.Knee = min(v.Cost.Knee(), max(c.node.CPUs, 0))
		if s.learned.correction != 1 {
			v.Correction = s.learned.correction
		}
	}
	for _, knob := range s.c.Now.Sorted() {
		if original, ok := s.c.Original[knob]; ok && original != s.c.Now[knob] {
			v.Changed = append(v.Changed, knob)
		}
	}
	c.showGain(s, &v)
	if t := c.trials[s.plan]; t != nil {
		shown := t.shown(s.key)
		v.Trial = &shown
	}
	return v
}

// unix is an instant of CLOCK_MONOTONIC by the wall clock; 0 stays 0: not known.
func (c *Controller) unix(monoNs int64) int64 {
	if monoNs == 0 {
		return 0
	}
	return c.last.UnixNs - (c.now() - monoNs)
}

// showRate is the rate that people see, or why there is none. Of a source of which it is not
// confirmed that a tick is a step no rate of steps is shown.
func (c *Controller) showRate(s *containerState) (policies.Rate, string) {
	r, samples, why := s.obs.Latest.Rate, s.obs.Rates.Display(), ""
	if !observe.Counted(r.Source) {
		r.Steps, why = false, uncounted
	}
	switch {
	case s.obs.Rates.Why != "" || len(samples) == 0 && r.PerSecond <= 0:
		return policies.Rate{}, cmp.Or(s.obs.Rates.Why, uncounted)
	case len(samples) == 0 || s.obs.Rates.Source != r.Source:
		return r, why
	}
	r.PerSecond, r.Ticks = observe.MeanRate(samples), 0
	for _, x := range samples {
		from, to := x.Span()
		r.Ticks += x.Rate * float64(to-from) / 1e9
	}
	r.FromNs, _ = samples[0].Span()
	_, r.ToNs = samples[len(samples)-1].Span()
	return r, why
}

// uncounted is why a rate is not to be shown to people.
const uncounted = "its steps are not counted"

// showGain tells what became of a container since trimtab's first change: by its counted
// rate, else by its relative witnesses, else by the CPU that it uses. What is missing is never zero.
func (c *Controller) showGain(s *containerState, v *state.Container) {
	b := s.before
	switch {
	case len(v.Changed) == 0 || b.atNs == 0:
		return
	case observe.Counted(b.source):
		v.Baseline = b.rate
	}
	if v.Baseline > 0 && b.source == v.Rate.Source && v.Rate.PerSecond > 0 {
		v.Gain, v.HasGain = v.Rate.PerSecond/b.rate-1, true
	}
	if v.Work, v.Doubt = c.against(s, v.Rate); !v.HasGain {
		v.Work = s.work(c.k(), 0)
	}
	v.Verdict = verdict.Doubted(v.Verdict, v.Doubt)
}

// against is the work done in the time of a rate that the job itself counts, nil where nothing tells, and whether it contradicts that.
func (c *Controller) against(s *containerState, r policies.Rate) (w *state.Work, contradicts bool) {
	b := s.before
	if b.atNs == 0 || b.rate <= 0 || !probes.Claimed(b.source) || b.source != r.Source || r.PerSecond <= 0 || r.FromNs < s.obs.ChangedNs() {
		return nil, false
	}
	w = s.work(c.k(), r.FromNs)
	return w, w.Contradicts(r.PerSecond/b.rate-1, c.k().WitnessSpread)
}

// work is what relative witnesses, or the use of CPU, say of a container over before: of late, or since an instant.
func (s *containerState) work(k *policies.Constants, fromNs int64) *state.Work {
	b, w := s.before, &state.Work{}
	if b.cpus > 0 {
		w.CPUs = max(b.least, s.obs.Worked()/b.cpus)
	}
	if sound := s.obs.Work.Sound(k, b.fromNs, b.atNs); len(sound) > 0 {
		all := s.obs.Work.Series(sound, s.obs.Work.Level(b.fromNs), b.fromNs)
		before, after := until(all, b.atNs), all[max(0, len(all)-int(k.SettleReadings)):]
		if fromNs > 0 {
			after = s.obs.Work.Series(sound, s.obs.Work.Level(b.fromNs), fromNs)
		}
		if x := observe.MeanRate(before); x > 0 && float64(len(before)) >= k.TrialBlock {
			w.Ratio, w.By = observe.MeanRate(after)/x, observe.Names(sound)
		}
	}
	return w
}

// allocation is a container's part in the plan of the node.
func (c *Controller) allocation(i int) *state.Allocation {
	s := c.all[i]
	if i >= len(c.rights.Grants) || !s.c.Watched || s.c.Enrolment.Mode != policies.ModeTune {
		return nil
	}
	p, g := c.parties[i], c.rights.Grants[i]
	need, bound := p.Demand, ""
	if !s.learned.curve.Known() || s.learned.unsteady >= curveKept { // each of its threads for itself
		need = max(need, min(s.obs.Used()+s.obs.Mean(func(u observe.Use) float64 { return u.Queued }), c.node.CPUs-c.node.HostCPUs))
	}
	if g.Quota > 0 && g.Quota < need { // more might buy it something
		need, bound = g.Quota, " under its quota"
	}
	a := &state.Allocation{Need: need, CPUs: min(need, g.Obtainable)}
	if curve := s.learned.curve; curve.Known() && s.loan.stopped == 0 {
		rate, _, _ := curve.At(a.CPUs)
		a.Rate = rate / curve.Best()
	}
	switch {
	case !p.Active:
		a.Why = "it uses next to no CPU"
	case g.Quota > p.OwnQuota && p.OwnQuota > 0:
		lent, tried := c.above(s, g.Quota)
		a.Why = fmt.Sprintf("it is entitled to %.2f CPUs", g.Right)
		if lent > (g.Quota-lent)*c.k().MinStep/2 { // systemd rounds up
			a.Why += fmt.Sprintf(", and was lent %.2f that nobody used", lent)
		}
		if tried > 0 {
			a.Why += fmt.Sprintf(", and a trial gave it %.2f more", tried)
		}
	case c.node.CPUs-c.node.HostCPUs <= min(1.01*need, 0.99*g.Right):
		a.Why = fmt.Sprintf("it is entitled to %.2f CPUs, and the host's own processes leave all containers %.2f", g.Right, max(0, c.node.CPUs-c.node.HostCPUs))
	default:
		a.Why = fmt.Sprintf("it can use %.2f CPUs%s and is entitled to %.2f", need, bound, g.Right)
	}
	return a
}
