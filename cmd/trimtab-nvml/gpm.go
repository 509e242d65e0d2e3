//go:build cgo

package main

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml/wire"
)

// gpmPair holds two of the library's samples: the metrics are what lies between them.
type gpmPair struct {
	older, newer nvml.GpmSample
	filled       bool // newer holds a sample
}

// gpmOf makes the pair of a device or slice on first use; nil: there is no GPM, or it failed and is asked for again.
func (g *gpu) gpmOf(uuid string) *gpmPair {
	if p, asked := g.gpm[uuid]; asked {
		return p
	}
	support, c := get(&g.asker, "nvmlGpmQueryDeviceSupport", g.dev.GpmQueryDeviceSupport)
	if c != wire.OK {
		return nil
	}
	if support.IsSupportedDevice == 0 { // only Hopper and later have it
		g.gpm[uuid] = nil
		return nil
	}
	p := &gpmPair{}
	for _, into := range []*nvml.GpmSample{&p.older, &p.newer} {
		s, c := get(&g.asker, "nvmlGpmSampleAlloc", g.lib.api.GpmSampleAlloc)
		if c != wire.OK {
			p.free(g)
			return nil
		}
		*into = s
	}
	g.gpm[uuid] = p
	return p
}

func (p *gpmPair) free(g *gpu) {
	for _, s := range []nvml.GpmSample{p.older, p.newer} {
		if s != nil {
			g.lib.call(g.id, "nvmlGpmSampleFree", s.Free)
		}
	}
}

// keepGPM frees the pairs of slices that are no more.
func (g *gpu) keepGPM(living map[string]bool) {
	for uuid, p := range g.gpm {
		if uuid == g.base.UUID || living[uuid] {
			continue
		}
		if p != nil {
			p.free(g)
		}
		delete(g.gpm, uuid)
	}
}

// gpmRead samples the device, or a slice of it, and adds what happened since the last time: the sample
// just written into the older place is the newer one.
func (g *gpu) gpmRead(d *probes.Device, name string, sample func(into nvml.GpmSample) nvml.Return) {
	p := g.gpmOf(d.UUID)
	if p == nil {
		return
	}
	if g.call(name, func() nvml.Return { return sample(p.older) }) != wire.OK {
		p.filled = false
		return
	}
	p.older, p.newer = p.newer, p.older
	if !p.filled {
		p.filled = true
		return
	}
	q := nvml.GpmMetricsGetType{NumMetrics: 3, Sample1: p.older, Sample2: p.newer}
	for i, id := range []nvml.GpmMetricId{nvml.GPM_METRIC_SM_UTIL, nvml.GPM_METRIC_ANY_TENSOR_UTIL, nvml.GPM_METRIC_DRAM_BW_UTIL} {
		q.Metrics[i].MetricId = uint32(id)
	}
	if g.lib.call(g.id, "nvmlGpmMetricsGet", func() nvml.Return { return g.lib.api.GpmMetricsGet(&q) }) != wire.OK {
		return
	}
	for i, into := range []**float64{&d.SMActive, &d.TensorActive, &d.DRAMActive} {
		if wire.Code(q.Metrics[i].NvmlReturn) == wire.OK {
			*into = share(q.Metrics[i].Value)
		}
	}
}
