package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/trimtab/trimtab/tuner/account"
)

// ReportSince is how far a report goes back where nothing is asked.
const ReportSince = 7 * 24 * time.Hour

// ReportQuery selects what a report is of.
type ReportQuery struct {
	SinceUnixNs int64
	By          account.By
}

func (s *Server) report(_ http.ResponseWriter, r *http.Request) (any, error) {
	form, since := r.URL.Query(), s.now().Add(-ReportSince)
	by, err := account.ParseBy(form.Get("by"))
	if err != nil {
		return nil, BadRequest(fmt.Sprintf("by=%q: %s", form.Get("by"), err), "")
	}
	if text := form.Get("since"); text != "" {
		if since, err = ParseSince(text, s.now()); err != nil {
			return nil, BadRequest(fmt.Sprintf("since=%q: %s", text, err), "")
		}
	}
	if since.After(s.now()) {
		return nil, BadRequest(fmt.Sprintf("since=%q is in the future", form.Get("since")), "")
	}
	return s.backend.Report(r.Context(), ReportQuery{SinceUnixNs: since.UnixNano(), By: by})
}
