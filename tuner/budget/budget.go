// Package budget keeps what probes cost a watched job within its share: it says
// which hooks take turns, and for how long. Pure: spending in, orders out.
//
// The dearest hook gives way first, down to turns of a few per cent and then to
// none; it comes back as the job allows. Costs are those of a full attachment,
// estimated from the turns in which the hook was attached.
//
// It also says how often to read at all, by what trimtab uses itself.
package budget

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/probes"
)

// The control law.
const (
	// minShare is the least turn worth taking: half a second of ten.
	minShare = 0.05
	// smooth is the weight of the latest reading in a hook's mean cost.
	smooth = 0.5
	// slack: a share changes only if it would by more, so that turns do not flutter.
	slack = 0.1
	// retryNs is how long a hook that was detached stays so before it shows its cost again.
	retryNs = int64(60e9)
)

// Order sets the share of time in which a hook is attached for a container.
type Order struct {
	Container, Hook string
	Share           float64
}

// fixed hooks count, and stay: without the kernel's a container has no reading at all.
func fixed(hook string) bool { return strings.HasPrefix(hook, "kernel.") }

// whole hooks are attached or not, and take no turns: launches and copies alone are counted together
// with the time in which they were.
func whole(hook string) bool { return hook != "cuda.launch" && hook != "cuda.copy" }

// Controller holds the budget between readings.
type Controller struct {
	hooks  map[name]*hook
	by     map[string][]name // by container, sorted
	over   map[string]float64
	lastNs int64
}

type name struct{ container, hook string }

type hook struct {
	hits  uint64
	full  float64 // cost of a full attachment, share of one CPU
	known bool
	share float64
	offNs int64 // when it was detached
	seen  bool
	// Since the share was set: the time for which it was attached by it, and the hits.
	heldNs, heldHits float64
}

// New returns a controller that has seen nothing.
func New() *Controller { return &Controller{hooks: map[name]*hook{}} }

// Step takes what hooks have spent by atNs (CLOCK_MONOTONIC) and returns what to
// change. limit is the share of one CPU that all hooks of a container may cost its
// threads.
func (k *Controller) Step(atNs int64, spends []probes.Spend, limit func(container string) float64) []Order {
	elapsed := float64(atNs - k.lastNs)
	first := k.lastNs == 0
	k.lastNs = atNs
	by := map[string][]name{}
	for _, h := range k.hooks {
		h.seen = false
	}
	for _, s := range spends {
		n := name{s.Container, s.Hook}
		h := k.hooks[n]
		if h == nil {
			h = &hook{hits: s.Hits, share: 1}
			k.hooks[n] = h
		} else if !first && elapsed > 0 {
			h.learn(s, elapsed)
		}
		h.seen = true
		by[s.Container] = append(by[s.Container], n)
	}
	maps.DeleteFunc(k.hooks, func(_ name, h *hook) bool { return !h.seen })
	for _, names := range by {
		slices.SortFunc(names, func(a, b name) int { return cmp.Compare(a.hook, b.hook) })
	}
	k.by, k.over = by, map[string]float64{}
	var out []Order
	for _, container := range slices.Sorted(maps.Keys(by)) {
		out = append(out, k.fit(atNs, by[container], limit(container))...)
	}
	return out
}

// learn takes in the hits since the reading before.
func (h *hook) learn(s probes.Spend, elapsed float64) {
	hits := s.Hits - min(s.Hits, h.hits)
	h.hits = s.Hits
	if h.share <= 0 {
		return
	}
	h.heldNs += elapsed * h.share
	h.heldHits += float64(hits)
	if h.share < 1 && !h.toldEnough() {
		return
	}
	full := h.heldHits * s.HitNs / h.heldNs
	h.heldNs, h.heldHits = 0, 0
	if !h.known {
		h.full, h.known = full, true
		return
	}
	h.full += smooth * (full - h.full)
}

// turnNs is the stretch in which a thinned hook takes one turn, as probes take
// them: shorter ones show a turn or none.
const turnNs = 10e9

// toldEnough reports whether a hook that takes turns was attached for long enough
// to say what it costs: two turns, and longer if it was not hit at all.
func (h *hook) toldEnough() bool {
	enough := max(1e9, 2*turnNs*h.share)
	if h.heldHits == 0 {
		enough = max(enough, 3e9)
	}
	return h.heldNs >= enough
}

// fit shares a container's budget out among its hooks, the cheapest first.
func (k *Controller) fit(atNs int64, names []name, limit float64) []Order {
	left := limit / (1 + slack) // a share may stand that much above what it would be set to
	var thin []name
	var stays float64
	for _, n := range names {
		if fixed(n.hook) {
			stays += k.hooks[n].full
		} else {
			thin = append(thin, n)
		}
	}
	left -= stays
	if stays > limit {
		k.over[names[0].container] = stays
	}
	slices.SortFunc(thin, func(a, b name) int {
		return cmp.Or(cmp.Compare(k.hooks[a].full, k.hooks[b].full), cmp.Compare(a.hook, b.hook))
	})
	var out []Order
	for _, n := range thin {
		h := k.hooks[n]
		share := h.affords(atNs, left)
		if whole(n.hook) && share < 1 && h.share == 1 {
			share = 0
		} else if whole(n.hook) && share > 0 && share < 1 {
			share = 1 // to show its cost; the next step takes it away again if it is too dear
		}
		left -= share * h.full
		if share == h.share || share > 0 && share < 1 && max(share, h.share) <= (1+slack)*min(share, h.share) {
			continue
		}
		if share == 0 {
			h.offNs = atNs
		}
		h.share, h.heldNs, h.heldHits = share, 0, 0
		out = append(out, Order{Container: n.container, Hook: n.hook, Share: share})
	}
	return out
}

// affords is the share of time for which what is left pays.
func (h *hook) affords(atNs int64, left float64) float64 {
	switch {
	case h.share == 0 && atNs-h.offNs < retryNs:
		return 0
	case h.share == 0:
		h.known = false // what it cost a minute ago says nothing
		return minShare
	case !h.known:
		return h.share
	case h.full <= 0:
		return min(1, 2*h.share)
	}
	// A share at most doubles at a time: what a hook costs is known only as well as its turns tell.
	share := min(1, max(0, left)/h.full, 2*h.share)
	if share < minShare {
		return 0
	}
	return share
}

// Spent is what a container's hooks cost it now, as a share of one CPU.
func (k *Controller) Spent(container string) float64 {
	var sum float64
	for _, n := range k.by[container] {
		sum += k.hooks[n].full * k.hooks[n].share
	}
	return sum
}

// Over is what a container's fixed hooks cost it, as a share of one CPU, where they alone
// cost more than its limit; else 0.
func (k *Controller) Over(container string) float64 { return k.over[container] }

// Thinned lists the hooks of a container that are not attached all the time.
func (k *Controller) Thinned(container string) []Order {
	var out []Order
	for _, n := range k.by[container] {
		if h := k.hooks[n]; h.share < 1 {
			out = append(out, Order{container, n.hook, h.share})
		}
	}
	return out
}
