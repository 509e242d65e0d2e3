//go:build cgo

package main

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml/wire"
	"github.com/trimtab/trimtab/probes/procfs"
)

// gpu is one device of the session, with what must be kept between readings.
type gpu struct {
	asker
	base     probes.Device       // what does not change
	cursorUs uint64              // NVML's clock: samples up to here have been delivered
	lastNs   int64               // CLOCK_MONOTONIC of the last sample delivered
	gpm      map[string]*gpmPair // by UUID, of the device or of its slices
	// pcieBps is what last went over the bus from the device and to it; pcieDue: it is asked for in this reading.
	pcieBps [pcieWays]*float64
	pcieDue [pcieWays]bool
	heard   bool // its errors are asked for
}

// openGPU finds one device. One that cannot be had is lost from the start.
func openGPU(lib *library, index int, virtual bool) *gpu {
	g := &gpu{
		asker: asker{lib: lib, id: wire.IndexID(index)},
		base:  probes.Device{Index: index, Minor: index, Virtual: virtual},
		gpm:   map[string]*gpmPair{},
	}
	handle := lib.newest("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")
	g.dev, g.lost = get(&g.asker, handle, func() (nvml.Device, nvml.Return) { return lib.api.DeviceGetHandleByIndex(index) })
	if g.lost != wire.OK {
		g.dev = nil
		return g
	}
	g.identify()
	return g
}

// identify asks what does not change; a device that was lost at first tells it later.
func (g *gpu) identify() {
	uuid := g.text("nvmlDeviceGetUUID", g.dev.GetUUID)
	if uuid == "" {
		return
	}
	g.id, g.base.UUID, g.base.Name = uuid, uuid, g.text("nvmlDeviceGetName", g.dev.GetName)
	if minor := number(&g.asker, "nvmlDeviceGetMinorNumber", g.dev.GetMinorNumber); minor != nil {
		g.base.Minor = int(*minor)
	}
	g.base.CPUs = g.cpus()
	g.base.NUMA = g.numa()
}

// read takes one reading of the device and of its slices.
func (g *gpu) read() []probes.Device {
	if g.dev == nil {
		return []probes.Device{lostDevice(g.base, g.lost)}
	}
	if g.lib.skip[wire.CallKey{Device: g.id, Call: wire.AllCalls}] {
		return []probes.Device{lostDevice(g.base, wire.LeftOut)}
	}
	g.lost = wire.OK // ask again: it may be back
	if g.base.UUID == "" {
		g.identify()
	}
	if g.base.UUID == "" {
		return []probes.Device{lostDevice(g.base, cmp.Or(g.lost, wire.NoValue))}
	}
	d := g.base
	slices, mig := g.slices()
	if mig {
		d.Sharing = wire.SharingMIG
	} else {
		g.duty(&d)
		g.gpmRead(&d, "nvmlGpmSampleGet", g.dev.GpmSampleGet)
	}
	g.memory(&d)
	g.power(&d)
	g.links(&d)
	g.errors(&d)
	if !mig {
		var mps bool
		d.Processes, mps = g.processes()
		d.Sharing = sharing(d.Processes, mps)
		g.processUse(&d)
	}
	d.AtNs = procfs.MonotonicNs()
	if g.lost != wire.OK {
		g.pcieBps = [pcieWays]*float64{}
		return []probes.Device{lostDevice(g.base, g.lost)}
	}
	return append([]probes.Device{d}, slices...)
}

func lostDevice(base probes.Device, why wire.Code) probes.Device {
	base.AtNs, base.Lost = procfs.MonotonicNs(), why.String()
	return base
}

func (a *asker) memory(d *probes.Device) {
	m, c := get(a, "nvmlDeviceGetMemoryInfo_v2", a.dev.GetMemoryInfo_v2)
	total, used := m.Total, m.Used
	if c != wire.OK { // before driver 510
		var m nvml.Memory
		m, c = get(a, "nvmlDeviceGetMemoryInfo", a.dev.GetMemoryInfo)
		total, used = m.Total, m.Used
	}
	if c == wire.OK {
		d.MemTotal, d.MemUsed = known(total), known(used)
	}
}

// noBytes is NVML_VALUE_NOT_AVAILABLE as a size.
const noBytes = math.MaxUint64

// known is 0, an absence, for the sentinel.
func known(bytes uint64) uint64 {
	if bytes == noBytes {
		return 0
	}
	return bytes
}

func (a *asker) power(d *probes.Device) {
	d.PowerW = scaled(number(a, "nvmlDeviceGetPowerUsage", a.dev.GetPowerUsage), 1e-3) // mW
	d.PowerLimitW = scaled(number(a, "nvmlDeviceGetEnforcedPowerLimit", a.dev.GetEnforcedPowerLimit), 1e-3)
	d.ClockMHz = number(a, "nvmlDeviceGetClockInfo", func() (uint32, nvml.Return) { return a.dev.GetClockInfo(nvml.CLOCK_SM) })
	d.MaxClockMHz = number(a, "nvmlDeviceGetMaxClockInfo", func() (uint32, nvml.Return) { return a.dev.GetMaxClockInfo(nvml.CLOCK_SM) })
	d.TempC = a.temperature()
	mask, c := get(a, "nvmlDeviceGetCurrentClocksEventReasons", a.dev.GetCurrentClocksEventReasons)
	if c == wire.NoSymbol { // its name before driver 535
		mask, c = get(a, "nvmlDeviceGetCurrentClocksThrottleReasons", a.dev.GetCurrentClocksThrottleReasons)
	}
	if c == wire.OK {
		d.Slowdown = slowdown(mask)
	}
}

func (a *asker) temperature() *float64 {
	v, c := get(a, "nvmlDeviceGetTemperatureV", func() (nvml.Temperature, nvml.Return) { return a.dev.GetTemperatureV().V1() })
	if c == wire.OK {
		f := float64(v.Temperature)
		return &f
	}
	return number(a, "nvmlDeviceGetTemperature", func() (uint32, nvml.Return) { return a.dev.GetTemperature(nvml.TEMPERATURE_GPU) }) // before driver 570
}

// slowdown turns the reasons into words, each once, in a fixed order.
func slowdown(mask uint64) []string {
	words := []struct {
		bits uint64
		word string
	}{
		{nvml.ClocksEventReasonSwPowerCap, "power"},
		{nvml.ClocksEventReasonSwThermalSlowdown | nvml.ClocksThrottleReasonHwThermalSlowdown, "thermal"},
		{nvml.ClocksThrottleReasonHwSlowdown, "hw-slowdown"},
		{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, "power-brake"},
		{nvml.ClocksEventReasonSyncBoost, "sync-boost"},
		{nvml.ClocksEventReasonApplicationsClocksSetting, "application"},
		{nvml.ClocksEventReasonGpuIdle, "idle"},
	}
	var list []string
	for _, w := range words {
		if mask&w.bits != 0 {
			list = append(list, w.word)
		}
		mask &^= w.bits
	}
	if mask != 0 {
		list = append(list, "other")
	}
	return list
}

// pcieLaneBps is what one lane gives in one direction, by generation, after its line code (PCI-SIG).
func pcieLaneBps(generation float64) float64 {
	switch generation {
	case 1:
		return 250e6
	case 2:
		return 500e6
	case 3:
		return 8e9 * 128 / 130 / 8
	case 4:
		return 16e9 * 128 / 130 / 8
	case 5:
		return 32e9 * 128 / 130 / 8
	case 6:
		return 64e9 * 242 / 256 / 8
	}
	return 0
}

const (
	pcieWays = 2 // from the device, and to it: nvml.PCIE_UTIL_TX_BYTES, nvml.PCIE_UTIL_RX_BYTES
	// pcieAsked is how many ways of all devices one reading asks for: NVML looks at each for 20 ms. Two
	// devices are asked each time, sixteen every eighth.
	pcieAsked = 4
)

// takeTurns says which devices are asked for their PCIe throughput in the reading to come.
func (s *session) takeTurns() {
	ways := pcieWays * len(s.gpus)
	for _, g := range s.gpus {
		g.pcieDue = [pcieWays]bool{}
	}
	for range min(pcieAsked, ways) {
		s.gpus[s.pcieNext/pcieWays].pcieDue[s.pcieNext%pcieWays] = true
		s.pcieNext = (s.pcieNext + 1) % ways
	}
}

func (g *gpu) links(d *probes.Device) {
	a := &g.asker
	for way, due := range g.pcieDue {
		if due {
			g.pcieBps[way] = a.pcie(nvml.PcieUtilCounter(way)) //nolint:gosec // 0 or 1
		}
	}
	d.PCIeTxBps, d.PCIeRxBps = g.pcieBps[nvml.PCIE_UTIL_TX_BYTES], g.pcieBps[nvml.PCIE_UTIL_RX_BYTES]
	generation := number(a, "nvmlDeviceGetCurrPcieLinkGeneration", a.dev.GetCurrPcieLinkGeneration)
	width := number(a, "nvmlDeviceGetCurrPcieLinkWidth", a.dev.GetCurrPcieLinkWidth)
	if generation != nil && width != nil {
		if most := pcieLaneBps(*generation) * *width; most > 0 {
			d.PCIeMaxBps = &most
		}
	}
	const allLinks = math.MaxUint32 // the sum of all
	fields := []nvml.FieldValue{
		{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ScopeId: allLinks},
		{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ScopeId: allLinks},
	}
	if a.call("nvmlDeviceGetFieldValues", func() nvml.Return { return a.dev.GetFieldValues(fields) }) == wire.OK {
		d.NVLinkTx, d.NVLinkRx = bytesOf(fields[0]), bytesOf(fields[1])
	}
}

// pcie is what goes one way over the bus, in bytes per second; NVML looks for 20 ms.
func (a *asker) pcie(way nvml.PcieUtilCounter) *float64 {
	return scaled(number(a, "nvmlDeviceGetPcieThroughput", func() (uint32, nvml.Return) { return a.dev.GetPcieThroughput(way) }), 1e3) // KB/s
}

// bytesOf is a counter in KiB as bytes.
func bytesOf(f nvml.FieldValue) *uint64 {
	v, ok := value(nvml.ValueType(f.ValueType), f.Value)
	if wire.Code(f.NvmlReturn) != wire.OK || !ok || v < 0 || v > math.MaxInt64/1024 {
		return nil
	}
	n := uint64(v) * 1024
	return &n
}

const affinityMost = 1024 // CPUs or nodes

// cpus is the list of CPUs near the device.
func (a *asker) cpus() string {
	set, c := get(a, "nvmlDeviceGetCpuAffinity", func() ([]uint, nvml.Return) { return a.dev.GetCpuAffinity(affinityMost) })
	if c != wire.OK {
		return ""
	}
	return cpuList(set)
}

// cpuList writes a bit set as the kernel writes lists: "0-3,8".
func cpuList(set []uint) string {
	has := func(i int) bool { return i < len(set)*64 && set[i/64]&(1<<(i%64)) != 0 }
	var b strings.Builder
	for i := 0; i < len(set)*64; i++ {
		if !has(i) {
			continue
		}
		first := i
		for has(i + 1) {
			i++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(first))
		if i > first {
			b.WriteString("-" + strconv.Itoa(i))
		}
	}
	return b.String()
}

// numa is the memory node near the device. nvmlDeviceGetNumaNodeId would not do:
// it tells the node that the device's own memory is, where it is one.
func (a *asker) numa() *int {
	set, c := get(a, "nvmlDeviceGetMemoryAffinity", func() ([]uint, nvml.Return) {
		return a.dev.GetMemoryAffinity(affinityMost, nvml.AFFINITY_SCOPE_NODE)
	})
	if c != wire.OK {
		return nil
	}
	node, count := 0, 0
	for i, w := range set {
		if w != 0 {
			node = i*64 + bits.TrailingZeros(w)
		}
		count += bits.OnesCount(w)
	}
	if count != 1 {
		return nil
	}
	return &node
}

// maxSlices bounds what a driver may claim; today's GPUs have seven.
const maxSlices = 64

// slices reads the MIG slices of a GPU; on: MIG is, also where there is no slice yet. Utilisation samples and
// processes' utilisation do not exist under MIG, and are absent.
func (g *gpu) slices() (list []probes.Device, on bool) {
	var mode int
	if g.call("nvmlDeviceGetMigMode", func() (r nvml.Return) { mode, _, r = g.dev.GetMigMode(); return r }) != wire.OK || mode != nvml.DEVICE_MIG_ENABLE {
		g.keepGPM(nil)
		return nil, false
	}
	most := number(&g.asker, "nvmlDeviceGetMaxMigDeviceCount", g.dev.GetMaxMigDeviceCount)
	if most == nil {
		return nil, true
	}
	living := map[string]bool{}
	for i := range min(int(*most), maxSlices) {
		dev, c := get(&g.asker, "nvmlDeviceGetMigDeviceHandleByIndex", func() (nvml.Device, nvml.Return) { return g.dev.GetMigDeviceHandleByIndex(i) })
		if c != wire.OK {
			continue // no slice in this place
		}
		if d, ok := g.slice(dev); ok {
			living[d.UUID] = true
			list = append(list, d)
		}
	}
	g.keepGPM(living)
	return list, true
}

func (g *gpu) slice(dev nvml.Device) (probes.Device, bool) {
	a := asker{lib: g.lib, id: g.id, dev: dev}
	d := probes.Device{
		Index: g.base.Index, Minor: g.base.Minor, Virtual: g.base.Virtual, Parent: g.base.UUID, Sharing: wire.SharingMIG,
		UUID: a.text("nvmlDeviceGetUUID", dev.GetUUID), Name: a.text("nvmlDeviceGetName", dev.GetName), CPUs: g.base.CPUs, NUMA: g.base.NUMA,
	}
	if d.UUID == "" {
		return d, false // there is no word for it; the next reading may tell
	}
	a.id = d.UUID
	a.memory(&d)
	d.Processes, _ = a.processes()
	if instance, c := get(&a, "nvmlDeviceGetGpuInstanceId", dev.GetGpuInstanceId); c == wire.OK {
		// Its GPU samples it, by the instance's number.
		g.gpmRead(&d, "nvmlGpmMigSampleGet", func(into nvml.GpmSample) nvml.Return { return g.dev.GpmMigSampleGet(instance, into) })
	}
	if a.lost != wire.OK {
		g.lost = a.lost
	}
	d.AtNs = procfs.MonotonicNs()
	return d, true
}

const (
	// firstLookUs is how far back the first reading goes; the library's buffer goes back a quarter of a minute.
	firstLookUs = 2_000_000
	// clockSlackUs is how far a cursor may be ahead of the clock before the clock is taken to have been set back.
	clockSlackUs = 1_000_000
)

// anchor ties NVML's timestamps, wall-clock microseconds, to CLOCK_MONOTONIC.
type anchor struct {
	wallUs uint64
	monoNs int64
}

func newAnchor() anchor {
	return anchor{wallUs: uint64(time.Now().UnixMicro()), monoNs: procfs.MonotonicNs()}
}

// mono converts an instant, which is never after the anchor.
func (a anchor) mono(wallUs uint64) int64 {
	return a.monoNs - int64(a.wallUs-min(wallUs, a.wallUs))*1000
}

// duty reads the samples since the device's own cursor.
func (g *gpu) duty(d *probes.Device) {
	if wallUs := newAnchor().wallUs; g.cursorUs == 0 || g.cursorUs > wallUs+clockSlackUs {
		g.cursorUs = wallUs - firstLookUs
	}
	list, kind := g.samples()
	now := newAnchor() // after the call, which may take long: no sample is later
	for _, s := range list {
		v, ok := value(kind, s.SampleValue)
		part := share(v)
		if !ok || part == nil || s.TimeStamp <= g.cursorUs || s.TimeStamp > now.wallUs+clockSlackUs {
			continue
		}
		g.cursorUs = s.TimeStamp
		g.lastNs = max(now.mono(s.TimeStamp), g.lastNs+1) // in order, also where the wall clock was set
		d.Duty = append(d.Duty, probes.DutySample{AtNs: g.lastNs, Share: *part})
	}
}

// samples are what NVML's buffer holds since the cursor, in order.
func (g *gpu) samples() (list []nvml.Sample, kind nvml.ValueType) {
	c := g.call("nvmlDeviceGetSamples", func() (r nvml.Return) {
		kind, list, r = g.dev.GetSamples(nvml.GPU_UTILIZATION_SAMPLES, g.cursorUs)
		return r
	})
	if c != wire.OK {
		return nil, 0
	}
	slices.SortFunc(list, func(a, b nvml.Sample) int { return cmp.Compare(a.TimeStamp, b.TimeStamp) })
	return list[max(0, len(list)-wire.MaxSamples):], kind
}
