// Package page serves the web page: files that are embedded, the API's own answers to
// what changes nothing, and a stream of events. It computes nothing of its own. Whoever
// reaches its listener may look; nobody can change anything through it. docs/page.md.
package page

import (
	"net/http"

	"github.com/trimtab/trimtab/tuner/state"
)

// Handler is the page. listen is where it is asked (host:port, or unix:PATH), hosts are names by which
// browsers may ask beside localhost and addresses, looking are the API's routes that change nothing.
func Handler(listen string, hosts []string, latest func() *state.Snapshot, looking http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", newFiles())
	answers := newShared(looking, latest)
	mux.Handle("GET /v1/", answers)
	mux.Handle("GET /events", newEvents(looking, latest, answers.snapshot))
	return guard{names(listen, hosts), mux}
}
