package uprobe

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/bpf"
	"github.com/trimtab/trimtab/probes/procfs"
	"github.com/trimtab/trimtab/probes/uprobe/symbols"
)

const (
	// turnStretch is the time in which a thinned hook has its share. It stays off for
	// at least the time between two readings, so a small share makes a longer stretch.
	turnStretch = 10 * time.Second
	// maxHitsPerSecond of one hook in one container is the hard ceiling: 2 % of a thread at
	// 1 µs a hit. Above it the hook is off for a stretch, whatever the budget says.
	maxHitsPerSecond = 20000
	// maxHitShare of a thread is the ceiling where a hit costs more: an instruction that must be
	// single-stepped takes some 25 µs [measured], and the budget looks every 5 s only.
	maxHitShare = 0.05
	// minRateTime is the least time over which a rate is told from a burst.
	minRateTime = 500 * time.Millisecond
)

// Client is one probe's use of a Finder: all of a [probes.Probe] but Read, for a probe to embed.
type Client struct {
	finder  *Finder
	spec    Spec
	members int
}

var _ probes.CostReporter = (*Client)(nil) // the agent asks whether a probe is one

// clientState is one client's state in one container.
type clientState struct {
	hooks   []containerHook
	members int
}

// containerHook is one hook in one container.
type containerHook struct {
	on       bool
	share    float64
	credit   time.Duration // time the hook may still be on in this stretch
	lastTurn time.Time
	offUntil time.Time // over the ceiling
	over     bool      // off for that reason in some of the time since the last reading
	dear     bool      // it was for what hits cost, not for how many they are
	spent    Hits
	recent   Hits      // since rateFrom
	rateFrom time.Time // the hook has been on since, at the latest
}

func newClientState(hooks int) *clientState {
	s := &clientState{hooks: make([]containerHook, hooks)}
	for i := range s.hooks {
		s.hooks[i] = containerHook{on: true, share: 1}
	}
	return s
}

// Name is the spec's.
func (c *Client) Name() string { return c.spec.Name }

// Watch looks into the container's processes from the next Scan on.
func (c *Client) Watch(t probes.Target) error { return c.finder.watch(t, c) }

// Unwatch takes the client's probes out of a container.
func (c *Client) Unwatch(key string) { c.finder.unwatch(key, c) }

// Close takes the client's probes out of all containers, waits until they are off, and unloads its
// programs and maps.
func (c *Client) Close() error {
	for _, key := range slices.Sorted(maps.Keys(c.finder.containers)) {
		c.Unwatch(key)
	}
	c.finder.clients = slices.DeleteFunc(c.finder.clients, func(o *Client) bool { return o == c })
	c.finder.settle()
	c.finder.closers.Wait()
	return bpf.Close(c.spec.Objects)
}

// Scan looks at processes that are due, and waits for that a tenth of a second at the
// most. It returns the problems that were not returned before; what it could do is done.
func (c *Client) Scan(ctx context.Context) error { return c.finder.scan(ctx) }

// Processes yields the processes that are probed, with their containers.
func (c *Client) Processes() iter.Seq2[int32, string] {
	return func(yield func(int32, string) bool) {
		for pid, p := range c.finder.processes {
			if p.members[c] != nil && !yield(pid, p.key) {
				return
			}
		}
	}
}

// Watched yields the containers that the client looks into.
func (c *Client) Watched() iter.Seq[string] {
	return func(yield func(string) bool) {
		for key, k := range c.finder.containers {
			if k.clients[c] != nil && !yield(key) {
				return
			}
		}
	}
}

// CountedFor is how long a hook, by index, has counted in a process.
func (c *Client) CountedFor(pid int32, hook int) time.Duration {
	if p := c.finder.processes[pid]; p != nil && p.members[c] != nil {
		return p.members[c].countedFor(hook)
	}
	return 0
}

// Attached returns the turn of a hook, by index, that is attached in a process now.
func (c *Client) Attached(pid int32, hook int) (turn uint16, ok bool) {
	if p := c.finder.processes[pid]; p != nil && p.members[c] != nil {
		state := &p.members[c].hooks[hook]
		return state.turn, state.on && len(state.attached) > 0
	}
	return 0, false
}

// Has says whether a process maps a library that defines a symbol of interest, and
// that has been attached to.
func (c *Client) Has(pid int32, symbol string) bool {
	p := c.finder.processes[pid]
	if p == nil || p.members[c] == nil {
		return false
	}
	m := p.members[c]
	return slices.ContainsFunc(m.libraries, func(l *library) bool {
		return m.entering[l] == 0 && slices.ContainsFunc(l.symbols, func(s symbols.Symbol) bool { return s.Name == symbol })
	})
}

// Libraries is a hash of the builds of all files that a process executes code of, the same as long as
// none is another build, by their build IDs and sizes. "": not known.
func (c *Client) Libraries(pid int32) string {
	if p := c.finder.processes[pid]; p != nil {
		return p.mapped
	}
	return ""
}

// openMPLibraries are part of the names of libraries that take their number of threads from
// OMP_NUM_THREADS: the OpenMP of GCC, Intel and LLVM, and BLAS with threads of its own.
//
//trimtab:table of file names
var openMPLibraries = []string{"libgomp", "libiomp", "libomp.", "libomp-", "openblas", "libmkl_", "libblis"}

// OpenMP reports whether a process executes code of one of them, by the names of its files.
func (c *Client) OpenMP(pid int32) bool {
	p := c.finder.processes[pid]
	return p != nil && p.openMP
}

// Drop takes a hook, by index, off one process for good: another tells the same.
func (c *Client) Drop(pid int32, hook int) {
	if p := c.finder.processes[pid]; p != nil && p.members[c] != nil {
		p.members[c].hooks[hook].dropped = true
	}
}

// Rotate settles what hooks have hit and switches those whose turn it is, and waits for
// that a tenth of a second at the most. It returns what the kernel refused, each reason once.
func (c *Client) Rotate() error {
	c.finder.takeInAll()
	now, cost := time.Now(), c.finder.ProbeCost()
	for _, p := range c.finder.processes {
		if m := p.members[c]; m != nil {
			c.settle(p, m)
		}
	}
	for _, k := range c.finder.containers {
		if s := k.clients[c]; s != nil {
			for i := range s.hooks {
				if c.spec.leader(i) == i {
					s.hooks[i].turn(now, cost)
				}
			}
		}
	}
	switched := false
	for _, p := range c.finder.processes {
		m := p.members[c]
		if m == nil {
			continue
		}
		k := c.finder.containers[p.key]
		if b := m.turn(p, k.clients[c].hooks); len(b) > 0 {
			k.batches, switched = append(k.batches, b), true
			c.finder.next(c.finder.laneOf(p.key))
		}
	}
	if switched {
		c.finder.await(context.Background(), time.Now().Add(scanBudget))
	}
	return c.finder.problems.fresh()
}

// settle charges a member's hits since the last time to its container.
func (c *Client) settle(p *process, m *member) {
	k := c.finder.containers[p.key]
	if k == nil || k.clients[c] == nil || c.spec.Hits == nil {
		return
	}
	for i := range m.hooks {
		hits := c.spec.Hits(m.pid, i)
		fresh := hits.minus(m.hooks[i].hits)
		m.hooks[i].hits = hits
		if m.usedTick == 0 && hits.total() > 0 {
			m.usedTick = nowTick()
		}
		hook := &k.clients[c].hooks[c.spec.leader(i)]
		hook.spent, hook.recent = hook.spent.plus(fresh), hook.recent.plus(fresh)
	}
}

// nowTick is the time as /proc/PID/stat counts it: hundredths of a second since boot.
func nowTick() uint64 { return uint64(procfs.BootNs() / int64(10*time.Millisecond)) }

// turn decides whether the hook is on until the next reading; cost is what a hit costs.
func (h *containerHook) turn(now time.Time, cost ProbeCost) {
	was := h.lastTurn.Before(h.offUntil)
	elapsed := now.Sub(h.lastTurn)
	if h.lastTurn.IsZero() {
		elapsed = 0
	}
	if span := now.Sub(h.rateFrom); !h.on || h.rateFrom.IsZero() || span >= minRateTime {
		many := float64(h.recent.total()) > maxHitsPerSecond*span.Seconds()
		if dear := cost.of(h.recent) > maxHitShare*float64(span); h.on && (many || dear) {
			h.offUntil, h.dear = now.Add(turnStretch), !many
		}
		h.recent, h.rateFrom = Hits{}, now
	}
	h.over = was || now.Before(h.offUntil)
	h.lastTurn = now
	if h.share >= 1 {
		h.on, h.credit = !now.Before(h.offUntil), 0
		return
	}
	h.credit += time.Duration(h.share * float64(elapsed))
	if h.on {
		h.credit -= elapsed
	}
	h.credit = max(min(h.credit, turnStretch), -turnStretch/2*time.Duration(1/max(h.share, 0.01)))
	switch full := time.Duration(h.share * (1 - h.share) * float64(turnStretch)); {
	case h.share <= 0 || now.Before(h.offUntil) || h.credit <= 0:
		h.on = false
	case h.credit >= full:
		h.on = true
	}
}

// SetDutyCycle sets the share of time in which a hook is attached for a container; see
// probes.CostReporter.
func (c *Client) SetDutyCycle(key, hook string, share float64) {
	k := c.finder.containers[key]
	if k == nil || k.clients[c] == nil {
		return
	}
	for i := range c.spec.Hooks {
		if c.spec.Hooks[i].Name == hook {
			k.clients[c].hooks[i].share = max(0, min(1, share))
		}
	}
}

// Cost is the memory held in maps, and the CPU time of processes that read files and have ended.
// They read for all clients: it is told to the first.
func (c *Client) Cost() (cost probes.Cost) {
	if f := c.finder; len(f.clients) > 0 && f.clients[0] == c {
		cost.ChildNs = uint64(f.reader.Spent())
	}
	cost.MapBytes = bpf.ObjectBytes(c.spec.Objects)
	return cost
}

// Spending lists what the hooks have cost each container; see probes.CostReporter.
func (c *Client) Spending() []probes.Spend {
	var out []probes.Spend
	cost := c.finder.ProbeCost()
	for key, k := range c.finder.containers {
		s := k.clients[c]
		if s == nil {
			continue
		}
		for i, h := range s.hooks {
			if n := h.spent.total(); n > 0 {
				out = append(out, probes.Spend{Container: key, Hook: c.spec.Hooks[i].Name, Hits: n, HitNs: cost.of(h.spent) / float64(n)})
			}
		}
	}
	slices.SortFunc(out, func(a, b probes.Spend) int {
		return cmp.Or(cmp.Compare(a.Container, b.Container), cmp.Compare(a.Hook, b.Hook))
	})
	return out
}

// Whole reports whether a hook, by index, counts all the time for a container.
func (c *Client) Whole(key string, hook int) bool {
	k := c.finder.containers[key]
	if k == nil || k.clients[c] == nil {
		return false
	}
	h := k.clients[c].hooks[c.spec.leader(hook)]
	return !h.over && h.share >= 1
}

// Returns reports whether returns of functions are probed here.
func (c *Client) Returns() bool { return c.finder.returns.refused() == nil }

// wantsReturns: the client probes returns, and some process of a container is probed.
func (c *Client) wantsReturns(key string) bool {
	if !slices.ContainsFunc(c.spec.Hooks, func(h Hook) bool { return h.Return != nil }) {
		return false
	}
	for _, k := range c.Processes() {
		if k == key {
			return true
		}
	}
	return false
}

// Missing names what is not counted for a container now, each with why.
func (c *Client) Missing(key string) []string {
	k := c.finder.containers[key]
	if k == nil || k.clients[c] == nil {
		return nil
	}
	missing := c.finder.problems.of(key)
	if c.wantsReturns(key) && !c.Returns() {
		missing = append(missing, "calls that block: "+c.finder.returns.refused().Error())
	}
	for i, h := range k.clients[c].hooks {
		what := c.spec.Hooks[i].What
		switch {
		case c.spec.leader(i) != i:
		case h.over && h.dear:
			missing = append(missing, fmt.Sprintf("%s: more than %.0f %% of a thread", what, 100*maxHitShare))
		case h.over:
			missing = append(missing, fmt.Sprintf("%s: more than %d a second", what, maxHitsPerSecond))
		case h.share <= 0:
			missing = append(missing, what+": "+probes.OverBudget)
		case h.share < 1:
			missing = append(missing, fmt.Sprintf("%s: counted %.0f %% of the time, over the budget", what, 100*h.share))
		}
	}
	return missing
}

// Gather makes a client's part of the samples. Containers with a process that it is probing in, or
// where something is missing, have one: add adds a process to its container's part, in the order of
// PIDs, or returns false where there is nothing to add; put puts the part into the sample.
func Gather[Part any](c *Client, into map[string]*probes.Sample, add func(pid int32, part *Part) bool,
	put func(s *probes.Sample, part *Part, missing []string),
) {
	parts, processes := map[string]*Part{}, maps.Collect(c.Processes())
	for _, pid := range slices.Sorted(maps.Keys(processes)) {
		part := parts[processes[pid]]
		if part == nil {
			part = new(Part)
		}
		if add(pid, part) {
			parts[processes[pid]] = part
		}
	}
	for key := range c.Watched() {
		part, missing := parts[key], c.Missing(key)
		switch {
		case part == nil && len(missing) == 0:
			continue
		case part == nil:
			part = new(Part)
		}
		if into[key] == nil {
			into[key] = &probes.Sample{Container: key}
		}
		put(into[key], part, missing)
	}
}
