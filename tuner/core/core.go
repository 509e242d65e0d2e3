package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/arbiter"
	"github.com/trimtab/trimtab/tuner/fingerprint"
	"github.com/trimtab/trimtab/tuner/idle"
	"github.com/trimtab/trimtab/tuner/response"
	"github.com/trimtab/trimtab/tuner/trial"
	"github.com/trimtab/trimtab/tuner/verdict"
	"github.com/trimtab/trimtab/tuner/view"
	"github.com/trimtab/trimtab/tuner/window"
)

// keepObs is how many rate observations a container remembers, keepTrials how
// many ended trials.
const (
	keepObs    = 300
	keepTrials = 10
)

// Core holds the state between ticks. It is used from one goroutine.
type Core struct {
	cfg    Config
	policy policies.Policy
	jobs   map[string]*job
	sorted []string // keys of jobs; nil: to be made
	// offered is the room for what the policy is shown each tick.
	offered []policies.Job
	trials  map[string]*openTrial // by plan
	// unanswered are orders whose trial ended before the actuator answered.
	unanswered map[string]Order
	seq        int // of plans in the tick at seqAt
	seqAt      int64
	epoch      string // distinguishes plan IDs of different starts
	totals     totals
	last       Input
	idle       *idle.Tracker
	standing   map[string]standing // kept changes that took memory, by plan
	book       *fingerprint.Book
	node       policies.Node
	// outside is the CPU use of everything but containers, from tick to tick.
	outside   []usage
	prevHost  probes.Host
	tickNs    int64        // since the tick before
	deal      arbiter.Plan // the latest allocation of the node
	releasing int          // ticks in a row in which it said that weights must go back
	wantedNs  int64        // since when something could be given, and is not yet; 0: nothing
	stolen    stolen
	diskUse   map[string]float64 // bytes a second of all containers, by device
	onDevice  map[string]int64   // when anybody was last on a device that some container was granted, by UUID
	// changeTimes of the last minute, for the node's rate limit.
	changeTimes []int64
}

// New returns a core. epoch is any text that differs between starts (it becomes
// part of plan IDs).
func New(cfg Config, policy policies.Policy, epoch string) *Core {
	return &Core{cfg: cfg, policy: policy, jobs: map[string]*job{}, trials: map[string]*openTrial{}, unanswered: map[string]Order{}, epoch: epoch, totals: newTotals(), idle: idle.New(), standing: map[string]standing{}, book: fingerprint.NewBook()}
}

// SetConfig replaces the configuration, from the next tick on.
func (c *Core) SetConfig(cfg Config) { c.cfg = cfg }

// job is what the core remembers of one container.
type job struct {
	key          string // of c
	c            Container
	differ       window.Differ
	decided      decided
	window       window.Builder // until enough ticks are in
	rate         window.Builder // until two steps are in: one observation
	paused       bool           // the latest observation held a pause: the next one begins in it
	held         *trial.Obs     // the observation with the latest pause, until the next one tells what it was
	long         window.Builder // since the latest change of resources, for the cost
	reading      window.Reading // of the latest closed window
	perStep      window.PerStep // confirmed ticks per step, by source
	pattern      patternSeen
	launchedNs   int64            // latest use of a device
	gpuNs        map[string]int64 // the same of each, by UUID
	verdict      policies.Verdict
	agree        int              // closed windows in a row with this class and cause; those in which nothing was short do not count
	short        policies.Verdict // the latest of a window in which something was short
	shortTime    policies.Breakdown
	shorts       int    // how often it was that one, with few windows between
	shortAt      uint64 // the window that it was of
	shortNs      int64  // its end
	announced    string // class and cause of the latest verdict record
	windows      uint64
	parts        [policies.NumParts]int64
	obs          []trial.Obs // of one source
	pace         []trial.Obs // these, and those that are no evidence for what was stolen: what people are shown
	source       string
	confirmed    bool // ticks per step, for this source
	denied       int  // windows in a row in which no other source agreed
	usage        []usage
	changedNs    int64   // latest change of its resources, by anybody
	cooledNs     int64   // no plan before this instant
	spares       string  // key of a neighbour that lost by its latest quota alone; "": none
	workNs       int64   // when a change of its work last ended its cool-down; 0: never
	otherSinceNs int64   // the latest instant from which on it did other work than before; 0: none is known
	excusedNs    int64   // when a trial last ended because its work was another; 0: never
	baseline     float64 // rate before the first change, in source
	baseSource   string
	correction   float64
	failed       map[runtime.Knob][]condition // what it depended on when changes of this knob failed, the latest last
	would        policies.Change              // the latest dry run, not to be told again
	trials       []view.Trial
	advice       []string
	whyNot       string
	entitled     float64
	obtainable   float64 // CPUs, beside what others use
	memoryState
	like     likeness
	response response.Learner
	curve    policies.Curve // of response, as learnt last
	// unsteady counts the windows since the last one that can be planned on.
	unsteady int
	needs    []float64 // CPUs, by each of the latest slices alone; at the present resources
	works    []float64 // the same, had nobody kept it waiting: no weight or neighbour changes these
	needNs   int64     // the end of the latest of them
	// dealtAgainNs: no weight of it is dealt before; releases: how often in a row it went back.
	dealtAgainNs int64
	releases     int
	alone        bool // a plan that it shared failed: it is tried by itself
	sightState
}

// usage is a container's CPU use from tick to tick, for its neighbours' trials.
type usage struct {
	endNs   int64
	cpus    float64
	waiting float64 // PSI: share of time with some task waiting for a CPU
	psi     bool
}

// Step advances by one tick.
func (c *Core) Step(in Input) Decision {
	var d Decision
	if c.last.Host.AtNs > 0 {
		c.tickNs = in.Host.AtNs - c.last.Host.AtNs
	}
	c.stolen.note(c.last.Host, in.Host)
	c.last = in
	c.admit(in, &d)
	c.devices(in)
	c.noteSights()
	c.measure(in, &d)
	c.measureOutside(in.Host)
	c.balance()
	c.balanceMemory()
	c.results(in, &d)
	c.overruled(&d)
	c.judge(in, &d)
	c.escape(&d)
	c.returnSights(&d)
	c.propose(in, &d)
	return d
}

// now is the tick's time, CLOCK_MONOTONIC ns.
func (c *Core) now() int64 { return c.last.Host.AtNs }

// admit takes in the containers of this tick and lets go of those that ended.
func (c *Core) admit(in Input, d *Decision) {
	present := make(map[string]bool, len(in.Containers))
	for i := range in.Containers {
		key := in.Containers[i].Key()
		present[key] = true
		j := c.jobs[key]
		ct := withSights(in.Containers[i])
		if j == nil {
			j = &job{key: key, changedNs: c.now(), correction: 1, unsteady: curveKept, failed: map[runtime.Knob][]condition{}}
			c.jobs[key], c.sorted = j, nil
		} else if !sameResources(j.c.Now, ct.Now) {
			j.resourcesChanged(c.now())
			if k := setByOthers(j.c, ct); k != "" {
				c.disturbed(j, k, d)
			}
		}
		j.c = ct
	}
	for _, key := range c.keys() {
		if present[key] {
			continue
		}
		for _, t := range c.trialsOf(key) {
			c.abandon(t, "the container ended", d)
		}
		delete(c.jobs, key)
		c.sorted = nil
	}
}

// close takes in a full window.
func (c *Core) close(j *job, r window.Reading, d *Decision) {
	c.neighbourhood(j, &r)
	c.learnPattern(j, r)
	v := verdict.Judge(c.thresholds(), r)
	j.settle(v, r)
	j.confirm(r)
	r.Rate.Steps = j.confirmed && r.Rate.Source == j.source
	j.reading, j.verdict = r, v
	j.windows++
	c.learnCurve(j, r)
	c.learnPaging(j, r)
	for p := range policies.NumParts {
		j.parts[p] += r.Breakdown.Ns[p]
	}
	c.totals.window(j.c.Enrolment.Team, v, r.Breakdown)
	c.teach(j, r)
	if name := string(v.Class) + "/" + string(v.Cause); j.agree == c.cfg.Agree && name != j.announced {
		j.announced = name
		d.Records = append(d.Records, c.record(view.RecordVerdict, j, func(rec *view.Record) {
			rec.Text = verdictText(v)
		}))
	}
}

func verdictText(v policies.Verdict) string {
	name := string(v.Class)
	if v.Cause != "" {
		name += ": " + string(v.Cause)
	}
	return name + "; " + v.Why
}

// record starts a history record about a container.
func (c *Core) record(kind view.RecordKind, j *job, fill func(*view.Record)) view.Record {
	rec := view.Record{UnixNs: c.last.UnixNs, Kind: kind, Key: j.key, Name: j.c.Name, Team: j.c.Enrolment.Team}
	fill(&rec)
	return rec
}

// balance computes the node's capacity and each container's entitlement.
func (c *Core) balance() {
	cpus := float64(c.last.Host.CPUs)
	c.node = policies.Node{CPUs: cpus, Reserve: c.cfg.ReserveCPUs, MaxWeight: maxShares}
	var weights float64
	for _, key := range c.keys() {
		j := c.jobs[key]
		if j.c.Enrolment.Mode != policies.ModeTune {
			c.node.OtherCPUs += j.used()
		}
		if j.active() {
			weights += j.originalWeight()
		}
		if j.c.Cgroup.Mode == runtime.CgroupV2 {
			c.node.MaxWeight = maxWeight
		}
	}
	c.node.HostCPUs, _ = meanUse(c.outside, c.now()-5*second, c.now())
	spare := c.node.HostCPUs
	for _, key := range c.keys() {
		spare += c.jobs[key].used()
	}
	spare = max(0, cpus-spare)
	claims := c.claims()
	rights, _, _ := arbiter.Entitle(c.node, claims)
	reach := arbiter.Reach(max(0, cpus-c.node.HostCPUs), claims)
	for i, key := range c.keys() {
		j := c.jobs[key]
		fair := cpus
		if weights > 0 && j.active() {
			fair = cpus * j.originalWeight() / weights
		}
		j.obtainable = max(fair, j.used()+spare, reach[i])
		j.entitled = rights[i]
	}
}

// keys are the containers, sorted; not to be changed.
func (c *Core) keys() []string {
	if c.sorted == nil {
		c.sorted = slices.Sorted(maps.Keys(c.jobs))
	}
	return c.sorted
}

// The kernel's ceilings: v1's shares and v2's weight.
const (
	maxShares = 262144
	maxWeight = 10000
)

// activeCPUs is the use from which on a container counts as a competitor.
const activeCPUs = 0.02

func (j *job) active() bool { return j.used() >= activeCPUs }

// used is the mean CPU use of the last five ticks.
func (j *job) used() float64 {
	n := min(5, len(j.usage))
	if n == 0 {
		return 0
	}
	var sum float64
	for _, u := range j.usage[len(j.usage)-n:] {
		sum += u.cpus
	}
	return sum / float64(n)
}

// original is a knob's value before trimtab touched it.
func (j *job) original(k runtime.Knob) runtime.Value {
	if v, ok := j.c.Original[k]; ok {
		return v
	}
	return j.c.Now[k]
}

// originals are all knobs before trimtab touched them; not to be written to.
func (j *job) originals() runtime.Values {
	if len(j.c.Original) == 0 && j.c.Now != nil {
		return j.c.Now
	}
	out := j.c.Now.Clone()
	if out == nil {
		out = runtime.Values{}
	}
	maps.Copy(out, j.c.Original)
	return out
}

func (j *job) originalWeight() float64 {
	if w, ok := j.original(runtime.KnobCPUWeight).Int(); ok && w > 0 {
		return float64(w)
	}
	return 1
}

// floor is the least CPU a container is to be left with: what its owner asked
// for, else its original quota (law 6).
func (j *job) floor() float64 {
	if j.c.Enrolment.CPU.Min > 0 {
		return j.c.Enrolment.CPU.Min
	}
	if quota, ok := j.original(runtime.KnobCPUQuota).CPUs(); ok {
		return quota
	}
	return 0
}

func last[T any](s []T, n int) []T {
	if len(s) > n {
		return s[len(s)-n:]
	}
	return s
}

// meanRate counts whole steps: a slice's mean reaches from tick to tick, and weighs as long.
func meanRate(obs []trial.Obs) float64 {
	var ticks, secs float64
	for _, o := range obs {
		from, to := o.Span()
		s := float64(to-from) / 1e9
		ticks += o.Rate * s
		secs += s
	}
	if secs <= 0 {
		return 0
	}
	return ticks / secs
}

// trialsOf returns the open trials that touch a container, by plan.
func (c *Core) trialsOf(key string) []*openTrial {
	var out []*openTrial
	for _, t := range c.trials {
		if t.touches(key) {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b *openTrial) int { return cmp.Compare(a.order.Plan, b.order.Plan) })
	return out
}

// planID makes the next plan's name, of the tick's time, so that a recording that
// begins in the middle of a run gives plans the names they had.
func (c *Core) planID() string {
	if c.seqAt != c.now() {
		c.seqAt, c.seq = c.now(), 0
	}
	c.seq++
	return fmt.Sprintf("%s-%d-%d", c.epoch, c.now()/1e6, c.seq)
}
