package fleet

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/promtest"
	"github.com/trimtab/trimtab/tuner/account"
)

// A Prometheus with two hours of two hosts in it, of which one daemon was restarted in between,
// says what the counters say, to what increase() extrapolates.
func TestFleetByARealPrometheus(t *testing.T) {
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s (Debian's package prometheus): %v", program, err)
		}
	}
	now, dir := time.Now(), t.TempDir()
	file := filepath.Join(dir, "metrics")
	if err := os.WriteFile(file, openMetrics(twoHosts(), now.Add(-3*time.Hour), now.Add(-time.Hour)), 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	if out, err := exec.CommandContext(t.Context(), "promtool", "tsdb", "create-blocks-from", "openmetrics", file, data).CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v: %s", err, out)
	}
	at, err := ParseURL(serve(t, dir, data))
	if err != nil {
		t.Fatal(err)
	}
	r, warnings, err := Report(t.Context(), at, account.ByTeam, now.Add(-24*time.Hour), now)
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	wantTwoHosts(t, r, 0.02)
}

// openMetrics are the series from an instant to another, every 30 s: from 0, and half way from 0 again.
// Those of trials grow at once, as one is taken back: that is seen since they are there before, at 0.
func openMetrics(all []series, from, to time.Time) []byte {
	var out bytes.Buffer
	slices.SortStableFunc(all, func(a, b series) int { return strings.Compare(a.name, b.name) })
	steps := int(to.Sub(from) / (30 * time.Second))
	for i, s := range all {
		family := strings.TrimSuffix(s.name, "_total")
		if i == 0 || all[i-1].name != s.name {
			fmt.Fprintf(&out, "# TYPE %s counter\n", family)
		}
		var labels []string
		for name, value := range s.labels {
			labels = append(labels, fmt.Sprintf("%s=%q", name, value))
		}
		slices.Sort(labels)
		for n := range steps + 1 {
			grown := s.increase * float64(n) / float64(steps)
			restarted := s.labels["instance"] == "a:9477" && n > steps/2
			switch {
			case strings.HasPrefix(s.name, "trimtab_team_trial_") && (restarted || n < steps/4):
				grown = 0
			case strings.HasPrefix(s.name, "trimtab_team_trial_"):
				grown = s.increase
			case restarted:
				grown -= s.increase / 2
			}
			fmt.Fprintf(&out, "%s{%s} %g %d\n", s.name, strings.Join(labels, ","), grown, from.Add(time.Duration(n)*30*time.Second).Unix())
		}
	}
	out.WriteString("# EOF\n")
	return out.Bytes()
}

// serve runs Prometheus on what is stored, and returns its URL once it is ready.
func serve(t *testing.T, dir, data string) string {
	t.Helper()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte("scrape_configs: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 { // another process may take the port before Prometheus does
		if url := started(t, config, data); url != "" {
			return url
		}
	}
	t.Fatal("prometheus does not get ready")
	return ""
}

// started runs Prometheus on a free port, and returns "" where it ended instead of serving.
func started(t *testing.T, config, data string) string {
	address := promtest.FreeAddress(t)
	var log bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+data, "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for {
		select {
		case <-ended:
			t.Logf("prometheus ended: %s", &log)
			return ""
		case <-ctx.Done():
			t.Fatal("prometheus does not get ready in a minute")
		case <-time.After(100 * time.Millisecond):
		}
		resp, err := http.Get("http://" + address + "/-/ready")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return "http://" + address
			}
		}
	}
}
