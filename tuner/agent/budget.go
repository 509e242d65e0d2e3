package agent

import (
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/probes"
)

// budgetEveryNs is how often what the probes cost the jobs is looked at.
const budgetEveryNs = int64(5e9)

// keepBudget makes the probes that stop the jobs' own threads stay within the
// jobs' budget (law: own budget).
func (l *Agent) keepBudget() {
	if at := l.host.AtNs; at-l.budgetAtNs < budgetEveryNs {
		return
	}
	l.budgetAtNs = l.host.AtNs
	if l.settings.BudgetJob <= 0 {
		return
	}
	var spends []probes.Spend
	owner := map[string]probes.CostReporter{}
	for _, p := range l.o.Probes {
		s, ok := p.Probe.(probes.CostReporter)
		if !ok {
			continue
		}
		for _, sp := range s.Spending() {
			spends = append(spends, sp)
			owner[sp.Hook] = s
		}
	}
	for _, o := range l.budget.Step(l.host.AtNs, spends, l.jobBudget()) {
		owner[o.Hook].SetDutyCycle(o.Container, o.Hook, o.Share)
	}
}

// jobBudget is what the probes may cost a container, as a share of one CPU: a job of
// many threads spreads the cost over as many CPUs as it uses.
func (l *Agent) jobBudget() func(container string) float64 {
	use := l.control.UsedCPUs()
	return func(container string) float64 { return l.settings.BudgetJob * max(1, use[container]) }
}

// dearestJob is the largest part of its own such budget that the probes cost a container.
func (l *Agent) dearestJob() float64 {
	if l.settings.BudgetJob <= 0 {
		return 0
	}
	budget, dearest := l.jobBudget(), 0.0
	for key := range l.containers {
		dearest = max(dearest, l.budget.Spent(key)/budget(key))
	}
	return dearest
}

// thinned says which hooks of a container are not attached all the time, what those that
// always are cost beyond the budget, and what else the probes do not count there, each once.
func (l *Agent) thinned(key string) []string {
	var out []string
	for _, o := range l.budget.Thinned(key) {
		out = append(out, fmt.Sprintf("%s is counted %.0f %% of the time", o.Hook, 100*o.Share))
	}
	if fixed := l.budget.Over(key); fixed > 0 {
		out = append(out, fmt.Sprintf("the kernel's hooks alone cost %.1f %% of a CPU, more than the budget", 100*fixed))
	}
	for _, p := range l.o.Probes {
		for _, what := range missingOf(p.Probe, key) {
			if !slices.Contains(out, what) { // probes that share a finder share its problems
				out = append(out, what)
			}
		}
	}
	return out
}

// missingOf is what a probe does not count of a container, each with why.
func missingOf(p probes.Probe, key string) (missing []string) {
	switch p := p.(type) {
	case interface{ Missing(key string) []string }:
		return p.Missing(key)
	case interface {
		Problem(key string) map[string]string
	}: // of the job's own count of its steps
		problems := p.Problem(key)
		for _, source := range slices.Sorted(maps.Keys(problems)) {
			missing = append(missing, source+": "+problems[source])
		}
	}
	return missing
}
