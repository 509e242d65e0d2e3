package api

import "context"

// Routes lists what there is, "METHOD /path".
func Routes() []string {
	var out []string
	for _, r := range (&Server{}).routes() {
		out = append(out, r.method+" "+r.path)
	}
	return out
}

// PeerFrom returns who asked, from the context that a Backend is called with.
func PeerFrom(ctx context.Context) (Peer, bool) {
	c, ok := ctx.Value(peerKey{}).(*peerConn)
	if !ok {
		return Peer{}, false
	}
	return c.peer, true
}
