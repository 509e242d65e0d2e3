package cluster

import (
	"math"
	"math/rand/v2"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/lab/counters"
	"github.com/trimtab/trimtab/tuner/control"
)

// stepsPerSecond of a job at rate 1. The tables tell ratios alone; what the daemon decides
// depends on it by how long windows of whole steps are.
const stepsPerSecond = 5

// container is a job with the counters that the kernel would keep of it: a trainer that waits for
// its loaders and its device, and a page cache below its memory limit.
type container struct {
	control.Container
	*Running
	ownGB, setGB float64 // its owner's limit; what it reads each epoch
	cachedGB     float64 // of the set
	fillGB       float64 // by so much the cache grows each second
	seenGB       float64 // what was cached at the latest tick
	ageS         float64
	noise, steps float64
	threads      []probes.Thread // the trainer first
	cgroup       probes.Cgroup
	block        probes.Block
	ticks        probes.Ticks
}

// start makes its threads.
func (c *container) start(loaders int, nowNs int64) {
	base := int32(1000 * (c.Job.ID + 1))
	for i := range int32(loaders + 1) {
		t := probes.Thread{TID: base + i, TGID: base + i, PPID: base, StartNs: uint64(base + i), Comm: "python3", SinceNs: nowNs, AtNs: nowNs}
		if i == 0 {
			t.PPID = 1
		}
		c.threads = append(c.threads, t)
	}
	c.ticks = probes.Ticks{Source: "torch.backward", TGID: base}
	c.cgroup = probes.Cgroup{AtNs: nowNs, HasPSI: true, Throttling: []probes.Throttling{{}}}
}

func (c *container) quota() float64 {
	cpus, _ := c.Now[runtime.KnobCPUQuota].CPUs()
	return cpus
}

func (c *container) limitGB() float64 {
	bytes, _ := c.Now[runtime.KnobMemoryLimit].Int()
	return float64(bytes) / gib
}

// set writes a knob; one that has its owner's value again has no original.
func (c *container) set(k runtime.Knob, to runtime.Value, epochS float64) {
	now, original := c.Now.Clone(), runtime.Values{}
	for knob, v := range c.Original {
		original[knob] = v
	}
	if _, changed := original[k]; !changed {
		original[k] = now[k]
	}
	if now[k] = to; to == original[k] {
		delete(original, k)
	}
	c.Now, c.Original = now, original
	if k == runtime.KnobMemoryLimit {
		c.cachedGB = min(c.cachedGB, c.limitGB())
		if c.fillGB = 0; c.cachedGB < min(c.limitGB(), c.setGB) {
			c.fillGB = (c.setGB - c.cachedGB) / epochS
		}
	}
}

// advance counts so many seconds at what it has. Its rate is the curve's, with noise of 2 % in
// what is measured of it.
func (c *container) advance(dt float64, nowNs int64, epochS float64, draw *rand.Rand) {
	c.ageS += dt
	c.noise = 0.8*c.noise + 0.012*draw.NormFloat64()
	rate := c.on(c.Have, c.MemoryGB) * math.Exp(c.noise)
	c.read(dt, epochS)
	c.cpu(dt)
	c.steps += rate * stepsPerSecond * dt
	whole := uint64(c.steps) - c.ticks.Count
	if whole > 0 {
		c.ticks.Count, c.ticks.LastNs = uint64(c.steps), nowNs-int64((c.steps-math.Floor(c.steps))/(rate*stepsPerSecond)*1e9)
	}
	c.cgroup.AtNs = nowNs
	c.spend(dt, nowNs, rate, whole)
}

// read is what comes from the disk: what its cache does not hold, for the second time from its
// second epoch on. It fills the cache as far as the limit lets it.
func (c *container) read(dt, epochS float64) {
	missing := (c.setGB - c.cachedGB) / epochS
	if c.fillGB > 0 {
		missing = c.fillGB
		if c.cachedGB += c.fillGB * dt; c.cachedGB >= min(c.limitGB(), c.setGB) {
			c.cachedGB, c.fillGB = min(c.limitGB(), c.setGB), 0
		}
	}
	bytes := uint64(max(0, missing) * dt * gib)
	if c.ageS > epochS {
		c.cgroup.RefaultFile += bytes / 4096
	}
	c.block.Reads += bytes / 65536
	c.block.ReadBytes += bytes
	c.cgroup.File, c.cgroup.MemoryBytes = uint64(c.cachedGB*gib), uint64(c.cachedGB*gib)
	c.cgroup.MemoryLimit, _ = c.Now[runtime.KnobMemoryLimit].Int()
}

// cpu counts use, pressure, and the periods of a quota that stops it.
func (c *container) cpu(dt float64) {
	c.cgroup.CPUUsageNs += uint64(c.Have * dt * 1e9)
	if short := 1 - c.Have/c.want(c.MemoryGB); short > 1e-6 {
		c.cgroup.CPU.SomeUs += uint64(1e6 * dt * short)
	}
	t := c.cgroup.Throttling[0]
	t.QuotaUs, t.PeriodUs = int64(c.quota()*runtime.DefaultPeriodUs), runtime.DefaultPeriodUs
	t.Periods += uint64(math.Round(10 * dt))
	if c.stopped() {
		t.Throttled += uint64(math.Round(9 * dt))
	}
	c.cgroup.Throttling = []probes.Throttling{t}
}

// stopped: its quota keeps it from CPUs that it wants.
func (c *container) stopped() bool {
	return c.quota() <= c.Have+1e-6 && c.want(c.MemoryGB) > c.Have*1.02
}

// spend splits the time of each thread. The trainer computes, waits for its device, and then for
// the loaders; these share the rest of the CPUs.
func (c *container) spend(dt float64, nowNs int64, rate float64, steps uint64) {
	// What they want of CPUs and do not get they stand runnable or throttled for; with all that
	// they want they wait for the disk as far as a cache would make the job faster.
	best := c.Curve.Most(math.Inf(1))
	stall, missing := probes.StateQueued, c.want(c.MemoryGB)-c.Have
	if c.stopped() {
		stall = probes.StateThrottled
	}
	blocked := 0.0
	if missing < 1e-6 {
		blocked = 0.9 * (1 - min(1, rate/best))
	}
	loaders := float64(len(c.threads) - 1)
	trainer := min(0.1*c.Have, 0.1)
	frozen := trainer * missing / c.Have
	if c.stopped() { // a quota that is used up stops all threads at once
		frozen = missing / c.want(c.MemoryGB)
	}
	for i := range c.threads {
		t := &c.threads[i]
		left := dt
		waker := c.threads[0].TID
		if i == 0 {
			waker = c.threads[1].TID
			counters.Spend(t, &left, probes.StateRun, trainer*dt)
			counters.Spend(t, &left, probes.StateTimer, 0.9*rate/best*dt)
			counters.Spend(t, &left, stall, frozen*dt)
			t.Count[probes.StateTimer] += steps
			t.LastNs[probes.StateTimer] = nowNs
		} else {
			counters.Spend(t, &left, probes.StateRun, (c.Have-trainer)/loaders*dt)
			counters.Spend(t, &left, stall, missing/loaders*dt)
			counters.Spend(t, &left, probes.StateBlockIO, blocked*left)
		}
		counters.Wait(t, nowNs, waker, steps) // for the other side
	}
}

// sample is what a probe would read; it shares nothing with what is counted on.
func (c *container) sample() probes.Sample {
	cgroup := c.cgroup
	k := &probes.Kernel{Threads: counters.Read(c.threads), Ticks: []probes.Ticks{c.ticks}, Block: c.block}
	return probes.Sample{Container: c.Key(), Cgroup: &cgroup, Kernel: k}
}
