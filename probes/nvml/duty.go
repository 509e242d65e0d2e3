package nvml

import (
	"cmp"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes"
)

const (
	// firstLookUs is how far back the first reading goes; the library's buffer goes back a quarter of a minute.
	firstLookUs = 2_000_000
	// maxSamples bounds what one reading takes: NVML's buffer holds some hundred.
	maxSamples = 4096
	// clockSlackUs is how far a cursor may be ahead of the clock before the clock is taken to have been set back.
	clockSlackUs = 1_000_000
)

func monoNs() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // exists on every Linux; the call cannot fail
	return ts.Nano()
}

// anchor ties NVML's timestamps, wall-clock microseconds, to CLOCK_MONOTONIC.
type anchor struct {
	wallUs uint64
	monoNs int64
}

func newAnchor() anchor { return anchor{wallUs: uint64(time.Now().UnixMicro()), monoNs: monoNs()} }

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
		v, ok := value(kind, s.Value)
		part := share(v)
		if !ok || part == nil || s.AtUs <= g.cursorUs || s.AtUs > now.wallUs+clockSlackUs {
			continue
		}
		g.cursorUs = s.AtUs
		g.lastNs = max(now.mono(s.AtUs), g.lastNs+1) // in order, also where the wall clock was set
		d.Duty = append(d.Duty, probes.DutySample{AtNs: g.lastNs, Share: *part})
	}
}

// samples asks how many there are, then for them, with room for some that come in between.
func (g *gpu) samples() (list []sample, kind uint32) {
	const name = "nvmlDeviceGetSamples"
	var n uint32
	c := g.call(name, samplesUtilization, uintptr(g.cursorUs), uintptr(unsafe.Pointer(&kind)), uintptr(unsafe.Pointer(&n)), 0)
	if (c != codeOK && c != codeTooSmall) || n == 0 {
		return nil, 0
	}
	n = min(n, maxSamples) + 8
	list = make([]sample, n)
	c = g.call(name, samplesUtilization, uintptr(g.cursorUs), uintptr(unsafe.Pointer(&kind)), uintptr(unsafe.Pointer(&n)),
		uintptr(unsafe.Pointer(&list[0])))
	if c != codeOK {
		return nil, 0
	}
	list = list[:min(int(n), len(list))]
	slices.SortFunc(list, func(a, b sample) int { return cmp.Compare(a.AtUs, b.AtUs) })
	return list, kind
}
