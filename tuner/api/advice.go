package api

import (
	"net/http"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/advice"
	"github.com/trimtab/trimtab/tuner/state"
)

// Advice answers GET /v1/advice.
type Advice struct {
	UnixNs int64           `json:"time"`
	Advice []advice.Advice `json:"advice"` // sorted by container, then what
}

func advices(snap *state.Snapshot, r *http.Request) (any, error) {
	out := Advice{UnixNs: snap.UnixNs, Advice: adviceOf(snap)}
	if name := r.URL.Query().Get("name"); name != "" {
		c, err := Find(snap, name)
		if err != nil {
			return nil, err
		}
		out.Advice = slices.DeleteFunc(out.Advice, func(a advice.Advice) bool { return a.Key != c.Key })
	}
	return out, nil
}

func adviceOf(s *state.Snapshot) []advice.Advice { return advice.Of(policies.DefaultConstants(), s) }

// advised are containers of a snapshot with all that is advised of them, after what policies said,
// and why nothing of them is changed: the page shows the words that explain prints. The snapshot is
// others' to read too: its containers are copied.
func advised(s *state.Snapshot, containers []state.Container) []state.Container {
	lines := map[string][]string{}
	for _, a := range adviceOf(s) {
		lines[a.Key] = append(lines[a.Key], a.String())
	}
	out := make([]state.Container, len(containers))
	for i, c := range containers {
		if c.Advice = slices.Concat(c.Advice, lines[c.Key]); len(c.Changed) == 0 {
			c.Why = c.Reason()
		}
		out[i] = c
	}
	return out
}
