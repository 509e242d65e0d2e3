package client

import (
	"context"
	"net/http"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

// GPUs is GET /v1/gpus.
func (c *Client) GPUs(ctx context.Context) ([]state.GPUVisibility, error) {
	var out api.GPUs
	err := c.call(ctx, http.MethodGet, "/v1/gpus", nil, &out)
	return out.GPUs, err
}

// HideGPU is POST /v1/gpus/hide.
func (c *Client) HideGPU(ctx context.Context, req state.GPURequest) ([]state.ActionResult, error) {
	return c.act(ctx, "/v1/gpus/hide", req)
}

// ShowGPU is POST /v1/gpus/show.
func (c *Client) ShowGPU(ctx context.Context, req state.GPURequest) ([]state.ActionResult, error) {
	return c.act(ctx, "/v1/gpus/show", req)
}
