//go:build cgo

package main

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml/wire"
	"github.com/trimtab/trimtab/probes/procfs"
)

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
