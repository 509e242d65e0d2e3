package top

import (
	"slices"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/state"
)

// kept is how many windows of each container are kept: 1,000 containers take some MB.
const kept = 120

// window is what became of a container's time in one window, as it came in.
type window struct {
	unixNs      int64
	breakdown   policies.Breakdown
	rate, quota string
}

// past are a container's windows while top runs, oldest first.
type past struct {
	count   uint64 // the container's, at the latest
	windows []window
}

// add takes in a container's latest window, if it is another than the last.
func (p *past) add(c *state.Container, unixNs int64) {
	if c.Breakdown.WallNs <= 0 || len(p.windows) > 0 && c.Windows == p.count {
		return
	}
	if len(p.windows) >= kept {
		p.windows = slices.Delete(p.windows, 0, len(p.windows)-kept+1)
	}
	p.count = c.Windows
	p.windows = append(p.windows, window{unixNs, c.Breakdown, render.CellsOf(*c).Rate, render.Quota(*c)})
}

// letters of the parts, in their order.
const letters = "CTBDtbsrwiPM."

// letter is the character that stands for a part in a bar.
func letter(p policies.Part) rune {
	if int(p) < len(letters) {
		return rune(letters[p])
	}
	return '?'
}

// split divides so many columns among the parts by their shares of the wall time, so that the
// sum is kept: each gets the whole columns that it fills, and the rest go to the largest
// remainders, the first of equals first. Parts that are more than the whole are scaled to it.
func split(b policies.Breakdown, columns int) (out [policies.NumParts]int) {
	whole, sum := float64(b.WallNs), 0.0
	for _, ns := range b.Ns {
		sum += max(float64(ns), 0)
	}
	if whole = max(whole, sum); whole <= 0 || columns <= 0 {
		return out
	}
	var rest [policies.NumParts]float64
	filled := 0
	for p, ns := range b.Ns {
		exact := max(float64(ns), 0) / whole * float64(columns)
		out[p] = int(exact)
		rest[p] = exact - float64(out[p])
		filled += out[p]
	}
	total := int(sum/whole*float64(columns) + 0.5)
	for ; filled < total; filled++ {
		most := 0
		for p := range rest {
			if rest[p] > rest[most] {
				most = p
			}
		}
		out[most]++
		rest[most] = -1
	}
	return out
}

// parts are those that some of the windows hold, in their order.
func parts(windows []window) (out []policies.Part) {
	for p := range policies.NumParts {
		if slices.ContainsFunc(windows, func(w window) bool { return w.breakdown.Ns[p] > 0 }) {
			out = append(out, p)
		}
	}
	return out
}
