package httpd

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// connections bounds how many a server holds. Where one more comes, the one that has asked
// nothing for the longest time goes; where all are served, the one that is served longest. So
// who holds many keeps nobody out.
type connections struct {
	mu    sync.Mutex
	since map[net.Conn]standing
}

// standing is since when a connection is served, or asks nothing.
type standing struct {
	at     time.Time
	served bool
}

// note is http.Server's ConnState.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	victim := c.change(conn, state, time.Now())
	if t, ok := victim.(*tls.Conn); ok {
		victim = t.NetConn() // TLS would wait to say goodbye, and new ones with it
	}
	if victim != nil {
		_ = victim.Close() // its own end is nobody's error
	}
}

// change takes a connection's new state in, and returns the one that must go.
func (c *connections) change(conn net.Conn, state http.ConnState, now time.Time) (victim net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(c.since, conn)
	case http.StateActive:
		c.since[conn] = standing{now, true}
	case http.StateNew, http.StateIdle:
		c.since[conn] = standing{now, false}
	}
	if len(c.since) <= MaxConnections {
		return nil
	}
	for other, s := range c.since {
		if other != conn && (victim == nil || s.before(c.since[victim])) {
			victim = other
		}
	}
	delete(c.since, victim)
	return victim
}

// before: it goes sooner.
func (s standing) before(t standing) bool {
	if s.served != t.served {
		return t.served
	}
	return s.at.Before(t.at)
}
