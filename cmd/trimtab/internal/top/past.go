package top

import (
	"slices"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/series"
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

// hour is what the daemon kept of a job's last hour: one window for each ten seconds.
type hour struct {
	key     string // of the container; "": none was asked for
	windows []window
}

func hourOf(of series.Series) hour {
	h := hour{key: of.Key}
	for _, p := range of.Points {
		if len(p.Shares) == 0 {
			continue
		}
		w := window{unixNs: p.UnixNs, quota: "-", breakdown: policies.Breakdown{WallNs: of.EveryNs},
			rate: render.CellsOf(state.Container{Rate: policies.Rate{PerSecond: p.Rate, Steps: p.Steps}}).Rate}
		if p.Quota > 0 {
			w.quota = render.Quota(state.Container{Now: runtime.Values{runtime.KnobCPUQuota: runtime.QuotaFromCPUs(p.Quota, 100_000)}})
		}
		for i, name := range of.Parts {
			if part := slices.Index(series.PartNames(), name); part >= 0 && i < len(p.Shares) {
				w.breakdown.Ns[part] = int64(p.Shares[i] * float64(of.EveryNs))
			}
		}
		h.windows = append(h.windows, w)
	}
	return h
}

// windows are those of the job that is shown, oldest first: of its hour those before the first that top saw.
func (m *Model) windows() []window {
	var seen []window
	if p := m.past[m.job.Key]; p != nil {
		seen = p.windows
	}
	if m.hour.key != m.job.Key {
		return seen
	}
	older := m.hour.windows
	if len(seen) > 0 {
		if i := slices.IndexFunc(older, func(w window) bool { return w.unixNs >= seen[0].unixNs }); i >= 0 {
			older = older[:i]
		}
	}
	return append(slices.Clone(older), seen...)
}
