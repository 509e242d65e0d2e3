package cluster

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/policies/lend"
	"github.com/trimtab/trimtab/policies/share"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/control"
)

// Daemon divides a server by the daemon's own control step, which reads counters each second and
// knows no curve. Each job begins with its proportional share as quota and limit, and a weight by
// its GPUs, as an owner would set them who asks for that share. Writes stand at once.
func Daemon(epochS float64) Mechanism {
	return Mechanism{Name: "trimtab", New: func(noise *rand.Rand) Strategy {
		all := func(k *policies.Constants) []policies.Policy {
			return []policies.Policy{lend.New(k), knee.New(k), share.New(k)}
		}
		return &daemon{epochS: epochS, noise: noise, control: control.New(control.Defaults(), all, "lab"), nowNs: startNs}
	}}
}

const (
	second  = int64(1e9)
	startNs = 1000 * second // of a server's clock
	// restS is how long nothing is decided until a server rests: its clock stands still until a
	// job comes or goes. It is longer than the daemon waits for anything that it has begun.
	restS = 90
	gib   = 1 << 30
)

// daemon is one server with the control step on it.
type daemon struct {
	epochS  float64
	noise   *rand.Rand
	control *control.Controller
	jobs    []*container // sorted by ID, as jobs are
	results []control.Result
	nowNs   int64 // CLOCK_MONOTONIC of the server; while it rests none passes
	busyNs  uint64
	atS     float64 // the simulation's time up to which the counters are advanced
	tickS   float64 // of the next tick; 0: it rests
	movedS  float64 // when anything was decided or came last
}

// Divide implements Strategy.
func (d *daemon) Divide(now float64, s Server, jobs []*Running) float64 {
	if d.tickS == 0 {
		d.atS, d.tickS = now, now+1
	}
	d.advance(now - d.atS)
	d.atS = now
	if d.admit(s, jobs) {
		d.movedS = now
	}
	if now >= d.tickS-1e-9 {
		d.tickS = now + 1
		if d.step(s) {
			d.movedS = now
		}
	}
	d.share(s)
	if len(jobs) == 0 || now-d.movedS > restS {
		d.tickS = 0
	}
	return d.tickS
}

// admit takes in the jobs that run now.
func (d *daemon) admit(s Server, jobs []*Running) (moved bool) {
	before := d.jobs
	d.jobs = make([]*container, len(jobs))
	for i, r := range jobs {
		at := slices.IndexFunc(before, func(c *container) bool { return c.Job.ID == r.ID })
		if at >= 0 {
			d.jobs[i] = before[at]
			continue
		}
		d.jobs[i], moved = newContainer(r, s, d.nowNs), true
	}
	return moved || len(before) != len(jobs)
}

// advance counts what happened since the last call.
func (d *daemon) advance(dt float64) {
	if dt <= 0 {
		return
	}
	d.nowNs += int64(math.Round(dt * 1e9))
	for _, c := range d.jobs {
		d.busyNs += uint64(c.Have * dt * 1e9)
		c.advance(dt, d.nowNs, d.epochS, d.noise)
	}
}

// step is one tick of the daemon; it reports whether anything moves.
func (d *daemon) step(s Server) (moved bool) {
	total := uint64(s.MemoryGB * gib)
	in := control.Input{UnixNs: d.nowNs, Results: d.results, Host: probes.Host{AtNs: d.nowNs, CPUs: int(s.CPUs), BusyNs: d.busyNs,
		IdleNs: uint64(d.nowNs-startNs)*uint64(s.CPUs) - d.busyNs, MemTotal: total, MemAvail: total}} // page cache is available
	for _, c := range d.jobs {
		in.Containers, in.Samples = append(in.Containers, c.Container), append(in.Samples, c.sample())
		// Caches that take from each other for good stand still, though each is being filled.
		moved = moved || c.fillGB > 0 && math.Abs(c.cachedGB-c.seenGB) > 1e-4*c.setGB
		c.seenGB = c.cachedGB
	}
	decided := d.control.Step(in)
	d.results = nil
	for _, o := range decided.Apply {
		d.write(o, control.ResultApply, func(ch policies.Change) runtime.Value { return ch.To })
	}
	for _, o := range decided.Rollback {
		d.write(o, control.ResultRollback, func(ch policies.Change) runtime.Value { return ch.From })
	}
	return moved || len(d.results) > 0 || len(d.control.Open()) > 0
}

// write does what an order asks for, as the actuator would, for the next tick to hear of.
func (d *daemon) write(o control.Order, kind control.ResultKind, to func(policies.Change) runtime.Value) {
	for _, ch := range o.Changes {
		if i := slices.IndexFunc(d.jobs, func(c *container) bool { return c.Key() == ch.Key }); i >= 0 {
			d.jobs[i].set(ch.Knob, to(ch), d.epochS)
		}
	}
	d.results = append(d.results, control.Result{Kind: kind, Plan: o.Plan, OK: true})
}

// share is the kernel's: caches give way down to their owners' limits where all do not fit, and
// CPUs go by weight up to each quota.
func (d *daemon) share(s Server) {
	var cached, above float64
	for _, c := range d.jobs {
		cached, above = cached+c.cachedGB, above+max(0, c.cachedGB-c.ownGB)
	}
	claims := make([]policies.Claim, len(d.jobs))
	for i, c := range d.jobs {
		if over := cached - s.MemoryGB; over > 0 && c.cachedGB > c.ownGB {
			c.cachedGB -= over * (c.cachedGB - c.ownGB) / above
		}
		c.MemoryGB = c.cachedGB
		weight, _ := c.Now[runtime.KnobCPUWeight].Int()
		claims[i] = policies.Claim{Weight: float64(weight), Quota: c.quota(), Demand: c.want(c.MemoryGB)}
	}
	for i, cpus := range policies.Shares(s.CPUs, claims) {
		d.jobs[i].Have = cpus
	}
}

// newContainer is a job's, with what its owner asked for.
func newContainer(r *Running, s Server, nowNs int64) *container {
	cpus, memory := s.share(r.GPUs)
	name := fmt.Sprintf("job-%06d", r.ID)
	c := &container{Running: r, ownGB: memory, setGB: float64(r.GPUs) * r.Curve.Cached()}
	c.Container = control.Container{
		Container: runtime.Container{ID: runtime.ID{Engine: "docker", Container: name, Boot: "lab", StartTick: 1}, Name: name, State: runtime.StateRunning,
			Cgroup: runtime.Cgroup{Mode: runtime.CgroupV2}},
		Enrolment: policies.Enrolment{Mode: policies.ModeTune, EnrolledBy: "label", Knobs: []string{"cpu", "memory"}, Importance: 5},
		Watched:   true,
		Now: runtime.Values{runtime.KnobCPUWeight: runtime.IntValue(int64(100 * r.GPUs)), runtime.KnobCPUQuota: runtime.QuotaFromCPUs(cpus, runtime.DefaultPeriodUs),
			runtime.KnobMemoryLimit: runtime.IntValue(int64(memory * gib))},
	}
	c.cachedGB = min(c.ownGB, c.setGB)
	most, _ := r.bestCase()
	c.start(int(math.Ceil(min(most, s.CPUs))), nowNs)
	return c
}
