package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/promtest"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/state"
)

// logged is a job whose log tells its steps. Its weight is the largest: there is none above it to try, and other
// work does not slow it.
func logged(t *testing.T, name, script string, docker []string, args ...string) *workload.Job {
	t.Helper()
	return started(t, workload.Options{Name: fmt.Sprintf("trimtab-e2e-%d-%s", os.Getpid(), name), Script: script, Args: args,
		DockerArgs: append([]string{"--network", "none", "--cpu-shares", "262144", "--label", `trimtab.rate.log=^step=(\d+)`}, docker...)})
}

// evenRuns are runs of one job that agree, so that a next one is known by them.
type evenRuns struct {
	data string // the folder that has their pace
	jobs []*workload.Job
}

// one is a further run, at a pace that the job reads where trimtab does not look.
func (e *evenRuns) one(t *testing.T, name, perSecond string) *workload.Job {
	t.Helper()
	if err := os.WriteFile(filepath.Join(e.data, "pace"), []byte(perSecond), 0o644); err != nil { //nolint:gosec // for the job's user
		t.Fatal(err)
	}
	return logged(t, name, "even.py", []string{"--label", "trimtab.mode=observe", "--volume", e.data + ":/data:ro"}, "--file", "/data/pace")
}

// begin starts as many runs as tell how far they lie apart, all at once.
func (e *evenRuns) begin(t *testing.T, perSecond string) {
	t.Helper()
	for i := range 4 {
		e.jobs = append(e.jobs, e.one(t, fmt.Sprintf("even-%d", i), perSecond))
	}
}

// end ends them once they are remembered.
func (e *evenRuns) end(t *testing.T, d *daemontest.Daemon) {
	t.Helper()
	until(t, d, e.jobs[0].Name, "all runs of its job to be remembered", func(state.Container) bool {
		all, err := d.Client().Fingerprints(t.Context())
		return err == nil && slices.ContainsFunc(all, func(k state.Fingerprint) bool { return k.Ends.Len() == len(e.jobs) })
	})
	for _, j := range e.jobs {
		if err := j.Stop(); err != nil {
			t.Fatal(err)
		}
	}
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

// TestAlertsOfJobsThatAreSlower: jobs get slower by each CPU that they are given, since they read their quota
// and do more for it: a step takes 10 ms of CPU time at 0.04 CPUs, 160 ms at 0.16. So their trials are
// reverted, and a real Prometheus tells of that. Each is one process: where two share 4 ms of each 100, steps
// depend on which of them has it, and their rate tells nothing. A trial takes half a minute, so two are asked
// for here, where the packaged rule asks for five. Meanwhile another job has run four times. It then runs at
// half its pace, which Prometheus tells of too, and once more as ever, which nothing is told of.
func TestAlertsOfJobsThatAreSlower(t *testing.T) {
	const enough, spare, maxWorse = 2, 1, 10 // more than half of them fail
	rules := instead(t, soon(t, "RollbackRateHigh", "JobSlowerThanUsual"), "[6h])) >= 5", fmt.Sprintf("[6h])) >= %d", enough))
	p, d := scraped(t, rules, "loans: proven\nreserve: {cpus: 0.02}\nthresholds: {maxExcessSteal: 0.5}\n")
	even := &evenRuns{data: t.TempDir()}
	even.begin(t, "50")
	var j *workload.Job
	begun := 0
	begin := func() {
		t.Helper()
		j = logged(t, fmt.Sprintf("worse-%d", begun), "paced.py", []string{"--label", "trimtab.mode=tune", "--label", "trimtab.cpu.max=0.16"},
			"--file", "/sys/fs/cgroup/cpu.max", "--file", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "--scale", "6.25e-10")
		if err := j.SetQuota(t.Context(), 0.04); err != nil {
			t.Fatal(err)
		}
		begun++
	}
	for range enough + 2*spare {
		begin()
	}
	ended, failed, judged := 0.0, 0.0, 0.0                                     // judged: otherwise
	enoughFailed := func() bool { return failed >= enough && failed > judged } // as the rule has it
	count := func() float64 {
		s, err := d.Client().Status(t.Context())
		if err != nil {
			return 0
		}
		ended, failed, judged = 0, 0, 0
		kept := 0.0
		for _, c := range s.Totals.Trials {
			ended += c.Value
			switch state.Outcome(c.Result) {
			case state.OutcomeRolledBack:
				failed = max(failed, c.Value) // the rule asks each policy
			case state.OutcomeKept:
				kept += c.Value
				judged += c.Value
			case state.OutcomeInconclusive:
				judged += c.Value
			}
		}
		if kept > spare {
			t.Fatalf("%.0f of %.0f trials that had to fail were kept: %+v", kept, ended, s.Totals.Trials)
		}
		// What other work made inconclusive is tried with one job more.
		if others := ended - failed; !enoughFailed() && others > spare+float64(begun-enough-2*spare) && begun < maxWorse {
			begin()
		}
		return ended
	}
	began := time.Now()
	untilAsLong(t, d, j.Name, "trials to be rolled back", count, func(state.Container) bool { return enoughFailed() })
	t.Logf("%.0f of %.0f ended trials rolled back after %s", failed, ended, time.Since(began).Round(time.Second))
	fires(t, p, "RollbackRateHigh")
	even.end(t, d)
	usual, slow := even.one(t, "even-usual", "50"), even.one(t, "even-slow", "25")
	c := until(t, d, slow.Name, "to be slower than usual", func(c state.Container) bool { return c.LastRuns != nil && c.LastRuns.Slower > 0 })
	if text, err := d.Run(t.Context(), "explain", slow.Name); err != nil || !strings.Contains(text, "below its last 4 runs") {
		t.Errorf("explain: %v\n%s", err, text)
	}
	fires(t, p, "JobSlowerThanUsual")
	t.Logf("at half its pace: %s", c.LastRuns.SlowerWhy)
	c, err := d.Container(t.Context(), usual.Name)
	if err != nil || c.LastRuns == nil || c.LastRuns.Runs != len(even.jobs) {
		t.Fatalf("a run as ever: %v, %+v", err, c.LastRuns)
	}
	steps := usual.Steps()
	itself, counted := usual.Rate(steps[0].At, workload.Now())
	if counted == 0 {
		t.Fatalf("%d steps by its own log, and none told", len(steps))
	}
	if c.LastRuns.Slower != 0 && itself > 0.95*50 { // else it is slower
		t.Errorf("a run as ever, at %.1f steps/s by its own log: %+v", itself, c.LastRuns)
	}
}
