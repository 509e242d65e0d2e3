package probes

// Device is one GPU, or one MIG slice, at one instant, as NVML tells it. What the
// device, its driver or its mode does not tell is nil or empty: an absence is
// never a number.
type Device struct {
	Index   int    `json:"index"` // NVML's, of the GPU; a slice bears its GPU's
	Minor   int    `json:"minor"` // N of /dev/nvidiaN
	UUID    string `json:"uuid"`
	Parent  string `json:"parent,omitempty"` // a MIG slice's GPU, by UUID
	Name    string `json:"name,omitempty"`
	Virtual bool   `json:"virtual,omitempty"` // trimtab's own virtual GPU answers
	AtNs    int64  `json:"at"`                // CLOCK_MONOTONIC
	// Lost says why nothing could be read now ("fell off the bus", "no answer in 2 s").
	Lost string `json:"lost,omitempty"`

	// Duty holds the samples of "some kernel was running" that are newer than the last
	// reading, oldest first; NVML takes one about every 167 ms.
	Duty     []DutySample `json:"duty,omitempty"`
	MemTotal uint64       `json:"memTotal,omitempty"` // bytes
	MemUsed  uint64       `json:"memUsed,omitempty"`
	// SMActive, TensorActive and DRAMActive are shares of time, 0..1, since the last reading
	// (GPM, Hopper and later).
	SMActive     *float64 `json:"sm,omitempty"`
	TensorActive *float64 `json:"tensor,omitempty"`
	DRAMActive   *float64 `json:"dram,omitempty"`

	PowerW      *float64 `json:"power,omitempty"`
	PowerLimitW *float64 `json:"powerLimit,omitempty"`
	ClockMHz    *float64 `json:"clock,omitempty"` // SM, now
	MaxClockMHz *float64 `json:"maxClock,omitempty"`
	TempC       *float64 `json:"temp,omitempty"`
	// Slowdown holds the reasons why the clock is below its maximum now, of "power", "thermal",
	// "hw-slowdown", "power-brake", "sync-boost", "application", "idle", "other".
	Slowdown []string `json:"slowdown,omitempty"`

	// PCIeRxBps and PCIeTxBps are asked for in turns where there are more than two devices.
	PCIeRxBps *float64 `json:"pcieRx,omitempty"` // bytes/s, to the device
	PCIeTxBps *float64 `json:"pcieTx,omitempty"`
	// PCIeMaxBps is what the link gives in one direction at its present generation and width.
	PCIeMaxBps *float64 `json:"pcieMax,omitempty"`
	NVLinkRx   *uint64  `json:"nvlinkRx,omitempty"` // bytes since the driver started, all links
	NVLinkTx   *uint64  `json:"nvlinkTx,omitempty"`

	// Errors are told, and nothing is decided by them.
	Errors DeviceErrors `json:"errors,omitzero"`

	CPUs string `json:"cpus,omitempty"` // CPU list near the device
	NUMA *int   `json:"numa,omitempty"`

	// Sharing is how processes share the device: "", "mig", "mps" or "time-slicing" (more than
	// one process holds it without either).
	Sharing   string          `json:"sharing,omitempty"`
	Processes []DeviceProcess `json:"processes,omitempty"` // sorted by PID
}

// DeviceErrors is what the driver reports of a device's health.
type DeviceErrors struct {
	// XIDs are errors by NVIDIA's number, reported since the last reading, oldest first.
	XIDs []uint32 `json:"xids,omitempty"`
	// ECCUncorrected and ECCCorrected count errors of its memory since the driver was loaded.
	ECCUncorrected *uint64 `json:"eccUncorrected,omitempty"`
	ECCCorrected   *uint64 `json:"eccCorrected,omitempty"`
	// RowsRemapped are rows of its memory for which spare ones stand. RowPending: one more, after a
	// reset. RowFailed: there was no spare one.
	RowsRemapped *uint64 `json:"rowsRemapped,omitempty"`
	RowPending   bool    `json:"rowPending,omitempty"`
	RowFailed    bool    `json:"rowFailed,omitempty"`
}

// DutySample is NVML's utilisation in one of its own sampling periods.
type DutySample struct {
	AtNs  int64   `json:"at"`   // CLOCK_MONOTONIC of the period's end
	Share float64 `json:"duty"` // 0..1
}

// DeviceProcess is one process that holds a device.
type DeviceProcess struct {
	PID       int32  `json:"pid"`                 // host
	Container string `json:"container,omitempty"` // runtime.Container.Key; "" is a process of the host
	MemBytes  uint64 `json:"mem,omitempty"`       // 0 where not told
	Graphics  bool   `json:"graphics,omitempty"`
	// Server: the host's server of MPS. What it does is the work of its clients, which are listed too.
	Server bool     `json:"server,omitempty"`
	SM     *float64 `json:"sm,omitempty"` // its share of the SMs, 0..1; drops out at times, never there under MIG
}
