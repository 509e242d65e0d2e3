// Package packaging tests what is shipped beside the binary: units, alert rules,
// the dashboard, and the installer.
package packaging

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

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

// TestAlertsAreComplete: those that the documentation names, each saying what happened, what
// it means, what to do and where to read on, and each with a test.
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
	tests, runbook := read(t, "alerts/trimtab.rules.test.yml"), read(t, "../docs/troubleshooting.md")
	var names []string
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			names = append(names, r.Alert)
			for _, key := range []string{"summary", "description", "action"} {
				if r.Annotations[key] == "" {
					t.Errorf("%s has no %s", r.Alert, key)
				}
			}
			if want := "/usr/share/doc/trimtab/troubleshooting.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want {
				t.Errorf("%s: its runbook is %q, want %q", r.Alert, r.Annotations["runbook"], want)
			}
			if !strings.Contains(runbook, "\n### "+r.Alert+"\n") {
				t.Errorf("%s has no part in docs/troubleshooting.md", r.Alert)
			}
			if r.Labels["severity"] == "" {
				t.Errorf("%s has no severity", r.Alert)
			}
			if !strings.Contains(tests, "alertname: "+r.Alert+"}") && !strings.Contains(tests, "alertname: "+r.Alert+"\n        exp_alerts") {
				t.Errorf("%s has no test", r.Alert)
			}
		}
	}
	want := []string{"TrimtabDown", "RestoreOwed", "GPUAccessLost", "GPUAccessNotRepaired", "GPUError", "GPUHeldIdle", "RollbackRateHigh", "ConfigRejected", "OverBudget", "JobSlowerThanUsual"}
	if !slices.Equal(names, want) {
		t.Errorf("alerts are %v, want %v", names, want)
	}
	count := []string{8: "eight", 9: "nine", 10: "ten", 11: "eleven", 12: "twelve"}[len(names)]
	page := read(t, "../docs/dashboards.md")
	if !strings.Contains(page, "| "+count+" alerts, ") || !strings.Contains(page, "\n- All "+count+" fire from a real daemon's own state") {
		t.Errorf("docs/dashboards.md does not say that there are %s alerts, and that all fire from a daemon", count)
	}
	if live := firedLive(t); !slices.Equal(live, slices.Sorted(slices.Values(want))) {
		t.Errorf("test/e2e has a daemon fire %v, want each alert", live)
	}
}

// firedLive are the alerts that test/e2e waits for, of a daemon that a real Prometheus scrapes.
func firedLive(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../test/e2e/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	waits := regexp.MustCompile(`\bfires\(t, p, "(\w+)"\)|\bfor _, alert := range \[\]string\{([^}]*)\} \{\n\s*fires\(t, p, alert\)`)
	found := map[string]bool{}
	for _, file := range files {
		for _, m := range waits.FindAllStringSubmatch(read(t, file), -1) {
			for _, name := range regexp.MustCompile(`\w+`).FindAllString(m[1]+m[2], -1) {
				found[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// TestAlertsRunbooksBecomeLinks: the template that docs/dashboards.md shows makes a URL of each
// runbook. reReplaceAll is as Alertmanager defines it.
func TestAlertsRunbooksBecomeLinks(t *testing.T) {
	shown := regexp.MustCompile(`(?m)^\{\{ reReplaceAll .*\}\}$`).FindString(read(t, "../docs/dashboards.md"))
	link, err := template.New("").Funcs(template.FuncMap{"reReplaceAll": func(pattern, by, text string) string {
		return regexp.MustCompile(pattern).ReplaceAllString(text, by)
	}}).Parse(shown)
	if err != nil || shown == "" {
		t.Fatalf("%q: %v", shown, err)
	}
	runbooks := regexp.MustCompile(`(?m)^ +runbook: (\S+)$`).FindAllStringSubmatch(read(t, "alerts/trimtab.rules.yml"), -1)
	for _, m := range runbooks {
		var out strings.Builder
		if err := link.Execute(&out, map[string]map[string]string{"Annotations": {"runbook": m[1]}}); err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`^https://docs\.example\.com/trimtab/troubleshooting\.md#[a-z]+$`).MatchString(out.String()) {
			t.Errorf("%s becomes %s", m[1], &out)
		}
	}
	if len(runbooks) < 10 {
		t.Errorf("%d runbooks were found", len(runbooks))
	}
}

// TestDashboardOfWhatItWasWorth: each term of the report has a panel on the fleet page, of GPUs and of CPUs.
func TestDashboardOfWhatItWasWorth(t *testing.T) {
	var all []string
	for _, p := range dashboardFiles(t)["grafana/trimtab-fleet.json"].Panels {
		for _, q := range p.Targets {
			all = append(all, q.Expr)
		}
	}
	asked := strings.Join(all, "\n")
	for _, want := range []string{`trimtab_team_held_seconds_total\{[^}]*cause!~.*resource="gpu"`, `trimtab_team_held_seconds_total\{[^}]*cause!~.*resource="cpu"`, `actionable_seconds_total\{.*resource="gpu"`,
		`team_saved_seconds_total\{.*resource="gpu"`, `team_saved_seconds_total\{.*resource="cpu"`, `team_trial_lost_seconds_total\{.*resource="gpu"`, `team_lent_cpu_seconds_total\{`,
		`sum by \(team, resource, cause\) .*trimtab_team_held_seconds_total`} {
		if !regexp.MustCompile(want).MatchString(asked) {
			t.Errorf("the fleet page does not ask for %s", want)
		}
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
	for _, path := range append(slices.Sorted(maps.Keys(dashboardFiles(t))), "alerts/trimtab.rules.yml", "alerts/trimtab.rules.test.yml") {
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

// dashboardFiles are the dashboards, each with what it shows.
func dashboardFiles(t *testing.T) map[string]page {
	t.Helper()
	names, err := filepath.Glob("grafana/*.json")
	if err != nil || len(names) != 3 {
		t.Fatalf("dashboards: %v, %v", names, err)
	}
	out := map[string]page{}
	for _, name := range names {
		var p page
		if err := json.Unmarshal([]byte(read(t, name)), &p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out[name] = p
	}
	return out
}

// page is what is held of a dashboard.
type page struct {
	UID, Title string
	Panels     []struct {
		ID          int
		Title       string
		Targets     []struct{ Expr string }
		FieldConfig struct {
			Defaults struct{ Links []struct{ URL string } }
		}
		GridPos struct{ X, Y, W, H int }
	}
}

func TestDashboards(t *testing.T) {
	uids := map[string]bool{}
	for _, p := range dashboardFiles(t) {
		uids[p.UID] = true
	}
	for file, dashboard := range dashboardFiles(t) {
		if len(dashboard.Panels) == 0 {
			t.Errorf("%s: no panels", file)
		}
		seen := map[int]bool{}
		taken := map[[2]int]string{}
		for _, p := range dashboard.Panels {
			if seen[p.ID] || p.Title == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("%s: panel %d %q: duplicate ID, no title, no query, or wider than the page", file, p.ID, p.Title)
			}
			seen[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" {
						t.Fatalf("%s: %q lies on %q", file, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			for _, link := range p.FieldConfig.Defaults.Links {
				uid, _, _ := strings.Cut(strings.TrimPrefix(link.URL, "/d/"), "?")
				if !uids[uid] {
					t.Errorf("%s: %q leads to %s, which is no dashboard of ours", file, p.Title, link.URL)
				}
				for _, v := range regexp.MustCompile(`\$\{[^}]*\}`).FindAllString(link.URL, -1) {
					if !strings.HasSuffix(v, ":percentencode}") { // a name with & or # in it would split the link
						t.Errorf("%s: %q leads to %s, where %s goes in as it stands", file, p.Title, link.URL, v)
					}
				}
			}
		}
	}
}
