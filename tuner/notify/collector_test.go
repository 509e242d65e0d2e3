package notify

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trimtab/trimtab/test/promtest"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/event"
	"github.com/trimtab/trimtab/tuner/state"
)

// output is what a process wrote so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// until waits for texts.
func (o *output) until(t *testing.T, texts ...string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		text := o.String()
		missing := ""
		for _, want := range texts {
			if !strings.Contains(text, want) {
				missing = want
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no %q in\n%s", missing, text)
		}
	}
}

// startCollector builds the OpenTelemetry Collector of testdata/collector, and starts it with the
// receiver that everybody uses and an exporter that writes down what it was given.
func startCollector(t *testing.T, address string) *output {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a minute to build an OpenTelemetry Collector: run without -short")
	}
	dir := t.TempDir()
	build := func(args ...string) *exec.Cmd {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = "testdata/collector", append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		return cmd
	}
	if out, err := build("mod", "download").CombinedOutput(); err != nil {
		t.Skipf("needs the OpenTelemetry Collector's Go modules: %v\n%s", err, out)
	}
	if out, err := build("build", "-o", filepath.Join(dir, "collector"), ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := fmt.Sprintf(`
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {debug: {verbosity: detailed}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    logs: {receivers: [otlp], exporters: [debug]}
    metrics: {receivers: [otlp], exporters: [debug]}
`, address)
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := new(output)
	cmd := exec.Command(filepath.Join(dir, "collector"), "--config", filepath.Join(dir, "config.yaml"))
	cmd.Stdout, cmd.Stderr = o, o
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // killed
	})
	o.until(t, "Everything is ready")
	return o
}

// A real OpenTelemetry Collector takes what is exported, and reads it as it was meant.
func TestACollectorTakesDecisionsAndMetrics(t *testing.T) {
	address := promtest.FreeAddress(t)
	o := startCollector(t, address)
	reg := prometheus.NewRegistry()
	trials := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "trimtab_trials_total", Help: "Trials ended."}, []string{"result"})
	reg.MustRegister(trials)
	trials.WithLabelValues("kept").Add(37)
	cfg := config.Default().Notify
	cfg.OTLP.URL = "http://" + address
	latest := func() *state.Snapshot { return &state.Snapshot{} }
	n := New(Options{Config: cfg, Host: "node7", Version: "1.2.3", Metrics: reg, Latest: latest, Log: slog.New(slog.DiscardHandler)})
	n.Check(t.Context(), func(name string, err error) {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	n.Start()
	record := *hostileEvent().Record
	n.Offer([]state.Record{record, {Kind: state.RecordGPULost, UnixNs: record.UnixNs, Name: "train", Text: "cannot open /dev/nvidia0"}})
	n.metrics.offer(event.Event{})
	o.until(t, "EventName: trimtab.kept", "EventName: trimtab.gpu-lost", "Body: Str(<b>kept</b>)", "SeverityText: WARN", "host.name: Str(node7)", "service.version: Str(1.2.3)",
		"trimtab.to: Str(250000 100000)", "trimtab.ratio.high: Double(2.1)", "Timestamp: 2026-01-01 00:00:00.123456789 +0000 UTC",
		"Name: trimtab_trials_total", "IsMonotonic: true", "AggregationTemporality: Cumulative", "result: Str(kept)", "Value: 37.000000")
	n.Close(t.Context())
	for _, r := range n.Receivers() {
		if want := map[string]uint64{"otlp": 2, "otlp-metrics": 1}[r.Name]; !r.OK || r.Sent != want || r.Failed+r.Dropped > 0 {
			t.Errorf("%+v", r)
		}
	}
}
