package control

import (
	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/guard"
	"github.com/trimtab/trimtab/tuner/view"
)

// totals are counters that outlive containers. Keys are view.Count with Value 0.
type totals struct {
	plans, trials, rejections, teamParts, teamVerdicts map[view.Count]float64
	teams                                              map[string]bool
}

func newTotals() totals {
	counts := func() map[view.Count]float64 { return map[view.Count]float64{} }
	return totals{counts(), counts(), counts(), counts(), counts(), map[string]bool{}}
}

func (t totals) plan(policy, result string) { t.plans[view.Count{Policy: policy, Result: result}]++ }

func (t totals) trial(policy string, o view.Outcome) {
	t.trials[view.Count{Policy: policy, Result: string(o)}]++
}

func (t totals) rejection(g guard.Gate) { t.rejections[view.Count{Result: string(g)}]++ }

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
