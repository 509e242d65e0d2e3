package control

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/observe"
	"github.com/trimtab/trimtab/tuner/trial"
)

// watch follows what a loan does to one neighbour's work: hyper-threads, caches and memory
// bandwidth are shared as well as CPUs. Where its work per CPU second falls, the loan goes, and
// if it recovers then, that is remembered for the two.
type watch struct {
	borrower, neighbour string
	givenNs, goneNs     int64 // of the loan; of its return, 0: it stands
	amount              float64
	by                  progress
	before, with        []observe.RateSample
}

// maxWatches bounds them: on a node of a thousand containers neighbours are many.
const maxWatches = 64

// watchNeighbours begins it for a loan that makes a quota of so many CPUs, and stands now.
func (c *Controller) watchNeighbours(s *containerState, cpus float64, o pendingOrder) {
	k := c.k()
	from := max(o.atNs-baselineSeconds*second, o.sinceNs)
	for _, n := range c.all {
		if n == s || !n.c.Watched || n.obs.Used() < policies.ActiveCPUs || len(c.watches) >= maxWatches {
			continue
		}
		by := n.progressSince(k, o.atNs-baselineSeconds*second)
		if before := n.perCPU(by, from, o.atNs); float64(len(before)) >= k.TrialBlock {
			c.watches = slices.DeleteFunc(c.watches, func(w *watch) bool { return w.borrower == s.key && w.neighbour == n.key })
			c.watches = append(c.watches, &watch{borrower: s.key, neighbour: n.key, givenNs: c.now(), amount: cpus, by: by, before: before})
		}
	}
}

// perCPU is its progress for each second of CPU time.
func (s *containerState) perCPU(by progress, fromNs, toNs int64) []observe.RateSample {
	var out []observe.RateSample
	for _, r := range by.samples(s, fromNs) {
		if r.EndNs > toNs {
			break
		}
		var cpus, n float64
		for _, u := range s.obs.UsesSince(r.StartNs - 1) {
			if u.EndNs > r.EndNs {
				break
			}
			cpus, n = cpus+u.CPUs, n+1
		}
		if n > 0 && cpus > 0 {
			r.Rate /= cpus / n
			out = append(out, r)
		}
	}
	return out
}

// interference judges the open watches: who is to give back, for whom.
func (c *Controller) interference() map[string]string {
	k := c.k()
	back := map[string]string{}
	settle := int64(k.TrialSettle * 1e9)
	c.watches = slices.DeleteFunc(c.watches, func(w *watch) bool {
		s, n := c.containers[w.borrower], c.containers[w.neighbour]
		if s == nil || n == nil || c.now()-max(w.givenNs, w.goneNs) > int64(k.UnusedSeconds*1e9) {
			return true
		}
		if w.goneNs == 0 {
			with := n.perCPU(w.by, w.givenNs+settle, c.now())
			if !s.lent(k) {
				return true
			}
			r, ok := trial.Compare(k, []trial.Block{{Samples: w.before}, {With: true, Samples: with}}, k.TrialAlpha/2)
			if ok && float64(len(with)) >= k.TrialBlock && r.High < 1-k.RightMargin {
				w.goneNs, w.with = c.now(), with
				back[w.borrower] = fmt.Sprintf("%s gets %.0f %% less done for each second of CPU time", n.c.Name, 100*(1-r.Ratio))
			}
			return false
		}
		without := n.perCPU(w.by, w.goneNs+2*settle, c.now())
		if float64(len(without)) < k.TrialBlock {
			return false
		}
		r, ok := trial.Compare(k, []trial.Block{{Samples: w.with}, {With: true, Samples: without}}, k.TrialAlpha)
		if ok && r.Low > 1 {
			s.failures.AddAgainst(runtime.KnobCPUQuota, w.neighbour, max(0, w.amount-Quantity(s.original(runtime.KnobCPUQuota))))
		}
		return true
	})
	return back
}
