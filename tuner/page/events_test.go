package page

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/httpd"
	"github.com/trimtab/trimtab/tuner/state"
)

// serve runs the page on a port until the test ends.
func serve(t *testing.T, d *daemon) string {
	t.Helper()
	s := &httpd.Server{Name: "page", Listens: "127.0.0.1:0", Handler: Handler("127.0.0.1:0", nil, d.latest, d), Logger: slog.New(slog.DiscardHandler)}
	l, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// look opens a stream and returns its connection, and what came until a text did.
func look(t *testing.T, addr, until string) (net.Conn, string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	fmt.Fprint(c, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	return c, readUntil(t, c, until)
}

func readUntil(t *testing.T, c net.Conn, end string) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	one := make([]byte, 512)
	for !strings.Contains(got.String(), end) {
		n, err := c.Read(one)
		got.Write(one[:n])
		if err != nil {
			break
		}
	}
	return got.String()
}

// Fifty look at once: each sees each snapshot, and it is encoded once for all.
func TestFiftyViewers(t *testing.T) {
	d := new(daemon)
	d.unixNs.Store(1)
	addr := serve(t, d)
	var viewers []net.Conn
	for range 50 {
		c, first := look(t, addr, "\n\n")
		if !strings.Contains(first, "text/event-stream") || !strings.Contains(first, "event: status\ndata: {\"path\":\"/v1/status\"}\n\n") {
			t.Fatalf("%q", first)
		}
		viewers = append(viewers, c)
	}
	d.unixNs.Store(2)
	for _, c := range viewers {
		if next := readUntil(t, c, "event: status"); !strings.Contains(next, "event: status") {
			t.Fatalf("no word of the second snapshot: %q", next)
		}
	}
	if n := d.asked.Load(); n != 2 {
		t.Errorf("two snapshots were encoded %d times", n)
	}
	for range maxStreams - len(viewers) {
		look(t, addr, "\n\n")
	}
	if _, first := look(t, addr, "\n\n"); !strings.Contains(first, "event: status") {
		t.Errorf("one too many is not told: %q", first)
	}
	if rest := readUntil(t, viewers[0], "0\r\n\r\n"); !strings.HasSuffix(rest, "0\r\n\r\n") {
		t.Errorf("the oldest does not end: %q", rest)
	}
}

// A viewer that does not read is dropped; one beside it is told all the while.
func TestSlowViewerIsDropped(t *testing.T) {
	d := new(daemon)
	big := strings.Repeat("x", 1<<20)
	d.answer = func(w http.ResponseWriter, _ *http.Request) { d.unixNs.Add(1); _, _ = io.WriteString(w, big) } // news at once
	e := newEvents(d, d.latest, newLimiter(snapshotFactor))
	e.slow, e.every = 200*time.Millisecond, time.Millisecond
	ended := make(chan string, 2)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.ServeHTTP(w, r)
		ended <- r.URL.RawQuery
	}))
	defer srv.Close()
	fast, err := http.Get(srv.URL + "/events?fast") //nolint:noctx // closed below
	if err != nil {
		t.Fatal(err)
	}
	defer fast.Body.Close()
	var told atomic.Int64
	go func() {
		for lines := bufio.NewReaderSize(fast.Body, 2<<20); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if strings.HasPrefix(line, "event: status") {
				told.Add(1)
			}
		}
	}()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /events?slow HTTP/1.1\r\nHost: localhost\r\n\r\n") // and never reads
	before := told.Load()
	select {
	case who := <-ended:
		if who != "slow" {
			t.Errorf("the %s one is dropped", who)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("a viewer that does not read is kept")
	}
	if n := told.Load() - before; n < 2 {
		t.Errorf("the fast one was told %d times meanwhile", n)
	}
	e.mu.Lock()
	if n := len(e.streams); n != 1 {
		t.Errorf("%d places are taken, want the fast one's", n)
	}
	e.mu.Unlock()
}

// Where many ask at once while snapshots come, none is encoded twice.
func TestSnapshotIsEncodedOnce(t *testing.T) {
	d := new(daemon)
	d.unixNs.Store(2)
	e := newEvents(d, nil, newLimiter(snapshotFactor))
	e.latest = func() *state.Snapshot {
		if e.mu.TryLock() {
			e.mu.Unlock()
			t.Error("the snapshot's time is read before the lock is taken")
		}
		return d.latest()
	}
	e.now(httptest.NewRequest("GET", "/events", nil))
	s := newShared(d, nil)
	s.latest = func() *state.Snapshot {
		if s.mu.TryLock() {
			s.mu.Unlock()
			t.Error("an answer's snapshot is read before the lock is taken")
		}
		return d.latest()
	}
	ask(s, "GET", "/v1/status")
}
