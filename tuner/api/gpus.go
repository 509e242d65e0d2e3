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
	if all == nil {
		all = []state.GPUVisibility{} // a list, never null
	}
	return GPUs{all}, nil
}

func (s *Server) hideGPU(_ http.ResponseWriter, r *http.Request) (any, error) {
	return changeGPU(r, s.backend.HideGPU)
}

func (s *Server) showGPU(_ http.ResponseWriter, r *http.Request) (any, error) {
	return changeGPU(r, s.backend.ShowGPU)
}

func changeGPU(r *http.Request, change func(context.Context, state.GPURequest) ([]state.ActionResult, error)) (any, error) {
	var req state.GPURequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	if req.Name == "" || req.All == (len(req.Devices) > 0) || len(req.Devices) > maxDevices {
		return nil, BadRequest("a container and devices are needed", "name devices, or set all")
	}
	return results(change(r.Context(), req))
}
