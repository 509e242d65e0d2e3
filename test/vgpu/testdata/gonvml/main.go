// Command gonvml reads a libnvidia-ml by NVIDIA's own binding and prints what it
// says as JSON: with it vgpu_test.go looks at the virtual one. It is a module of its
// own, since the binding needs cgo.
//
//	gonvml LIBRARY [CALL]
//
// With CALL ("temperature", "processes") it makes that call alone on device 0.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

type sample struct {
	Us    uint64 `json:"us"`
	Value uint64 `json:"value"`
}

type process struct {
	PID   uint32 `json:"pid"`
	Mem   uint64 `json:"mem"`
	Slice uint32 `json:"slice"`
}

type use struct {
	PID uint32 `json:"pid"`
	SM  uint32 `json:"sm"`
}

type device struct {
	Name      string         `json:"name"`
	UUID      string         `json:"uuid"`
	Minor     int            `json:"minor"`
	Bus       string         `json:"bus"`
	Total     uint64         `json:"total"`
	Used      uint64         `json:"used"`
	UsedV2    uint64         `json:"usedV2"`
	Duty      []sample       `json:"duty"`
	Processes []process      `json:"processes"`
	Uses      []use          `json:"uses"`
	Rates     uint32         `json:"rates"`
	PowerMW   uint32         `json:"power"`
	LimitMW   uint32         `json:"limit"`
	ClockMHz  uint32         `json:"clock"`
	MaxMHz    uint32         `json:"maxClock"`
	Reasons   uint64         `json:"reasons"`
	TempC     uint32         `json:"temp"`
	PCIeRx    uint32         `json:"pcieRx"`
	Gen       int            `json:"gen"`
	Width     int            `json:"width"`
	CPUs      []uint         `json:"cpus"`
	Numa      []uint         `json:"numa"`
	Mig       int            `json:"mig"`
	Slices    []device       `json:"slices,omitempty"`
	SM        float64        `json:"sm"` // GPM, since the start
	Errors    map[string]int `json:"errors"`
}

func (d *device) ok(call string, r nvml.Return) bool {
	if r != nvml.SUCCESS {
		d.Errors[call] = int(r)
	}
	return r == nvml.SUCCESS
}

func read(h nvml.Device) device {
	d := device{Errors: map[string]int{}}
	var r nvml.Return
	d.Name, r = h.GetName()
	d.ok("name", r)
	d.UUID, r = h.GetUUID()
	d.ok("uuid", r)
	d.Minor, r = h.GetMinorNumber()
	d.ok("minor", r)
	if pci, r := h.GetPciInfo(); d.ok("pci", r) {
		for _, c := range pci.BusId {
			if c == 0 {
				break
			}
			d.Bus += string(rune(c))
		}
	}
	if m, r := h.GetMemoryInfo(); d.ok("memory", r) {
		d.Total, d.Used = m.Total, m.Used
	}
	if m, r := h.GetMemoryInfo_v2(); d.ok("memory2", r) {
		d.UsedV2 = m.Used
	}
	d.load(h)
	d.state(h)
	return d
}

func (d *device) load(h nvml.Device) {
	if u, r := h.GetUtilizationRates(); d.ok("rates", r) {
		d.Rates = u.Gpu
	}
	if _, s, r := h.GetSamples(nvml.GPU_UTILIZATION_SAMPLES, 0); d.ok("samples", r) {
		for _, v := range s { // the binding returns its whole buffer
			if v.TimeStamp == 0 {
				break
			}
			var n uint64
			for i := range 4 {
				n |= uint64(v.SampleValue[i]) << (8 * i)
			}
			d.Duty = append(d.Duty, sample{v.TimeStamp, n})
		}
	}
	if list, r := h.GetComputeRunningProcesses(); d.ok("processes", r) {
		for _, p := range list {
			d.Processes = append(d.Processes, process{p.Pid, p.UsedGpuMemory, p.GpuInstanceId})
		}
	}
	if list, r := h.GetProcessUtilization(0); d.ok("uses", r) {
		for _, p := range list {
			d.Uses = append(d.Uses, use{p.Pid, p.SmUtil})
		}
	}
}

func (d *device) state(h nvml.Device) {
	var r nvml.Return
	d.PowerMW, r = h.GetPowerUsage()
	d.ok("power", r)
	d.LimitMW, r = h.GetEnforcedPowerLimit()
	d.ok("limit", r)
	d.ClockMHz, r = h.GetClockInfo(nvml.CLOCK_SM)
	d.ok("clock", r)
	d.MaxMHz, r = h.GetMaxClockInfo(nvml.CLOCK_SM)
	d.ok("maxClock", r)
	d.Reasons, r = h.GetCurrentClocksEventReasons()
	d.ok("reasons", r)
	d.TempC, r = h.GetTemperature(nvml.TEMPERATURE_GPU)
	d.ok("temp", r)
	d.PCIeRx, r = h.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES)
	d.ok("pcie", r)
	d.Gen, r = h.GetMaxPcieLinkGeneration()
	d.ok("gen", r)
	d.Width, r = h.GetMaxPcieLinkWidth()
	d.ok("width", r)
	d.CPUs, r = h.GetCpuAffinity(16)
	d.ok("cpus", r)
	d.Numa, r = h.GetMemoryAffinity(1, nvml.AFFINITY_SCOPE_NODE)
	d.ok("numa", r)
	_, r = h.GetNvLinkState(0)
	d.ok("nvlink", r)
	d.Mig, _, r = h.GetMigMode()
	d.ok("mig", r)
}

// gpm measures the share of SMs that were busy in 200 ms.
func (d *device) gpm(l nvml.Interface, h nvml.Device) {
	s, r := h.GpmQueryDeviceSupport()
	if !d.ok("gpm", r) || s.IsSupportedDevice == 0 {
		d.Errors["gpm"] = int(nvml.ERROR_NOT_SUPPORTED)
		d.SM = -1
		return
	}
	a, _ := l.GpmSampleAlloc()
	b, _ := l.GpmSampleAlloc()
	d.ok("gpmFirst", h.GpmSampleGet(a))
	_, _ = h.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES) // 20 ms
	for range 9 {
		_, _ = h.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES)
	}
	d.ok("gpmSecond", h.GpmSampleGet(b))
	q := nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: a, Sample2: b}
	q.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_SM_UTIL)
	if d.ok("gpmMetrics", l.GpmMetricsGet(&q)) {
		d.SM = q.Metrics[0].Value
	}
}

func one(h nvml.Device, call string) {
	switch call {
	case "temperature":
		c, r := h.GetTemperature(nvml.TEMPERATURE_GPU)
		fmt.Println(c, int(r))
	case "processes":
		p, r := h.GetComputeRunningProcesses()
		fmt.Println(len(p), int(r))
	case "reasons":
		m, r := h.GetCurrentClocksEventReasons()
		fmt.Println(m, int(r))
	}
}

func main() {
	l := nvml.New(nvml.WithLibraryPath(os.Args[1]))
	if r := l.Init(); r != nvml.SUCCESS {
		fmt.Println("init", int(r))
		os.Exit(1)
	}
	n, _ := l.DeviceGetCount()
	var all []device
	for i := range n {
		h, r := l.DeviceGetHandleByIndex(i)
		if r != nvml.SUCCESS {
			continue
		}
		if len(os.Args) > 2 {
			one(h, os.Args[2])
			return
		}
		d := read(h)
		d.gpm(l, h)
		for s := range 7 {
			if m, r := h.GetMigDeviceHandleByIndex(s); r == nvml.SUCCESS {
				d.Slices = append(d.Slices, read(m))
			}
		}
		all = append(all, d)
	}
	if r := l.Shutdown(); r != nvml.SUCCESS {
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(all)
}
