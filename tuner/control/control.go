package control

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/allocate"
	"github.com/trimtab/trimtab/tuner/idle"
	"github.com/trimtab/trimtab/tuner/observe/steal"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

// Controller holds the state between ticks. It is used from one goroutine.
type Controller struct {
	cfg      Config
	policies []policies.Policy

	containers map[string]*containerState
	all        []*containerState // sorted by key
	// parties, and what they have a right to and are granted, as of this tick, in the order of all.
	parties []allocate.Party
	rights  allocate.Rights

	trials map[string]*openTrial // by plan
	// unanswered are orders whose trial ended before the actuator answered; pending are loans
	// and returns that are on their way.
	unanswered  map[string]Order
	pending     map[string]pendingOrder
	watches     []*watch
	seq         int // of plans in the tick at seqAt
	seqAt       int64
	epoch       string  // distinguishes plan IDs of different starts
	changeTimes []int64 // of trials' changes in the last minute

	node     policies.Node
	last     Input
	prevHost probes.Host
	tickNs   int64     // since the tick before
	idleCPUs []float64 // of the latest three readings
	stolen   steal.Usual
	totals   totals
	idle     *idle.Tracker
	onDevice map[string]int64 // when anybody was last on a device that some container was granted, by UUID
	profiles *profiles.Store
}

// Policies makes the policies that are asked, in their order, with the constants in force.
type Policies func(k *policies.Constants) []policies.Policy

// New returns a controller. epoch differs between starts: it becomes part of plan IDs.
func New(cfg Config, all Policies, epoch string) *Controller {
	c := &Controller{cfg: cfg, containers: map[string]*containerState{}, trials: map[string]*openTrial{}, unanswered: map[string]Order{}, pending: map[string]pendingOrder{},
		epoch: epoch, totals: newTotals(), idle: idle.New(), profiles: profiles.NewStore()}
	c.policies = all(c.k())
	return c
}

// PolicyNames are those that are asked, in their order.
func (c *Controller) PolicyNames() []string {
	names := make([]string, len(c.policies))
	for i, p := range c.policies {
		names[i] = p.Name()
	}
	return names
}

// SetConfig replaces the configuration, from the next tick on.
func (c *Controller) SetConfig(cfg Config) { c.cfg = cfg }

// k is the table of constants.
func (c *Controller) k() *policies.Constants { return &c.cfg.Constants }

// now is the tick's time, CLOCK_MONOTONIC ns.
func (c *Controller) now() int64 { return c.last.Host.AtNs }

// Step advances by one tick.
func (c *Controller) Step(in Input) Decision {
	var d Decision
	if in.Host.AtNs <= c.now() && c.now() > 0 { // a reading that came twice, or late: nothing has passed
		c.results(in, &d)
		return d
	}
	if c.tickNs = 0; c.now() > 0 {
		c.tickNs = in.Host.AtNs - c.now()
	}
	c.stolen.Note(c.last.Host, in.Host)
	c.last = in
	c.changeTimes = slices.DeleteFunc(c.changeTimes, func(at int64) bool { return c.now()-at >= 60*second })
	c.admit(in, &d)
	c.noteDevices(in)
	c.observe(in, &d)
	c.balance()
	c.results(in, &d)
	c.noteCalm()
	c.stepTrials(in, &d)
	if in.Frozen == "" {
		c.askAgain(&d)
	}
	c.emergencyRevert(&d)
	c.returnVisibility(&d)
	c.judgeLoans()
	c.propose(in, &d)
	c.settleStates(in)
	return d
}

// admit takes in the containers of this tick and lets go of those that ended.
func (c *Controller) admit(in Input, d *Decision) {
	present := make(map[string]bool, len(in.Containers))
	for i := range in.Containers {
		key := in.Containers[i].Key()
		present[key] = true
		ct := withVisibility(in.Containers[i])
		s := c.containers[key]
		if s == nil {
			s = newContainer(key)
			s.resourcesChanged(c.now())
			c.containers[key], c.all, s.c = s, nil, ct
			if own, ok := ct.Original[runtime.KnobCPUWeight]; ok && own != ct.Now[runtime.KnobCPUWeight] && !s.lent(c.k()) {
				s.dealt = ct.Now[runtime.KnobCPUWeight] // handed over: no loan had moved it
			}
			c.recognise(s)
		} else if k, yielded := setByOthers(s.c, ct); k != "" || !sameResources(s.c.Now, ct.Now) {
			if s.resourcesChanged(c.now()); k != "" {
				c.foreign(s, k, yielded, d)
			}
		}
		s.obs.Paused = s.obs.Paused || s.c.State == runtime.StatePaused || ct.State == runtime.StatePaused
		s.c = ct
	}
	for _, key := range slices.Sorted(maps.Keys(c.containers)) {
		if present[key] {
			continue
		}
		s := c.containers[key]
		c.abandon(s, "the container ended", d)
		c.remember(s, true)
		s.on(EventEnded)
		delete(c.containers, key)
		c.all = nil
	}
	if c.all == nil {
		c.all = make([]*containerState, 0, len(c.containers))
		for _, key := range slices.Sorted(maps.Keys(c.containers)) {
			c.all = append(c.all, c.containers[key])
		}
	}
}

// setByOthers is a knob that decides on a job's rate and that somebody set on it
// between two ticks; "" if there is none. What trimtab wrote has an original, or was yielded now.
func setByOthers(was, is Container) (k runtime.Knob, yielded bool) {
	for _, k := range []runtime.Knob{runtime.KnobCPUQuota, runtime.KnobCpuset, runtime.KnobMemoryLimit, runtime.KnobGPU, runtime.KnobCPUWeight} {
		_, before := was.Original[k]
		_, now := is.Original[k]
		_, had := was.Now[k]
		_, has := is.Now[k]
		yielded = k != runtime.KnobGPU && slices.Contains(is.Yielded, k) && !slices.Contains(was.Yielded, k)
		if yielded || !before && !now && had && has && was.Now[k] != is.Now[k] {
			return k, yielded
		}
	}
	return "", false
}

// foreign ends the trial of a container on which somebody else set a knob: neither its rate nor what
// bounds it is the plan's doing from then on. The next need not wait, unless it was trimtab's knob.
func (c *Controller) foreign(s *containerState, k runtime.Knob, yielded bool, d *Decision) {
	if c.abandon(s, fmt.Sprintf("somebody else set its %s", k), d) && !yielded {
		s.coolNs = 0
	}
	s.loan, s.before = loan{}, baseline{}
	if k != runtime.KnobCPUWeight {
		s.verdicts.Restart()
	}
}

// sameResources reports whether nothing changed that decides on a job's pace. A weight alone does
// not; that its devices became known, or could not be read for once, is no change.
func sameResources(was, is runtime.Values) bool {
	return !slices.ContainsFunc(append(runtime.Knobs(), runtime.KnobGPU), func(k runtime.Knob) bool {
		before, had := was[k]
		now, has := is[k]
		changed := before != now || had != has
		return changed && k != runtime.KnobCPUWeight && (k != runtime.KnobGPU || had == has)
	})
}

// observe reads the samples, and says what bounds each job whose window is full.
func (c *Controller) observe(in Input, d *Decision) {
	seen := map[string]bool{}
	for _, sample := range in.Samples {
		s := c.containers[sample.Container]
		if s == nil || seen[sample.Container] {
			continue // a sample of nobody, or a second one of the same tick
		}
		seen[sample.Container] = true
		news := s.obs.Add(c.k(), sample, in.Host, s.c.Watched, c.stolen.Share, s.plan != "")
		if news.Closed != nil {
			c.closed(s, news.Closed, d)
		}
		c.noteStop(s)
		c.slower(s, news.Rate, d)
		c.remember(s, false)
	}
	c.measureOutside(in.Host)
}

// measureOutside takes what is idle, and what the host's processes outside of all containers use.
func (c *Controller) measureOutside(h probes.Host) {
	prev := c.prevHost
	c.prevHost = h
	if prev.AtNs == 0 || h.AtNs <= prev.AtNs {
		return
	}
	wall := float64(h.AtNs - prev.AtNs)
	busy := float64(h.BusyNs-min(h.BusyNs, prev.BusyNs)) / wall
	idle := float64(h.IdleNs+h.IOWaitNs-min(h.IdleNs+h.IOWaitNs, prev.IdleNs+prev.IOWaitNs)) / wall
	c.idleCPUs = append(slices.Clone(c.idleCPUs[max(0, len(c.idleCPUs)-2):]), idle)
	for _, s := range c.all { // sorted: sums of floats depend on their order
		if n := len(s.obs.Uses); n > 0 && s.obs.Uses[n-1].EndNs == h.AtNs {
			busy -= s.obs.Uses[n-1].CPUs
		}
	}
	busy = max(0, busy)
	c.node.HostCPUs = cmp.Or(c.node.HostCPUs, busy)
	c.node.HostCPUs += (busy - c.node.HostCPUs) / usualReadings
}

// usualReadings is how many readings the host's own use is the mean of.
const usualReadings = 5

// balance computes the node's capacity and what each container has a right to.
func (c *Controller) balance() {
	host, all := c.node.HostCPUs, float64(c.last.Host.CPUs)
	c.node = policies.Node{CPUs: all, Left: c.cfg.LeftCPUShare * all, Reserve: c.cfg.ReserveCPUs + c.cfg.ReserveCPUShare*all, HostCPUs: host, MaxWeight: maxShares, Objective: c.cfg.Objective}
	if len(c.idleCPUs) > 0 {
		c.node.Idle = slices.Min(c.idleCPUs[max(0, len(c.idleCPUs)-2):])
	}
	for _, s := range c.all {
		if s.c.Enrolment.Mode != policies.ModeTune {
			c.node.OtherCPUs += s.obs.Used()
		}
		if s.c.Cgroup.Mode == runtime.CgroupV2 {
			c.node.MaxWeight = maxWeight
		}
	}
	c.balanceMemory()
	c.parties = c.parties[:0]
	for _, s := range c.all {
		c.parties = append(c.parties, c.party(s))
	}
	c.rights = allocate.RightsOf(c.node, c.parties)
	for i, s := range c.all {
		s.rights.entitled, s.rights.obtainable = c.rights.Grants[i].Right, c.rights.Grants[i].Obtainable
	}
	if c.short() {
		c.spare()
	}
}

// short: somebody has less than is theirs.
func (c *Controller) short() bool {
	for i, p := range c.parties {
		if allocate.Short(c.k(), p, c.rights.Grants[i].Due) > 0 {
			return true
		}
	}
	return false
}

// spare notes who lacked nothing in one of the latest two readings: what each had in its better one
// may sum up to more than all had in either. For borrowers a third counts, a second before: what
// takes from all for a moment is else answered by a weight that takes from neighbours.
func (c *Controller) spare() {
	for r, idle := range c.idleCPUs {
		shared, parties, owners := idle, slices.Clone(c.parties), make([]policies.Claim, len(c.parties))
		for i, s := range c.all {
			if n := len(s.obs.Uses) - len(c.idleCPUs) + r; n >= 0 {
				parties[i].Used, parties[i].Wants = s.obs.Uses[n].CPUs, c.wanted(s.obs.Uses[n])
			}
			shared, owners[i] = shared+parties[i].Used, parties[i].Owners()
		}
		due, _ := policies.Rights(min(c.node.CPUs, shared), owners)
		for i, p := range parties {
			if s, n := c.all[i], len(c.all[i].obs.Uses)-3; len(c.idleCPUs)-r > 2 && (n < 0 || !s.lent(c.k()) || c.now()-s.obs.Uses[n].EndNs > int64(c.k().WriteSeconds*1e9/2)) {
				continue
			}
			c.parties[i].Spared = c.parties[i].Spared || allocate.Short(c.k(), p, min(due[i], c.rights.Grants[i].Right)) == 0
		}
	}
}

// The kernel's ceilings: v1's shares and v2's weight.
const maxShares, maxWeight = 262144, 10000

// party is a container as the node's CPUs are shared, before anybody asks for anything.
func (c *Controller) party(s *containerState) allocate.Party {
	p := allocate.Party{Key: s.key, Name: s.c.Name, OwnWeight: cmp.Or(number(s.original(runtime.KnobCPUWeight)), 1), Waiting: c.waiting(s), Fixed: true, FixedWeight: true, Most: math.Inf(1)}
	p.Used, p.Wants = c.uses(s)
	p.OwnQuota, p.Quota = s.quotas()
	p.Proven = c.proven(s)
	p.Weight = cmp.Or(number(s.c.Now[runtime.KnobCPUWeight]), p.OwnWeight)
	p.GPUs, p.Tuned = s.gpusUsed(c.now()), s.c.Enrolment.Mode == policies.ModeTune
	if p.Tuned { // a floor lowers the rights of all others: who takes no part asks for none
		p.Floor = s.c.Enrolment.CPU.Min
	}
	p.Active = s.obs.Used() >= c.k().ActiveCPUs || p.Used >= c.k().ActiveCPUs
	p.Demand = max(c.demand(s), p.Wants) // what it wants now is its to have, whatever a curve says
	return p
}

// most is the most quota, CPUs, that a container may be lent beside its neighbours, and why no more;
// +Inf: none was harmed, and no group bounds it.
func (c *Controller) most(i int) (cpus float64, why string) {
	s := c.all[i]
	borne, _ := s.failures.Bears(runtime.KnobCPUQuota, func(key string, atNs int64) bool { // the job that was harmed, and no later one there
		n := c.containers[key]
		return n != nil && n.known.sinceNs <= atNs && n.obs.Used() >= c.k().ActiveCPUs
	})
	own, _ := s.quotas()
	if left := c.groupLeaves(i); left < borne+own {
		return left, "the quota of the group above it leaves no more beside the others there"
	}
	return borne + own, "its neighbours bear no larger loan: they get less done for each second of CPU time"
}

// groupLeaves is the most quota, CPUs, that the quota of a group above a container leaves it: who
// runs below that group keeps what its owner gave it, and borrowers part the rest; +Inf: none has one.
func (c *Controller) groupLeaves(i int) float64 {
	e := c.all[i].c.Enrolment
	if e.Group == "" {
		return math.Inf(1)
	}
	rest, borrowers := e.GroupCPUs, 0.0
	for j, p := range c.parties {
		if j != i && (!p.Active || !strings.HasPrefix(c.all[j].c.Cgroup.Dir("cpu"), e.Group+"/")) {
			continue
		}
		rest -= cmp.Or(p.OwnQuota, p.Used)
		if j == i || p.Asks > 0 || p.OwnQuota > 0 && p.Quota > p.OwnQuota {
			borrowers++
		}
	}
	return c.parties[i].OwnQuota + max(0, rest)/borrowers
}

// demand is the CPUs that a container would use if it were alone.
func (c *Controller) demand(s *containerState) float64 {
	j := policies.Job{Curve: s.learned.curve, CPU: policies.CPUUse{Used: s.obs.Used(), Waiting: c.waiting(s)}}
	j.CPU.Lost, _ = s.obs.Throttled()
	if s.learned.unsteady >= curveKept {
		j.Curve = policies.Curve{}
	}
	return j.Demand(max(0, c.node.CPUs-c.node.HostCPUs))
}

// settleStates moves those of whom enough was read, and those that somebody else decides on.
func (c *Controller) settleStates(in Input) {
	k := c.k()
	for i, s := range c.all {
		fixed := c.fixed(in, s) != ""
		switch {
		case fixed && s.state != StateYielded:
			s.on(EventYielded)
		case !fixed && s.state == StateYielded:
			s.on(EventReleased)
		}
		if s.state == StateWatched && (s.obs.Windows > 0 || float64(len(s.obs.Uses)) >= k.TrialBaseline) {
			s.on(EventRead)
			if s.lent(k) {
				s.on(EventLent) // by the daemon before
			}
		}
		waits := c.parties[i].Settles > 0 && (c.parties[i].Recent || c.parties[i].Fixed) // what is enough is to be written yet
		if cpus, free := s.enough(k); free >= k.SettleReadings && (cpus > 0 || free >= k.UnusedSeconds || s.state != StateLent) && !waits && !s.obs.Held() {
			c.noteEnough(s)
			s.on(EventEnough)
		}
	}
}

// record starts a history record about a container.
func (c *Controller) record(kind state.RecordKind, s *containerState, fill func(*state.Record)) state.Record {
	rec := state.Record{UnixNs: c.last.UnixNs, Kind: kind, Key: s.key, Name: s.c.Name, Team: s.c.Enrolment.Team}
	fill(&rec)
	return rec
}

// planID makes the next plan's name, of the tick's time, so that a recording that
// begins in the middle of a run gives plans the names they had.
func (c *Controller) planID() string {
	if c.seqAt != c.now() {
		c.seqAt, c.seq = c.now(), 0
	}
	c.seq++
	return fmt.Sprintf("%s-%d-%d", c.epoch, c.now()/1e6, c.seq)
}

// UsedCPUs is what each container used of late, by key.
func (c *Controller) UsedCPUs() map[string]float64 {
	out := make(map[string]float64, len(c.all))
	for _, s := range c.all {
		out[s.key] = s.obs.Used()
	}
	return out
}
