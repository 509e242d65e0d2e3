//go:build cgo

package main

import (
	"maps"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml/wire"
)

// useMaxAgeUs is how old a process's utilisation may be: NVML takes it about once a second.
const useMaxAgeUs = 3_000_000

// processes lists who holds the device, or the slice, by host PID; mps: some of
// them by way of its server. Drivers list clients of MPS apart, or in both lists.
func (a *asker) processes() (list []probes.DeviceProcess, mps bool) {
	byPID := map[int32]probes.DeviceProcess{}
	for _, l := range []struct { // the last word is the later list's
		name          string
		ask           func() ([]nvml.ProcessInfo, nvml.Return)
		graphics, mps bool
	}{
		{name: "nvmlDeviceGetGraphicsRunningProcesses", ask: a.dev.GetGraphicsRunningProcesses, graphics: true},
		{name: "nvmlDeviceGetMPSComputeRunningProcesses", ask: a.dev.GetMPSComputeRunningProcesses, mps: true},
		{name: "nvmlDeviceGetComputeRunningProcesses", ask: a.dev.GetComputeRunningProcesses},
	} {
		for _, p := range a.running(l.name, l.ask) {
			if p.Pid == 0 || p.Pid > math.MaxInt32 {
				continue // the sentinel, ^0, among them
			}
			pid := int32(p.Pid)
			byPID[pid] = probes.DeviceProcess{PID: pid, MemBytes: known(p.UsedGpuMemory), Graphics: l.graphics}
			mps = mps || l.mps
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(byPID)) {
		list = append(list, byPID[pid])
	}
	return list, mps
}

// running asks for one list of processes.
func (a *asker) running(name string, ask func() ([]nvml.ProcessInfo, nvml.Return)) []nvml.ProcessInfo {
	list, c := get(a, a.lib.newest(name+"_v3", name+"_v2", name), ask)
	if c != wire.OK {
		return nil
	}
	return list[:min(len(list), wire.MaxProcesses)]
}

// processUse adds each process's share of the SMs where NVML tells it now.
func (g *gpu) processUse(d *probes.Device) {
	since := newAnchor().wallUs - useMaxAgeUs
	list, c := get(&g.asker, "nvmlDeviceGetProcessUtilization", func() ([]nvml.ProcessUtilizationSample, nvml.Return) { return g.dev.GetProcessUtilization(since) })
	if c != wire.OK {
		return
	}
	latest := map[uint32]nvml.ProcessUtilizationSample{}
	for _, u := range list {
		if u.TimeStamp >= since && u.TimeStamp >= latest[u.Pid].TimeStamp {
			latest[u.Pid] = u
		}
	}
	for i, p := range d.Processes {
		if u, ok := latest[uint32(p.PID)]; ok {
			d.Processes[i].SM = share(float64(u.SmUtil))
		}
	}
}

// sharing says how the processes share a whole device. The parent also knows MPS by its server's name.
func sharing(list []probes.DeviceProcess, mps bool) string {
	if mps {
		return wire.SharingMPS
	}
	compute := 0
	for _, p := range list {
		if !p.Graphics {
			compute++
		}
	}
	if compute > 1 {
		return wire.SharingSliced
	}
	return ""
}
