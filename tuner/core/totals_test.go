package core

import (
	"fmt"
	"testing"

	"github.com/trimtab/trimtab/policies"
)

// TestTeamsKeepTheirCounters: teams that come after the hundredth are counted together,
// and the first ones go on.
func TestTeamsKeepTheirCounters(t *testing.T) {
	all := newTotals()
	for round := range 2 {
		for i := range 2 * maxTeams {
			all.window(fmt.Sprintf("team%03d", i), policies.Verdict{Class: policies.ClassBalanced}, policies.Breakdown{})
		}
		got := map[string]float64{}
		for _, c := range counts(all.teamVerdicts) {
			got[c.Team] = c.Value
		}
		if n := float64(round + 1); got["team000"] != n || got["team099"] != n || got["(others)"] != maxTeams*n || len(got) != maxTeams+1 {
			t.Errorf("round %d: first %v, hundredth %v, others %v, %d teams", round, got["team000"], got["team099"], got["(others)"], len(got))
		}
	}
}
