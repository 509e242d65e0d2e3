package policies

// Hider says who hid a device from a container.
type Hider string

// A device that nobody hid has none.
const (
	HiddenByPerson Hider = "person"
	HiddenByPolicy Hider = "policy"
)

// Device is one GPU that a container was granted, as that container has it.
type Device struct {
	Device  string `json:"device"` // UUID
	Visible bool   `json:"visible,omitempty"`
	Hidden  Hider  `json:"hidden,omitempty"`
	// UnusedSeconds is for how long no process of the container was on it, and so no kernel
	// of it either; since it was first looked at, or since the last time that this could not
	// be told. FreeSeconds is the same of anybody's processes.
	UnusedSeconds float64 `json:"unused"`
	FreeSeconds   float64 `json:"free"`
	// Others are the containers beside it that have a process on it now, sorted by key.
	Others []Holder `json:"others,omitempty"`
}

// Holder is another container on a device.
type Holder struct {
	Key      string  `json:"key"`
	Name     string  `json:"name"`
	Enrolled bool    `json:"enrolled,omitempty"` // may be changed
	Verdict  Verdict `json:"verdict"`
}

// WantsDevice reports whether a verdict says that a container is short of devices: it waits
// for them, or shares them with others.
func (v Verdict) WantsDevice() bool {
	return v.Class == ClassCompute && (v.Cause == CauseDevice || v.Cause == CauseShared)
}

// GPUVisibility asks to hide one device from a container, or to show one again. Allowed where the
// container's enrolment allows the knob "gpu", and no person decided on its devices.
type GPUVisibility struct {
	Policy string `json:"policy"`
	Key    string `json:"key"`
	Name   string `json:"name"`
	Device string `json:"device"` // UUID
	Hide   bool   `json:"hide,omitempty"`
	Reason string `json:"reason"`
}
