// Package page serves the web page: files that are embedded, the API's own answers to
// what changes nothing, and a stream of events. It computes nothing of its own. Whoever
// reaches its listener may look; nobody can change anything through it. docs/page.md.
package page

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

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

// guard lets nothing through but looking, asked by a browser that knows where it is.
type guard struct {
	names []string // hosts by which it may be asked, lower case
	next  http.Handler
}

// policy lets the browser load what this server embeds, and nothing else: no script or
// style of the document, no other host, no frame around it. Text cannot become markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

func (g guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "this page only shows; what changes something is asked for by trimtab's commands", http.StatusMethodNotAllowed)
	case !g.allows(r.Host):
		http.Error(w, fmt.Sprintf("%.80q is no name of this host that page.hosts lists: ask by localhost or an address, or add it there", r.Host), http.StatusMisdirectedRequest)
	case foreign(r):
		http.Error(w, "another site asks", http.StatusForbidden)
	default:
		g.next.ServeHTTP(w, r)
	}
}

// allows reports whether a request's Host can be this server. A name that somebody else's
// DNS gives to this address (DNS rebinding) is in no list; an address is nobody's name.
func (g guard) allows(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return slices.Contains(g.names, name)
}

// names are these hosts', the listener's and this machine's.
func names(listen string, hosts []string) []string {
	out := []string{"localhost"}
	if name, err := os.Hostname(); err == nil {
		out = append(out, name)
	}
	if host, _, err := net.SplitHostPort(listen); err == nil && host != "" {
		out = append(out, host)
	}
	out = append(out, hosts...)
	for i, name := range out {
		out[i] = strings.ToLower(strings.TrimSuffix(name, "."))
	}
	return out
}

// foreign reports whether another site's page makes the request. A person who follows a
// link from one is welcome.
func foreign(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || !strings.EqualFold(u.Host, r.Host)
}
