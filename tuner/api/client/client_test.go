package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

// stuckAt answers each call with what it is told, and then nothing more, until the test ends.
func stuckAt(t *testing.T, says string) *Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "stuck.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil { // what comes before is no answer
				_, _ = io.WriteString(conn, says)
			}
		}
	}()
	return New(socket)
}

// TestDaemonThatHangs: no call waits for ever, whether the answer never comes or never ends.
func TestDaemonThatHangs(t *testing.T) {
	const waited = 50 * time.Millisecond
	calls := map[string]struct {
		bound time.Duration // the daemon's own
		ask   func(*Client, context.Context) error
	}{
		"look":   {api.LookTimeout, func(c *Client, ctx context.Context) error { _, err := c.Status(ctx); return err }},
		"place":  {api.LookTimeout, func(c *Client, ctx context.Context) error { _, err := c.Place(ctx, state.PlaceRequest{}); return err }},
		"act":    {api.ActTimeout, func(c *Client, ctx context.Context) error { _, err := c.Restore(ctx, ""); return err }},
		"record": {time.Hour + api.LookTimeout, func(c *Client, ctx context.Context) error { return c.Record(ctx, io.Discard, time.Hour) }},
	}
	for name, says := range map[string]string{"no answer": "", "half of one": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"} {
		for call, how := range calls {
			t.Run(call+", "+name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				c := stuckAt(t, says)
				c.grace = waited - how.bound
				if err := how.ask(c, ctx); !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), "the trimtab daemon has not answered in 50ms (at "+c.socket+")") {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

// TestCallerIsHeeded: who waits for less than the daemon may take is told so by the own context.
func TestCallerIsHeeded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := stuckAt(t, "").Status(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNoAnswer) {
		t.Errorf("got %v", err)
	}
}
