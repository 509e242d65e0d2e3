package api

import (
	"net/http"

	"github.com/trimtab/trimtab/tuner/view"
)

// Fingerprints answers GET /v1/fingerprints.
type Fingerprints struct {
	Fingerprints []view.Fingerprint `json:"fingerprints"`
}

func (s *Server) fingerprints(_ http.ResponseWriter, r *http.Request) (any, error) {
	all, err := s.backend.Fingerprints(r.Context())
	if err != nil {
		return nil, err
	}
	if all == nil {
		all = []view.Fingerprint{}
	}
	return Fingerprints{all}, nil
}

func (s *Server) forget(_ http.ResponseWriter, r *http.Request) (any, error) {
	var req view.ForgetRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	return results(s.backend.Forget(r.Context(), req))
}
