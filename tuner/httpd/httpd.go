// Package httpd is what the metrics and the page have in common: an HTTP listener
// on TCP or a Unix socket, exporter-toolkit's TLS and users, and bounds of what a
// client can make the daemon hold.
package httpd

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
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
	Meter     *api.Meter // of what taking connections costs; nil: it is not counted
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
	open := connections{since: map[net.Conn]standing{}, held: map[string]int{}}
	l = &paced{Listener: l, meter: s.Meter}
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

// connections bounds how many a server holds. Where one more comes, one of the owner goes who holds most: the
// one that has asked nothing for the longest time; where all are served, the one that is served longest. So
// who holds many keeps nobody out, and takes nobody's.
type connections struct {
	mu    sync.Mutex
	since map[net.Conn]standing
	held  map[string]int // by owner
}

// standing is since when a connection is served, or asks nothing, and whose it is.
type standing struct {
	at     time.Time
	served bool
	owner  string
}

// note is http.Server's ConnState.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	victim := c.change(conn, state, ownerOf(conn), time.Now())
	if t, ok := victim.(*tls.Conn); ok {
		victim = t.NetConn() // TLS would wait to say goodbye, and new ones with it
	}
	if victim != nil {
		_ = victim.Close() // its own end is nobody's error
	}
}

func ownerOf(conn net.Conn) string {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	o, _ := conn.(owned) // all are
	return o.owner
}

// change takes a connection's new state in, and returns the one that must go.
func (c *connections) change(conn net.Conn, state http.ConnState, owner string, now time.Time) (victim net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		c.drop(conn)
	case http.StateActive, http.StateNew, http.StateIdle:
		if _, known := c.since[conn]; !known {
			c.held[owner]++
		}
		c.since[conn] = standing{now, state == http.StateActive, owner}
	}
	if len(c.since) <= MaxConnections {
		return nil
	}
	for other, s := range c.since {
		if other != conn && (victim == nil || c.before(s, c.since[victim])) {
			victim = other
		}
	}
	c.drop(victim)
	return victim
}

func (c *connections) drop(conn net.Conn) {
	s, known := c.since[conn]
	if !known {
		return
	}
	delete(c.since, conn)
	if c.held[s.owner]--; c.held[s.owner] <= 0 {
		delete(c.held, s.owner)
	}
}

// before: s goes sooner than t.
func (c *connections) before(s, t standing) bool {
	if s.owner != t.owner && c.held[s.owner] != c.held[t.owner] {
		return c.held[s.owner] > c.held[t.owner]
	}
	if s.served != t.served {
		return t.served
	}
	return s.at.Before(t.at)
}
