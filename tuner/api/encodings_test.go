package api_test

import (
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/state"
)

// still shows one snapshot until a test shows another.
type still struct {
	api.Backend
	shown atomic.Pointer[state.Snapshot]
}

func (b *still) Snapshot() *state.Snapshot { return b.shown.Load() }

// where remembers in which memory an answer stood that it was given.
type where struct {
	*httptest.ResponseRecorder
	body *byte
}

func (w *where) Write(p []byte) (int, error) {
	if w.body == nil {
		w.body = unsafe.SliceData(p)
	}
	return w.ResponseRecorder.Write(p)
}

func askOf(t *testing.T, h http.Handler, path string) *where {
	t.Helper()
	w := &where{ResponseRecorder: httptest.NewRecorder()}
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w
}

// TestOneEncodingServesAll: fifty who ask of one snapshot, and the page, are given the same bytes, and
// of the next snapshot others. Who may not look gets none of them.
func TestOneEncodingServesAll(t *testing.T) {
	b := &still{}
	s := api.NewServer(b, slog.New(slog.DiscardHandler), time.Now)
	handlers := []http.Handler{s.HandlerFor(api.AccessRead), s.HandlerFor(api.AccessWrite), s.Looking()}
	for _, path := range []string{"/v1/status", "/v1/containers", "/v1/devices"} {
		var before *byte
		for _, at := range []string{`"time":5`, `"time":6`} {
			snap := snapshot()
			if before != nil {
				snap.UnixNs++
			}
			b.shown.Store(snap)
			var all [50]*where
			var done sync.WaitGroup
			for i := range all {
				done.Go(func() { all[i] = askOf(t, handlers[i%len(handlers)], path) })
			}
			done.Wait()
			for i, w := range all {
				if w.Code != http.StatusOK || w.body != all[0].body || w.body == before || !strings.Contains(w.Body.String(), at) {
					t.Fatalf("%s: number %d: status %d, encoded anew %v, the snapshot's before %v; want %s in %s", path, i, w.Code, w.body != all[0].body, w.body == before, at, w.Body)
				}
			}
			before = all[0].body
		}
		if w := askOf(t, s.HandlerFor(api.AccessNone), path); w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), `"time"`) {
			t.Errorf("%s: who may not look gets %d: %s", path, w.Code, w.Body)
		}
	}
}

// TestAnEncodingIsNoneOfAnothersRights: what was answered to who may act is not what others get.
func TestAnEncodingIsNoneOfAnothersRights(t *testing.T) {
	known := []state.Fingerprint{{ID: 7, Identities: []identity.Identity{{Words: []identity.Hash{identity.Hash([]byte("theWords"))}}}}}
	s := api.NewServer(&fake{snapshot: snapshot(), known: known, late: math.MaxInt}, slog.New(slog.DiscardHandler), time.Now)
	for _, may := range []struct {
		access api.Access
		words  bool
	}{{api.AccessWrite, true}, {api.AccessRead, false}, {api.AccessWrite, true}} {
		if w := askOf(t, s.HandlerFor(may.access), "/v1/fingerprints"); strings.Contains(w.Body.String(), "theWords") != may.words {
			t.Errorf("access %v, want words %v: %s", may.access, may.words, w.Body)
		}
	}
}

// TestAnEncodingIsNotKeptForNobody: where no snapshot comes, what was encoded is let go all the same.
func TestAnEncodingIsNotKeptForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &still{}
		b.shown.Store(snapshot())
		h := api.NewServer(b, slog.New(slog.DiscardHandler), time.Now).Looking()
		first := askOf(t, h, "/v1/containers").body
		time.Sleep(time.Second)
		if soon := askOf(t, h, "/v1/containers").body; soon != first {
			t.Error("encoded anew after a second")
		}
		time.Sleep(time.Minute)
		if late := askOf(t, h, "/v1/containers").body; late == first {
			t.Error("kept for a minute")
		}
		time.Sleep(time.Minute) // the timer of the last one ends in here
	})
}
