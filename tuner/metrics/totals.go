package metrics

import (
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/guard"
	"github.com/trimtab/trimtab/tuner/state"
)

// totals renders the counters that outlive containers.
func (e *emitter) totals(s *state.Snapshot) {
	e.zeros(s.Daemon.Policies)
	t := s.Totals
	for _, c := range t.Plans {
		e.set(nPlans, c.Value, clean(c.Policy), clean(c.Result))
	}
	for _, c := range t.Changes {
		e.set(nChanges, c.Value, clean(c.Policy), clean(string(c.Knob)), clean(c.Result))
	}
	for _, c := range t.Trials {
		e.set(nTrials, c.Value, clean(c.Policy), clean(c.Result))
	}
	for _, c := range t.Rejections {
		e.set(nRejections, c.Value, clean(c.Result))
	}
	e.set(nLentSeconds, t.LentSeconds)
	for _, c := range t.Restores {
		e.set(nRestores, c.Value, clean(c.Result))
	}
	for _, c := range t.TeamParts {
		e.set(nTeamBreakdown, c.Value, e.c.team(c.Team), clean(c.Part))
	}
	for _, c := range t.TeamVerdicts {
		e.set(nTeamWindows, c.Value, e.c.team(c.Team), clean(string(c.Class)), clean(string(c.Cause)))
	}
	for _, c := range t.TeamGPUHeld {
		e.set(nTeamHeld, c.Value, e.c.team(c.Team))
	}
	for _, c := range t.TeamGPUIdle {
		e.set(nTeamHeldIdle, c.Value, e.c.team(c.Team))
	}
	e.uses(t)
	e.set(nForeign, float64(t.ForeignWrites))
	e.set(nGPULost, float64(t.GPUAccessLost))
	for _, c := range t.GPURepairs {
		e.set(nGPURepairs, c.Value, clean(c.Result))
	}
	e.apply = t.ApplySeconds
}

// uses renders what devices and CPUs were held for. A cause has all its terms from the first, at
// 0 too: increase() does not see the first event of a series that begins with it.
func (e *emitter) uses(t state.Totals) {
	e.set(nObserved, t.ObservedSeconds)
	for _, u := range t.TeamUse {
		labels := []string{e.c.team(u.Team), clean(u.Resource), clean(u.Cause)}
		e.set(nTeamUse, u.Held, labels...)
		for _, term := range []struct {
			name  string
			value float64
		}{{nTeamAction, u.Actionable}, {nTeamProven, u.Proven}, {nTeamSaved, u.Saved}, {nTeamTried, u.Tried}, {nTeamLost, u.Lost}} {
			e.set(term.name, term.value, labels...)
		}
	}
	for _, c := range t.TeamLent {
		e.set(nTeamLent, c.Value, e.c.team(c.Team))
	}
}

// zeros starts the series of the policy in force at 0: increase() does not see
// the first event of a series that begins with it.
func (e *emitter) zeros(policies []string) {
	for _, policy := range policies {
		policy = clean(policy)
		for _, result := range []string{"applied", "would", "failed"} {
			e.set(nPlans, 0, policy, result)
		}
		for _, knob := range runtime.Knobs() {
			for _, result := range []string{"applied", "refused", "unavailable", "yielded"} {
				e.set(nChanges, 0, policy, string(knob), result)
			}
		}
		for _, outcome := range []state.Outcome{state.OutcomeKept, state.OutcomeRolledBack, state.OutcomeInconclusive, state.OutcomeUnproven, state.OutcomeAborted} {
			e.set(nTrials, 0, policy, string(outcome))
		}
	}
	for _, g := range guard.Gates() {
		e.set(nRejections, 0, string(g))
	}
	for _, result := range []string{"repaired", "failed", "left"} {
		e.set(nGPURepairs, 0, result)
	}
	for _, result := range []string{"restored", "yielded", "pending", "gone", "failed"} {
		e.set(nRestores, 0, result)
	}
}
