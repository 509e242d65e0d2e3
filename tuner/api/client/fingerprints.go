package client

import (
	"context"
	"net/http"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

// Fingerprints is GET /v1/fingerprints.
func (c *Client) Fingerprints(ctx context.Context) ([]state.Fingerprint, error) {
	var out api.Fingerprints
	err := c.call(ctx, http.MethodGet, "/v1/fingerprints", nil, &out)
	return out.Fingerprints, err
}

// Forget is POST /v1/fingerprints/forget.
func (c *Client) Forget(ctx context.Context, req state.ForgetRequest) ([]state.ActionResult, error) {
	return c.act(ctx, "/v1/fingerprints/forget", req)
}
