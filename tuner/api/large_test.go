package api_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
