package api

import (
	"context"
	"net/http"

	"github.com/trimtab/trimtab/tuner/state"
)

// maxDevices bounds a request; hosts have up to 16 GPUs.
const maxDevices = 256

// GPUs answers GET /v1/gpus.
type GPUs struct {
	GPUs []state.GPUVisibility `json:"gpus"`
}

func (s *Server) gpus(_ http.ResponseWriter, r *http.Request) (any, error) {
	all, err := s.backend.GPUs(r.Context())
	if err != nil {
		return nil, err
	}
	return GPUs{list(all)}, nil
}

type changeGPU func(Backend, context.Context, state.GPURequest) ([]state.ActionResult, error)

// checked refuses what names no container or no devices.
func (change changeGPU) checked(b Backend, ctx context.Context, req state.GPURequest) ([]state.ActionResult, error) {
	if req.Name == "" || req.All == (len(req.Devices) > 0) || len(req.Devices) > maxDevices {
		return nil, BadRequest("a container and devices are needed", "name devices, or set all")
	}
	return change(b, ctx, req)
}
