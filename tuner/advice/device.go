package advice

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/tuner/idle"
	"github.com/trimtab/trimtab/tuner/state"
)

// idleDevices is what one holder leaves unused.
type idleDevices struct {
	labels, uuids []string
	sure          float64 // of the weakest evidence
	quiet, held   float64 // seconds: the shortest stretch, and what it rests on
	hours         float64 // devices, each shared among those who hold it
	idle          float64 // of these, by the time in which they were held
	mem           float64 // bytes
	sinceUnixNs   int64   // all of them
}

// gpusIdle are the devices that are held and not used, one advice for each holder.
func (n node) gpusIdle() (out []Advice) {
	all, keys := map[string]*idleDevices{}, []state.Holder{}
	for _, d := range n.s.Devices {
		for _, h := range d.Holders {
			sure, ok := n.idleOn(d, h)
			if !ok {
				continue
			}
			if all[h.Key] == nil {
				all[h.Key], keys = &idleDevices{sure: 1, quiet: math.Inf(1), held: math.Inf(1)}, append(keys, h)
			}
			all[h.Key].add(d, h, sure)
		}
	}
	for _, h := range keys {
		out = append(out, n.gpuIdle(h, *all[h.Key]))
	}
	return out
}

// idleOn reports whether nobody uses a device that one holds, and how sure that is: while another
// holder works on it, giving it back frees no time of it.
func (n node) idleOn(d state.Device, h state.Holder) (sure float64, ok bool) {
	sure, known := map[string]float64{string(idle.ByDevice): 1, string(idle.ByShare): 0.9, string(idle.ByLaunches): 0.8}[h.Evidence]
	used := slices.ContainsFunc(d.Holders, func(other state.Holder) bool { return !other.Idle })
	return sure, known && !used && d.Lost == "" && h.QuietSeconds >= n.k.HideUnused && h.HeldSeconds > 0
}

func (i *idleDevices) add(d state.Device, h state.Holder, sure float64) {
	part := 1 / float64(len(d.Holders)) // to free it, each of them has to go
	i.labels, i.uuids = append(i.labels, plainOr(d.Label(), "?")), append(i.uuids, d.UUID)
	i.sure, i.quiet, i.held = min(i.sure, sure), min(i.quiet, h.QuietSeconds), min(i.held, h.HeldSeconds)
	i.hours, i.idle, i.mem = i.hours+part, i.idle+part*min(h.IdleSeconds/h.HeldSeconds, 1), i.mem+float64(h.MemBytes)
	i.sinceUnixNs = max(i.sinceUnixNs, h.QuietUnixNs)
}

// gpuIdle is the advice to one holder. The next week is taken to be like the time in which it held
// them, whose every hour counts for one observation: a share is known by them to 1/√hours. No line
// ends a container: what it does between two uses of a device, no reading of the device tells.
func (n node) gpuIdle(h state.Holder, on idleDevices) Advice {
	share := on.idle / on.hours
	off := 1 / math.Sqrt(1+on.held/3600)
	a := Advice{Key: h.Key, Container: h.Name, What: GPUIdle, Text: fmt.Sprintf("it holds GPU %s and runs nothing there: ask its owner whether it still needs that", strings.Join(on.labels, ", ")),
		Current: Setting{Value: float64(len(on.uuids)), Unit: "devices"}, Advised: Setting{Unit: "devices"}, Gives: gives(OfDevices, on.hours, max(0, share-off), share, min(1, share+off)),
		Confidence: on.sure, SinceUnixNs: on.sinceUnixNs,
		Evidence: []Number{number("without a kernel for", on.quiet, "s", h.Evidence), number("held for", on.held, "s", "NVML"),
			number("share of that idle", share, "share", h.Evidence), number("device memory held", on.mem, "B", "NVML")}}
	if left := n.others(h.Key, on.uuids); h.Key != "" && len(left) > 0 {
		a.Current.Value, a.Advised.Value, a.Paste = a.Current.Value+float64(len(left)), float64(len(left)), gpuLines(left)
	}
	return a
}

// others are the devices that one holds besides these.
func (n node) others(key string, uuids []string) (left []string) {
	for _, d := range n.s.Devices {
		if !slices.Contains(uuids, d.UUID) && slices.ContainsFunc(d.Holders, func(h state.Holder) bool { return h.Key == key }) {
			left = append(left, d.UUID)
		}
	}
	return left
}

// worthMoving is the least predicted gain that is advised: a move costs a restart.
const worthMoving = 0.10

// BestDevice is the model of device that a job should see next; ok is false where none of
// the others is worth it. One on which it may as well be slower is not: nineteen times in
// twenty it must be no slower than here.
func BestDevice(c state.Container) (best state.DeviceSpeed, ok bool) {
	for _, d := range c.Devices {
		low, _, told := d.Ratios()
		if !d.HostBound && d.Ratio >= 1+worthMoving && d.Ratio > best.Ratio && (!told || low >= 1) {
			best, ok = d, true
		}
	}
	return best, ok
}

// gpuModel is another device of this host that is predicted to run a job faster, where one is free
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
	i := n.free(best.Model, holds.MemBytes)
	if i < 0 || len(on) != 1 {
		return a, false
	}
	s := savedThere(best)
	return Advice{What: GPUModel, Text: "another device of this host, which nobody holds, should run it faster", Paste: gpuLines([]string{n.s.Devices[i].UUID}),
		Current: Setting{Text: plainOr(on[0].UUID, "?")}, Advised: Setting{Text: plainOr(n.s.Devices[i].UUID, "?")}, Gives: gives(OfRunTime, 1, s.low, s.share, s.high),
		Confidence: predictedSure * likeness(c), SinceUnixNs: holds.SinceUnixNs, Evidence: []Number{number("rate there over here", best.Ratio, "times", "data sheets, and profiles of known jobs like it"),
			number("device memory held", float64(holds.MemBytes), "B", "NVML"), number("device memory there", float64(n.s.Devices[i].MemTotal), "B", "NVML")}}, true
}
