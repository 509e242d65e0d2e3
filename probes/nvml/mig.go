package nvml

import (
	"unsafe"

	"github.com/trimtab/trimtab/probes"
)

// maxSlices bounds what a driver may claim; today's GPUs have seven.
const maxSlices = 64

// slices reads the MIG slices of a GPU; on: MIG is, also where there is no slice yet. Utilisation samples and
// processes' utilisation do not exist under MIG, and are absent.
func (g *gpu) slices() (list []probes.Device, on bool) {
	var current, pending uint32
	if g.call("nvmlDeviceGetMigMode", uintptr(unsafe.Pointer(&current)), uintptr(unsafe.Pointer(&pending))) != codeOK || current != 1 {
		g.keepGPM(nil)
		return nil, false
	}
	most := g.number("nvmlDeviceGetMaxMigDeviceCount")
	if most == nil {
		return nil, true
	}
	living := map[string]bool{}
	for i := range min(uint32(*most), maxSlices) {
		var handle uintptr
		if g.call("nvmlDeviceGetMigDeviceHandleByIndex", uintptr(i), uintptr(unsafe.Pointer(&handle))) != codeOK {
			continue // no slice in this place
		}
		if d, ok := g.slice(handle); ok {
			living[d.UUID] = true
			list = append(list, d)
		}
	}
	g.keepGPM(living)
	return list, true
}

func (g *gpu) slice(handle uintptr) (probes.Device, bool) {
	a := asker{lib: g.lib, id: g.id, handle: handle}
	d := probes.Device{
		Index: g.base.Index, Minor: g.base.Minor, Virtual: g.base.Virtual, Parent: g.base.UUID, Sharing: sharingMIG,
		UUID: a.text("nvmlDeviceGetUUID"), Name: a.text("nvmlDeviceGetName"), CPUs: g.base.CPUs, NUMA: g.base.NUMA,
	}
	if d.UUID == "" {
		return d, false // there is no word for it; the next reading may tell
	}
	a.id = d.UUID
	a.memory(&d)
	d.Processes, _ = a.processes()
	var instance uint32
	if a.call("nvmlDeviceGetGpuInstanceId", uintptr(unsafe.Pointer(&instance))) == codeOK {
		g.gpmReadSlice(instance, &d)
	}
	if a.lost != codeOK {
		g.lost = a.lost
	}
	d.AtNs = monoNs()
	return d, true
}
