package api

import (
	"context"
	"net/http"

	"github.com/trimtab/trimtab/tuner/state"
)

// Devices answers GET /v1/devices.
type Devices struct {
	UnixNs      int64          `json:"time"`
	IdleAfterNs int64          `json:"idleAfter"` // a holder without a kernel for longer is idle
	Devices     []state.Device `json:"devices"`
	Why         string         `json:"why,omitempty"` // no devices: why, a normal state
}

func devices(snap *state.Snapshot) any { return devicesOf(snap) }

// devicesProbe is the part of the daemon that reads devices.
const devicesProbe = "nvml"

func devicesOf(s *state.Snapshot) Devices {
	out := Devices{UnixNs: s.UnixNs, IdleAfterNs: s.IdleAfterNs, Devices: s.Devices}
	if len(out.Devices) > 0 {
		return out
	}
	out.Devices = []state.Device{} // a list, never null
	out.Why = "the daemon has no part that reads GPUs"
	for _, p := range s.Daemon.Probes {
		switch {
		case p.Name != devicesProbe:
		case p.Lost != "":
			out.Why = p.Lost
		case p.Note != "":
			out.Why = p.Note
		default:
			out.Why = "NVIDIA's driver lists none"
		}
	}
	return out
}

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
