package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/promtest"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/state"
)

// pacedJob is a job whose quota says its pace, and whose log tells its steps. Its weight is the largest: there
// is none above it to try, and other work does not slow it.
func pacedJob(t *testing.T, name string, docker []string, args ...string) *workload.Job {
	t.Helper()
	return started(t, workload.Options{Name: fmt.Sprintf("trimtab-e2e-%d-%s", os.Getpid(), name), Script: "paced.py", Args: args,
		DockerArgs: append([]string{"--network", "none", "--cpu-shares", "262144", "--label", `trimtab.rate.log=^step=(\d+)`}, docker...)})
}

// scraped is a daemon with a real Prometheus that scrapes it, from before its start: what comes before a
// scrape is no increase. rules is the file that it judges by.
func scraped(t *testing.T, rules, config string) (*promtest.Server, *daemontest.Daemon) {
	t.Helper()
	if err := workload.Ready(t.Context()); err != nil {
		t.Skip(err)
	}
	address := promtest.FreeAddress(t)
	p := promtest.Start(t, []string{address}, rules)
	return p, daemon(t, daemontest.Options{Metrics: address, Config: "overhead: {cpu: 2, perContainer: 0.1}\n" + config}) // else it reads less beside many jobs
}

// TestAlertOfTrialsThatFail: jobs get slower by each CPU that they are given, since they read their quota
// and do more for it: a step takes 10 ms of CPU time at 0.04 CPUs, 160 ms at 0.16. So their trials are
// reverted, and a real Prometheus tells of that. Each is one process: where two share 4 ms of each 100, steps
// depend on which of them has it, and their rate tells nothing. A trial takes half a minute, so two are asked
// for here, where the packaged rule asks for five.
func TestAlertOfTrialsThatFail(t *testing.T) {
	const enough, spare = 2, 1 // more than half of them fail
	rules := instead(t, soon(t, "RollbackRateHigh"), "[6h])) >= 5", fmt.Sprintf("[6h])) >= %d", enough))
	p, d := scraped(t, rules, "loans: proven\nreserve: {cpus: 0.02}\nthresholds: {maxExcessSteal: 0.5}\n")
	var j *workload.Job
	for i := range enough + 2*spare {
		j = pacedJob(t, fmt.Sprintf("worse-%d", i), []string{"--label", "trimtab.mode=tune", "--label", "trimtab.cpu.max=0.16"},
			"--file", "/sys/fs/cgroup/cpu.max", "--file", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "--scale", "6.25e-10")
		if err := j.SetQuota(t.Context(), 0.04); err != nil {
			t.Fatal(err)
		}
	}
	ended, failed := 0.0, 0.0
	count := func() float64 {
		s, err := d.Client().Status(t.Context())
		if err != nil {
			return 0
		}
		ended, failed = 0, 0
		for _, c := range s.Totals.Trials {
			ended += c.Value
			if c.Result == string(state.OutcomeRolledBack) {
				failed = max(failed, c.Value) // the rule asks each policy
			}
		}
		if failed < enough && ended-failed > spare {
			t.Fatalf("%.0f of %.0f trials that had to fail were rolled back: %+v", failed, ended, s.Totals.Trials)
		}
		return ended
	}
	began := time.Now()
	untilAsLong(t, d, j.Name, "trials to be rolled back", count, func(state.Container) bool { return failed >= enough })
	t.Logf("%.0f of %.0f ended trials rolled back after %s", failed, ended, time.Since(began).Round(time.Second))
	fires(t, p, "RollbackRateHigh")
}
