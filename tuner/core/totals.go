package core

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/view"
)

// totals are counters that outlive containers. Keys are view.Count with Value 0.
type totals struct {
	plans, trials, teamParts, teamVerdicts map[view.Count]float64
	teams                                  map[string]bool
}

func newTotals() totals {
	return totals{map[view.Count]float64{}, map[view.Count]float64{}, map[view.Count]float64{}, map[view.Count]float64{}, map[string]bool{}}
}

func (t totals) plan(policy, result string) { t.plans[view.Count{Policy: policy, Result: result}]++ }

func (t totals) trial(policy string, o view.Outcome) {
	t.trials[view.Count{Policy: policy, Result: string(o)}]++
}

// maxTeams bounds the teams that are counted apart; labels are hostile input.
const maxTeams = 100

func (t totals) window(team string, v policies.Verdict, b policies.Breakdown) {
	if !t.teams[team] && len(t.teams) >= maxTeams {
		team = "(others)"
	}
	t.teams[team] = true
	t.teamVerdicts[view.Count{Team: team, Class: v.Class, Cause: v.Cause}]++
	for p := range policies.NumParts {
		if b.Ns[p] > 0 {
			t.teamParts[view.Count{Team: team, Part: p.String()}] += float64(b.Ns[p]) / 1e9
		}
	}
}

func counts(m map[view.Count]float64) []view.Count {
	out := slices.Collect(maps.Keys(m))
	slices.SortFunc(out, func(a, b view.Count) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Team, b.Team), cmp.Compare(a.Class, b.Class),
			cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Part, b.Part), cmp.Compare(a.Result, b.Result))
	})
	for i, k := range out {
		out[i].Value = m[k]
	}
	return out
}

// Show fills the parts of a snapshot that the core knows.
func (c *Core) Show(s *view.Snapshot) {
	s.Node = c.node
	c.showDevices(s)
	s.Totals.Plans, s.Totals.Trials = counts(c.totals.plans), counts(c.totals.trials)
	s.Totals.TeamParts, s.Totals.TeamVerdicts = counts(c.totals.teamParts), counts(c.totals.teamVerdicts)
	s.Containers = make([]view.Container, 0, len(c.jobs))
	for _, j := range c.byName() {
		s.Containers = append(s.Containers, c.show(j.key, j))
	}
}

// byName are all containers, sorted by name: what is shown of one is too large to be
// moved about.
func (c *Core) byName() []*job {
	js := slices.Collect(maps.Values(c.jobs))
	slices.SortFunc(js, func(a, b *job) int { return cmp.Or(cmp.Compare(a.c.Name, b.c.Name), cmp.Compare(a.key, b.key)) })
	return js
}

func (c *Core) show(key string, j *job) view.Container {
	v := view.Container{
		Key: key, ID: j.c.ID.Container, Engine: j.c.ID.Engine, Name: j.c.Name, Image: j.c.Image, State: j.c.State, GPUs: j.c.GPUs,
		Watched: j.c.Watched, Enrolment: j.c.Enrolment, WhyNot: j.whyNot,
		Rate: j.reading.Rate, Baseline: j.baseline, Breakdown: j.reading.Breakdown, Verdict: j.verdict, Cost: j.reading.Cost,
		Ranks: j.reading.Ranks, UsedCPUs: j.used(), Windows: j.windows, PartNs: j.parts, MemoryUse: c.memoryUse(j), Deciders: c.deciders(j),
		Now: j.c.Now, Original: j.originals(), Yielded: j.c.Yielded, Held: j.c.Held, Owed: j.c.Owed, Preflight: j.c.Preflight,
		Entitled: j.entitled, Allocation: c.allocation(key), ByCPUs: j.curve, ByMemory: j.byMemory, Paging: j.paging.Paging,
		Advice: j.advice, Trials: append([]view.Trial(nil), j.trials...),
	}
	c.showSimilar(j, &v)
	if j.reading.CostOK {
		v.Knee = j.reading.Cost.Knee()
		if j.correction != 1 {
			v.Correction = j.correction
		}
	}
	if j.source == v.Rate.Source && len(j.pace) >= shownLeast {
		v.Rate = j.ofShown(v.Rate)
	}
	if len(j.c.Original) > 0 {
		for _, k := range j.c.Now.Sorted() {
			if original, ok := j.c.Original[k]; ok && original != j.c.Now[k] {
				v.Changed = append(v.Changed, k)
			}
		}
	}
	if j.baseline > 0 && j.source == j.baseSource && len(v.Changed) > 0 {
		v.Gain, v.HasGain = v.Rate.PerSecond/j.baseline-1, true
	}
	if open := c.trialsOf(key); len(open) > 0 {
		t := open[0].shown(key)
		v.Trial = &t
	}
	return v
}
