package client

import (
	"context"
	"net/http"

	"github.com/trimtab/trimtab/tuner/state"
)

// Place is POST /v1/place.
func (c *Client) Place(ctx context.Context, req state.PlaceRequest) (out state.Placement, err error) {
	return out, c.call(ctx, http.MethodPost, "/v1/place", req, &out)
}
