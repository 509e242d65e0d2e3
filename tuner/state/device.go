package state

import (
	"strconv"
	"strings"
)

// Device is one GPU, or one MIG slice, with who holds it. What the driver does not
// tell is nil.
type Device struct {
	Index   int    `json:"index"` // NVML's, of the GPU; a slice bears its GPU's
	UUID    string `json:"uuid"`
	Parent  string `json:"parent,omitempty"` // a slice's GPU, by UUID
	Sliced  bool   `json:"sliced,omitempty"` // a GPU that is used by slices alone
	Name    string `json:"name,omitempty"`
	Virtual bool   `json:"virtual,omitempty"` // trimtab's virtual GPU
	Lost    string `json:"lost,omitempty"`    // why nothing can be read now
	Sharing string `json:"sharing,omitempty"` // "", mig, mps, time-slicing

	MemTotal uint64   `json:"memTotal,omitempty"` // bytes
	MemUsed  uint64   `json:"memUsed,omitempty"`
	Duty     *float64 `json:"duty,omitempty"` // share of time in which some kernel ran, of the latest reading
	// Shares of time, 0..1, from Hopper on.
	SMActive     *float64 `json:"sm,omitempty"`
	TensorActive *float64 `json:"tensor,omitempty"`
	DRAMActive   *float64 `json:"dram,omitempty"`

	PowerW      *float64 `json:"power,omitempty"`
	PowerLimitW *float64 `json:"powerLimit,omitempty"`
	ClockMHz    *float64 `json:"clock,omitempty"` // of the SMs
	MaxClockMHz *float64 `json:"maxClock,omitempty"`
	TempC       *float64 `json:"temp,omitempty"`
	Slowdown    []string `json:"slowdown,omitempty"` // why the clock is below its maximum, as probes.Device says

	PCIeRxBps  *float64 `json:"pcieRx,omitempty"` // bytes/s, to the device
	PCIeTxBps  *float64 `json:"pcieTx,omitempty"`
	PCIeMaxBps *float64 `json:"pcieMax,omitempty"`  // in one direction
	NVLinkRx   *uint64  `json:"nvlinkRx,omitempty"` // bytes since the driver started, all links
	NVLinkTx   *uint64  `json:"nvlinkTx,omitempty"`

	Errors  DeviceErrors `json:"errors,omitzero"`
	Holders []Holder     `json:"holders"` // sorted by name, then key
	// Hold keeps the device for a job that is about to start, as `trimtab place` was asked to.
	Hold *Hold `json:"hold,omitempty"`
}

// DeviceErrors is what the driver reports of a device's health. It is told, and nothing is decided by it.
type DeviceErrors struct {
	XIDs []XIDCount `json:"xids,omitempty"` // by number, ascending
	// Faults counts those that no program's own fault explains, and memory errors that ECC cannot correct,
	// since the daemon started.
	Faults uint64 `json:"faults,omitempty"`
	// ECCUncorrected and ECCCorrected are errors of its memory since the driver was loaded.
	ECCUncorrected *uint64 `json:"eccUncorrected,omitempty"`
	ECCCorrected   *uint64 `json:"eccCorrected,omitempty"`
	// RowsRemapped are rows of its memory for which spare ones stand. RowPending: one more does after a
	// reset. RowFailed: there was no spare one.
	RowsRemapped *uint64 `json:"rowsRemapped,omitempty"`
	RowPending   bool    `json:"rowPending,omitempty"`
	RowFailed    bool    `json:"rowFailed,omitempty"`
}

// XIDCount counts the errors of one of NVIDIA's numbers since the daemon started; 0 is all beyond 32 numbers.
type XIDCount struct {
	XID   uint32 `json:"xid"`
	Count uint64 `json:"count"`
}

// GPUError is an error that was told.
type GPUError struct {
	UnixNs int64  `json:"time"`
	Text   string `json:"text"` // "GPU 0 reported XID 79: fell off the bus"
}

// Label is the device's short name, in tables and metrics: its index, and for a
// slice the beginning of its UUID.
func (d Device) Label() string {
	index := strconv.Itoa(d.Index)
	if d.Parent == "" {
		return index
	}
	uuid := strings.TrimPrefix(d.UUID, "MIG-")
	return index + "/" + uuid[:min(8, len(uuid))]
}

// Holder is one container, or the processes of the host together, on one device.
type Holder struct {
	Key  string  `json:"key"` // of the container; "" for the host
	Name string  `json:"name"`
	Team string  `json:"team,omitempty"`
	Host bool    `json:"host,omitempty"` // processes outside of all containers
	PIDs []int32 `json:"pids,omitempty"` // host, at most 16

	MemBytes    uint64 `json:"mem"`   // device memory held
	SinceUnixNs int64  `json:"since"` // first seen on the device
	// QuietUnixNs is its latest known use; with FirstSight none was seen, and that is when
	// it was first looked at. QuietSeconds is how long it is known to have run nothing.
	QuietUnixNs  int64   `json:"quietSince"`
	FirstSight   bool    `json:"firstSight,omitempty"`
	QuietSeconds float64 `json:"quiet"`
	Idle         bool    `json:"idle"`               // quiet for longer than Snapshot.IdleAfterNs
	Evidence     string  `json:"evidence,omitempty"` // how that is known, or that it is not

	HeldSeconds float64 `json:"heldSeconds"` // totals of this container and device
	IdleSeconds float64 `json:"idleSeconds"` // without a kernel, beyond the first IdleAfterNs of each stretch
}

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
