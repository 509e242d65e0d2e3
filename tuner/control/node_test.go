package control

import (
	"math"
	"math/rand/v2"
	"sort"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/lab/counters"
)

// node is a small simulated machine: each job follows the step model of
// docs/decisions.md with measured-like noise, and its threads' counters are made from it.
type node struct {
	cpus  int
	nowNs int64
	jobs  []*simJob
	busy  uint64
	rng   *rand.Rand
	// memory of the machine; 0: not read
	memTotal, memAvail uint64
	// weighted: CPUs are shared by weight, as kernels do; else evenly.
	weighted bool
	// steal is the share of the machine's time that the hypervisor takes; stolen is what it took.
	steal  float64
	stolen uint64
	host   float64 // CPUs that processes outside of all containers take
	// results of the latest decision, for the next tick
	results []Result
}

// simJob is a DataLoader job: a trainer, its queue feeder and W loaders.
type simJob struct {
	c                      Container
	trainerCPU, loaderCPU  float64 // seconds a step
	device                 float64
	loaders                int
	spin                   float64 // instead of a job: a neighbour that burns so many CPUs
	threads                []probes.Thread
	ticks                  probes.Ticks
	cgroup                 probes.Cgroup
	noise, carry           float64
	lastRate, lastCPUsUsed float64
	steps                  uint64 // in the latest second
	noPSI                  bool   // its pressure cannot be read
	patient                bool   // it never waits for a CPU
	// yield is bytes that a program without steps reads for each CPU second; 0: it spins.
	yield float64
	// stopped: somebody stopped all of its threads, which sleep in stoppedIn; or its first process
	// alone, and its loaders wait for that.
	stopped, loadersWait bool
	stoppedIn            probes.State

	files  *fileSet
	block  probes.Block
	bursts *bursts // instead of all of these
}

// fileSet is what a job reads round and round: nothing of it stays in a cache that cannot hold
// all of it.
type fileSet struct {
	bytes, perStep, disk float64 // in all; a step; what the disk gives a second
	cached, read         float64 // of them now; since the job's start
	noHits               bool    // its limit's are not counted, as on v1 where swap is forbidden
	pressure             bool    // that it waits for the disk is told
}

// speed is the most steps a second that reading allows, and counts what a second of it did.
func (f *fileSet) speed(j *simJob, wanted float64) float64 {
	room := float64(j.limit()) - float64(j.cgroup.Anon)
	if j.limit() == 0 {
		room = f.bytes
	}
	if f.cached = min(f.cached, room); f.cached >= f.bytes-1 {
		return wanted
	}
	rate := min(wanted, f.disk/f.perStep)
	bytes := rate * f.perStep
	again := max(0, min(bytes, f.read+bytes-f.bytes)) // what the first epoch reads was never evicted
	f.read += bytes
	full := f.cached+bytes > room && room < f.bytes
	if full {
		f.cached = room
	} else {
		f.cached = min(f.bytes, f.cached+bytes)
	}
	j.cgroup.RefaultFile += uint64(again / 4096)
	if f.pressure {
		j.cgroup.IO.SomeUs += uint64(1e6 * (1 - rate/wanted))
	}
	if full && !f.noHits {
		j.cgroup.EventsMax += uint64(bytes / 4096)
	}
	j.block.Reads += uint64(bytes / 65536)
	j.block.ReadBytes += uint64(bytes)
	j.block.ReadNs += uint64(1e9 * (1 - rate/wanted))
	return rate
}

func (j *simJob) limit() int64 {
	n, _ := j.c.Now[runtime.KnobMemoryLimit].Int()
	return n
}

const quotaPeriod = runtime.DefaultPeriodUs

func newNode(cpus int) *node {
	return &node{cpus: cpus, nowNs: 1000 * second, rng: rand.New(rand.NewPCG(1, 2)), weighted: true}
}

func tune() policies.Enrolment {
	return policies.Enrolment{Mode: policies.ModeTune, EnrolledBy: "label", Knobs: []string{"cpu"}, Importance: 5}
}

// addJob adds a training job under a quota (0: none).
func (n *node) addJob(name string, quota float64, e policies.Enrolment) *simJob {
	j := &simJob{trainerCPU: 0.020, loaderCPU: 0.050, device: 0.040, loaders: 2}
	j.c = Container{Container: runtime.Container{ID: runtime.ID{Engine: "docker", Container: name, Boot: "b", StartTick: 1}, Name: name, State: runtime.StateRunning},
		Enrolment: e, Watched: true, Now: runtime.Values{runtime.KnobCPUWeight: "1024", runtime.KnobCPUQuota: "max 100000"}}
	if quota > 0 {
		j.c.Now[runtime.KnobCPUQuota] = runtime.QuotaFromCPUs(quota, quotaPeriod)
	}
	base := int32(1000 * (len(n.jobs) + 1))
	add := func(tid, tgid, ppid int32) {
		j.threads = append(j.threads, probes.Thread{TID: tid, TGID: tgid, PPID: ppid, StartNs: uint64(tid), Comm: "python3", SinceNs: n.nowNs, AtNs: n.nowNs})
	}
	add(base, base, 1)
	add(base+1, base, 1) // the queue's feeder
	for i := range j.loaders {
		add(base+10+int32(i), base+10+int32(i), base)
	}
	j.ticks = probes.Ticks{Source: "torch.backward", TGID: base}
	n.jobs = append(n.jobs, j)
	return j
}

// addProgram adds an enrolled program whose steps nobody counts: it computes on so many CPUs,
// and reads so many bytes for each CPU second.
func (n *node) addProgram(name string, quota, cpus, yield float64) *simJob {
	j := n.addJob(name, quota, tune())
	j.spin, j.yield, j.ticks = cpus, yield, probes.Ticks{}
	first := j.threads[0]
	j.threads = nil
	for i := range int(math.Ceil(cpus)) {
		t := first
		t.TID += int32(i)
		j.threads = append(j.threads, t)
	}
	return j
}

// addSpinner adds a neighbour that burns CPUs and is not enrolled.
func (n *node) addSpinner(name string, cpus float64) *simJob {
	j := n.addJob(name, 0, policies.Enrolment{Mode: policies.ModeOff, WhyNot: "no label"})
	j.spin, j.c.Watched = cpus, false
	return j
}

func (j *simJob) cpuPerStep() float64 { return j.trainerCPU + j.loaderCPU }

// ideal is seconds a step with CPU in plenty.
func (j *simJob) ideal() float64 {
	return max(j.trainerCPU+j.device, j.loaderCPU/float64(j.loaders))
}

// knee is the CPUs beyond which more buy nothing.
func (j *simJob) knee() float64 { return j.cpuPerStep() / j.ideal() }

// tick advances by a second and returns the core's input. CPU is shared fairly
// among those that want more than their part.
func (n *node) tick() Input {
	n.nowNs += second
	grants := n.share()
	var used float64
	in := Input{UnixNs: n.nowNs}
	for i, j := range n.jobs {
		cpus := j.advance(n, grants[i])
		used += cpus
		in.Containers = append(in.Containers, j.c)
		s := probes.Sample{Container: j.c.Key(), Cgroup: ptr(j.cgroup)}
		if j.c.Watched {
			s.Kernel = &probes.Kernel{Threads: counters.Read(j.threads), Block: j.block}
			if j.ticks.Source != "" {
				s.Kernel.Ticks = []probes.Ticks{j.ticks}
			}
		}
		in.Samples = append(in.Samples, s)
	}
	n.busy += uint64((used + n.host) * 1e9)
	n.stolen += uint64(n.steal * float64(n.cpus) * 1e9)
	in.Host = probes.Host{AtNs: n.nowNs, CPUs: n.cpus, BusyNs: n.busy, IdleNs: uint64(n.nowNs-1000*second)*uint64(n.cpus) - n.busy - n.stolen, StealNs: n.stolen, MemTotal: n.memTotal, MemAvail: n.memAvail}
	sort.Slice(in.Containers, func(a, b int) bool { return in.Containers[a].Key() < in.Containers[b].Key() })
	sort.Slice(in.Samples, func(a, b int) bool { return in.Samples[a].Container < in.Samples[b].Container })
	return in
}

func ptr[T any](v T) *T { return &v }

// demand is the CPUs a job could use, its quota included.
func (j *simJob) demand() float64 {
	want := j.knee()
	if j.spin > 0 {
		want = j.spin
	}
	if j.stopped {
		want = 0
	}
	if quota, ok := j.c.Now[runtime.KnobCPUQuota].CPUs(); ok {
		want = min(want, quota)
	}
	if j.bursts != nil {
		return j.bursts.mean(want)
	}
	return want
}

// share is max-min fair, by weight where the node is weighted.
func (n *node) share() []float64 {
	grants := make([]float64, len(n.jobs))
	weight := func(j *simJob) float64 {
		if w, ok := j.c.Now[runtime.KnobCPUWeight].Int(); ok && n.weighted {
			return float64(w)
		}
		return 1
	}
	left, open := float64(n.cpus)-n.host, 0.0
	for _, j := range n.jobs {
		open += weight(j)
	}
	for open > 0 && left > 1e-9 {
		part, before := left/open, open
		open = 0
		for i, j := range n.jobs {
			want := j.demand() - grants[i]
			if want <= 1e-12 {
				continue
			}
			give := min(part*weight(j), want)
			grants[i] += give
			left -= give
			if want > give+1e-12 {
				open += weight(j)
			}
		}
		if open == before && part < 1e-9 {
			break
		}
	}
	return grants
}

// advance makes one second of counters from so many CPUs.
func (j *simJob) advance(n *node, cpus float64) float64 {
	j.cgroup.AtNs = n.nowNs
	j.cgroup.HasPSI, j.cgroup.MemoryLimit = !j.noPSI, -1
	if j.stopped {
		for i := range j.threads {
			t, in := &j.threads[i], j.stoppedIn
			if j.loadersWait && t.TGID != j.threads[0].TGID {
				in = probes.StateFutex
			}
			t.Ns[in] += uint64(n.nowNs - t.AtNs)
			t.AtNs = n.nowNs
		}
		j.cgroup.CPUUsageNs += 1e6 // a shell beside it
		return 0.001
	}
	if j.bursts != nil {
		return j.bursts.advance(j, n, cpus)
	}
	if want := j.wanted(); want > cpus+1e-6 && !j.patient {
		j.cgroup.CPU.SomeUs += uint64(1e6 * (1 - cpus/want))
	}
	j.cgroup.CPUUsageNs += uint64(cpus * 1e9)
	j.throttle(cpus)
	if j.spin > 0 {
		j.lastCPUsUsed = cpus
		j.run(n, cpus)
		return cpus
	}
	// AR(1) noise, lag-1 0.8, CV 2 %.
	j.noise = 0.8*j.noise + 0.012*n.rng.NormFloat64()
	rate := min(cpus/j.cpuPerStep(), 1/j.ideal()) * math.Exp(j.noise)
	if j.files != nil {
		rate = j.files.speed(j, rate)
		j.cgroup.MemoryBytes, j.cgroup.MemoryLimit = j.cgroup.Anon+uint64(j.files.cached), j.limit()
		j.cgroup.CPUUsageNs -= uint64((cpus - rate*j.cpuPerStep()) * 1e9)
		cpus = rate * j.cpuPerStep()
	}
	j.lastRate, j.lastCPUsUsed = rate, cpus
	exact := rate + j.carry
	steps := math.Floor(exact)
	j.carry = exact - steps
	j.steps = uint64(steps)
	j.ticks.Count += j.steps
	j.ticks.LastNs = n.nowNs - int64(j.carry/rate*1e9)
	j.fillThreads(n, rate, cpus)
	return cpus
}

// run splits the second of the threads of a program that only computes.
func (j *simJob) run(n *node, cpus float64) {
	j.noise = 0.8*j.noise + 0.012*n.rng.NormFloat64()
	stall := probes.StateQueued
	if quota := j.quota(); quota > 0 && quota <= cpus+1e-6 {
		stall = probes.StateThrottled
	}
	for i := range j.threads {
		t := &j.threads[i]
		busy, wants := cpus/float64(len(j.threads)), j.spin/float64(len(j.threads))
		t.AtNs = n.nowNs
		t.Ns[probes.StateRun] += uint64(1e9 * busy)
		t.Ns[stall] += uint64(1e9 * max(0, wants-busy))
		var sum uint64
		for _, ns := range t.Ns {
			sum += ns
		}
		t.Ns[probes.StateFutex] += uint64(t.AtNs-t.SinceNs) - sum
		t.IOBytes += uint64(busy * j.yield * math.Exp(j.noise))
	}
}

// throttle counts the periods of its quota: it is stopped in nearly all in which the quota binds.
func (j *simJob) throttle(cpus float64) {
	quota, ok := j.c.Now[runtime.KnobCPUQuota].CPUs()
	if len(j.cgroup.Throttling) == 0 {
		j.cgroup.Throttling = []probes.Throttling{{}}
	}
	t := append([]probes.Throttling(nil), j.cgroup.Throttling...)
	t[0].QuotaUs, t[0].PeriodUs = -1, quotaPeriod
	if ok {
		t[0].QuotaUs = int64(quota * quotaPeriod)
		t[0].Periods += 10
		if quota <= cpus+1e-6 && j.wanted() > quota*1.02 {
			t[0].Throttled += 9
		}
	}
	j.cgroup.Throttling = t
}

// wanted is the demand without the quota.
func (j *simJob) wanted() float64 {
	if j.spin > 0 {
		return j.spin
	}
	return j.knee()
}

// fillThreads splits the second of each thread: what is neither CPU nor device
// time is out of quota where a quota binds, else behind others.
func (j *simJob) fillThreads(n *node, rate, cpus float64) {
	starved := cpus < j.knee()-1e-6
	stall := probes.StateQueued
	if quota, ok := j.c.Now[runtime.KnobCPUQuota].CPUs(); ok && quota <= cpus+1e-6 {
		stall = probes.StateThrottled
	}
	if j.files != nil {
		stall = probes.StateBlockIO
	}
	trainer := &j.threads[0]
	left := 1.0
	counters.Spend(trainer, &left, probes.StateRun, rate*j.trainerCPU)
	counters.Spend(trainer, &left, probes.StateTimer, rate*j.device)
	trainer.Count[probes.StateTimer] += j.steps
	trainer.LastNs[probes.StateTimer] = n.nowNs
	if starved {
		counters.Spend(trainer, &left, stall, 0.3*left)
	}
	counters.Wait(trainer, n.nowNs, j.threads[2].TID, j.steps)
	counters.Wait(&j.threads[1], n.nowNs, trainer.TID, j.steps)
	for i := range j.loaders {
		left = 1
		t := &j.threads[2+i]
		counters.Spend(t, &left, probes.StateRun, rate*j.loaderCPU/float64(j.loaders))
		if starved {
			counters.Spend(t, &left, stall, 0.9*left)
		}
		counters.Wait(t, n.nowNs, trainer.TID, j.steps)
	}
}

// apply carries out a decision at once, as the actuator would, and returns its results.
func (n *node) apply(d Decision) []Result {
	var out []Result
	set := func(o Order, back bool) {
		for _, ch := range o.Changes {
			for _, j := range n.jobs {
				if j.c.Key() != ch.Key || o.DryRun {
					continue
				}
				to := ch.To
				if back {
					to = ch.From
				}
				now := j.c.Now.Clone()
				if j.c.Original == nil {
					j.c.Original = runtime.Values{}
				}
				original := j.c.Original.Clone()
				if _, ok := original[ch.Knob]; !ok {
					original[ch.Knob] = now[ch.Knob]
				}
				now[ch.Knob] = to
				if to == original[ch.Knob] {
					delete(original, ch.Knob)
				}
				j.c.Now, j.c.Original = now, original
			}
		}
	}
	for _, o := range d.Apply {
		set(o, false)
		if !o.DryRun {
			out = append(out, Result{Kind: ResultApply, Plan: o.Plan, OK: true})
		}
	}
	for _, o := range d.Rollback {
		set(o, true)
		out = append(out, Result{Kind: ResultRollback, Plan: o.Plan, OK: true})
	}
	return out
}
