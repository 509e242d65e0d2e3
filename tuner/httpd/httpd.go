// Package httpd is what the metrics and the page have in common: an HTTP listener
// on TCP or a Unix socket, exporter-toolkit's TLS and users, and bounds of what a
// client can make the daemon hold.
package httpd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/exporter-toolkit/web"

	"github.com/trimtab/trimtab/tuner/api"
)

// MaxConnections is how many connections one listener keeps: anybody on the host may
// connect, and each costs memory.
const MaxConnections = 64

const (
	readHeaderTimeout = 5 * time.Second  // a client that never finishes its header is let go
	writeTimeout      = 30 * time.Second // above Prometheus' usual scrape timeout of 10 s
	readTimeout       = 10 * time.Second // of a whole request
	idleTimeout       = time.Minute      // beyond it a client connects anew
	shutdownTimeout   = 2 * time.Second  // what an open answer may delay the daemon's stop
	maxHeaderBytes    = 16 << 10
	maxStreams        = 8 // of one HTTP/2 connection: they are not in MaxConnections
)

// Server is one listener and what answers on it.
type Server struct {
	Name      string // of its section in the config, for errors: "metrics"
	Listens   string // host:port, or unix:PATH
	Group     string // whose members may connect to unix:PATH, beside root
	WebConfig string // exporter-toolkit's file with TLS and users; "": neither
	Handler   http.Handler
	Logger    *slog.Logger
}

// CheckWebConfig reports what is wrong with a file for Server.WebConfig,
// certificates included; "" is right.
func CheckWebConfig(path string) error {
	if err := web.Validate(path); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Listen binds, so that a busy port is an error before the daemon says that it is
// ready.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
	if path, isUnix := strings.CutPrefix(s.Listens, "unix:"); isUnix {
		l, err := api.ListenFor(path, s.Group)
		if err != nil {
			return nil, fmt.Errorf("%s.listen %s: %w", s.Name, s.Listens, err)
		}
		return l, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.Listens)
	if err != nil {
		return nil, fmt.Errorf("%s.listen %s: %w; set another address, or \"\" for none", s.Name, s.Listens, err)
	}
	return l, nil
}

// Run serves on l until ctx ends, and closes it. Requests' contexts end with ctx. It returns
// nil when ctx ended it.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	open := connections{since: map[net.Conn]standing{}}
	srv := &http.Server{Handler: s.Handler, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ConnState: open.note,
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug)}
	socket := false
	err := api.Serve(ctx, srv, shutdownTimeout, func() error {
		return web.Serve(l, srv, &web.FlagConfig{WebConfigFile: &s.WebConfig, WebSystemdSocket: &socket}, s.Logger)
	})
	_ = l.Close() // web.Serve leaves it open where the web config is bad
	if err == nil {
		return nil
	}
	return fmt.Errorf("serving %s on %s: %w", s.Name, s.Listens, err)
}
