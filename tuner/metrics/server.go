package metrics

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/trimtab/trimtab/tuner/state"
)

// Handler answers /metrics, /healthz and with a landing page. healthy is nil while the daemon does its
// work; it and latest (see NewCollector) must be safe for concurrent use.
func Handler(version string, latest func() *state.Snapshot, healthy func() error, log *slog.Logger) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(NewCollector(latest), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	landing, err := web.NewLandingPage(web.LandingConfig{
		Name: "trimtab", Description: "Finds where training jobs lose step time, and gives it back.", Version: version, Profiling: "false",
		Links: []web.LandingLinks{{Address: "metrics", Text: "Metrics"}, {Address: "healthz", Text: "Health"}},
	})
	if err != nil {
		panic(err) // it is made of texts alone
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", landing)
	mux.Handle("GET /healthz", health(healthy))
	mux.Handle("GET /metrics", newScrapes(promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		ErrorLog:           slog.NewLogLogger(log.Handler(), slog.LevelError),
		ErrorHandling:      promhttp.ContinueOnError, // one bad series must not hide the others
		Registry:           reg,                      // counts its own errors
		DisableCompression: true,
	}), latest, time.Now))
	return mux
}

// health answers 200 while healthy says so, else 503 and why.
func health(healthy func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
}
