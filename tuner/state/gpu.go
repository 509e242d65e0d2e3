package state

// GPUVisibility is one GPU as one container has it: a line of `trimtab gpu ls`.
type GPUVisibility struct {
	Key     string `json:"key"` // of the container
	Name    string `json:"name"`
	Device  string `json:"device"`          // nvidiaN
	Index   *int   `json:"index,omitempty"` // NVML's, where it tells
	UUID    string `json:"uuid,omitempty"`
	Granted bool   `json:"granted"`          // by whoever made the container
	Visible bool   `json:"visible"`          // an open passes its control group now
	Hidden  bool   `json:"hidden,omitempty"` // by trimtab
	// Policy: no person asked for that, a policy did.
	Policy bool `json:"policy,omitempty"`
	// Users are the container's processes that NVML lists on the device, by host PID.
	Users []int32 `json:"users,omitempty"`
	Lost  string  `json:"lost,omitempty"` // why nothing can be told; the fields above are empty then
}

// GPURequest names a container and devices of it, for hide and show.
type GPURequest struct {
	Name    string   `json:"name"`
	Devices []string `json:"devices,omitempty"` // an index, nvidiaN, /dev/nvidiaN or a UUID
	All     bool     `json:"all,omitempty"`
}
