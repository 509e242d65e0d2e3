package api

import (
	"net/http"

	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
)

// series answers GET /v1/series.
func (s *Server) series(snap *state.Snapshot, r *http.Request) (any, error) {
	name := r.URL.Query().Get("name")
	if name == "" {
		return nil, BadRequest("name= is missing", "it takes a container's name, ID or key")
	}
	c, err := Find(snap, name)
	if err != nil {
		return nil, err
	}
	return series.Series{Key: c.Key, Name: c.Name, EveryNs: series.EveryNs, Parts: series.PartNames(), Points: s.backend.Series(c.Key)}, nil
}
