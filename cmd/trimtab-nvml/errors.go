//go:build cgo

package main

import (
	"io"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml/wire"
)

// listen asks to be told of all devices' errors, by one set. What came before is not told.
func (s *session) listen() {
	whole := asker{lib: s.lib}
	set, c := get(&whole, "nvmlEventSetCreate", s.lib.api.EventSetCreate)
	if c != wire.OK {
		return
	}
	s.events = set
	for _, g := range s.gpus {
		g.heard = g.dev != nil && g.lost == wire.OK
		if g.heard {
			g.listen(set)
		}
	}
}

// listenWithout makes the set anew without the devices that are lost: the wait may fail for these, and nothing
// would be heard of others. A device that comes back does so in another child.
func (s *session) listenWithout() {
	gone := false
	for _, g := range s.gpus {
		gone = gone || g.heard && g.lost != wire.OK
	}
	if !gone {
		return // which one is not known yet, or it is none of these
	}
	whole := asker{lib: s.lib}
	whole.call("nvmlEventSetFree", s.events.Free)
	s.events = nil
	s.listen()
}

func (g *gpu) listen(set nvml.EventSet) {
	types, c := get(&g.asker, "nvmlDeviceGetSupportedEventTypes", g.dev.GetSupportedEventTypes)
	if c == wire.OK && types&nvml.EventTypeXidCriticalError != 0 {
		g.call("nvmlDeviceRegisterEvents", func() nvml.Return { return g.dev.RegisterEvents(nvml.EventTypeXidCriticalError, set) })
	}
}

// tellXIDs writes the errors that were reported since the last time, if any.
func (s *session) tellXIDs(out io.Writer) error {
	list := s.heard()
	if len(list) == 0 {
		return nil
	}
	return wire.WriteLine(out, wire.Answer{XIDs: list})
}

// heard are the errors that were reported since the last time. It waits for none.
func (s *session) heard() (list []wire.XID) {
	if s.events == nil {
		return nil
	}
	whole, name := asker{lib: s.lib}, s.lib.newest("nvmlEventSetWait_v2", "nvmlEventSetWait")
	for range wire.MaxXIDs {
		e, c := get(&whole, name, func() (nvml.EventData, nvml.Return) { return s.events.Wait(0) })
		if c == wire.Timeout {
			s.lib.note("", name, wire.OK) // it answered: there is none
		}
		if c == wire.Lost || c == wire.Reset {
			s.listenWithout()
		}
		if c != wire.OK {
			break
		}
		if e.EventType != nvml.EventTypeXidCriticalError {
			continue
		}
		for _, g := range s.gpus {
			if g.dev != nil && g.dev == e.Device {
				list = append(list, wire.XID{Device: g.id, Number: uint32(min(e.EventData, math.MaxUint32))}) //nolint:gosec // bounded
			}
		}
	}
	return list
}

// errors are those of the device's memory, as counted since the driver was loaded.
func (a *asker) errors(d *probes.Device) {
	d.Errors.ECCUncorrected = a.ecc(nvml.MEMORY_ERROR_TYPE_UNCORRECTED)
	d.Errors.ECCCorrected = a.ecc(nvml.MEMORY_ERROR_TYPE_CORRECTED)
	var corrected, uncorrected int
	var pending, failed bool
	c := a.call("nvmlDeviceGetRemappedRows", func() (r nvml.Return) { // from Ampere on
		corrected, uncorrected, pending, failed, r = a.dev.GetRemappedRows()
		return r
	})
	if c == wire.OK {
		rows := uint64(max(0, corrected) + max(0, uncorrected)) //nolint:gosec // both are of 32 bits
		d.Errors.RowsRemapped, d.Errors.RowPending, d.Errors.RowFailed = &rows, pending, failed
	}
}

func (a *asker) ecc(kind nvml.MemoryErrorType) *uint64 {
	n, c := get(a, "nvmlDeviceGetTotalEccErrors", func() (uint64, nvml.Return) { return a.dev.GetTotalEccErrors(kind, nvml.VOLATILE_ECC) })
	if c != wire.OK || n == math.MaxUint64 {
		return nil
	}
	return &n
}
