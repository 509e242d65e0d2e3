package control

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/observe"
	"github.com/trimtab/trimtab/tuner/trial"
)

// watch follows what a loan does to one neighbour's work: hyper-threads, caches and memory
// bandwidth are shared as well as CPUs. Where its work per CPU second falls, the loan goes for a
// moment. If it recovers then, that is remembered for the two; if not, it was not the loan.
type watch struct {
	borrower, neighbour string
	givenNs             int64 // of the loan
	goneNs              int64 // of its return; 0: it stands
	clearedNs           int64 // of the judgement that it was not the loan; 0: none
	amount              float64
	by                  progress
	before, with        []observe.RateSample
}

// maxWatches bounds them: on a node of a thousand containers neighbours are many.
const maxWatches = 64

// watchNeighbours begins it for a loan that makes a quota of so many CPUs, and stands now.
func (c *Controller) watchNeighbours(s *containerState, cpus float64, o pendingOrder) {
	k := c.k()
	from := max(o.atNs-int64(k.CostSeconds*1e9), o.sinceNs)
	for _, n := range c.all {
		if n == s || !n.c.Watched || n.lent(k) || n.obs.Used() < k.ActiveCPUs || len(c.watches) >= maxWatches {
			continue
		}
		of := func(w *watch) bool { return w.borrower == s.key && w.neighbour == n.key }
		if slices.ContainsFunc(c.watches, func(w *watch) bool { return of(w) && w.clearedNs != 0 }) {
			continue
		}
		by := n.progressSince(k, o.atNs-int64(k.CostSeconds*1e9))
		if before := n.perCPU(by, from, o.atNs); float64(len(before)) >= k.TrialBlock {
			c.watches = slices.DeleteFunc(c.watches, of)
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
		for _, u := range observe.UsesSince(s.obs.Uses, r.StartNs-1) {
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
	back := map[string]string{}
	c.watches = slices.DeleteFunc(c.watches, func(w *watch) bool {
		s, n := c.containers[w.borrower], c.containers[w.neighbour]
		switch {
		case s == nil || n == nil || max(s.known.sinceNs, n.known.sinceNs) > w.givenNs || c.now()-max(w.givenNs, w.goneNs, w.clearedNs) > int64(c.k().UnusedSeconds*1e9):
			return true
		case w.clearedNs != 0 || c.partyOf(s.key).Fixed:
			return false
		case w.goneNs != 0:
			return c.recovered(w, s, n)
		case !s.lent(c.k()) || n.lent(c.k()): // who is lent more than is theirs is not harmed by a little less of it
			return true
		}
		if why := c.suffers(w, n); why != "" {
			back[w.borrower] = why
		}
		return false
	})
	return back
}

// suffers says by how much a neighbour gets less done since a loan came; "" if it does not. A
// course of its own is not told from the loan's doing here: taking the loan back tells.
func (c *Controller) suffers(w *watch, n *containerState) string {
	k := *c.k()
	k.TrialDrift = 1e-6
	with := n.perCPU(w.by, w.givenNs+int64(k.TrialSettle*1e9), c.now())
	r, ok := trial.Compare(&k, []trial.Block{{Samples: w.before}, {With: true, Samples: with}}, k.TrialAlpha)
	if !ok || float64(len(with)) < k.TrialBlock || r.High >= 1-k.RightMargin {
		return ""
	}
	w.goneNs, w.with = c.now(), with
	return fmt.Sprintf("%s gets %.0f %% less done for each second of CPU time", n.c.Name, 100*(1-r.Ratio))
}

// recovered reports whether a watch has ended in a judgement: what the neighbour got done with
// the loan is held against what it did before and after.
func (c *Controller) recovered(w *watch, s, n *containerState) (ended bool) {
	k := c.k()
	without := n.perCPU(w.by, w.goneNs+2*int64(k.TrialSettle*1e9), c.now())
	if float64(len(without)) < k.TrialBlock {
		return false
	}
	r, ok := trial.Compare(k, []trial.Block{{Samples: w.before}, {With: true, Samples: w.with}, {Samples: without}}, k.TrialAlpha)
	if ok && r.High < 1 { // it may be the lower bound, and a part of the loan did that part of it
		lent := max(0, w.amount-s.original(runtime.KnobCPUQuota).Quantity())
		s.failures.AddAgainst(runtime.KnobCPUQuota, w.neighbour, lent*min(1, k.RightMargin/(1-r.Low)), c.now())
		return true
	}
	w.clearedNs = c.now()
	return false
}

// interferenceTold reports whether no neighbour of a borrower is being read without its loan.
func (c *Controller) interferenceTold(key string) bool {
	return !slices.ContainsFunc(c.watches, func(w *watch) bool { return w.borrower == key && w.goneNs != 0 && w.clearedNs == 0 })
}
