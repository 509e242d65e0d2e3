package api_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestWordsAreForWhoMayAct: who may look gets known jobs without the hashes of single words, and what the
// daemon holds stays as it is.
func TestWordsAreForWhoMayAct(t *testing.T) {
	hash := func(text string) identity.Hash { return identity.Hash([]byte(text)) }
	known := []state.Fingerprint{{ID: 7, Name: "train", Identities: []identity.Identity{{Job: "theJob", Words: []identity.Hash{hash("theWords")}, Numbers: []identity.Hash{hash("aNumber1")}}},
		Ends: profiles.EndsOf(profiles.End{Run: 0xa11, Numbers: []identity.Hash{hash("aNumber1")}})}}
	for name, c := range map[string]struct {
		access api.Access
		words  bool
	}{"who may look": {api.AccessRead, false}, "who may act": {api.AccessWrite, true}} {
		w := httptest.NewRecorder()
		h := api.NewServer(&fake{snapshot: snapshot(), known: known}, slog.New(slog.DiscardHandler), time.Now).HandlerFor(c.access)
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/fingerprints", nil))
		for text, want := range map[string]bool{"theJob": true, "0000000000000a11": true, "theWords": c.words, "aNumber": c.words} {
			if strings.Contains(w.Body.String(), text) != want {
				t.Errorf("%s: %s, want %v in %s", name, text, want, w.Body)
			}
		}
	}
	if known[0].Identities[0].Words == nil || known[0].Identities[0].Numbers == nil || known[0].Ends.All()[0].Numbers == nil {
		t.Errorf("what the daemon holds was changed: %+v", known)
	}
}
