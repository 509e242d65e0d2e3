package observe

import (
	"slices"

	"github.com/trimtab/trimtab/probes"
)

// diffDisks is what was transferred between two readings. A device that was not
// there before began within.
func diffDisks(prev, cur []probes.DiskUse) []probes.DiskUse {
	var out []probes.DiskUse
	for _, d := range cur {
		if i := slices.IndexFunc(prev, func(o probes.DiskUse) bool { return o.Device == d.Device }); i >= 0 {
			d.Bytes = sub(d.Bytes, prev[i].Bytes)
		}
		out = append(out, d)
	}
	return out
}

func joinDisks(as, bs []probes.DiskUse) []probes.DiskUse {
	out := slices.Clone(bs)
	for _, a := range as {
		if i := slices.IndexFunc(out, func(b probes.DiskUse) bool { return b.Device == a.Device }); i >= 0 {
			out[i].Bytes += a.Bytes
		} else {
			out = append(out, a)
		}
	}
	return out
}
