package nvml

import (
	"maps"
	"math"
	"slices"
	"unsafe"

	"github.com/trimtab/trimtab/probes"
)

// The ways in which processes share a device (probes.Device.Sharing).
const (
	sharingMIG    = "mig"
	sharingMPS    = "mps"
	sharingSliced = "time-slicing"
)

// maxProcesses bounds what one device may list; beyond it the list is of no use to anyone.
const maxProcesses = 4096

// useMaxAgeUs is how old a process's utilisation may be: NVML takes it about once a second.
const useMaxAgeUs = 3_000_000

// processes lists who holds the device, or the slice, by host PID; mps: some of
// them by way of its server. Drivers list clients of MPS apart, or in both lists.
func (a *asker) processes() (list []probes.DeviceProcess, mps bool) {
	byPID := map[int32]probes.DeviceProcess{}
	for _, kind := range []string{"Graphics", "MPSCompute", "Compute"} { // the last word is the later list's
		for _, p := range a.running("nvmlDeviceGet" + kind + "RunningProcesses") {
			if p.PID == 0 || p.PID > math.MaxInt32 {
				continue // the sentinel, ^0, among them
			}
			pid := int32(p.PID)
			byPID[pid] = probes.DeviceProcess{PID: pid, MemBytes: known(p.MemBytes), Graphics: kind == "Graphics"}
			mps = mps || kind == "MPSCompute"
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(byPID)) {
		list = append(list, byPID[pid])
	}
	return list, mps
}

// running asks for one list of processes: how many, then the list, with room for some that come in between.
func (a *asker) running(name string) []processInfo {
	for _, version := range []string{"_v3", "_v2"} { // one layout
		var n uint32
		c := a.call(name+version, uintptr(unsafe.Pointer(&n)), 0)
		if c == codeNoSymbol {
			continue
		}
		if c != codeTooSmall || n == 0 {
			return nil // OK with nothing there: nobody
		}
		n = min(n, maxProcesses) + 16
		list := make([]processInfo, n)
		if a.call(name+version, uintptr(unsafe.Pointer(&n)), uintptr(unsafe.Pointer(&list[0]))) != codeOK {
			return nil
		}
		return list[:min(int(n), len(list))]
	}
	return nil
}

// processUse adds each process's share of the SMs where NVML tells it now.
func (g *gpu) processUse(d *probes.Device) {
	const name = "nvmlDeviceGetProcessUtilization"
	since := newAnchor().wallUs - useMaxAgeUs
	var n uint32
	c := g.call(name, 0, uintptr(unsafe.Pointer(&n)), uintptr(since))
	if (c != codeOK && c != codeTooSmall) || n == 0 {
		return
	}
	n = min(n, maxProcesses) + 16
	list := make([]processUse, n)
	if g.call(name, uintptr(unsafe.Pointer(&list[0])), uintptr(unsafe.Pointer(&n)), uintptr(since)) != codeOK {
		return
	}
	latest := map[uint32]processUse{}
	for _, u := range list[:min(int(n), len(list))] {
		if u.AtUs >= since && u.AtUs >= latest[u.PID].AtUs {
			latest[u.PID] = u
		}
	}
	for i, p := range d.Processes {
		if u, ok := latest[uint32(p.PID)]; ok {
			d.Processes[i].SM = share(float64(u.SM))
		}
	}
}

// sharing says how the processes share a whole device. The parent also knows MPS by its server's name.
func sharing(list []probes.DeviceProcess, mps bool) string {
	if mps {
		return sharingMPS
	}
	compute := 0
	for _, p := range list {
		if !p.Graphics {
			compute++
		}
	}
	if compute > 1 {
		return sharingSliced
	}
	return ""
}
