// Package page serves the web page: files that are embedded, the API's own answers to
// what changes nothing, and a stream of events. It computes nothing of its own. Whoever
// reaches its listener may look; nobody can change anything through it. docs/page.md.
package page

import (
	"log/slog"
	"net/http"

	"github.com/trimtab/trimtab/tuner/httpd"
	"github.com/trimtab/trimtab/tuner/state"
)

// Options are what a server needs.
type Options struct {
	Listen    string   // host:port, or unix:PATH
	Group     string   // whose members may connect to unix:PATH, beside root
	WebConfig string   // exporter-toolkit's file with TLS and users; "": neither
	Hosts     []string // names by which browsers may ask, beside localhost and addresses
	Latest    func() *state.Snapshot
	Looking   http.Handler // the API's routes that change nothing
	Logger    *slog.Logger
}

// New returns a server; nothing is listened on before Listen.
func New(o Options) *httpd.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /", newFiles())
	answers := newShared(o.Looking, o.Latest)
	mux.Handle("GET /v1/", answers)
	mux.Handle("GET /events", newEvents(o.Looking, o.Latest, answers.snapshot))
	return &httpd.Server{Name: "page", Listens: o.Listen, Group: o.Group, WebConfig: o.WebConfig, Handler: guard{names(o), mux}, Logger: o.Logger}
}
