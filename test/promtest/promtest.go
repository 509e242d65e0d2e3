// Package promtest runs a real Prometheus (Debian's) over targets of a test, and asks it.
package promtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Job is the name of the scrape job, which the alert rules name too.
const Job = "trimtab"

// patience bounds every wait; it is no measure of speed.
const patience = 2 * time.Minute

// Server is a Prometheus that scrapes each second.
type Server struct {
	url string
}

// Sample is one series of an answer: its labels and its latest value, as Prometheus writes it.
type Sample struct {
	Labels map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

// Start runs Prometheus over targets (host:port) with the rules of a file, if one is named. It
// ends with the test. Without Prometheus the test is skipped.
func Start(t testing.TB, targets []string, rules string) *Server {
	t.Helper()
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("needs prometheus: apt-get install prometheus")
	}
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nscrape_configs:\n  - job_name: %s\n    static_configs: [{targets: [%q]}]\n", Job, strings.Join(targets, `","`))
	config = strings.ReplaceAll(config, `\"`, `"`)
	if rules != "" {
		config += fmt.Sprintf("rule_files: [%q]\n", rules)
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	address := FreeAddress(t)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has nothing to keep
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("prometheus:\n%s", said)
		}
	})
	s := &Server{url: "http://" + address}
	s.Until(t, "every target was scraped", func() (string, bool) {
		got, err := s.Query(t.Context(), fmt.Sprintf("count(count_over_time(up{job=%q}[1m]) >= 3)", Job))
		return fmt.Sprint(got, err), err == nil && len(got) == 1 && got[0].Value[1] == fmt.Sprint(len(targets))
	})
	return s
}

// Until asks again and again, and ends the test with the last answer.
func (s *Server) Until(t testing.TB, what string, good func() (string, bool)) {
	t.Helper()
	last, ok := "", false
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		if last, ok = good(); ok {
			return
		}
	}
	t.Fatalf("%s: not within %s; last %s", what, patience, last)
}

// Query evaluates an expression now. An error is what Prometheus has against it.
func (s *Server) Query(ctx context.Context, expr string) ([]Sample, error) {
	var answer struct {
		Status, Error string
		Data          struct{ Result []Sample }
	}
	err := s.get(ctx, "/api/v1/query?query="+url.QueryEscape(expr), &answer)
	if err == nil && answer.Status != "success" {
		err = fmt.Errorf("%s: %s", expr, answer.Error)
	}
	return answer.Data.Result, err
}

// Firing are the names of the alerts that fire.
func (s *Server) Firing(ctx context.Context) (map[string]bool, error) {
	var answer struct {
		Data struct {
			Alerts []struct {
				Labels map[string]string
				State  string
			}
		}
	}
	err := s.get(ctx, "/api/v1/alerts", &answer)
	out := map[string]bool{}
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			out[a.Labels["alertname"]] = true
		}
	}
	return out, err
}

func (s *Server) get(ctx context.Context, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s: %s: %w", path, body, err)
	}
	return nil
}

// FreeAddress is a loopback address at which nobody listens.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Panel is a panel of a dashboard, with its queries for a host and a container.
type Panel struct {
	Title string
	Exprs []string
}

// Panels reads a dashboard of Grafana's and puts values in the place of its variables.
func Panels(t testing.TB, file, instance, container string) []Panel {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var page struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &page); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	fill := strings.NewReplacer("$instance", instance, "$container", container, "$team", ".*", "$__rate_interval", "2m")
	var out []Panel
	for _, p := range page.Panels {
		panel := Panel{Title: p.Title}
		for _, target := range p.Targets {
			panel.Exprs = append(panel.Exprs, fill.Replace(target.Expr))
		}
		out = append(out, panel)
	}
	return out
}
