package advice

import (
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

const (
	// teamTimes is how many threads of a team for each CPU are too many. A team of one for each waits
	// for nobody; one that is a little larger may be so by a quota of a part of a CPU.
	teamTimes = 2
	// teamUnrun is the least share of the time in which they want a CPU that they stand behind each
	// other, or out of their quota.
	teamUnrun = 0.25
	// teamSaves is the part told of the time in which the trainer computes, or wants to: seven of the
	// twelve tries in docs/advice.md saved as much or more.
	teamSaves = 0.25
	// teamSure is how sure it is that fewer threads save anything: ten of twelve tries did, so at 5 % at
	// least 0.56 of all do (Clopper and Pearson).
	teamSure = 0.55
)

// threads is how many threads of OpenMP or BLAS would do: one for each CPU that a rank may use.
func (n node) threads(c state.Container) (a Advice, ok bool) {
	t, b, cpus, by, crowd := c.Team, c.Breakdown, n.mostCPUs(c), "the host, or its CPU set", n.k.Notable
	if quota, limited := c.Now[runtime.KnobCPUQuota].CPUs(); limited && quota < cpus {
		cpus, by, crowd = quota, "its quota", t.Unrun
	}
	to := max(1, math.Floor(cpus/float64(max(c.Ranks, 1))))
	waits := c.Loan != nil && !c.Loan.Settled || c.Loan == nil && n.lends(c) && b.Share(policies.PartThrottled) >= n.k.Notable
	if !n.sure(c) || waits || !(cpus > 0) || float64(t.Threads) < teamTimes*to || !(t.Unrun >= teamUnrun) || t.Behind > crowd {
		return a, false
	}
	computes := min(b.Share(policies.PartCompute)+b.Share(policies.PartThrottled)+b.Share(policies.PartContended), 1)
	return Advice{What: CPUThreads, Text: "more of its threads compute at once than it has CPUs: each waits for those that do not run, and may spin meanwhile", Paste: threadLines(to),
		Current: Setting{Value: float64(t.Threads), Unit: "threads"}, Advised: Setting{Value: to, Unit: "threads"}, Gives: gives(OfRunTime, 1, 0, teamSaves*computes, computes),
		Confidence: teamSure * c.Verdict.Confidence, SinceUnixNs: c.VerdictSinceUnixNs,
		Evidence: []Number{number("CPUs that it may use", cpus, "CPUs", by), number("CPUs that its team wants", t.Wanted, "CPUs", "the kernel's accounting of its threads"),
			number("of that not run, behind each other or out of quota", t.Unrun, "share", "the same"), number("time in which its trainer computes, or wants to", computes, "share", "the same")}}, true
}
