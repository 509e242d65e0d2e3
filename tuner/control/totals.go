package control

import (
	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/state"
)

// totals are counters that outlive containers. Keys are state.Count with Value 0.
type totals struct {
	plans, trials, rejections, teamParts, teamVerdicts map[state.Count]float64
	teams                                              map[string]bool
}

func newTotals() totals {
	counts := func() map[state.Count]float64 { return map[state.Count]float64{} }
	return totals{counts(), counts(), counts(), counts(), counts(), map[string]bool{}}
}

func (t totals) plan(policy, result string) { t.plans[state.Count{Policy: policy, Result: result}]++ }

func (t totals) trial(policy string, o state.Outcome) {
	t.trials[state.Count{Policy: policy, Result: string(o)}]++
}

// maxTeams bounds the teams that are counted apart; labels are hostile input.
const maxTeams = 100

func (t totals) window(team string, v policies.Verdict, b policies.Breakdown) {
	if !t.teams[team] && len(t.teams) >= maxTeams {
		team = "(others)"
	}
	t.teams[team] = true
	t.teamVerdicts[state.Count{Team: team, Class: v.Class, Cause: v.Cause}]++
	for p := range policies.NumParts {
		if b.Ns[p] > 0 {
			t.teamParts[state.Count{Team: team, Part: p.String()}] += float64(b.Ns[p]) / 1e9
		}
	}
}
