package nvml

import (
	"cmp"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"unsafe"

	"github.com/trimtab/trimtab/probes"
)

// gpu is one device of the session, with what must be kept between readings.
type gpu struct {
	asker
	base     probes.Device       // what does not change
	cursorUs uint64              // NVML's clock: samples up to here have been delivered
	lastNs   int64               // CLOCK_MONOTONIC of the last sample delivered
	gpm      map[string]*gpmPair // by UUID, of the device or of its slices
}

// openGPU finds one device. One that cannot be had is lost from the start.
func openGPU(lib *library, index int, virtual bool) *gpu {
	g := &gpu{
		asker: asker{lib: lib, id: indexID(index)},
		base:  probes.Device{Index: index, Minor: index, Virtual: virtual},
		gpm:   map[string]*gpmPair{},
	}
	var handle uintptr
	g.lost = lib.first(g.id, []string{"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
		uintptr(index), uintptr(unsafe.Pointer(&handle)))
	if g.lost != codeOK {
		return g
	}
	g.handle = handle
	g.identify()
	return g
}

// identify asks what does not change; a device that was lost at first tells it later.
func (g *gpu) identify() {
	uuid := g.text("nvmlDeviceGetUUID")
	if uuid == "" {
		return
	}
	g.id, g.base.UUID, g.base.Name = uuid, uuid, g.text("nvmlDeviceGetName")
	if minor := g.number("nvmlDeviceGetMinorNumber"); minor != nil {
		g.base.Minor = int(*minor)
	}
	g.base.CPUs = g.cpus()
	g.base.NUMA = g.numa()
}

// resume takes the cursor over from the child before.
func (g *gpu) resume(cursors map[string]uint64) {
	g.cursorUs = max(g.cursorUs, cursors[g.base.UUID])
}

// read takes one reading of the device and of its slices.
func (g *gpu) read() []probes.Device {
	if g.handle == 0 {
		return []probes.Device{lostDevice(g.base, g.lost)}
	}
	if g.lib.skip[callKey{g.id, allCalls}] {
		return []probes.Device{lostDevice(g.base, codeLeftOut)}
	}
	g.lost = codeOK // ask again: it may be back
	if g.base.UUID == "" {
		g.identify()
	}
	if g.base.UUID == "" {
		return []probes.Device{lostDevice(g.base, cmp.Or(g.lost, codeNoValue))}
	}
	d := g.base
	slices, mig := g.slices()
	if mig {
		d.Sharing = sharingMIG
	} else {
		g.duty(&d)
		g.gpmRead(&d)
	}
	g.memory(&d)
	g.power(&d)
	g.links(&d)
	if !mig {
		var mps bool
		d.Processes, mps = g.processes()
		d.Sharing = sharing(d.Processes, mps)
		g.processUse(&d)
	}
	d.AtNs = monoNs()
	if g.lost != codeOK {
		return []probes.Device{lostDevice(g.base, g.lost)}
	}
	return append([]probes.Device{d}, slices...)
}

func lostDevice(base probes.Device, why code) probes.Device {
	base.AtNs, base.Lost = monoNs(), why.String()
	return base
}

func (a *asker) memory(d *probes.Device) {
	v2 := memoryV2{Version: memoryV2Version}
	if c := a.call("nvmlDeviceGetMemoryInfo_v2", uintptr(unsafe.Pointer(&v2))); c == codeOK {
		d.MemTotal, d.MemUsed = known(v2.Total), known(v2.Used)
		return
	}
	var v1 memoryV1
	if a.call("nvmlDeviceGetMemoryInfo", uintptr(unsafe.Pointer(&v1))) == codeOK {
		d.MemTotal, d.MemUsed = known(v1.Total), known(v1.Used)
	}
}

// known is 0, an absence, for the sentinel.
func known(bytes uint64) uint64 {
	if bytes == noBytes {
		return 0
	}
	return bytes
}

func (a *asker) power(d *probes.Device) {
	d.PowerW = scaled(a.number("nvmlDeviceGetPowerUsage"), 1e-3) // mW
	d.PowerLimitW = scaled(a.number("nvmlDeviceGetEnforcedPowerLimit"), 1e-3)
	d.ClockMHz = a.number("nvmlDeviceGetClockInfo", clockSM)
	d.MaxClockMHz = a.number("nvmlDeviceGetMaxClockInfo", clockSM)
	d.TempC = a.temperature()
	var mask uint64
	c := a.call("nvmlDeviceGetCurrentClocksEventReasons", uintptr(unsafe.Pointer(&mask)))
	if c == codeNoSymbol { // its name before driver 535
		c = a.call("nvmlDeviceGetCurrentClocksThrottleReasons", uintptr(unsafe.Pointer(&mask)))
	}
	if c == codeOK {
		d.Slowdown = slowdown(mask)
	}
}

func (a *asker) temperature() *float64 {
	v := temperatureV1{Version: temperatureVersion, Sensor: temperatureGPU}
	if a.call("nvmlDeviceGetTemperatureV", uintptr(unsafe.Pointer(&v))) == codeOK {
		f := float64(v.Celsius)
		return &f
	}
	return a.number("nvmlDeviceGetTemperature", temperatureGPU) // before driver 570
}

// slowdown turns the reasons into words, each once, in a fixed order.
func slowdown(mask uint64) []string {
	words := []struct {
		bits uint64
		word string
	}{
		{reasonSWPower, "power"},
		{reasonSWThermal | reasonHWThermal, "thermal"},
		{reasonHWSlowdown, "hw-slowdown"},
		{reasonHWPowerBrake, "power-brake"},
		{reasonSyncBoost, "sync-boost"},
		{reasonApplication, "application"},
		{reasonIdle, "idle"},
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

func (a *asker) links(d *probes.Device) {
	d.PCIeTxBps = scaled(a.number("nvmlDeviceGetPcieThroughput", pcieTx), 1e3) // KB/s, over 20 ms
	d.PCIeRxBps = scaled(a.number("nvmlDeviceGetPcieThroughput", pcieRx), 1e3)
	generation, width := a.number("nvmlDeviceGetCurrPcieLinkGeneration"), a.number("nvmlDeviceGetCurrPcieLinkWidth")
	if generation != nil && width != nil {
		if most := pcieLaneBps(*generation) * *width; most > 0 {
			d.PCIeMaxBps = &most
		}
	}
	fields := [2]fieldValue{{Field: fieldNVLinkTx, Scope: allLinks}, {Field: fieldNVLinkRx, Scope: allLinks}}
	if a.call("nvmlDeviceGetFieldValues", uintptr(len(fields)), uintptr(unsafe.Pointer(&fields[0]))) != codeOK {
		return
	}
	d.NVLinkTx, d.NVLinkRx = fields[0].bytes(), fields[1].bytes()
}

// bytes is a counter in KiB as bytes.
func (f fieldValue) bytes() *uint64 {
	v, ok := value(f.Type, f.Value)
	if f.Return != codeOK || !ok || v < 0 || v > math.MaxInt64/1024 {
		return nil
	}
	n := uint64(v) * 1024
	return &n
}

const affinityWords = 16 // 1,024 CPUs or nodes

// cpus is the list of CPUs near the device.
func (a *asker) cpus() string {
	var set [affinityWords]uint64
	if a.call("nvmlDeviceGetCpuAffinity", affinityWords, uintptr(unsafe.Pointer(&set[0]))) != codeOK {
		return ""
	}
	return cpuList(set[:])
}

// cpuList writes a bit set as the kernel writes lists: "0-3,8".
func cpuList(set []uint64) string {
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
	var set [affinityWords]uint64
	if a.call("nvmlDeviceGetMemoryAffinity", affinityWords, uintptr(unsafe.Pointer(&set[0])), affinityNode) != codeOK {
		return nil
	}
	node, count := 0, 0
	for i, w := range set {
		if w != 0 {
			node = i*64 + bits.TrailingZeros64(w)
		}
		count += bits.OnesCount64(w)
	}
	if count != 1 {
		return nil
	}
	return &node
}
