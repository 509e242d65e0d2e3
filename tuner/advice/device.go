package advice

import (
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/tuner/idle"
	"github.com/trimtab/trimtab/tuner/state"
)

// idleHalf is the time without a kernel, in seconds, after which half of the confidence is there
// that a device is not just between two runs.
const idleHalf = 3600

// gpusIdle are the devices that are held and not used.
func (n node) gpusIdle() (out []Advice) {
	for _, d := range n.s.Devices {
		for _, h := range d.Holders {
			if a, ok := n.gpuIdle(d, h); ok {
				out = append(out, a)
			}
		}
	}
	return out
}

// gpuIdle is one of them. The next week is taken to be like the time in which it was held, whose
// every hour counts for one observation: a share is known by them to 1/√hours.
func (n node) gpuIdle(d state.Device, h state.Holder) (a Advice, ok bool) {
	sure, known := map[string]float64{string(idle.ByDevice): 1, string(idle.ByShare): 0.9, string(idle.ByLaunches): 0.8}[h.Evidence]
	if !h.Idle || !known || d.Lost != "" || h.QuietSeconds < n.k.HideUnused || !(h.HeldSeconds > 0) {
		return a, false
	}
	share := min(h.IdleSeconds/h.HeldSeconds, 1)
	off := 1 / math.Sqrt(1+h.HeldSeconds/3600)
	a = Advice{Key: h.Key, Container: h.Name, What: GPUIdle, Text: fmt.Sprintf("it holds GPU %s and runs nothing on it", plainOr(d.Label(), "?")),
		Current: Setting{Value: 1, Unit: "devices"}, Advised: Setting{Unit: "devices"}, Gives: gives(OfDevices, 1, max(0, share-off), share, min(1, share+off)),
		Confidence: sure * grows(h.QuietSeconds, idleHalf), SinceUnixNs: h.QuietUnixNs,
		Evidence: []Number{number("without a kernel for", h.QuietSeconds, "s", h.Evidence), number("held for", h.HeldSeconds, "s", "NVML"),
			number("of that idle", h.IdleSeconds, "s", h.Evidence), number("device memory held", float64(h.MemBytes), "B", "NVML")}}
	if i := slices.IndexFunc(n.s.Containers, func(c state.Container) bool { return c.Key == h.Key }); i >= 0 {
		a.Current.Value, a.Advised.Value, a.Paste = n.withoutIdle(n.s.Containers[i])
	}
	return a, true
}

// withoutIdle is on how many devices a container has processes, how many of them it uses, and the
// lines that leave it those.
func (n node) withoutIdle(c state.Container) (held, used float64, lines []Line) {
	var uuids []string
	for _, d := range n.s.Devices {
		for _, h := range d.Holders {
			if h.Key != c.Key {
				continue
			}
			if held++; !h.Idle {
				used++
				uuids = append(uuids, d.UUID)
			}
		}
	}
	if used == 0 {
		return held, 0, stopLines(c)
	}
	return held, used, gpuLines(uuids)
}

// worthMoving is the least predicted gain that is advised: a move costs a restart.
const worthMoving = 0.10

// BestDevice is the model of device that a job should see next; ok is false where none of
// the others is worth it.
func BestDevice(c state.Container) (best state.DeviceSpeed, ok bool) {
	for _, d := range c.Devices {
		if !d.HostBound && d.Ratio >= 1+worthMoving && d.Ratio > best.Ratio {
			best, ok = d, true
		}
	}
	return best, ok
}

// gpuModel is another device of this host on which jobs like this one ran faster, where one is free
// and has the memory.
func (n node) gpuModel(c state.Container) (a Advice, ok bool) {
	best, ok := BestDevice(c)
	if !ok {
		return a, false
	}
	var on []state.Device
	var holds state.Holder
	for _, d := range n.s.Devices {
		if i := slices.IndexFunc(d.Holders, func(h state.Holder) bool { return h.Key == c.Key }); i >= 0 {
			on, holds = append(on, d), d.Holders[i]
		}
	}
	i := slices.IndexFunc(n.s.Devices, func(d state.Device) bool {
		return d.Name == best.Model && len(d.Holders) == 0 && d.Lost == "" && !d.Sliced && d.MemTotal >= holds.MemBytes
	})
	if i < 0 || len(on) != 1 {
		return a, false
	}
	sure := 0.5
	if c.Similar != nil {
		sure = c.Similar.Confidence
	}
	s := within(best.Ratio, modelError)
	return Advice{What: GPUModel, Text: "jobs like it ran faster on another device of this host, which nobody holds", Paste: gpuLines([]string{n.s.Devices[i].UUID}),
		Current: Setting{Text: plainOr(on[0].UUID, "?")}, Advised: Setting{Text: plainOr(n.s.Devices[i].UUID, "?")}, Gives: gives(OfRunTime, 1, s.low, s.share, s.high),
		Confidence: sure, SinceUnixNs: holds.SinceUnixNs, Evidence: []Number{number("rate there over here", best.Ratio, "times", "profiles of known jobs like it"),
			number("device memory held", float64(holds.MemBytes), "B", "NVML"), number("device memory there", float64(n.s.Devices[i].MemTotal), "B", "NVML")}}, true
}
