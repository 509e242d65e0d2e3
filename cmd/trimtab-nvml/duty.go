//go:build cgo

package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml/wire"
	"github.com/trimtab/trimtab/probes/procfs"
)

const (
	// firstLookUs is how far back the first reading goes; the library's buffer goes back a quarter of a minute.
	firstLookUs = 2_000_000
	// maxSamples bounds what one reading takes: NVML's buffer holds some hundred.
	maxSamples = 4096
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
	return list[max(0, len(list)-maxSamples):], kind
}
