package nvml

import "strconv"

// Memory layouts and numbers of nvml.h, as drivers since 470 use them. Each struct
// is laid out as a C compiler does on amd64 and arm64; the padding is written out.

// code is an nvmlReturn_t, or one of the negative ones below.
type code int32

const (
	codeOK           code = 0
	codeNotSupported code = 3
	codeNotFound     code = 6
	codeTooSmall     code = 7
	codeNoDriver     code = 9
	codeLost         code = 15
	codeReset        code = 16
	codeBlocked      code = 17
	codeMismatch     code = 18
	codeNoDevice     code = 28 // newer drivers: nvmlInit_v2 finds none

	codeNoSymbol code = -1 // this driver's library lacks the function
	codeLeftOut  code = -2 // it hung or ended a child before
	codeNoValue  code = -3 // a sentinel stood where a value should
)

func (c code) String() string {
	switch c {
	case codeOK:
		return "answered"
	case codeNotSupported:
		return "not supported"
	case codeNotFound:
		return "nothing found"
	case codeTooSmall:
		return "buffer too small"
	case codeNoDriver:
		return "the driver is not loaded"
	case codeLost:
		return "fell off the bus"
	case codeReset:
		return "needs a reset"
	case codeBlocked:
		return "blocked by the operating system"
	case codeMismatch:
		return "driver/library version mismatch"
	case codeNoDevice:
		return "no device"
	case codeNoSymbol:
		return "not in this library"
	case codeLeftOut:
		return "left out"
	case codeNoValue:
		return "no value"
	}
	return "error " + strconv.Itoa(int(c))
}

const (
	samplesUtilization = 1 // NVML_GPU_UTILIZATION_SAMPLES
	clockSM            = 1
	temperatureGPU     = 0
	pcieTx             = 0 // to the host
	pcieRx             = 1 // to the device
	affinityNode       = 0

	fieldNVLinkTx = 138 // NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, KiB
	fieldNVLinkRx = 139
	allLinks      = ^uint32(0) // scope of the two above: the sum of all links

	gpmSMUtil     = 2
	gpmTensorUtil = 5
	gpmDRAMUtil   = 10
	gpmVersion    = 1

	noBytes = ^uint64(0) // NVML_VALUE_NOT_AVAILABLE
)

// Bits of nvmlDeviceGetCurrentClocksEventReasons.
const (
	reasonIdle         = 0x1
	reasonApplication  = 0x2
	reasonSWPower      = 0x4
	reasonHWSlowdown   = 0x8
	reasonSyncBoost    = 0x10
	reasonSWThermal    = 0x20
	reasonHWThermal    = 0x40
	reasonHWPowerBrake = 0x80
)

type memoryV1 struct{ Total, Free, Used uint64 }

type memoryV2 struct {
	Version, _                  uint32
	Total, Reserved, Free, Used uint64
}

const memoryV2Version = 40 | 2<<24 // sizeof | version

type temperatureV1 struct {
	Version, Sensor uint32
	Celsius         int32
}

const temperatureVersion = 12 | 1<<24

type sample struct {
	AtUs  uint64 // wall clock
	Value [8]byte
}

type processInfo struct { // v2 and v3
	PID, _   uint32
	MemBytes uint64
	_, _     uint32 // GPU and compute instance
}

type processUse struct {
	PID, _ uint32
	AtUs   uint64 // wall clock
	SM     uint32 // percent
	_      [3]uint32
}

type fieldValue struct {
	Field, Scope uint32
	AtUs         int64
	LatencyUs    int64
	Type         uint32
	Return       code
	Value        [8]byte
}

type gpmMetric struct {
	ID     uint32
	Return code
	Value  float64
	_      [3]uintptr // names and unit, written by the library
}

// gpmRequest has room for the metrics asked for; the library reads Count of them,
// and nvml.h's longer array is room that no version of it needs.
type gpmRequest struct {
	Version, Count uint32
	First, Second  uintptr
	Metrics        [3]gpmMetric
	_              [gpmMetricsMax - 3]gpmMetric
}

// gpmMetricsMax is more than twice NVML_GPM_METRIC_MAX of the newest header known (477):
// a library that clears the whole struct finds it all there.
const gpmMetricsMax = 1024

type gpmSupport struct{ Version, Supported uint32 }
