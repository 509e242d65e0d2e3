package advice

import (
	"slices"

	"github.com/trimtab/trimtab/tuner/state"
)

// gpuExchange is for a job that another device of this host would run faster, where a job holds that
// which would hardly be slower on this one's. Which device others miss shows only so: by one that is
// here, and would gain by it.
func (n node) gpuExchange(c state.Container) (a Advice, ok bool) {
	best, ok := BestDevice(c)
	here, mine, alone := n.alone(c.Key)
	if !ok || !alone || n.free(best.Model, mine.MemBytes) >= 0 {
		return a, false
	}
	for _, o := range n.s.Containers {
		there, theirs, alone := n.alone(o.Key)
		i := slices.IndexFunc(o.Devices, func(d state.DeviceSpeed) bool { return d.Model == here.Name })
		if !alone || o.Key == c.Key || i < 0 || there.Name != best.Model || there.MemTotal < mine.MemBytes || here.MemTotal < theirs.MemBytes {
			continue
		}
		low, _, told := o.Devices[i].Ratios()
		if !told || !(low >= 1-n.k.Notable) { // nineteen times in twenty
			continue
		}
		s := savedThere(best)
		lines := gpuLines([]string{there.UUID})
		for _, l := range gpuLines([]string{here.UUID}) {
			lines = append(lines, Line{"the other's " + l.For, l.Text})
		}
		return Advice{What: GPUExchange, Text: "it should be faster on the device of " + plainOr(o.Name, "another container") + ", which should hardly be slower on this one's: exchange them", Paste: lines,
			Current: Setting{Text: plainOr(here.UUID, "?")}, Advised: Setting{Text: plainOr(there.UUID, "?")}, Gives: gives(OfRunTime, 1, s.low, s.share, s.high),
			Confidence: predictedSure * min(likeness(c), likeness(o)), SinceUnixNs: max(mine.SinceUnixNs, theirs.SinceUnixNs),
			Evidence: []Number{number("rate there over here", best.Ratio, "times", "data sheets, and profiles of known jobs like it"), number("the other's rate here over there", o.Devices[i].Ratio, "times", "the same"),
				number("that at the least", low, "times", "the same"), number("device memory held", float64(mine.MemBytes), "B", "NVML"), number("by the other", float64(theirs.MemBytes), "B", "NVML")}}, true
	}
	return a, false
}

// offeredOnce leaves a device that several jobs are advised to take to the one that gains most by it,
// the first of equals.
func offeredOnce(all []Advice) []Advice {
	takes := func(a Advice) bool { return a.What == GPUModel || a.What == GPUExchange }
	best := map[string]int{}
	for i, a := range all {
		if b, ok := best[a.Advised.Text]; takes(a) && (!ok || a.Gives.Share > all[b].Gives.Share) {
			best[a.Advised.Text] = i
		}
	}
	out := make([]Advice, 0, len(all))
	for i, a := range all {
		if !takes(a) || best[a.Advised.Text] == i {
			out = append(out, a)
		}
	}
	return out
}

// alone is the device that a container holds, where it holds no other and nobody else holds that.
func (n node) alone(key string) (on state.Device, as state.Holder, ok bool) {
	for _, d := range n.s.Devices {
		i := slices.IndexFunc(d.Holders, func(h state.Holder) bool { return h.Key == key && key != "" })
		if i < 0 {
			continue
		}
		if on.UUID != "" || len(d.Holders) > 1 || d.Lost != "" || d.Sliced || d.UUID == "" {
			return on, as, false
		}
		on, as = d, d.Holders[i]
	}
	return on, as, on.UUID != ""
}

// free is the index of a device of a model that nobody holds, with so much memory; -1: there is none.
func (n node) free(model string, bytes uint64) int {
	return slices.IndexFunc(n.s.Devices, func(d state.Device) bool {
		return d.Name == model && len(d.Holders) == 0 && d.Lost == "" && !d.Sliced && d.MemTotal >= bytes
	})
}

// likeness is how sure a predicted rate of a container is.
func likeness(c state.Container) float64 {
	if c.Similar != nil {
		return c.Similar.Confidence
	}
	return 0.5
}
