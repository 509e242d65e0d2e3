// Package packaging tests what is shipped beside the binary: units, alert rules,
// the dashboard, and the installer.
package packaging

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/trimtab/trimtab/tuner/metrics"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tool finds a program or skips the test.
func tool(t *testing.T, name, hint string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("needs %s: %s", name, hint)
	}
	return path
}

func TestAlertRules(t *testing.T) {
	promtool := tool(t, "promtool", "apt-get install prometheus")
	for _, args := range [][]string{
		{"check", "rules", "alerts/trimtab.rules.yml"},
		{"test", "rules", "alerts/trimtab.rules.test.yml"},
	} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestAlertsAreComplete: the six that the documentation names, each saying what
// happened, what it means and what to do, and each with a test.
func TestAlertsAreComplete(t *testing.T) {
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Expr        string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "alerts/trimtab.rules.yml")), &file); err != nil {
		t.Fatal(err)
	}
	tests := read(t, "alerts/trimtab.rules.test.yml")
	var names []string
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			names = append(names, r.Alert)
			for _, key := range []string{"summary", "description", "action"} {
				if r.Annotations[key] == "" {
					t.Errorf("%s has no %s", r.Alert, key)
				}
			}
			if r.Labels["severity"] == "" {
				t.Errorf("%s has no severity", r.Alert)
			}
			if !strings.Contains(tests, "alertname: "+r.Alert+"}") && !strings.Contains(tests, "alertname: "+r.Alert+"\n        exp_alerts") {
				t.Errorf("%s has no test", r.Alert)
			}
		}
	}
	want := []string{"TrimtabDown", "RestoreOwed", "GPUAccessLost", "GPUAccessNotRepaired", "GPUHeldIdle", "RollbackRateHigh", "ConfigRejected", "OverBudget"}
	if !slices.Equal(names, want) {
		t.Errorf("alerts are %v, want %v", names, want)
	}
}

// metricName finds the names of our metrics in an expression.
var metricName = regexp.MustCompile(`\btrimtab_[a-z_]+\b`)

// TestNamedMetricsExist: a rule or a panel on a metric that nobody emits shows
// nothing, for ever, and nobody notices.
func TestNamedMetricsExist(t *testing.T) {
	known := map[string]bool{}
	for _, f := range metrics.Families() {
		known[f.Name], known[f.Was] = true, true
		if f.Kind == metrics.Histogram {
			known[f.Name+"_bucket"], known[f.Name+"_sum"], known[f.Name+"_count"] = true, true, true
		}
	}
	for _, path := range []string{"alerts/trimtab.rules.yml", "alerts/trimtab.rules.test.yml", "grafana/trimtab.json"} {
		found := metricName.FindAllString(read(t, path), -1)
		if len(found) == 0 {
			t.Errorf("%s names no metric", path)
		}
		for _, name := range found {
			if !known[name] {
				t.Errorf("%s names %s, which nobody emits", path, name)
			}
		}
	}
}

func TestDashboard(t *testing.T) {
	var dashboard struct {
		Title  string
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
			GridPos struct{ X, Y, W, H int }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "grafana/trimtab.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	if len(dashboard.Panels) == 0 {
		t.Fatal("no panels")
	}
	seen := map[int]bool{}
	for _, p := range dashboard.Panels {
		if seen[p.ID] || p.Title == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q: duplicate ID, no title, no query, or wider than the page", p.ID, p.Title)
		}
		seen[p.ID] = true
	}
}

// TestDashboardExpressions has promtool parse every query, as a recording rule.
func TestDashboardExpressions(t *testing.T) {
	promtool := tool(t, "promtool", "apt-get install prometheus")
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal([]byte(read(t, "grafana/trimtab.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rules []rule
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			rules = append(rules, rule{"x:y" + strings.Repeat("z", len(rules)), strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "check", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
