package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

const (
	readHeaderTimeout = 5 * time.Second  // a client that never finishes its header is let go
	writeTimeout      = 30 * time.Second // above Prometheus' usual scrape timeout of 10 s
	readTimeout       = 10 * time.Second // of a whole request
	idleTimeout       = time.Minute      // beyond it a client connects anew
	shutdownTimeout   = 2 * time.Second  // what an open scrape may delay the daemon's stop
	maxHeaderBytes    = 16 << 10
	maxScrapes        = 4  // at once; more are answered 503
	maxConnections    = 64 // anybody on the host may connect, and each costs memory
)

// Options are what a Server needs.
type Options struct {
	Listen    string // host:port, or unix:PATH; "": nothing is served
	Group     string // whose members may connect to unix:PATH, beside root
	WebConfig string // exporter-toolkit's file with TLS and users; "": neither
	Version   string
	Latest    func() *state.Snapshot // see NewCollector
	Healthy   func() error           // nil while the daemon does its work; must be safe for concurrent use
	Logger    *slog.Logger
}

// Server serves /metrics, /healthz and a landing page.
type Server struct {
	opts    Options
	handler http.Handler
}

// CheckWebConfig reports what is wrong with a file for Options.WebConfig,
// certificates included; "" is right.
func CheckWebConfig(path string) error {
	if err := web.Validate(path); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// NewRegistry returns a registry of its own with the snapshot's metrics and those
// of this process and its Go runtime.
func NewRegistry(latest func() *state.Snapshot) (*prometheus.Registry, error) {
	reg := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		NewCollector(latest),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return reg, nil
}

// NewServer builds the handler; nothing is listened on before Run.
func NewServer(opts Options) (*Server, error) {
	reg, err := NewRegistry(opts.Latest)
	if err != nil {
		return nil, err
	}
	landing, err := web.NewLandingPage(web.LandingConfig{
		Name: "trimtab", Description: "Finds where training jobs lose step time, and gives it back.", Version: opts.Version, Profiling: "false",
		Links: []web.LandingLinks{{Address: "metrics", Text: "Metrics"}, {Address: "healthz", Text: "Health"}},
	})
	if err != nil {
		return nil, fmt.Errorf("landing page: %w", err)
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
	return &Server{opts: opts, handler: mux}, nil
}

// Handler is the server's handler without TLS and users.
func (s *Server) Handler() http.Handler { return s.handler }

// Listen binds Options.Listen, so that a busy port is an error before the daemon
// says that it is ready. It returns nil, nil if nothing is to be served.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
	if s.opts.Listen == "" {
		return nil, nil
	}
	if path, isUnix := strings.CutPrefix(s.opts.Listen, "unix:"); isUnix {
		l, err := api.ListenFor(path, s.opts.Group)
		if err != nil {
			return nil, fmt.Errorf("metrics.listen %s: %w", s.opts.Listen, err)
		}
		return l, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("metrics.listen %s: %w; set another address, or \"\" for none", s.opts.Listen, err)
	}
	return l, nil
}

// Run serves on l until ctx ends, and closes it; a nil l waits for ctx. It
// returns nil when ctx ended it.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	if l == nil {
		<-ctx.Done()
		return nil
	}
	open := connections{since: map[net.Conn]standing{}}
	srv := &http.Server{Handler: s.handler, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ConnState: open.note,
		ErrorLog: slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug)}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if srv.Shutdown(bound) != nil {
			_ = srv.Close() // scrapes that would not end are cut off
		}
	})
	socket := false
	err := web.Serve(l, srv, &web.FlagConfig{WebConfigFile: &s.opts.WebConfig, WebSystemdSocket: &socket}, s.opts.Logger)
	if !stop() {
		<-stopped
	}
	_ = l.Close() // web.Serve leaves it open where the web config is bad
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving metrics on %s: %w", s.opts.Listen, err)
}

// health answers 200 while healthy says so, else 503 and why.
func health(healthy func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if healthy != nil {
			if err := healthy(); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = fmt.Fprintln(w, err)
				return
			}
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
}
