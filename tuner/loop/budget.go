package loop

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/probes"
)

// budgetEveryNs is how often what the probes cost the jobs is looked at.
const budgetEveryNs = int64(5e9)

// fixedHook: hooks without which a container has no reading at all stay.
func fixedHook(hook string) bool { return strings.HasPrefix(hook, "kernel.") }

// keepBudget makes the probes that stop the jobs' own threads stay within the
// jobs' budget (law 12).
func (l *Loop) keepBudget() {
	if at := l.host.AtNs; at-l.budgetAtNs < budgetEveryNs {
		return
	}
	l.budgetAtNs = l.host.AtNs
	limit := l.settings.BudgetJob
	if limit <= 0 {
		return
	}
	var spends []probes.Spend
	owner := map[string]probes.Spender{}
	for _, p := range l.o.Probes {
		s, ok := p.Probe.(probes.Spender)
		if !ok {
			continue
		}
		for _, sp := range s.Spending() {
			spends = append(spends, sp)
			owner[sp.Hook] = s
		}
	}
	for _, o := range l.budget.Step(l.host.AtNs, spends, fixedHook, limit) {
		owner[o.Hook].Thin(o.Container, o.Hook, o.Share)
	}
}

// thinned says which hooks of a container are not attached all the time.
func (l *Loop) thinned(key string) []string {
	var out []string
	for _, o := range l.budget.Thinned(key) {
		out = append(out, fmt.Sprintf("%s is counted %.0f %% of the time", o.Hook, 100*o.Share))
	}
	return out
}
