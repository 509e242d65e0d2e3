package api

import (
	"net/http"
	"slices"

	"github.com/trimtab/trimtab/tuner/profiles"
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
	if allowed(r, AccessWrite) != nil {
		all = withoutWords(all)
	}
	return Fingerprints{list(all)}, nil
}

// withoutWords leaves out the hashes of single words and numbers: whoever may start a container with
// words of his choice could tell by them which others were started with.
func withoutWords(all []state.Fingerprint) []state.Fingerprint {
	all = slices.Clone(all)
	for i := range all {
		k := &all[i]
		k.Identities = slices.Clone(k.Identities)
		for j := range k.Identities {
			k.Identities[j].Words, k.Identities[j].Numbers = nil, nil
		}
		k.Ends = k.Ends.Each(func(e *profiles.End) { e.Numbers = nil })
	}
	return all
}
