package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/promtest"
)

// TestPrometheusAnswersOfADaemon: a real Prometheus scrapes a daemon that lends to a job, and
// answers each query of the pages that packages bring.
func TestPrometheusAnswersOfADaemon(t *testing.T) {
	address := freeAddress(t)
	drop := t.TempDir()
	if err := os.WriteFile(filepath.Join(drop, "metrics.yaml"), []byte(fmt.Sprintf("metrics: {listen: %q}\n", address)), 0o600); err != nil {
		t.Fatal(err)
	}
	j := job(t, "trimtab.mode=tune", "trimtab.team=vision")
	d := daemon(t, daemontest.Options{Args: []string{"--conf-dir", drop}})
	rules, err := filepath.Abs("../../packaging/alerts/trimtab.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	p := promtest.Start(t, []string{address}, rules)
	until(t, d, j.Name, "a loan", changed)
	pages, err := filepath.Glob("../../packaging/grafana/*.json")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	// What this host and job have nothing of. Nothing else may stay without an answer.
	absent := []string{"gpu", "trials_total", "== 0", "rejections", "memory", "limit_bytes", "speedup"}
	for _, file := range pages {
		for _, panel := range promtest.Panels(t, file, address, j.Name) {
			for _, expr := range panel.Exprs {
				p.Until(t, panel.Title, func() (string, bool) {
					got, err := p.Query(t.Context(), expr)
					if err != nil {
						t.Fatalf("%s: %s: %v", file, panel.Title, err)
					}
					optional := slices.ContainsFunc(absent, func(part string) bool { return strings.Contains(expr, part) })
					return file + ": " + expr + " has no answer", len(got) > 0 || optional
				})
			}
		}
	}
	if got, err := p.Firing(t.Context()); err != nil || len(got) > 0 {
		t.Errorf("alerts fire on a host that is well: %v, %v", got, err)
	}
}
