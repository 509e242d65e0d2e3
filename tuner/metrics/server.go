package metrics

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/trimtab/trimtab/tuner/httpd"
	"github.com/trimtab/trimtab/tuner/state"
)

const maxScrapes = 4 // at once; more are answered 503

// Options are what a server needs.
type Options struct {
	Listen    string // host:port, or unix:PATH
	Group     string // whose members may connect to unix:PATH, beside root
	WebConfig string // exporter-toolkit's file with TLS and users; "": neither
	Version   string
	Latest    func() *state.Snapshot // see NewCollector
	Healthy   func() error           // nil while the daemon does its work; must be safe for concurrent use
	Logger    *slog.Logger
}

// NewServer serves /metrics, /healthz and a landing page; nothing is listened on before Listen.
func NewServer(opts Options) *httpd.Server {
	reg := prometheus.NewRegistry()
	reg.MustRegister(NewCollector(opts.Latest), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	landing, err := web.NewLandingPage(web.LandingConfig{
		Name: "trimtab", Description: "Finds where training jobs lose step time, and gives it back.", Version: opts.Version, Profiling: "false",
		Links: []web.LandingLinks{{Address: "metrics", Text: "Metrics"}, {Address: "healthz", Text: "Health"}},
	})
	if err != nil {
		panic(err) // it is made of texts alone
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", landing)
	mux.Handle("GET /healthz", health(opts.Healthy))
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(opts.Logger.Handler(), slog.LevelError),
		ErrorHandling:       promhttp.ContinueOnError, // one bad series must not hide the others
		Registry:            reg,                      // counts its own errors
		MaxRequestsInFlight: maxScrapes,
	}))
	return &httpd.Server{Name: "metrics", Listens: opts.Listen, Group: opts.Group, WebConfig: opts.WebConfig, Handler: mux, Logger: opts.Logger}
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
