package e2e

import (
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/tuner/state"
)

// What a real job held, lost and was lent is in the report, also after a stop and a kill of the
// daemon, and says the same by whatever it is sorted.
func TestReport(t *testing.T) {
	j := job(t, "trimtab.mode=tune", "trimtab.team=vision")
	d := daemon(t, daemontest.Options{})
	until(t, d, j.Name, "it was lent CPU and uses it", func(c state.Container) bool { return c.Loan != nil && c.Loan.Used > 0 && c.Windows > 2 })
	if err := d.Stop(); err != nil { // which stores what was counted
		t.Fatal(err)
	}
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := report(t, d, "container", j.Name)
	// How much of it was stalled is not held: a loan may come before the first verdict.
	if u := first.CPU; u.Held <= 0 || u.NotKnown >= u.Held || u.Held < u.Idle+u.Stalled+u.NotKnown || first.LentCPUSeconds <= 0 || first.GPU.Held > 0 {
		t.Errorf("a starved job that was lent to: %+v", first)
	}
	if team := report(t, d, "team", "vision"); team.CPU.Held != first.CPU.Held || team.LentCPUSeconds != first.LentCPUSeconds {
		t.Errorf("its team %+v, itself %+v", team, first)
	}
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again := report(t, d, "container", j.Name); again.CPU.Held < first.CPU.Held {
		t.Errorf("after a kill %+v, before %+v", again, first)
	}
	out, err := d.Run(t.Context(), "report", "--by", "cause", "--output", "csv")
	if err != nil {
		t.Fatal(err)
	}
	if lines, err := csv.NewReader(strings.NewReader(out)).ReadAll(); err != nil || len(lines) < 5 {
		t.Errorf("%v: %s", err, out)
	}
}

// report is one group of a report.
func report(t *testing.T, d *daemontest.Daemon, by, name string) state.ReportGroup {
	t.Helper()
	out, err := d.Run(t.Context(), "report", "--since", "1h", "--by", by, "--output", "json")
	if err != nil {
		t.Fatal(err)
	}
	var r state.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	for _, g := range r.Groups {
		if g.Name == name {
			return g
		}
	}
	t.Fatalf("nothing of %s: %s", name, out)
	return state.ReportGroup{}
}
