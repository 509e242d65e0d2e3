package api

import (
	"context"
	"net/http"
)

// Routes lists what there is, "METHOD /path".
func Routes() []string {
	var out []string
	for _, r := range Operations() {
		out = append(out, r.Method+" "+r.Path)
	}
	return out
}

// HandlerFor is the API as a peer with such access meets it.
func (s *Server) HandlerFor(a Access) http.Handler {
	h := s.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), peerKey{}, &peerConn{access: a})))
	})
}
