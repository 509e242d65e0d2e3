package api_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

// slowHistory counts those that ask it at once.
type slowHistory struct {
	fake
	now, most atomic.Int32
	goOn      chan struct{}
}

func (h *slowHistory) History(ctx context.Context, _ api.HistoryQuery) ([]state.Record, error) {
	n := h.now.Add(1)
	defer h.now.Add(-1)
	for most := h.most.Load(); n > most && !h.most.CompareAndSwap(most, n); most = h.most.Load() {
	}
	select {
	case <-h.goOn:
	case <-ctx.Done():
	}
	return nil, ctx.Err()
}

// TestLargeAnswersAreFew: a member of the group that may look has as many connections as it likes. The
// history that each of them is sent stays in memory until it is read, and keeps no operator's from being made.
func TestLargeAnswersAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &slowHistory{fake: fake{snapshot: snapshot()}, goOn: make(chan struct{})}
		s := api.NewServer(h, slog.New(slog.DiscardHandler), time.Now)
		ask := func(a api.Access) int {
			w := httptest.NewRecorder()
			s.HandlerFor(a).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/history", nil))
			return w.Code
		}
		var codes [64]int
		var all sync.WaitGroup
		for i := range codes {
			all.Go(func() { codes[i] = ask(api.AccessRead) })
		}
		synctest.Wait()
		if n := h.most.Load(); n > 4 {
			t.Errorf("%d are made at once for those who may look", n)
		}
		operator := make(chan int, 1)
		go func() { operator <- ask(api.AccessWrite) }()
		synctest.Wait()
		close(h.goOn)
		if code := <-operator; code != http.StatusOK {
			t.Errorf("an operator is answered %d", code)
		}
		all.Wait()
		for _, code := range codes {
			if code != http.StatusOK {
				t.Fatalf("answered %d", code)
			}
		}
	})
}

// TestLargeAnswersAreWaitedFor: for a while, and who is not answered is told so.
func TestLargeAnswersAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &slowHistory{fake: fake{snapshot: snapshot()}, goOn: make(chan struct{})}
		s := api.NewServer(h, slog.New(slog.DiscardHandler), time.Now)
		var all sync.WaitGroup
		var busy atomic.Int32
		for range 5 {
			all.Go(func() {
				w := httptest.NewRecorder()
				s.HandlerFor(api.AccessRead).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/history", nil))
				if w.Code == http.StatusServiceUnavailable {
					busy.Add(1)
				}
			})
		}
		time.Sleep(15 * time.Second)
		if n := busy.Load(); n != 1 {
			t.Errorf("%d of 5 are told that others ask", n)
		}
		close(h.goOn)
		all.Wait()
	})
}

// longHistory is more than a connection buffers.
type longHistory struct{ fake }

func (*longHistory) History(context.Context, api.HistoryQuery) ([]state.Record, error) {
	return []state.Record{{Text: strings.Repeat("x", 1<<20)}}, nil
}

// TestLargeAnswersAreReadSoon: who asks and does not read keeps nobody else of the group waiting for long.
func TestLargeAnswersAreReadSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &longHistory{fake{snapshot: snapshot()}}
		conns := make(pipes)
		served := &http.Server{Handler: api.NewServer(h, slog.New(slog.DiscardHandler), time.Now).HandlerFor(api.AccessRead)}
		go func() { _ = served.Serve(conns) }()
		ask := func() net.Conn {
			here, there := net.Pipe()
			conns <- there
			if _, err := io.WriteString(here, "GET /v1/history HTTP/1.1\r\nHost: trimtab\r\n\r\n"); err != nil {
				t.Error(err)
			}
			return here
		}
		for range 4 {
			defer ask().Close() //nolint:errcheck // it was not read
		}
		synctest.Wait()
		last := ask()
		answer, err := http.ReadResponse(bufio.NewReader(last), nil)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%v, %v", answer, err)
		}
		_ = errors.Join(last.Close(), served.Close())
	})
}

// pipes is a listener whose connections tests make.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { close(p); return nil }

func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }
