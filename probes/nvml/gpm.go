package nvml

import (
	"unsafe"

	"github.com/trimtab/trimtab/probes"
)

// gpmPair holds two of the library's samples: the metrics are what lies between them.
type gpmPair struct {
	older, newer uintptr
	filled       bool // newer holds a sample
}

// gpmSupported asks once; only Hopper and later have GPM.
func (g *gpu) gpmSupported() bool {
	s := gpmSupport{Version: gpmVersion}
	return g.call("nvmlGpmQueryDeviceSupport", uintptr(unsafe.Pointer(&s))) == codeOK && s.Supported != 0
}

// gpmOf makes the pair of a device or slice on first use; nil: there is no GPM.
func (g *gpu) gpmOf(uuid string) *gpmPair {
	if p, asked := g.gpm[uuid]; asked {
		return p
	}
	g.gpm[uuid] = nil
	if !g.gpmSupported() {
		return nil
	}
	p := &gpmPair{}
	for _, s := range []*uintptr{&p.older, &p.newer} {
		if g.lib.call(g.id, "nvmlGpmSampleAlloc", uintptr(unsafe.Pointer(s))) != codeOK {
			p.free(g)
			return nil
		}
	}
	g.gpm[uuid] = p
	return p
}

func (p *gpmPair) free(g *gpu) {
	for _, s := range []uintptr{p.older, p.newer} {
		if s != 0 {
			g.lib.call(g.id, "nvmlGpmSampleFree", s)
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

// gpmRead samples the device and adds what happened since the last time.
func (g *gpu) gpmRead(d *probes.Device) {
	p := g.gpmOf(d.UUID)
	if p == nil {
		return
	}
	g.gpmBetween(p, d, g.call("nvmlGpmSampleGet", p.older))
}

// gpmReadSlice does the same for a slice, which its GPU samples by the instance's number.
func (g *gpu) gpmReadSlice(instance uint32, d *probes.Device) {
	p := g.gpmOf(d.UUID)
	if p == nil {
		return
	}
	g.gpmBetween(p, d, g.call("nvmlGpmMigSampleGet", uintptr(instance), p.older))
}

// gpmBetween takes the sample just written into the older place as the newer one.
func (g *gpu) gpmBetween(p *gpmPair, d *probes.Device, got code) {
	if got != codeOK {
		p.filled = false
		return
	}
	p.older, p.newer = p.newer, p.older
	if !p.filled {
		p.filled = true
		return
	}
	q := gpmRequest{Version: gpmVersion, Count: 3, First: p.older, Second: p.newer}
	q.Metrics = [3]gpmMetric{{ID: gpmSMUtil}, {ID: gpmTensorUtil}, {ID: gpmDRAMUtil}}
	if g.lib.call(g.id, "nvmlGpmMetricsGet", uintptr(unsafe.Pointer(&q))) != codeOK {
		return
	}
	for i, into := range []**float64{&d.SMActive, &d.TensorActive, &d.DRAMActive} {
		if q.Metrics[i].Return == codeOK {
			*into = share(q.Metrics[i].Value)
		}
	}
}
