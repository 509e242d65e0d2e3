package api

import (
	"net/http"

	"github.com/trimtab/trimtab/tuner/state"
)

// Fingerprints answers GET /v1/fingerprints.
type Fingerprints struct {
	Fingerprints []state.Fingerprint `json:"fingerprints"`
}

func (s *Server) fingerprints(_ http.ResponseWriter, r *http.Request) (any, error) {
	all, err := s.backend.Fingerprints(r.Context())
	if err != nil {
		return nil, err
	}
	if all == nil {
		all = []state.Fingerprint{}
	}
	return Fingerprints{all}, nil
}

func (s *Server) forget(_ http.ResponseWriter, r *http.Request) (any, error) {
	var req state.ForgetRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	return results(s.backend.Forget(r.Context(), req))
}
