package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

// Report is GET /v1/report; without an instant it is of the last week.
func (c *Client) Report(ctx context.Context, q api.ReportQuery) (out state.Report, err error) {
	form := url.Values{}
	if q.SinceUnixNs != 0 {
		form.Set("since", time.Unix(0, q.SinceUnixNs).UTC().Format(time.RFC3339Nano))
	}
	if q.By != "" {
		form.Set("by", string(q.By))
	}
	return out, c.call(ctx, http.MethodGet, "/v1/report?"+form.Encode(), nil, &out)
}
