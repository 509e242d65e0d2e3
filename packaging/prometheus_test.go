package packaging

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/trimtab/trimtab/test/composetest"
	"github.com/trimtab/trimtab/test/promtest"
)

// golden is a page of metrics that has every family, as the tests of tuner/metrics keep it.
const golden = "../tuner/metrics/testdata/metrics.prom"

// exporter serves the golden page; its counters grow at each scrape, and change may alter
// what it says.
func exporter(t *testing.T, change func(family string, m *dto.Metric, scrape float64)) string {
	t.Helper()
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var scrapes atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := float64(scrapes.Add(1))
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
		for name, f := range families {
			for _, m := range f.Metric {
				if m.Counter != nil {
					*m.Counter.Value += n
				}
				change(name, m, n)
			}
			if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
				return // Prometheus went away
			}
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// TestDashboardsAreAnswered: a real Prometheus that scrapes every metric answers each query of each page, and with something.
func TestDashboardsAreAnswered(t *testing.T) {
	address := exporter(t, func(string, *dto.Metric, float64) {})
	rules, err := filepath.Abs("alerts/trimtab.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	p, answered := promtest.Start(t, []string{address}, rules), 0
	for file := range dashboardFiles(t) {
		instance := regexp.QuoteMeta(address)
		if strings.Contains(file, "job") { // it asks for one host by its name
			instance = address
		}
		for _, panel := range promtest.Panels(t, file, strings.ReplaceAll(instance, `\`, `\\`), "trainer") {
			for _, expr := range panel.Exprs {
				if strings.HasSuffix(expr, "== 0)") { // nothing is down
					continue
				}
				p.Until(t, file+": "+panel.Title, func() (string, bool) {
					got, err := p.Query(t.Context(), expr)
					if err != nil {
						t.Fatalf("%s: %s: %v", file, panel.Title, err)
					}
					return expr + " has no answer", len(got) > 0
				})
				answered++
			}
		}
	}
	t.Logf("%d queries of dashboards are answered", answered)
}

// TestCompose: what the compose file mounts is there, and its Prometheus takes its config.
func TestCompose(t *testing.T) {
	promtool := tool(t, "promtool", "apt-get install prometheus")
	compose, err := composetest.Load(t.Context(), "compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	conf := t.TempDir() // as the container sees it
	for _, v := range compose.Services["prometheus"].Volumes {
		if name, is := strings.CutPrefix(v.Target, "/etc/prometheus/"); is {
			if err := os.WriteFile(filepath.Join(conf, name), []byte(read(t, v.Source)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out, err := exec.Command(promtool, "check", "config", filepath.Join(conf, "prometheus.yml")).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
	if text := read(t, "compose/prometheus.yml"); !strings.Contains(text, "job_name: "+promtest.Job) {
		t.Errorf("the alerts ask for a job named %s", promtest.Job)
	}
}

// TestAlertsFire: each alert fires in a real Prometheus that scrapes a host in trouble, and none on one that is well.
func TestAlertsFire(t *testing.T) {
	text := read(t, "alerts/trimtab.rules.yml")
	rules := filepath.Join(t.TempDir(), "rules.yml")
	// How long a trouble must last is held by promtool, which need not wait for it.
	if err := os.WriteFile(rules, []byte(regexp.MustCompile(`(?m)^( +for:) \S+$`).ReplaceAllString(text, "$1 1s")), 0o600); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^ +- alert: (\S+)$`).FindAllStringSubmatch(text, -1) {
		want = append(want, m[1])
	}
	if len(want) < 10 {
		t.Fatalf("the rules name %v", want)
	}
	ill := func(family string, m *dto.Metric, scrape float64) {
		switch {
		case family == "trimtab_container_gpu_access_ok", family == "trimtab_config_last_reload_successful":
			*m.Gauge.Value = 0
		case family == "trimtab_budget_used_ratio":
			*m.Gauge.Value = 1.5
		case family == "trimtab_gpu_held_idle_seconds_total":
			*m.Counter.Value = 10000 * scrape
		case family == "trimtab_trials_total" && label(m, "result") == "rolled_back":
			*m.Counter.Value = 10 * scrape
		}
	}
	well := func(family string, m *dto.Metric, scrape float64) {
		switch {
		case m.Counter != nil:
			*m.Counter.Value = 5
		case strings.HasPrefix(family, "trimtab_container_restore_"), family == "trimtab_container_slower_than_usual_ratio":
			*m.Gauge.Value = 0
		}
	}
	fires := func(p *promtest.Server) []string {
		got, err := p.Firing(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, name := range want {
			if got[name] {
				names = append(names, name)
			}
		}
		return names
	}
	t.Run("a host in trouble, and one that is down", func(t *testing.T) {
		down := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(down.Close)
		p := promtest.Start(t, []string{exporter(t, ill), strings.TrimPrefix(down.URL, "http://")}, rules)
		p.Until(t, "each fires", func() (string, bool) {
			got := fires(p)
			return strings.Join(got, ", "), slices.Equal(got, want)
		})
		t.Logf("%d alerts fired: %s", len(want), strings.Join(want, ", "))
	})
	t.Run("a host that is well", func(t *testing.T) {
		p := promtest.Start(t, []string{exporter(t, well)}, rules)
		p.Until(t, "the rules were evaluated for long enough", func() (string, bool) {
			got, err := p.Query(t.Context(), "count_over_time(up[1m]) >= 10")
			return "", err == nil && len(got) == 1
		})
		if got := fires(p); len(got) > 0 {
			t.Errorf("%v fire", got)
		}
	})
}
