package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/promtest"
)

// TestPrometheusAnswersOfADaemon: a real Prometheus scrapes a daemon that lends to a job, and
// answers each query of the pages that packages bring. Its rules are quiet while all is well, and
// tell of a refused config and of a daemon that ended.
func TestPrometheusAnswersOfADaemon(t *testing.T) {
	address := promtest.FreeAddress(t)
	drop := t.TempDir()
	if err := os.WriteFile(filepath.Join(drop, "metrics.yaml"), []byte(fmt.Sprintf("metrics: {listen: %q}\n", address)), 0o600); err != nil {
		t.Fatal(err)
	}
	j := job(t, "trimtab.mode=tune", "trimtab.team=vision")
	if err := j.Update(t.Context(), "--memory", "4g", "--memory-swap", "4g"); err != nil {
		t.Fatal(err)
	}
	d := daemon(t, daemontest.Options{Args: []string{"--conf-dir", drop}})
	p := promtest.Start(t, []string{address}, soon(t, "TrimtabDown", "ConfigRejected"))
	until(t, d, j.Name, "a loan", changed)
	pages, err := filepath.Glob("../../packaging/grafana/*.json")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, file := range pages {
		for _, panel := range promtest.Panels(t, file, address, j.Name) {
			for _, expr := range panel.Exprs {
				p.Until(t, panel.Title, func() (string, bool) {
					got, err := p.Query(t.Context(), expr)
					if err != nil {
						t.Fatalf("%s: %s: %v", file, panel.Title, err)
					}
					return file + ": " + expr + " has no answer", len(got) > 0 || unanswerable(t, d, j.Name, expr)
				})
			}
		}
	}
	if got, err := p.Firing(t.Context()); err != nil || len(got) > 0 {
		t.Errorf("alerts fire on a host that is well: %v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(drop, "bad.yaml"), []byte("mode: everything\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	fires(t, p, "ConfigRejected")
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	fires(t, p, "TrimtabDown")
}

func fires(t *testing.T, p *promtest.Server, alert string) {
	t.Helper()
	p.Until(t, alert, func() (string, bool) {
		got, err := p.Firing(t.Context())
		return fmt.Sprint(got, err), got[alert]
	})
}

// unanswerable reports whether this host or job has nothing of what is asked for. What the daemon
// knows of the job has to be answered.
func unanswerable(t *testing.T, d *daemontest.Daemon, name, expr string) bool {
	t.Helper()
	c, err := d.Container(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for part, known := range map[string]bool{"gpu": false, "trials_total": false, "== 0": false, "rejections": false,
		"speedup": c.HasGain && !c.Doubt, "working_set": c.Paging.Enough} {
		if !known && strings.Contains(expr, part) && !strings.HasSuffix(expr, "or vector(0)") {
			return true
		}
	}
	return false
}

// soon is a file of the packaged rules, of which some fire after a second.
func soon(t *testing.T, alerts ...string) string {
	t.Helper()
	rules, err := os.ReadFile("../../packaging/alerts/trimtab.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range alerts {
		wait := regexp.MustCompile(`(alert: ` + alert + `\n +expr: .*\n +for: )\S+`)
		if !wait.Match(rules) {
			t.Fatalf("%s waits for nothing", alert)
		}
		rules = wait.ReplaceAll(rules, []byte("${1}1s"))
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, rules, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
