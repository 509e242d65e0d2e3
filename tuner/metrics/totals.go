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
	e.counts("trimtab_plans_total", t.Plans)
	e.counts("trimtab_changes_total", t.Changes)
	e.counts("trimtab_trials_total", t.Trials)
	e.counts("trimtab_rejections_total", t.Rejections)
	e.set("trimtab_lent_cpu_seconds_total", t.LentSeconds)
	e.counts("trimtab_restores_total", t.Restores)
	e.counts("trimtab_team_breakdown_seconds_total", t.TeamParts)
	e.counts("trimtab_team_verdict_windows_total", t.TeamVerdicts)
	e.counts("trimtab_team_gpu_held_seconds_total", t.TeamGPUHeld)
	e.counts("trimtab_team_gpu_held_idle_seconds_total", t.TeamGPUIdle)
	e.uses(t)
	e.set("trimtab_foreign_writes_total", float64(t.ForeignWrites))
	e.set("trimtab_gpu_access_lost_total", float64(t.GPUAccessLost))
	e.counts("trimtab_gpu_access_repairs_total", t.GPURepairs)
	e.apply = t.ApplySeconds
}

// counts renders counters by the labels that their family has.
func (e *emitter) counts(name string, all []state.Count) {
	for _, c := range all {
		texts := map[string]string{"policy": c.Policy, "knob": string(c.Knob), "class": string(c.Class), "cause": string(c.Cause), "part": c.Part, "result": c.Result, "gate": c.Result}
		var labels []string
		for _, label := range e.c.families[name].Labels {
			if label == "team" {
				labels = append(labels, e.c.team(c.Team))
			} else {
				labels = append(labels, clean(texts[label]))
			}
		}
		e.set(name, c.Value, labels...)
	}
}

// uses renders what devices and CPUs were held for. A cause has all its terms from the first, at
// 0 too: increase() does not see the first event of a series that begins with it.
func (e *emitter) uses(t state.Totals) {
	e.set("trimtab_observed_seconds_total", t.ObservedSeconds)
	for _, u := range t.TeamUse {
		labels := []string{e.c.team(u.Team), clean(u.Resource), clean(u.Cause)}
		e.set("trimtab_team_held_seconds_total", u.Held, labels...)
		for _, term := range []struct {
			name  string
			value float64
		}{{"trimtab_team_actionable_seconds_total", u.Actionable}, {"trimtab_team_proven_seconds_total", u.Proven}, {"trimtab_team_saved_seconds_total", u.Saved}, {"trimtab_team_trial_seconds_total", u.Tried}, {"trimtab_team_trial_lost_seconds_total", u.Lost}} {
			e.set(term.name, term.value, labels...)
		}
	}
	e.counts("trimtab_team_lent_cpu_seconds_total", t.TeamLent)
	e.counts("trimtab_team_given_cpu_seconds_total", t.TeamGiven)
}

// zeros starts the series of the policy in force at 0: increase() does not see
// the first event of a series that begins with it.
func (e *emitter) zeros(policies []string) {
	for _, policy := range policies {
		policy = clean(policy)
		for _, result := range []string{"applied", "would", "failed"} {
			e.set("trimtab_plans_total", 0, policy, result)
		}
		for _, knob := range runtime.Knobs() {
			for _, result := range []string{"applied", "refused", "unavailable", "yielded"} {
				e.set("trimtab_changes_total", 0, policy, string(knob), result)
			}
		}
		for _, outcome := range []state.Outcome{state.OutcomeKept, state.OutcomeRolledBack, state.OutcomeInconclusive, state.OutcomeUnproven, state.OutcomeWithdrawn, state.OutcomeAborted} {
			e.set("trimtab_trials_total", 0, policy, string(outcome))
		}
	}
	for _, g := range guard.Gates() {
		e.set("trimtab_rejections_total", 0, string(g))
	}
	for _, result := range []string{"repaired", "failed", "left"} {
		e.set("trimtab_gpu_access_repairs_total", 0, result)
	}
	for _, result := range []string{"restored", "yielded", "pending", "gone", "failed"} {
		e.set("trimtab_restores_total", 0, result)
	}
}
